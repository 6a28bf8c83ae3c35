"""Which sessions a root has, when each last changed, and which of them are asked for.

The catalogue is the flat listing of `sessions/`: every session that has a snapshot. Others are known by their
logs alone. The logs are walked a page of a thousand keys at a time; where a page ends inside a log, the rest
of that log is passed over, since its segments begin with digits and "~" sorts behind them. So a root of small
sessions takes a request for many of them, one of large sessions a request for each. What is stored beside the
logs (its names begin with hex digits) is walked likewise, for maintenance alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from streams import keys
from streams.buckets.base import Entry
from streams.errors import InvalidValue, WrongEndpoint
from streams.keys import Log
from streams.store import Store

if TYPE_CHECKING:
    from .database import Database

_LOGS: tuple[Log, Log] = ("in", "out")
_KEPT = ("values", "blocks", "checkpoints")


def all_sessions(db: Database, prefix: str = "") -> Iterator[str]:
    """Every session of the root, also those without a snapshot: the catalogue's first, by id. `prefix`: those
    whose id begins so, and no more is listed than they have."""
    return _ids(db, _LOGS, prefix)


def all_ids(db: Database, prefix: str = "") -> Iterator[str]:
    """As `all_sessions`, and behind them the ids below which something is stored beside logs and snapshot
    alone: who died behind a value left that, and no session."""
    return _ids(db, (*_LOGS, *_KEPT), prefix)


def selected(
    db: Database,
    sessions: Iterable[str] | None = None,
    *,
    prefix: str = "",
    since: int | None = None,
    everything: Callable[[Database, str], Iterable[str]] = all_sessions,
) -> Iterator[str]:
    """The sessions asked for, each once: these, else all that `everything` finds; of them those whose id
    begins with `prefix`, and that changed at `since` (epoch ms, the store's clock) or later. One that is
    named, and has no date, counts as changed; an id that is no session has none, and is not found by date."""
    dates = changes(db, prefix) if since is not None else {}
    given = sessions if sessions is not None else dates if since is not None else everything(db, prefix)
    for name in dict.fromkeys(given):
        date = dates.get(name)
        if name.startswith(prefix) and (since is None or date is None or date >= since):
            yield name


def checked(sessions: Iterable[str]) -> list[str]:
    """The ids of a list, each once. Raises InvalidValue for a text, which would be taken apart into letters,
    for what is no list, and for an id that is no text."""
    if isinstance(sessions, str | bytes) or not isinstance(sessions, Iterable):
        raise InvalidValue(f"sessions is a list of ids, not {type(sessions).__name__}", path="sessions")
    ids = list(dict.fromkeys(sessions))
    for session_id in ids:
        if not isinstance(session_id, str):
            raise InvalidValue(
                f"sessions is a list of ids, which are texts, not {type(session_id).__name__}",
                path="sessions",
            )
    return ids


def _ids(db: Database, folders: Iterable[str], prefix: str) -> Iterator[str]:
    """The sessions of the catalogue, by id, then whoever else has something in one of these folders; each
    once."""
    seen: set[str] = set()
    stored = (session_id for folder in folders for session_id, _ in _stored(db.store, folder, prefix))
    for session_id in chain((info.id for info in db.sessions(prefix=prefix)), stored):
        if session_id not in seen:
            seen.add(session_id)
            yield session_id


def changes(db: Database, prefix: str = "") -> dict[str, int | None]:
    """Every session with the store's date (epoch ms) of its newest object: of the snapshot, or of the newest
    segment of either log, so that a snapshot which is not written after every turn does not hide a change.
    None where the store tells no date. `prefix`: of those whose id begins so."""
    found: dict[str, int | None] = {info.id: info.modified_ms for info in db.sessions(prefix=prefix)}
    for which in _LOGS:
        for session_id, newest in _stored(db.store, which, prefix):
            known = found.get(session_id, newest.modified_ms)
            dates = (known, newest.modified_ms)
            found[session_id] = None if None in dates else max(date for date in dates if date is not None)
    return found


def _stored(store: Store, folder: str, prefix: str) -> Iterator[tuple[str, Entry]]:
    """The sessions whose id begins so and that have something in this folder, each with the first entry
    there; of a log that is the newest segment."""
    after, last, own = "", "", "no key begins with this"
    start = f"{folder}/{keys.encode_start(prefix)}"
    while True:
        page = store.list(start, after=after, limit=store.page)
        for entry in page.entries:
            sid = None if entry.key.startswith(own) else _sid_of(entry.key)
            if sid is None:
                continue
            last, own = sid, f"{folder}/{sid}/"
            session_id = keys.session_of(last)
            if session_id is not None and session_id.startswith(prefix):
                yield session_id, entry
        if not page.more:
            return
        inside = page.entries and _sid_of(page.entries[-1].key) is not None
        resume = f"{folder}/{last}/~" if inside else page.resume
        if resume == after:
            raise WrongEndpoint(f"the listing of {folder}/ at {store.url} stands still at {after!r}")
        after = resume


def _sid_of(key: str) -> str | None:
    """The segment of a session in the key of what it has beside its snapshot; None in any other key."""
    place = keys.parse_segment(key) or keys.parse_content(key)
    if place is not None:
        return place[1]
    found = keys.parse_checkpoint(key)
    return None if found is None else found[0]
