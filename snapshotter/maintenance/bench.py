"""One session on the bench: the requests that every kind of maintenance makes.

Each kind reads what is there, decides, and acts in an order that leaves the session whole after any step;
so one that is broken off is simply run again. With `dry_run` it does everything but the writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from snapshotter import saving
from snapshotter.core.snapshot import decode
from snapshotter.spans import at_work
from snapshotter.windows import windows
from streams import keys, probe
from streams.buckets.base import Blob, Entry, Written
from streams.errors import Corrupt, PreconditionFailed, Refused, Unsupported
from streams.keys import Log
from streams.log import Place, Vanished
from streams.places import whole

from .rules import Awake, Rules

if TYPE_CHECKING:
    from snapshotter.database import Database

T = TypeVar("T")
K = TypeVar("K", Place, Entry)

LOGS: tuple[Log, Log] = ("out", "in")


class Absent(Refused):
    """There is no such session."""


@dataclass(slots=True)
class Done:
    """What was done to one session (with `dry_run`: what would be). `written` and `deleted` are objects,
    `freed` is bytes. `why` says why nothing, or no more, was to be done."""

    session: str
    operation: str
    dry_run: bool = False
    written: int = 0
    deleted: int = 0
    freed: int = 0
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Shelf:
    """Objects as listed, in the order of their keys, and the store's date of the listing's first page."""

    entries: list[Entry]
    date_ms: int | None


class Bench:
    """See the module. Raises InvalidId for an id that cannot be stored."""

    def __init__(
        self, db: Database, session: str, operation: str, rules: Rules | None, dry_run: bool
    ) -> None:
        self.db = db
        self.sid = db.sid(session)
        self.store = at_work(db._own_store())
        self.rules = rules or Rules()
        self.done = Done(session, operation, dry_run)
        self.awake = Awake(None)

    def places(self, which: Log) -> tuple[Sequence[Place], int | None]:
        """A whole log as listed, oldest first, with the store's date. (Of a long one no ETags are kept.)"""
        places, date_ms = whole(self.store, which, self.sid)
        self.awake = Awake(date_ms)
        return places, date_ms

    def shelf(self, prefix: str) -> Shelf:
        """Everything below a prefix."""
        found: list[Entry] = []
        after, date_ms = "", None
        while True:
            page = self.store.list(prefix, after=after)
            found += page.entries
            date_ms = page.date_ms if date_ms is None else date_ms
            if not page.more:
                return Shelf(found, date_ms)
            after = page.resume

    def snapshot(self) -> tuple[Blob, dict[str, Any]] | None:
        """The stored snapshot and its document; None where there is none. Raises Corrupt, NewerVersion."""
        key = keys.snapshot(self.sid)
        blob = self.store.get(key)
        return None if blob is None else (blob, decode(blob.data, key=key, session=self.sid, hydrated=True))

    def check_there(self) -> None:
        """Raise Absent where nothing at all is stored of the session. For who found nothing to work on: where
        something was found, it costs no request."""
        if self.store.head(keys.snapshot(self.sid)) is not None:
            return
        prefixes = (
            *(keys.log_prefix(which, self.sid) for which in LOGS),
            keys.values_prefix(self.sid),
            keys.blocks_prefix(self.sid),
            keys.checkpoints_prefix(self.sid),
        )
        if not any(next(self.store.entries(prefix, page=1), None) for prefix in prefixes):
            raise self.absent()

    def absent(self) -> Absent:
        """That nothing is stored of the session."""
        return Absent(f"there is no session {self.done.session!r} at {self.db.url}")

    def taken(self, what: str) -> Refused:
        """Why `what` ("an import") finds no place under this id."""
        name, url = self.done.session, self.db.url
        with suppress(Corrupt):  # what stands there may be anything
            stands = self.snapshot()
            if stands is not None and stands[1].get("deleted"):
                return Refused(
                    f"session {name!r} was deleted at {url}, and {what} does not bring it back;"
                    " `create` opens the id again, for something new"
                )
        return Refused(f"session {name!r} exists at {url}: {what} never changes one")

    def read(self, listed: Iterable[K]) -> Iterator[tuple[K, Blob]]:
        """The objects that were listed, window by window. Raises Vanished where one is gone, or was emptied
        since by a deletion."""
        for window in windows(listed):
            found = self.store.gather([partial(self.store.get, entry.key) for entry in window])
            for entry, blob in zip(window, found, strict=True):
                if blob is None or (entry.size and not blob.data):
                    raise Vanished(f"{entry.key} was listed and then gone")
                yield entry, blob

    def replace(self, key: str, data: bytes, etag: str) -> Written | None:
        """Replace the very version that was read. None, and nothing written, in a dry run.

        Raises Unsupported where the store cannot, PreconditionFailed where another version stands there,
        Vanished where this process slept.
        """
        etags = self.etags()
        if etags == "none":
            raise Unsupported(
                f"{self.db.url} does not replace an object under If-Match: {self.done.operation} is refused,"
                " it could undo what somebody else wrote; `snapshotter doctor` shows what was found"
            )
        self.done.written += 1
        if self.done.dry_run:
            return None
        match = saving.match_of(etag, etags)
        written = self.store.put_once(key, data, if_match=match, nonce=self.store.clock.token())
        self.awake.check(written.date_ms)
        return written

    def rewrite(self, key: str, data: bytes, etag: str) -> None:
        """As `replace`, for an object of a log. Raises Vanished where another version stands there by now."""
        try:
            self.replace(key, data, etag)
        except PreconditionFailed:
            raise Vanished(f"{key} was replaced while it was read") from None

    def explain(self, listed: Iterable[tuple[Sequence[Place | Entry], int | None]]) -> Done:
        """Say why nothing was done, where what is too young may be the reason; `listed`: objects, each list
        with the store's date of it. Returns what was done."""
        done = self.done
        if not (done.written or done.deleted or done.why):
            young = sum(
                not self.rules.is_old(entry.modified_ms, date_ms)
                for entries, date_ms in listed
                for entry in entries
            )
            if young:
                hours = self.rules.minimum_age / 3600
                done.why = f"{young:,} object{'' if young == 1 else 's'} younger than {hours:g} h"
        return done

    def etags(self) -> str:
        """How this store takes an ETag (see `saving.save`); a store that is not known is asked first, unless
        nothing is to be written."""
        if self.done.dry_run and not self.db._known:
            found = probe.load(self.store)
            return "as-given" if found is None or found.replace else "none"
        self.db._ensure()
        return self.db._etags()

    def delete(self, entries: Iterable[Place | Entry]) -> None:
        """Delete one after the other, in this order, each until it is answered."""
        for entry in entries:
            self.done.deleted += 1
            self.done.freed += entry.size
            if not self.done.dry_run:
                self.store.delete(entry.key)


def restarting(run: Callable[[], T], times: int = 3) -> T:
    """Run it again from the beginning where an object was gone when it was read, or others were faster; so
    many times in all, then Vanished is raised."""
    for _ in range(times - 1):
        try:
            return run()
        except Vanished:
            continue
    return run()
