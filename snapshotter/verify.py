"""Is what is stored of a session whole, and does it keep the law?

Read-only. Every object that the session's snapshot or logs name is read and decoded (header, checksum, ids;
the names of blocks and values are checksums), both logs must go on
without a hole, the out log as one chain, and three ways to the session's state must agree:

    fold(nothing, whole log)  at the snapshot's cursor   ==  the snapshot
    fold(nothing, whole log)  at the end                 ==  what a boot returns

The fold is the one that boots and workers use; nothing here computes history in a way of its own.

A log whose beginning was tidied away, below a snapshot that can be read, is not broken: it is reported as
not rebuildable from the log alone, and the fold starts from the snapshot instead. One that begins with the
deletion of the session is whole from there: the fold starts from the tombstone.

Memory stays bounded, whatever the session's size: objects are read in windows, inputs where the out log
names them; what is settled leaves the fold (`spilling`), and of the two others the newest messages are
read, and the blocks one after the other as they are compared (`comparing`).

A session may be at work meanwhile. The readings are made in this order: snapshot, boot, out, in; so each
later one holds whatever an earlier one speaks of, and records beyond the boot's are only decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from streams import keys, log
from streams.buckets.base import Blob
from streams.codec import decode_segment
from streams.errors import Corrupt, Gap, Missing, NewerVersion, Refused
from streams.keys import Log
from streams.log import Place, Vanished
from streams.packing import last_id
from streams.places import Packer
from streams.records import Cursor, Record, Segment
from streams.store import Store

from . import comparing, tombstones
from .checkpoints import bases, cursor_of, leftovers, spent_inputs
from .comparing import Side
from .core import chain
from .core.apart import is_unread
from .core.fold import Fold
from .core.snapshot import decode, restore
from .findings import Finding, Verdict
from .incoming import newest_named
from .loading import load
from .spilling import Spill
from .values import ABSENT, fill
from .windows import windows

if TYPE_CHECKING:
    from .database import Database

_RESTARTS = 3


def verify(db: Database, session_id: str) -> Verdict:
    """Check one session. What is wrong with it is in the verdict; what the store raises passes on
    (Unreachable, Misconfigured), and Vanished when objects were tidied away three times meanwhile.

    A problem counts only where the snapshot stood still: else a trim, or a deletion, may have come between
    two readings, and all is read again. So it is where something is missing: what named it may be gone."""
    for _ in range(_RESTARTS - 1):
        check = _Check(db, session_id)
        try:
            verdict = check.run()
        except Vanished:
            continue
        if verdict.ok or not (check.is_outdated() or verdict.lacks()):
            return verdict
    return _Check(db, session_id).run()


class _Check:
    """One run over one session."""

    def __init__(self, db: Database, session_id: str) -> None:
        self._store = db._own_store()
        self._sid = db.sid(session_id)
        self._verdict = Verdict(session_id)
        self._etag: str | None = None
        self._document: dict[str, Any] | None = None
        self._cursors: dict[str, Any] = {}  # where the snapshot stands, also one that is a cursor only
        self._broken: dict[Log, set[int]] = {"in": set(), "out": set()}  # where what cannot be read begins
        self._gaps: set[tuple[str, tuple[int, int]]] = set()
        self._start = 0  # the out record behind which the log begins
        self._tombstone: dict[str, Any] | None = None  # of the deletion that the log begins with
        self._base: dict[str, Any] | None = None  # what a trimmed log goes on from, where no snapshot does
        self._inputs: Iterator[Record] = iter(())
        self._next: Record | None = None  # the first of them that no fold was fed with
        self._boot: Side | None = None
        self._stored: Side | None = None
        self._seen: set[str] = set()  # the blocks of the snapshot that were read
        self._spill = Spill()
        self._whole: Fold | None = None
        self._left: dict[int, list[tuple[Side, str]]] = {}

    def is_outdated(self) -> bool:
        """Whether another snapshot stands there now than the one that was checked."""
        now = self._store.get(keys.snapshot(self._sid))
        return (now.etag if now is not None else None) != self._etag

    def run(self) -> Verdict:
        with self._spill:
            return self._run()

    def _run(self) -> Verdict:
        verdict = self._verdict
        snapshot = self._store.get(keys.snapshot(self._sid))
        self._etag = snapshot.etag if snapshot is not None else None
        if snapshot is not None:
            name = keys.snapshot(self._sid)
            document = self._try(lambda: decode(snapshot.data, key=name, session=self._sid, hydrated=True))
            if document is not None:
                self._cursors = document
                self._stored = self._try(partial(comparing.restored, self._store, self._sid, document))
                self._document = document if self._stored is not None else None
        if self._document is not None and self._document.get("hydrated"):
            self._note("hydrated", "somebody else owns the history: the logs are checked, it is not compared")
            self._document = self._stored = None
        else:
            loaded = self._try(partial(load, self._store, self._sid, window=chain.ID_WINDOW))
            if loaded is not None:
                self._boot = comparing.stored(self._store, self._sid, loaded.fold)
        out, incoming = self._places("out"), self._places("in")
        out = out[self._try(partial(leftovers, self._store, self._sid, out, self._cursors)) or 0 :]
        if snapshot is None and not out and not incoming:
            self._problem("absent", "there is no such session: no snapshot, no log")
            return verdict
        if out and out[0].first > 1:
            incoming = incoming[self._try(partial(spent_inputs, self._store, self._sid, incoming)) or 0 :]
            self._tombstone = self._try(partial(_deletion_at, self._store, self._sid, out[0]))
            if self._tombstone is None and cursor_of(self._cursors) < out[0].first - 1:
                self._base = self._try(partial(_checkpoint_above, self._store, self._sid, out[0].first - 1))
        self._inputs = self._read_inputs(incoming)
        self._next = next(self._inputs, None)
        self._begin(out)
        self._read_out(out)
        self._feed(None)
        self._read_blocks()
        if not self._broken["out"]:
            self._report_unmet()
        return verdict

    def _report_unmet(self) -> None:
        """What stands at a place that the log has not."""
        for cursor, comparisons in self._left.items():
            for _, what in comparisons:
                detail = f"the {what} stands at out record {cursor}, and the out log does not reach it"
                self._problem("snapshot-ahead", detail, keys.snapshot(self._sid))

    # -- findings -----------------------------------------------------------------------------------

    def _problem(self, code: str, detail: str, key: str | None = None) -> None:
        known = any(key is not None and (p.code, p.key) == (code, key) for p in self._verdict.problems)
        finding = Finding(code, detail, key)
        if not known and finding not in self._verdict.problems:
            self._verdict.problems.append(finding)

    def _note(self, code: str, detail: str, key: str | None = None) -> None:
        self._verdict.notes.append(Finding(code, detail, key))

    def _try(self, call: Callable[[], Any]) -> Any:
        """What the call returns; None, and a problem noted, where stored data is damaged."""
        try:
            return call()
        except NewerVersion as error:
            self._problem("newer-version", str(error), error.key)
        except Corrupt as error:
            self._problem("corrupt", str(error), error.key)
        except Missing as error:
            self._problem("missing", str(error), error.key)
        except Refused:  # a record whose value could not be read, which is a problem already
            self._verdict.rebuildable = False
        except Gap as gap:
            self._gap(gap)
        return None

    def _gap(self, gap: Gap) -> None:
        """A gap is told once, and not where a segment that cannot be read accounts for it."""
        broken = self._broken["in" if gap.log == "in" else "out"]
        if gap.missing[0] not in broken and (gap.log, gap.missing) not in self._gaps:
            self._gaps.add((gap.log, gap.missing))
            self._problem("gap", str(gap))
        self._verdict.rebuildable = False

    # -- reading ------------------------------------------------------------------------------------

    def _places(self, which: Log) -> Sequence[Place]:
        """The segments of a log as listed, oldest first."""
        found = Packer(which, self._sid)
        for entry in self._store.entries(keys.log_prefix(which, self._sid)):
            place = keys.parse_segment(entry.key)
            if place is None:
                self._note("foreign-object", "not a segment; readers pass it over", entry.key)
            elif entry.size:  # an empty object is what a deletion leaves: absent
                found.add([Place(place[2], entry.key, entry.size, entry.etag, entry.modified_ms)])
        return found.places()

    def _segments(self, which: Log, places: Sequence[Place]) -> Iterator[Segment]:
        """Those that can be decoded. The others are problems, and where they begin is remembered."""
        for window in windows(places):
            blobs = self._store.gather([partial(self._store.get, place.key) for place in window])
            for place, blob in zip(window, blobs, strict=True):
                if blob is None:
                    raise Vanished(f"{place.key} was listed and then gone")
                read = self._try(partial(_decoded, blob, place.key))
                if read is None:
                    self._broken[which].add(place.first)
                    self._verdict.rebuildable = False
                for segment in read or ():
                    self._count(segment)
                    yield segment

    def _filled(self, segment: Segment) -> Segment:
        """With what is stored apart in its place. A value that cannot be read is a problem, and the fold ends
        there; that of an input which is owed only this one misses, and that of a deleted session nobody."""
        boot, header = self._boot.fold if self._boot is not None else None, segment.header
        spent = boot is None or (boot.inputs.is_applied(header.first) and not boot.deleted)
        leave = () if spent or header.log == "out" else ABSENT
        records = self._try(partial(fill, self._store, self._sid, segment.records, leave=leave))
        if boot is not None and not boot.deleted and any(map(is_unread, records or ())):
            detail = f"the message of input {header.first}, which is owed, is not there: send it again"
            self._problem("message-missing", detail, segment.key)
        return segment if records is None else segment._replace(records=records)

    def _count(self, segment: Segment) -> None:
        self._verdict.segments += 1
        self._verdict.records += segment.header.last - segment.header.first + 1

    def _read_inputs(self, places: Sequence[Place]) -> Iterator[Record]:
        """The whole in log; where its beginning was trimmed, or deleted, what is left of it."""
        known = int((self._base or self._cursors).get("lastInEventId") or 0)
        begins = expect = int((self._tombstone or {}).get("lastInEventId") or 0) + 1
        for segment in self._segments("in", places):
            first = segment.header.first
            if first > expect and not any(expect <= broken < first for broken in self._broken["in"]):
                if expect == begins and first - 1 <= known:
                    self._trimmed("in", first - 1)
                else:
                    missing = (max(known + 1, expect) if expect == begins else expect, first - 1)
                    text = f"in log: inputs {missing[0]} to {missing[1]} are missing"
                    self._gap(Gap(text, log="in", missing=missing))
            if first >= expect:
                yield from self._filled(segment).records
                expect = segment.header.last + 1
            if self._whole is not None:
                self._spill.settle(self._whole, segment.size)

    def _feed(self, upto: int | None) -> None:
        """Feed every fold with the inputs up to this one, or with all that are left. One that a gap keeps
        from it is not compared."""
        while self._next is not None and (upto is None or self._next["id"] <= upto):
            record = self._next
            if self._whole is not None and not self._try(partial(_fed, self._whole, record)):
                self._drop()
            for cursor, awaited in list(self._left.items()):
                fed = [one for one in awaited if self._try(partial(_fed, one[0].fold, record))]
                self._left[cursor] = fed
            self._next = next(self._inputs, None)

    def _read_blocks(self) -> None:
        """What the snapshot names and no comparison came to: it has to be there, too."""
        side = self._stored
        if side is None:
            return
        for span in side.fold.chain.spans:
            if not span.loaded and span.block.key not in self._seen:
                self._try(partial(side.read, span))

    def _trimmed(self, which: Log, upto: int) -> None:
        self._verdict.rebuildable = False
        self._note(
            "not-rebuildable",
            f"the {which} log is gone up to {upto}: the history is not rebuildable from the log alone, "
            "the snapshot holds that part of it",
        )

    # -- the law ------------------------------------------------------------------------------------

    def _begin(self, out: Sequence[Place]) -> None:
        """Where the fold starts, and what it is to be compared with where."""
        stored = self._stored
        readable = stored is not None or self._cursors.get("hydrated")
        if self._tombstone is not None:
            self._start = out[0].first - 1
            if stored is not None and stored.fold.cursor < cursor_of(self._tombstone):
                self._note("stale-snapshot", "it stands below the session's deletion: run that again")
                stored = None
        elif self._base is not None:
            self._start = out[0].first - 1
            self._trimmed("out", self._start)
            detail = "none is there, or it stands below a trim: boots go on from the newest checkpoint"
            self._note("stale-snapshot", f"{detail}, and the next that is due brings it up to date")
            stored = None
        elif out and out[0].first > 1 and readable and out[0].first - 1 <= cursor_of(self._cursors):
            self._start = out[0].first - 1
            self._trimmed("out", self._start)
        if self._verdict.rebuildable:
            base = self._tombstone
            self._whole = Fold() if base is None else restore(base)
            if stored is not None:
                self._await(stored, "snapshot")
        elif stored is not None or self._base is not None:
            # A fold of its own: the one to compare with must not move.
            base = self._base or self._document or {}
            self._whole = self._try(partial(self._spill.restore, self._store, self._sid, base))
        if self._boot is not None:
            self._await(self._boot, "boot")

    def _await(self, side: Side, what: str) -> None:
        self._left.setdefault(side.fold.cursor, []).append((side, what))

    def _read_out(self, places: Sequence[Place]) -> None:
        """Read the out log once: decode, link, fold, and compare on the way."""
        cursor = Cursor(self._start)
        self._compare()
        for segment in self._segments("out", places):
            header = segment.header
            expect = cursor.id + 1
            if header.first < expect:
                self._note("dead-segment", "begins at an id that another segment holds; skipped", segment.key)
                continue
            live = self._try(partial(log.link, "out", self._sid, cursor, [segment]))
            cursor = Cursor(header.last, header.nonce)
            if live is None:
                self._drop()
                continue
            self._check_nonce(segment)
            self._fold(self._filled(segment))  # what only a dead one names may be gone

    def _fold(self, segment: Segment) -> None:
        """Apply a segment, as far as something is left to compare, which is where it ends as a rule."""
        self._feed(newest_named(segment.records))
        start = 0
        for at, record in enumerate(segment.records, 1):
            fold = self._whole
            if fold is None or not self._left:
                return
            if last_id(record) in self._left or at == len(segment.records):
                run = segment.records[start:at]
                if self._try(partial(self._replayed, fold, run)) is None:
                    self._drop()
                self._compare()
                start = at
        if self._whole is not None:
            self._spill.settle(self._whole, segment.size)

    def _replayed(self, fold: Fold, records: list[Record]) -> bool:
        self._spill.replay(fold, records)
        return True

    def _drop(self) -> None:
        """The log broke off: nothing behind this place can be compared."""
        self._verdict.rebuildable = False
        self._whole = None
        self._left.clear()

    def _check_nonce(self, segment: Segment) -> None:
        document = self._document or {}
        if str(segment.header.last) != document.get("lastOutEventId") or not document.get("lastOutNonce"):
            return
        begins = int(document.get("lastOutFirst") or segment.header.first)
        # A merged segment ends at the same place, under the same nonce, and begins earlier.
        if document["lastOutNonce"] != segment.header.nonce or begins < segment.header.first:
            self._problem("chain", "the snapshot was taken of another log than this one", segment.key)

    def _compare(self) -> None:
        whole = self._whole
        if whole is None:
            self._drop()
            return
        if whole.cursor not in self._left:
            return
        self._feed(None)
        for other, what in self._left.pop(whole.cursor, []):
            wrong = self._try(partial(self._differences, whole, other, is_stored=other is self._stored))
            if wrong:
                place = f"at out record {whole.cursor} the {what} and the fold of the whole log differ"
                self._problem("law", f"{place}: {', '.join(wrong)}")

    def _differences(self, whole: Fold, other: Side, *, is_stored: bool) -> list[str]:
        """The names of the facts in which they differ. Raises Missing, Corrupt."""
        one = comparing.spilled(whole, self._spill)
        wrong = [name for name, found in comparing.differences(one, other) if any(found)]
        if is_stored and "messages" not in wrong:
            self._seen |= {span.block.key for span in other.fold.chain.spans}
        return wrong


def _deletion_at(store: Store, sid: str, place: Place) -> dict[str, Any] | None:
    """The tombstone of the deletion in this segment. Raises Corrupt, Vanished."""
    segments = log.fetch(store, [place.key])
    return tombstones.in_segment(sid, segments[0]) if segments else None


def _checkpoint_above(store: Store, sid: str, cursor: int) -> dict[str, Any] | None:
    """The newest checkpoint, where the log goes on from it. Raises as `bases`."""
    return next(bases(store, sid, cursor - 1), None)


def _fed(fold: Fold, record: Record) -> bool:
    """Feed an input. Raises Gap, Refused."""
    fold.feed(record)
    return True


def _decoded(blob: Blob, key: str) -> list[Segment]:
    """The segment, if there is one: an empty object is what a deletion leaves. Raises Corrupt."""
    segment = decode_segment(blob.data, key=key)
    return [] if segment is None else [segment]
