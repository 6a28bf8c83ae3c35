"""Saving the snapshot: under the ETag that was read, and never over what was not read.

The log is the truth, so a snapshot that could not be saved loses nothing: the failure is reported and
the next boot replays a longer tail. On a lost race the stored one is read again; an older one is
replaced, a newer one is left.
"""

from __future__ import annotations

from streams import keys
from streams.buckets.base import Blob
from streams.errors import PreconditionFailed, Unreachable
from streams.store import Store

from .core.snapshot import decode

_ATTEMPTS = 4


def save(
    store: Store, sid: str, data: bytes, cursor: int, etag: str | None, etags: str = "as-given"
) -> str | None:
    """Store the document `data`, whose out cursor is `cursor`; returns the new ETag.

    `etags` says how this store takes an ETag: `as-given`, `unquoted`, or `none` where it cannot replace under
    a condition. There what stands is read first: between that and the PUT a newer one may slip in and be
    replaced, which costs the next boot a longer tail and nothing else, since the fence is the log's.

    None when a newer snapshot stands there. Raises Corrupt when what stands there cannot be read, or is
    another session's, and what requests raise.
    """
    key = keys.snapshot(sid)
    if etags == "none":
        blob = store.get(key)
        if blob is not None and not _is_older(blob, sid, cursor):
            return None
        return store.put(key, data, nonce=store.clock.token()).etag
    for _ in range(_ATTEMPTS):
        nonce = store.clock.token()
        try:
            if etag is None:
                return store.put_once(key, data, if_absent=True, nonce=nonce).etag
            match = etag.strip('"') if etags == "unquoted" else etag
            return store.put_once(key, data, if_match=match, nonce=nonce).etag
        except PreconditionFailed:
            blob = store.get(key)
        if blob is not None and not _is_older(blob, sid, cursor):
            return None
        etag = blob.etag if blob is not None else None
    raise Unreachable(f"{key} changes each time it is looked at; the next turn saves it again")


def _is_older(blob: Blob, sid: str, cursor: int) -> bool:
    """Whether a stored snapshot may be replaced by one at `cursor`. Raises Corrupt."""
    document = decode(blob.data, key=keys.snapshot(sid), session=sid, hydrated=True)
    return int(document.get("lastOutEventId") or 0) < cursor
