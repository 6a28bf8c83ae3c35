"""Blocks in the store: written once, read in parallel, checked before anything is believed.

A block is the gzip of a JSON array of messages (large ones as `{"ref":…}`). The first half of its name is the
SHA-256 of the stored bytes, so `sha256sum` checks it and nothing that another wrote is ever unpacked; the
second is a nonce, so that no two sealings share a name. `bytes` of the row that names it is the length of the
JSON: unpacking stops there.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import orjson

from streams import keys
from streams.buckets.base import Written
from streams.errors import Corrupt, Missing
from streams.store import Store

from .core.blocks import Block
from .core.calls import Message
from .core.shapes import LONGEST, is_message
from .values import is_named, name_of

_GZIP = 16 + zlib.MAX_WBITS


def read(store: Store, sid: str, blocks: Sequence[Block]) -> list[list[Message]]:
    """The messages of each block, as stored. Raises Missing, Corrupt, and what requests raise."""
    return store.gather([partial(_read_one, store, sid, block) for block in blocks])


def pack(messages: Sequence[bytes]) -> bytes:
    """A block's JSON, of messages that are encoded already."""
    return b"[%b]" % b",".join(messages)


def put(store: Store, sid: str, data: bytes) -> tuple[str, Written]:
    """Seal a block of this JSON; returns its name. Raises what requests raise."""
    nonce = store.clock.token()
    packed = gzip.compress(data, compresslevel=6, mtime=0)
    name = name_of(packed, nonce)
    return name, store.put_once(keys.block(sid, name), packed, if_absent=True, nonce=nonce, sole=True)


def glance(data: bytes) -> list[Any]:
    """What a block holds of which no snapshot tells; nothing where that cannot be unpacked."""
    unpacker = zlib.decompressobj(_GZIP)
    with suppress(zlib.error, orjson.JSONDecodeError):
        messages = orjson.loads(unpacker.decompress(data, LONGEST))
        return messages if isinstance(messages, list) else []
    return []


def _read_one(store: Store, sid: str, block: Block) -> list[Message]:
    key = keys.block(sid, block.key)
    blob = store.get(key)
    if blob is None or not blob.data:
        raise Missing(f"the block {key} is not there, and a snapshot names it", key=key)
    if not is_named(blob.data, block.key):
        raise Corrupt(f"the block {key} is not what its name says", key=key, offset=0)
    unpacker = zlib.decompressobj(_GZIP)
    try:
        data = unpacker.decompress(blob.data, block.bytes + 1)
        messages = orjson.loads(data) if unpacker.eof and len(data) == block.bytes else None
    except (zlib.error, orjson.JSONDecodeError) as error:
        raise Corrupt(f"the block {key} cannot be unpacked ({error})", key=key, offset=0) from error
    if not isinstance(messages, list) or len(messages) != block.count or not all(map(is_message, messages)):
        raise Corrupt(f"the block {key} does not hold what the snapshot says", key=key, offset=0)
    return messages
