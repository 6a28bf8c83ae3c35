"""Copies of the snapshot that stand beside it, as checkpoints: written, and then looked at again.

Whoever writes one read the snapshot before, and meanwhile others are at work. So once it is durable, and
whatever comes now can list it:

    the out log        has no deletion above it and no edit of the history, with which a redaction begins:
                       what these empty they list afterwards, and the copy with it
    the snapshot       still names every block and value that the copy names: gc reads the snapshot first and
                       lists the checkpoints then, so it finds a name in the one or in the other

Where one of the two does not hold nobody may rest on the copy. It is taken back (emptied, unless somebody
has replaced it since) where it holds what was to go, or names what is gone; else it is left, since another
trim may have found it, looked while both held, and shortened the log. One that stands in the place of
another copy, which a shortened log may rest on, is never emptied: a redaction replaces it, when it has begun
anew, and who deletes or redacts beside it empties all that it has listed. A process that dies before it has
looked leaves a copy that may be such a one, too. An edit or a deletion that begins later finds it, and of one
whose blocks are gone nobody makes use (`is_whole`).
"""

from __future__ import annotations

from functools import partial
from typing import Any

from snapshotter import saving
from snapshotter.checkpoints import cursor_of
from streams import keys
from streams.buckets.base import Blob, Written

from .bench import Bench
from .deletions import is_outdated, take_back


def put_copy(
    bench: Bench, key: str, data: bytes, document: dict[str, Any], stands: Blob | None
) -> Written | None:
    """Write a copy of the snapshot, whose document this is, in the place of what `stands` there; None where
    nobody may rest on it. Raises PreconditionFailed where something else stands, and what requests raise."""
    token = bench.store.clock.token()
    if stands is None:
        written = bench.store.put_once(key, data, if_absent=True, nonce=token)
    else:
        match = saving.match_of(stands.etag, bench.etags())
        written = bench.store.put_once(key, data, if_match=match, nonce=token)
    outdated = is_outdated(bench, cursor_of(document))
    if not outdated and is_named(document, bench.snapshot()):
        return written
    if not (stands is not None and stands.data) and (outdated or not is_whole(bench, document)):
        take_back(bench, key, written)
    return None


def is_whole(bench: Bench, document: dict[str, Any]) -> bool:
    """Whether the blocks and values that a copy names in itself are there."""
    found = bench.store.gather([partial(bench.store.head, key) for key in _keys(bench.sid, document)])
    return all(head is not None and head.size for head in found)


def is_named(document: dict[str, Any], stands: tuple[Blob, dict[str, Any]] | None) -> bool:
    """Whether the snapshot that stands there names what this copy of one names."""
    names = saving.named(document)
    return not names or (stands is not None and saving.named(stands[1]).issuperset(names))


def _keys(sid: str, document: dict[str, Any]) -> list[str]:
    blocks = {row["key"] for row in document.get("blocks") or ()}
    values = saving.named(document) - blocks
    return [keys.block(sid, name) for name in sorted(blocks)] + [
        keys.value(sid, name) for name in sorted(values)
    ]
