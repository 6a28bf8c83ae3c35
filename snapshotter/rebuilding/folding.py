"""One session, rebuilt from its logs, and what is then done with it.

The fold is the one that boots, workers and `verify` use; nothing here computes history in a way of its own.

    compare   where the fold passes the stored snapshot's cursor, both states are laid side by side
    write     the same; then the fold as it stood at the last place where a snapshot may be taken is saved,
              under the ETag that was read. What is the same, or newer, is left. With a turn open at the end
              that place lies further up: the logs are folded a second time, up to there
    export    the fold at the cut-off, as a boot would show it

Logs without a beginning were trimmed: the fold starts at the newest checkpoint then, and the result says so.
Logs of a session that was deleted begin with the deletion, and the fold with its tombstone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from snapshotter import checkpoints, comparing, sameness
from snapshotter.agreeing import InputGone, Stored
from snapshotter.comparing import Side
from snapshotter.core.fold import Fold
from snapshotter.core.inputs import InputLog
from snapshotter.keeping import fill
from snapshotter.longsealing import seal_ahead
from snapshotter.sealing import Checkpoint
from snapshotter.spilling import Spill
from snapshotter.tombstones import deletes
from snapshotter.values import ABSENT, Leave, folding
from streams import keys
from streams.errors import Corrupt, Damaged, Gap, Misconfigured, Missing, WrongKey
from streams.log import Vanished
from streams.packing import last_id
from streams.places import split
from streams.records import Cursor, Segment

from .results import LISTED, Options, Result, told
from .source import Document, Opened, Parcel, opened, parcels, read_in_turn

if TYPE_CHECKING:
    from snapshotter.database import Database

Ahead = Callable[[Iterator[Parcel]], Iterator[Parcel]]
"""Reads the next item while the last one is used."""

Sink = Callable[[Side, Result], None]
"""Takes what is exported."""

_ATTEMPTS = 3


@dataclass(slots=True)
class _Rebuilt:
    """A fold on its way. `at`: the segment's end where it stands; `rest`: the last one at which a snapshot
    may be taken, None before the first. `different` is None until the snapshot's cursor was passed; `problem`
    says why it could not be read then."""

    fold: Fold
    base: str = "first"
    at: Cursor = field(default_factory=Cursor)
    rest: Cursor | None = None
    segments: int = 0
    records: int = 0
    different: int | None = None
    differences: list[dict[str, Any]] = field(default_factory=list)
    problem: Damaged | None = None


class Work:
    """One session on its way through a worker. `start` it on a thread that reads ahead, then `finish` it
    where folds are made; neither raises but what concerns the whole store: Misconfigured, and no WrongKey,
    since not every session need be sealed with one key."""

    def __init__(self, db: Database, session_id: str, options: Options) -> None:
        self.id = session_id
        self._db = db
        self._store = db._own_store()
        self._options = options
        self._sid = ""
        self._found: Opened | None = None
        self._first: list[Parcel] = []
        self._rest: Iterator[Parcel] = iter(())
        self._error: Exception | None = None
        self._unreadable: Damaged | None = None  # the snapshot, where the logs are whole
        self._spill = Spill()  # of the fold under way
        self._leave: Leave = ()  # errors that do not keep an input from being fed without its message

    def start(self) -> Work:
        """Open the session and read the first window of its logs. What goes wrong is kept for `finish`."""
        self._error, self._found, self._first, self._rest = None, None, [], iter(())
        try:
            self._sid = self._db.sid(self.id)
            self._found = found = opened(self._store, self._sid)
            if found.left is None:
                self._rest = parcels(self._store, self._sid, found, None, self._end(found), self._leave)
                # A session of one window is read whole: for one hop between threads, not three.
                self._first = list(self._rest if found.is_short else islice(self._rest, 1))
        except WrongKey as error:
            self._error = error
        except Misconfigured:
            raise
        except Exception as error:  # noqa: BLE001 - one session must not end the others' run
            self._error = error
        return self

    def finish(self, ahead: Ahead, sink: Sink) -> Result:
        """Fold, and do what the mode says."""
        try:
            for _ in range(_ATTEMPTS - 1):
                try:
                    return self._finish(ahead, sink)
                except Missing:  # a value that went with its records; or nobody will bring it
                    self._leave = ABSENT
                except Vanished:
                    pass
                self.start()
            return self._finish(ahead, sink)
        except WrongKey as error:
            return self._failed(error)
        except Misconfigured:
            raise
        except InputGone as gone:
            return self._failed(gone.gap())
        except Vanished as error:
            gap = error.__cause__
            return self._failed(gap if isinstance(gap, Gap) else error)
        except Exception as error:  # noqa: BLE001 - as above
            return self._failed(error)
        finally:
            self._spill.close()

    # -- folding --------------------------------------------------------------------------------------

    def _finish(self, ahead: Ahead, sink: Sink) -> Result:
        found, error = self._found, self._error
        if found is None or (error is not None and not isinstance(error, Gap | InputGone)):
            assert error is not None
            raise error
        left = found.left
        if left is not None:
            return self._result(left, found, _Rebuilt(Fold()))
        try:
            if error is not None:
                raise error
            rest = iter(()) if found.is_short else ahead(self._rest)
            first, self._first = iter(self._first), []  # a window that was folded is not held any more
            rebuilt = self._folded(found, None, chain(first, rest))
            base = None
        except (Gap, InputGone) as gap:
            base, rebuilt = self._from_base(found, ahead, gap)
        if self._options.mode == "export":
            result = self._result("exported", found, rebuilt)
            sink(comparing.spilled(rebuilt.fold, self._spill), result)
            return result
        self._check_ahead(found, rebuilt)
        if self._options.mode == "write":
            return self._write(found, base, rebuilt, ahead)
        return self._compared(found, rebuilt)

    def _from_base(self, found: Opened, ahead: Ahead, reason: Gap | InputGone) -> tuple[Document, _Rebuilt]:
        """Fold from what stands for a log's beginning. Raises the reason for it where nothing does, or where
        there is a hole above it, too."""
        for base in checkpoints.bases(self._store, self._sid, 0):
            try:
                return base, self._again(found, base, self._end(found), ahead)
            except (Gap, InputGone):
                continue
        self._check_still(found, reason)
        raise reason

    def _check_still(self, found: Opened, reason: Exception) -> None:
        """Raise Vanished where what was read stands there no more, or as another: a trim, or a redaction, may
        have come between two readings."""
        now = opened(self._store, self._sid)
        etags = [one.snapshot and one.snapshot.etag for one in (now, found)]
        there = {(place.first, place.size, place.modified_ms) for place in now.places}
        gone = any((place.first, place.size, place.modified_ms) not in there for place in found.places)
        if gone or etags[0] != etags[1]:
            raise Vanished(f"session {self.id!r} became another while it was read") from reason

    def _again(self, found: Opened, base: Document | None, end: int, ahead: Ahead) -> _Rebuilt:
        """Fold from a base, or a second time."""
        read = parcels(self._store, self._sid, found, base, end, self._leave)
        return self._folded(found, base, ahead(read))

    def _folded(self, found: Opened, base: Document | None, read: Iterator[Parcel]) -> _Rebuilt:
        self._spill.close()
        self._spill = Spill()
        rebuilt = _Rebuilt(Fold())
        if base is not None:
            kind = "deletion" if base.get("deleted") else "checkpoint"
            fold = self._spill.restore(self._store, self._sid, base)
            rebuilt = _Rebuilt(fold, kind, at=Stored(base, None).cursor)
            rebuilt.rest = rebuilt.at
        target = found.cursor if found.document is not None and self._options.mode != "export" else None
        if target == rebuilt.at.id:
            self._lay_beside(found, rebuilt)
        taken = 0
        with folding(self._sid):
            for number, parcel in enumerate(read):
                if number:  # nearly all sessions are one window
                    before, taken = taken, self._read()
                    self._spill.settle(rebuilt.fold, taken - before)
                for record in parcel.inputs:
                    rebuilt.fold.feed(record)
                for run in _runs(parcel.segments, target, alone=self._options.mode == "write"):
                    self._apply(found, rebuilt, run, target)
        return rebuilt

    def _apply(self, found: Opened, rebuilt: _Rebuilt, run: list[Segment], target: int | None) -> None:
        header, fold = run[-1].header, rebuilt.fold
        buried = fold.deleted and not any(map(deletes, run))
        records = run[0].records if len(run) == 1 else chain.from_iterable(s.records for s in run)
        if target is not None and header.first <= target < header.last:  # merged since the snapshot was taken
            before = [record for record in run[0].records if last_id(record) <= target]
            self._spill.replay(fold, before)
            records = run[0].records[len(before) :]
            if fold.cursor == target:
                self._lay_beside(found, rebuilt)
        self._spill.replay(fold, records)
        rebuilt.segments += len(run)
        rebuilt.records += header.last - max(run[0].header.first - 1, rebuilt.at.id)
        rebuilt.at = Cursor(header.last, header.nonce, header.first)
        # A tombstone stands at the record that deletes, and nowhere behind it.
        if (
            fold.open is None
            and fold.claim is None
            and not fold.budget.claims
            and not (buried and fold.deleted)
        ):
            rebuilt.rest = rebuilt.at
        if target == header.last:
            self._lay_beside(found, rebuilt, header.nonce)

    def _read(self) -> int:
        """Bytes that were read of this session so far."""
        return self._store.stats.count("bytes_read")

    def _end(self, found: Opened) -> int:
        """The first id of the last segment to read. Comparing goes as far as the snapshot, where that is
        newer than the cut-off."""
        end = found.end(self._options.until_ms)
        if self._options.mode == "compare":
            cursor = found.cursor
            below = split(found.places, cursor)[0]
            end = max(end, below[-1].first) if below else end
        return end

    # -- comparing --------------------------------------------------------------------------------------

    def _lay_beside(self, found: Opened, rebuilt: _Rebuilt, nonce: str = "") -> None:
        """The fold stands where the snapshot was taken, at the end of the segment of this nonce where one is
        given: note every difference."""
        document = found.document
        assert document is not None
        told = (document.get("lastOutNonce") or nonce) if nonce else ""
        fed = found.newest <= rebuilt.fold.inputs.last
        if told == nonce and fed and sameness.is_as_stored(rebuilt.fold, document):
            rebuilt.different = 0
            return
        try:
            self._differ(found, rebuilt, document, (nonce, told))
        except (Missing, Corrupt) as problem:
            rebuilt.problem, rebuilt.different = problem, None
            rebuilt.differences.clear()

    def _differ(self, found: Opened, rebuilt: _Rebuilt, document: Document, nonces: tuple[str, str]) -> None:
        """Note what differs between the fold and the stored snapshot. Raises Missing, Corrupt."""
        stored = comparing.restored(self._store, self._sid, document)
        upto, applied = stored.fold.inputs.applied_upto, document.get("inApplied") or ()
        # The log names no copies, and the snapshot may count some as applied that the fold has not seen yet.
        unseen = range(rebuilt.fold.inputs.last + 1, upto + 1)
        rest = range(upto + 1, found.newest + 1)
        for numbers, spent in ((unseen, unseen), (rest, applied)):
            for record in read_in_turn(self._store, self._sid, numbers, spent, self._leave):
                stored.fold.feed(record)
                rebuilt.fold.feed(record)
        ours = comparing.spilled(rebuilt.fold, self._spill)
        facts = (different for _, different in comparing.differences(ours, stored))
        rebuilt.different = 0
        for difference in chain(chain.from_iterable(facts), sameness.differences(*nonces, "lastOutNonce")):
            rebuilt.different += 1
            if rebuilt.different <= LISTED:
                rebuilt.differences.append(told(difference))

    def _check_ahead(self, found: Opened, rebuilt: _Rebuilt) -> None:
        """Raise Gap where the snapshot stands at a place that the out log has not."""
        whole = not found.places or rebuilt.at.first == found.places[-1].first
        if found.cursor > rebuilt.at.id and whole:
            missing = (rebuilt.at.id + 1, found.cursor)
            text = (
                f"the snapshot stands at out record {found.cursor}, and the out log ends at {rebuilt.at.id}"
            )
            raise Gap(text, log="out", missing=missing)

    def _compared(self, found: Opened, rebuilt: _Rebuilt) -> Result:
        self._unreadable = found.problem or rebuilt.problem
        if self._unreadable is not None:
            raise self._unreadable
        if found.document is None:
            return self._result("unsaved", found, rebuilt)
        if rebuilt.different is None:
            older = found.cursor < rebuilt.at.id and rebuilt.base != "first"
            if not older:
                raise Gap(
                    f"no record of the out log ends at {found.cursor}, where the snapshot stands",
                    log="out",
                    missing=(found.cursor, found.cursor),
                )
            return self._result("unchecked", found, rebuilt)
        if not rebuilt.different:
            return self._result("same", found, rebuilt)
        now = self._store.head(keys.snapshot(self._sid))
        if now is None or found.snapshot is None or now.etag != found.snapshot.etag:
            raise Vanished(
                f"the snapshot of {self.id!r} was replaced while the log was read"
            )  # redacted, say
        return self._result("different", found, rebuilt)

    # -- writing ----------------------------------------------------------------------------------------

    def _write(self, found: Opened, base: Document | None, rebuilt: _Rebuilt, ahead: Ahead) -> Result:
        self._unreadable = found.problem or rebuilt.problem
        if self._unreadable is not None and not self._options.replace_unreadable:
            raise self._unreadable
        rest = rebuilt.rest
        if rest is None:
            return self._result("unsaved" if found.document is None else "newer", found, rebuilt)
        if found.document is not None and found.cursor > rest.id:
            return self._result("newer", found, rebuilt)
        if found.cursor == rest.id and rebuilt.different == 0:
            return self._result("same", found, rebuilt)
        told = rebuilt
        if rebuilt.at != rest:
            rebuilt = self._again(found, base, rest.first, ahead)
        if rebuilt.at != rest:
            raise Vanished(f"the out log of {self.id!r} changed while it was read")
        if rebuilt.fold.deleted:  # a tombstone has no keys: nothing is compared with what is gone
            known = rebuilt.fold.inputs
            rebuilt.fold.inputs = InputLog(known.applied_upto, known.applied)
        self._db._ensure()
        sealed = seal_ahead(self._store, self._sid, rebuilt.fold, self._spill, self._options.sizes)
        fetch = partial(fill, self._store, self._sid, rebuilt.fold)
        work = Checkpoint(self._store, self._sid, rebuilt.fold, rest, self._options.sizes, fetch, sealed)
        written = work.save(found.snapshot.etag if found.snapshot is not None else None, self._db._etags())
        told.fold, told.at = rebuilt.fold, rest
        return self._result("newer" if written is None else "written", found, told)

    # -- results ----------------------------------------------------------------------------------------

    def _result(self, status: str, found: Opened, rebuilt: _Rebuilt) -> Result:
        cost = self._store.stats.snapshot()
        return Result(
            self.id,
            status,
            base=rebuilt.base,
            cursor=rebuilt.at.id,
            inputs=found.newest,
            stored=None if found.document is None else found.cursor,
            turns=rebuilt.fold.turn,
            messages=rebuilt.fold.chain.total,
            segments=rebuilt.segments,
            records=rebuilt.records,
            bytes=cost.bytes_read + cost.bytes_written,
            requests=cost.requests,
            different=rebuilt.different or 0,
            differences=tuple(rebuilt.differences),
        )

    def _failed(self, error: Exception) -> Result:
        cost = self._store.stats.snapshot()
        return Result(
            self.id,
            "failed",
            bytes=cost.bytes_read + cost.bytes_written,
            requests=cost.requests,
            error=type(error).__name__,
            detail=str(error),
            replaceable=error is self._unreadable,
        )


def _runs(segments: Sequence[Segment], target: int | None, *, alone: bool) -> Iterator[list[Segment]]:
    """The segments in lists that may be applied at once: `alone` each by itself, else what stands before and
    what behind the one that holds the record `target`."""
    run: list[Segment] = []
    for segment in segments:
        if alone or (target is not None and segment.header.first <= target <= segment.header.last):
            yield from ([run] if run else [])
            yield [segment]
            run = []
        else:
            run.append(segment)
    if run:
        yield run
