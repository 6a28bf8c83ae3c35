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

A session may be at work meanwhile. The readings are made in this order: snapshot, boot, out, in; so each
later one holds whatever an earlier one speaks of, and records beyond the boot's are only decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from streams import keys, log
from streams.buckets.base import Blob
from streams.codec import decode_segment
from streams.errors import Corrupt, Gap, Missing, NewerVersion, Refused
from streams.keys import Log
from streams.log import Place, Vanished
from streams.records import Cursor, Record, Segment
from streams.store import Store

from . import tombstones
from .checkpoints import cursor_of, leftovers
from .core.fold import Fold
from .core.snapshot import decode, restore
from .loading import load
from .sameness import differences, facts
from .shelf import inline
from .values import fill

if TYPE_CHECKING:
    from .database import Database

_WINDOW = 64  # segments that are fetched together: what bounds the memory
_RESTARTS = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found. `code`: absent, corrupt, missing, newer-version, gap, chain, snapshot-ahead,
    law (all problems); not-rebuildable, foreign-object, dead-segment, hydrated, stale-snapshot (notes).
    The command tells what `verify` raises of a key that lacks as wrong-key. `key`: of an object, where it is
    about one."""

    code: str
    detail: str
    key: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(slots=True)
class Verdict:
    """What `verify` found. `records` counts those of both logs, unpacked. `rebuildable`: the logs alone
    give the whole history. `notes` are worth knowing and no fault."""

    session: str
    segments: int = 0
    records: int = 0
    rebuildable: bool = True
    problems: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.problems

    def lacks(self) -> bool:
        """Whether something that is named is not there."""
        return any(problem.code == "missing" for problem in self.problems)

    def to_json(self) -> dict[str, Any]:
        found = asdict(self)
        for name in ("problems", "notes"):
            found[name] = [finding.to_json() for finding in getattr(self, name)]
        return {"session": found.pop("session"), "ok": self.ok, **found}


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
        self._store = db.store
        self._sid = db.sid(session_id)
        self._verdict = Verdict(session_id)
        self._etag: str | None = None
        self._document: dict[str, Any] | None = None
        self._cursors: dict[str, Any] = {}  # where the snapshot stands, also one that is a cursor only
        self._broken: set[int] = set()  # where a segment of the out log that cannot be read begins
        self._gaps: set[tuple[str, tuple[int, int]]] = set()
        self._start = 0  # the out record behind which the log begins
        self._tombstone: dict[str, Any] | None = None  # of the deletion that the log begins with
        self._inputs: list[Record] = []
        self._boot: Fold | None = None
        self._whole: Fold | None = None
        self._left: dict[int, list[tuple[Fold, str]]] = {}

    def is_outdated(self) -> bool:
        """Whether another snapshot stands there now than the one that was checked."""
        now = self._store.get(keys.snapshot(self._sid))
        return (now.etag if now is not None else None) != self._etag

    def run(self) -> Verdict:
        verdict = self._verdict
        snapshot = self._store.get(keys.snapshot(self._sid))
        self._etag = snapshot.etag if snapshot is not None else None
        if snapshot is not None:
            name = keys.snapshot(self._sid)
            document = self._try(lambda: decode(snapshot.data, key=name, session=self._sid, hydrated=True))
            if document is not None:
                self._cursors = document
                # Its blocks and values, too: all that it names is read here.
                self._document = self._try(partial(inline, self._store, self._sid, document))
        if self._document is not None and self._document.get("hydrated"):
            self._note("hydrated", "somebody else owns the history: the logs are checked, it is not compared")
            self._document = None
        else:
            loaded = self._try(partial(load, self._store, self._sid))
            self._boot = loaded.fold if loaded is not None else None
        out, incoming = self._places("out"), self._places("in")
        out = out[self._try(partial(leftovers, self._store, self._sid, out)) or 0 :]
        if snapshot is None and not out and not incoming:
            self._problem("absent", "there is no such session: no snapshot, no log")
            return verdict
        if out and out[0].first > 1:
            self._tombstone = self._try(partial(_deletion_at, self._store, self._sid, out[0]))
        self._read_inputs(incoming)
        self._begin(out)
        self._read_out(out)
        if not self._broken:
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
        if gap.missing[0] not in self._broken and (gap.log, gap.missing) not in self._gaps:
            self._gaps.add((gap.log, gap.missing))
            self._problem("gap", str(gap))
        self._verdict.rebuildable = False

    # -- reading ------------------------------------------------------------------------------------

    def _places(self, which: Log) -> list[Place]:
        """The segments of a log as listed, oldest first."""
        found: list[Place] = []
        for entry in self._store.entries(keys.log_prefix(which, self._sid)):
            place = keys.parse_segment(entry.key)
            if place is None:
                self._note("foreign-object", "not a segment; readers pass it over", entry.key)
            elif entry.size:  # an empty object is what a deletion leaves: absent
                found.append(Place(place[2], entry.key, entry.size, entry.etag, entry.modified_ms))
        return sorted(found, key=lambda place: place.first)

    def _segments(self, places: list[Place]) -> Iterator[Segment]:
        """Those that can be decoded. The others are problems, and where they begin is remembered."""
        for start in range(0, len(places), _WINDOW):
            window = places[start : start + _WINDOW]
            blobs = self._store.gather([partial(self._store.get, place.key) for place in window])
            for place, blob in zip(window, blobs, strict=True):
                if blob is None:
                    raise Vanished(f"{place.key} was listed and then gone")
                read = self._try(partial(_decoded, blob, place.key))
                if read is None:
                    self._broken.add(place.first)
                    self._verdict.rebuildable = False
                for segment in read or ():
                    self._count(segment)
                    yield self._filled(segment)

    def _filled(self, segment: Segment) -> Segment:
        """With what is stored apart in its place. A value that cannot be read is a problem, and the fold ends
        there."""
        records = self._try(partial(fill, self._store, self._sid, segment.records))
        return segment if records is None else replace(segment, records=records)

    def _count(self, segment: Segment) -> None:
        self._verdict.segments += 1
        self._verdict.records += segment.header.last - segment.header.first + 1

    def _read_inputs(self, places: list[Place]) -> None:
        """The whole in log; where its beginning was trimmed, or deleted, what is left of it."""
        known = int(self._cursors.get("lastInEventId") or 0)
        begins = expect = int((self._tombstone or {}).get("lastInEventId") or 0) + 1
        for segment in self._segments(places):
            first = segment.header.first
            if first > expect and not any(expect <= broken < first for broken in self._broken):
                if expect == begins and first - 1 <= known:
                    self._trimmed("in", first - 1)
                else:
                    missing = (max(known + 1, expect) if expect == begins else expect, first - 1)
                    text = f"in log: inputs {missing[0]} to {missing[1]} are missing"
                    self._gap(Gap(text, log="in", missing=missing))
            if first >= expect:
                self._inputs += segment.records
                expect = segment.header.last + 1
        # From here on the ids of broken segments are those of the out log.
        self._broken.clear()

    def _trimmed(self, which: Log, upto: int) -> None:
        self._verdict.rebuildable = False
        self._note(
            "not-rebuildable",
            f"the {which} log is gone up to {upto}: the history is not rebuildable from the log alone, "
            "the snapshot holds that part of it",
        )

    # -- the law ------------------------------------------------------------------------------------

    def _begin(self, out: list[Place]) -> None:
        """Where the fold starts, and what it is to be compared with where."""
        document = self._document
        stored = self._try(lambda: self._fed(restore(document))) if document is not None else None
        readable = stored is not None or self._cursors.get("hydrated")
        if self._tombstone is not None:
            self._start = out[0].first - 1
            if stored is not None and stored.cursor < cursor_of(self._tombstone):
                self._note("stale-snapshot", "it stands below the session's deletion: run that again")
                stored = None
        elif out and out[0].first > 1 and readable and out[0].first - 1 <= cursor_of(self._cursors):
            self._start = out[0].first - 1
            self._trimmed("out", self._start)
        if self._verdict.rebuildable:
            base = self._tombstone
            self._whole = self._try(lambda: self._fed(Fold() if base is None else restore(base)))
            if stored is not None:
                self._await(stored, "snapshot")
        elif stored is not None:
            # A fold of its own: the one to compare with must not move.
            self._whole = self._fed(restore(document or {}))
        if self._boot is not None:
            boot = self._boot
            if self._try(lambda: self._fed(boot)) is not None:
                self._await(boot, "boot")

    def _await(self, fold: Fold, what: str) -> None:
        self._left.setdefault(fold.cursor, []).append((fold, what))

    def _fed(self, fold: Fold) -> Fold:
        for record in self._inputs:
            fold.feed(record)
        return fold

    def _read_out(self, places: list[Place]) -> None:
        """Read the out log once: decode, link, fold, and compare on the way."""
        cursor = Cursor(self._start)
        self._compare()
        for segment in self._segments(places):
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
            self._fold(segment)

    def _fold(self, segment: Segment) -> None:
        for record in segment.records:
            fold = self._whole
            if fold is None or not self._left:
                return
            if self._try(partial(fold.apply, record)) is None:
                self._drop()
            self._compare()

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
        if self._whole is None:
            self._drop()
            return
        for other, what in self._left.pop(self._whole.cursor, []):
            ours, theirs = facts(self._whole), facts(other)
            wrong = [name for name in ours if any(differences(ours[name], theirs[name]))]
            if wrong:
                place = f"at out record {other.cursor} the {what} and the fold of the whole log differ"
                self._problem("law", f"{place}: {', '.join(wrong)}")


def _deletion_at(store: Store, sid: str, place: Place) -> dict[str, Any] | None:
    """The tombstone of the deletion in this segment. Raises Corrupt, Vanished."""
    segments = log.fetch(store, [place.key])
    return tombstones.in_segment(sid, segments[0]) if segments else None


def _decoded(blob: Blob, key: str) -> list[Segment]:
    """The segment, if there is one: an empty object is what a deletion leaves. Raises Corrupt."""
    segment = decode_segment(blob.data, key=key)
    return [] if segment is None else [segment]
