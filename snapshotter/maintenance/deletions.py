"""What the out log says about deletions and redactions, to maintenance that works beside them.

Both begin with a record in the log, and list what they empty afterwards. So whoever writes a copy of a
snapshot looks at the log once more when it is durable: where no such record stands above the snapshot, the
copy is listed by any that comes; where one does, the copy is taken back.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from snapshotter.agreeing import Stored
from snapshotter.core.controls import control_of
from snapshotter.tombstones import after_deletion
from streams import log
from streams.buckets.base import Written
from streams.errors import PreconditionFailed
from streams.records import Cursor

from .bench import Bench


def newest_deletion(bench: Bench) -> tuple[Cursor, int] | None:
    """Where the newest deletion of the session stands in the out log, and the newest input that it spends;
    None where there is none. Raises Corrupt, Vanished, and what requests raise."""
    document = after_deletion(bench.store, bench.sid)
    if document is None:
        return None
    found = Stored(document, None)
    return found.cursor, found.applied


def is_outdated(bench: Bench, cursor: int) -> bool:
    """Whether the out log has a deletion above this out id, or an edit of the history, with which a redaction
    begins: a snapshot that stands there holds what must not be written any more."""
    return stands_above(bench, cursor, ("session-deleted", "history"))


def stands_above(bench: Bench, cursor: int, controls: Collection[str]) -> bool:
    """Whether the out log has a record of one of these controls above this out id."""
    places = log.tail_keys(bench.store, "out", bench.sid, cursor).entries
    above = [place for place in places if place.first > cursor]
    covering = [place for place in places if place.first <= cursor][:1]  # merged, it may reach above
    for segment in log.fetch(bench.store, [place.key for place in (*above, *covering)]):
        for record in segment.records:
            if record["id"] > cursor and control_of(record).get("control") in controls:
                return True
    return False


def take_back(bench: Bench, key: str, written: Written) -> None:
    """Empty what was just written, unless somebody has replaced it since."""
    if bench.etags() == "none":
        bench.store.put(key, b"")
        return
    with suppress(PreconditionFailed):
        bench.replace(key, b"", written.etag)
