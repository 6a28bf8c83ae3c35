"""Saving the snapshot: under the ETag that was read, and never over what was not read.

The log is the truth, so a snapshot that could not be saved loses nothing: the failure is reported and
the next boot replays a longer tail. On a lost race the stored one is read again; an older one is
replaced, a newer one is left.

A document may name blocks and values. Those that it takes over from the snapshot that was read stand for
sure only while that one does: what nobody names is tidied away. So where another is found in its place, it
is replaced only if that names them, too.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from streams import keys
from streams.buckets.base import Blob, Written
from streams.errors import PreconditionFailed, Unreachable
from streams.log import Vanished
from streams.store import Store

from .core.apart import ref_in
from .core.shapes import is_ref
from .core.snapshot import decode

_ATTEMPTS = 4


def save(
    store: Store,
    sid: str,
    data: bytes,
    cursor: int,
    etag: str | None,
    etags: str = "as-given",
    names: Collection[str] = (),
) -> Written | None:
    """Store the document `data`, whose out cursor is `cursor`; returns its new ETag and the store's date.
    `names`: what it takes over from the snapshot with this `etag`.

    `etags` says how this store takes an ETag: `as-given`, `unquoted`, or `none` where it cannot replace under
    a condition. There what stands is read first: between that and the PUT a newer one may slip in and be
    replaced, which costs the next boot a longer tail and nothing else, since the fence is the log's.

    None when a newer snapshot stands there. Raises Corrupt when what stands there cannot be read, or is
    another session's, Vanished where it does not name what has to stand, and what requests raise.
    """
    key = keys.snapshot(sid)
    if etags == "none":
        blob = store.get(key)
        same = (blob.etag if blob is not None else None) == etag
        if not _may_replace(blob, sid, cursor, () if same else names):
            return None
        return store.put(key, data, nonce=store.clock.token())
    for _ in range(_ATTEMPTS):
        nonce = store.clock.token()
        try:
            if etag is None:
                return store.put_once(key, data, if_absent=True, nonce=nonce)
            return store.put_once(key, data, if_match=match_of(etag, etags), nonce=nonce)
        except PreconditionFailed:
            blob = store.get(key)
        if not _may_replace(blob, sid, cursor, names):
            return None
        etag = blob.etag if blob is not None else None
    raise Unreachable(f"{key} changes each time it is looked at; the next turn saves it again")


def match_of(etag: str, etags: str) -> str:
    """What If-Match says of this ETag to a store that takes it so (see `save`)."""
    return etag.strip('"') if etags == "unquoted" else etag


def named(document: dict[str, Any]) -> set[str]:
    """What a snapshot document names: blocks, and values of the messages in itself."""
    context = document.get("context") or {}
    messages = [*(document.get("messages") or ()), *context.get("messages", ())]
    refs = {ref["key"] for message in messages if (ref := ref_in(message)) and is_ref(ref)}
    return refs | {row["key"] for row in document.get("blocks") or ()}


def _may_replace(blob: Blob | None, sid: str, cursor: int, names: Collection[str]) -> bool:
    """Whether what stands there may be replaced by a snapshot at `cursor` that takes over these names: not
    where it is newer. Raises Corrupt, Vanished."""
    document: dict[str, Any] = {}
    if blob is not None:
        document = decode(blob.data, key=keys.snapshot(sid), session=sid, hydrated=True)
        if int(document.get("lastOutEventId") or 0) >= cursor:
            return False
    if not named(document).issuperset(names):
        raise Vanished(
            f"another snapshot than the one that was read stands at {keys.snapshot(sid)}, and it does not"
            " name the blocks that were to be taken over; the next boot saves"
        )
    return True
