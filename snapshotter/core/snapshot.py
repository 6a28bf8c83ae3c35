"""The snapshot: a checkpoint of the fold, as one JSON document; of a long history, the head of its blocks.

It is taken at a segment's end with no turn open and no claim behind the last turn-complete. It is never
the fence: a stale one is an older checkpoint of the same log, and a boot comes to the same history from
it. A reader accepts any version up to its own and refuses a newer one; fields that another writer left
out count as empty.

It says whose it is (`session`), where the segment begins that it was taken at the end of (`lastOutFirst`),
and, last, the checksum of all before (`crc`). What does not fit, or has another shape, is corrupt: nothing
is read from a part of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import orjson

from streams.errors import Corrupt, InvalidValue, NewerVersion, Refused

from .apart import Apart, ref_in
from .blocks import Block, Span
from .calls import Message
from .chain import Chain
from .controls import mended
from .fold import Fold
from .inputs import InputLog
from .shapes import problem_of

VERSION = 1

_CRC = b',"crc":'
_END = re.compile(rb',"crc":(\d{1,10})\}\s*\Z')
_LONGEST_END = 64


@dataclass(frozen=True, slots=True)
class Layout:
    """A document of which parts are stored apart: the blocks, the messages behind them, and the compacted
    context, with references in the places of large messages."""

    blocks: Sequence[Block]
    messages: Sequence[Message]
    context: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Parts:
    """What was read of the history of a stored snapshot: its messages, in order, without those of blocks
    that were not read; the blocks; which messages are stored apart; the compacted context."""

    messages: Sequence[Message]
    spans: Sequence[Span] = ()
    apart: Apart = field(default_factory=Apart)
    context: dict[str, Any] | None = None


def encode(
    fold: Fold,
    nonce: str,
    saved_at: int,
    *,
    session: str = "",
    first: int = 0,
    hydrated: bool = False,
    layout: Layout | None = None,
) -> bytes:
    """The fold's snapshot document. `nonce` is that of the last out segment and `first` its first id,
    `saved_at` epoch ms, `session` the encoded session id; "" and 0 (not known) are left out. `hydrated`:
    somebody else owns the history, and the document is a cursor only. `layout`: what stands in the document
    where parts of the history are stored apart; without one all of it does.

    The caller makes sure that the fold stands at a segment's end with no turn open. Raises InvalidValue.
    """
    if layout is None:
        layout = Layout((), [] if hydrated else fold.chain.messages, fold.context)
    # The first fields are those that `tally` reads without the rest.
    document = {
        "version": VERSION,
        "savedAt": saved_at,
        "lastOutEventId": str(fold.cursor),
        "lastOutNonce": nonce,
        "lastInEventId": str(fold.inputs.applied_upto),
        "inApplied": fold.inputs.snapshot_applied(),
        "epoch": fold.epoch,
        "turn": fold.turn,
        "run": fold.run,
        **({"session": session} if session else {}),
        **({"lastOutFirst": str(first)} if first else {}),
        "messages": layout.messages,
        **({"blocks": [block.to_json() for block in layout.blocks]} if layout.blocks else {}),
        "lastOutTimestamp": fold.timestamp,
        "keys": fold.inputs.rows(),
        **({"redacted": redacted} if (redacted := fold.inputs.snapshot_redacted()) else {}),
        "lastTurn": fold.last_turn,
        "unfinished": fold.unfinished,
        "state": fold.state,
        "context": layout.context,
        "closed": fold.closed,
        "deleted": fold.deleted,
    }
    if hydrated:
        document["hydrated"] = True
    try:
        head = orjson.dumps(document)[:-1]
    except orjson.JSONEncodeError as error:  # what another writer left may nest deeper than we write
        raise InvalidValue(f"the history cannot be written as a snapshot: {error}") from error
    return b"%b%b%d}" % (head, _CRC, crc32(head))


def is_whole(data: bytes) -> bool:
    """False where the document ends with a checksum, and that is another than its bytes give."""
    found = _checksum(data)
    return found is None or int(found[1]) == crc32(memoryview(data)[: found.start()])


def _checksum(data: bytes) -> re.Match[bytes] | None:
    return _END.search(data, max(0, len(data) - _LONGEST_END))


def decode(
    data: bytes, *, key: str = "snapshot.json", session: str = "", hydrated: bool = False
) -> dict[str, Any]:
    """The document of a stored snapshot. `session`: the encoded session id that it has to be of. Raises
    Corrupt, NewerVersion naming both versions, or, unless the reader is `hydrated` (it needs no messages, or
    has them from elsewhere), Refused for a cursor only.
    """
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise _corrupt(key, f"is not JSON ({error})", error.pos) from error
    if not isinstance(document, dict) or type(document.get("version")) is not int or document["version"] < 1:
        raise _corrupt(key, "is no snapshot document")
    if document["version"] > VERSION:
        raise NewerVersion(
            f"snapshot {key} has version {document['version']}, this release reads up to {VERSION}:"
            " upgrade snapshotter; nothing was changed",
            key=key,
            offset=0,
        )
    # After the version: a newer release may do its checksum in another way.
    told = "crc" in document
    if not is_whole(data) or (told and _checksum(data) is None and _END.search(data) is None):
        raise _corrupt(key, "does not match its checksum")
    if document.get("hydrated") and not hydrated:
        raise Refused(
            f"snapshot {key} is a cursor only, its history belongs to a hydrate hook: open the database with"
            " hydrate=…, or read its records with `snapshotter log`; nothing was changed"
        )
    problem = problem_of(document)
    if problem:
        raise _corrupt(key, f"has a wrong shape: {problem}")
    if session and document.get("session") not in (None, session):
        raise _corrupt(key, f"is of another session, {document['session']!r}")
    return document


def _corrupt(key: str, problem: str, offset: int = 0) -> Corrupt:
    return Corrupt(f"snapshot {key} {problem}; it was left as it is", key=key, offset=offset)


def is_whole_in_itself(document: dict[str, Any]) -> bool:
    """True where nothing of the history is stored apart."""
    context = document.get("context") or {}
    messages = [*(document.get("messages") or ()), *context.get("messages", ())]
    return not document.get("blocks") and not any(ref_in(message) for message in messages)


def known_inputs(document: dict[str, Any]) -> InputLog:
    """The in log as a document tells of it: what stands behind its cursor is fed to it."""
    return InputLog(
        int(document.get("lastInEventId") or 0),
        document.get("inApplied") or (),
        document.get("keys") or (),
        document.get("redacted") or (),
    )


def restore(document: dict[str, Any], *, strict: bool = False, parts: Parts | None = None) -> Fold:
    """A fold that stands where the snapshot was taken. `parts`: the history as it was read, where parts of it
    are stored apart. Raises Refused where they are and none are given."""
    if parts is None:
        if not is_whole_in_itself(document):
            raise Refused(
                "parts of this snapshot's history are stored apart, in blocks or as values: it can be read in"
                " its store (for example with `snapshotter history`), not alone"
            )
        parts = Parts(document.get("messages") or (), context=document.get("context"))
    fold = Fold(strict=strict)
    fold.chain = Chain(parts.messages, parts.spans, parts.apart)
    fold.cursor = int(document.get("lastOutEventId") or 0)
    fold.timestamp = document.get("lastOutTimestamp") or 0
    fold.inputs = known_inputs(document)
    fold.epoch = document.get("epoch") or 0
    fold.run = document.get("run") or ""
    fold.turn = document.get("turn") or 0
    last = document.get("lastTurn")
    fold.last_turn = None if last is None else mended(last)[0]  # what it says a turn-complete has said
    fold.unfinished = list(document.get("unfinished") or ())
    fold.state = document.get("state") or {}
    fold.context = parts.context
    fold.closed = document.get("closed") is True
    fold.deleted = document.get("deleted") is True
    return fold
