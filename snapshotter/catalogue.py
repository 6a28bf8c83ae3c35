"""Which sessions a root has, and when each last changed.

The catalogue is the flat listing of `sessions/`: every session that has a snapshot. Others are known by their
logs alone. The logs are walked a page of a thousand keys at a time; where a page ends inside a log, the rest
of that log is passed over, since its segments begin with digits and "~" sorts behind them. So a root of small
sessions takes a request for many of them, one of large sessions a request for each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from streams import keys
from streams.buckets.base import Entry
from streams.errors import WrongEndpoint
from streams.keys import Log
from streams.store import Store

if TYPE_CHECKING:
    from .database import Database

_LOGS: tuple[Log, Log] = ("in", "out")


def all_sessions(db: Database) -> Iterator[str]:
    """Every session of the root, also those without a snapshot: the catalogue's first, by id."""
    seen: set[str] = set()
    for info in db.sessions():
        seen.add(info.id)
        yield info.id
    for which in _LOGS:
        for session_id, _ in _logged(db.store, which):
            if session_id not in seen:
                seen.add(session_id)
                yield session_id


def changes(db: Database) -> dict[str, int | None]:
    """Every session with the store's date (epoch ms) of its newest object: of the snapshot, or of the newest
    segment of either log, so that a snapshot which is not written after every turn does not hide a change.
    None where the store tells no date."""
    found: dict[str, int | None] = {info.id: info.modified_ms for info in db.sessions()}
    for which in _LOGS:
        for session_id, newest in _logged(db.store, which):
            known = found.get(session_id, newest.modified_ms)
            dates = (known, newest.modified_ms)
            found[session_id] = None if None in dates else max(date for date in dates if date is not None)
    return found


def _logged(store: Store, which: Log) -> Iterator[tuple[str, Entry]]:
    """The sessions that have this log, each with its newest segment."""
    after, last, own = "", "", "no key begins with this"
    while True:
        page = store.list(f"{which}/", after=after, limit=store.page)
        for entry in page.entries:
            place = None if entry.key.startswith(own) else keys.parse_segment(entry.key)
            if place is None:
                continue
            last, own = place[1], keys.log_prefix(which, place[1])
            session_id = keys.session_of(last)
            if session_id is not None:
                yield session_id, entry
        if not page.more:
            return
        inside = page.entries and keys.parse_segment(page.entries[-1].key) is not None
        resume = f"{keys.log_prefix(which, last)}~" if inside else page.resume
        if resume == after:
            raise WrongEndpoint(f"the listing of the {which} logs at {store.url} stands still at {after!r}")
        after = resume
