"""A boot that says so before it loads: for inputs, or sessions, whose loading kills.

A worker that dies while it loads leaves no trace, and a queue would kill one worker after another. A claim
leaves one. It reads the newest names of both logs, waits for a living holder, writes `fence why=boot` with
the input it comes for, and keeps its lease while it loads. Then it counts, with next to nothing loaded:
what has killed too often is sealed as exhausted where it stands; else the session is loaded. A claim that
leaves in good order takes itself back by a turn-release, also where it is interrupted before the session
is handed out; one that lost its place was never there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from streams import keys, log
from streams.buckets.base import Broken
from streams.errors import Busy, Fenced, Gap, StreamError
from streams.log import Tail, Vanished
from streams.records import Cursor, Segment
from streams.store import Store
from streams.writer import Flush, Writer

from . import values
from .agreeing import receipt_gap
from .core.budget import Incident
from .core.chunks import delta_of
from .core.controls import control_of
from .core.tally import Tally
from .core.values import reason_text
from .holding import LOOK_EVERY, SLACK, Holder, Silence, Wait, told_age
from .incoming import newest_input, next_input
from .loading import Loaded
from .recovering import busy
from .recovery import ChatRecovery, Hooks, RecoveryContext
from .spans import overtaken
from .watched import of

LEASE = 45
_LONGEST = 15 * 60.0  # seconds that a claim is kept while nothing comes of it
_TRIES = 8
_BEGINNINGS = ("turn-start", "fence")
_ENDS = ("turn-complete", "turn-release", "session-closed", "session-deleted")


@dataclass(slots=True)
class Claim:
    """A claim that stands. `writer` goes over to the session, which then says `lease` and `may_beat`."""

    run: str
    epoch: int
    may_beat: Callable[[], bool]
    lease: Callable[[], int] = lambda: LEASE
    writer: Writer = field(init=False)

    def promised(self) -> int:
        """The lease for the writer's next segment, in seconds."""
        return self.lease()

    def lives(self) -> bool:
        """Whether the writer may keep the lease."""
        return self.may_beat()

    def leave(self, why: str = "error") -> None:
        """Take the claim back, once. No error comes out of it: one that cannot looks like a death, which is
        safe. Only an interrupt ends the wait for it, and the lease is not kept then either."""
        self.lease = lambda: 0
        try:
            self.writer.beating = False
            with suppress(Exception):
                body = {"control": "turn-release", "why": why}
                self.writer.append(body, flush=Flush.NOW, end_segment=True)
        finally:
            self.writer.close(flush=False)


@dataclass(frozen=True, slots=True)
class Claiming:
    """How to claim one session. `number`: the input that the worker comes for, by default the newest."""

    store: Store
    session: str
    sid: str
    config: ChatRecovery
    number: int | None
    patience: tuple[float, float]
    takeover: bool
    cause: str | None
    before_write: Callable[[], None]
    notes: list[dict[str, Any]] = field(default_factory=list)
    begun: list[Claim] = field(default_factory=list)

    @property
    def hooks(self) -> Hooks:
        return Hooks(self.config, self.session, self._note, of(self.store))

    def _note(self, code: str, detail: str) -> None:
        self.notes.append({"code": code, "id": 0, "detail": detail})

    def load(self, read: Callable[[], Loaded]) -> tuple[Loaded, Claim | None]:
        """Claim the session, count, and load it with `read`. No claim where nothing is owed in it.

        Raises Busy, Gap where the input that the worker comes for is not there (nothing is written then), and
        what requests raise. The caller has to `leave` unless it hands the session out.
        """
        self._check_number()
        wait = Wait(self.store.clock, self.patience)
        for _ in range(_TRIES):
            try:
                claim = self._claim(wait)
                if claim is not None and not self._counted(claim, wait):
                    continue  # something was sealed: what comes next has a claim of its own
            except Fenced:
                overtaken(self.store)
                continue
            return self._loaded(claim, read), claim
        raise Busy(f"session {self.session!r}: other workers are faster each time", retry_after=5.0)

    def leave(self) -> None:
        """Take back whatever still stands. What was taken back, sealed or lost already stays as it is."""
        for claim in self.begun:
            claim.leave()

    def _check_number(self) -> None:
        """A receipt of another store or session must not leave a claim here. The listing is asked first:
        to read the input may be what kills."""
        if self.number is None or (newest := newest_input(self.store, self.sid)) >= self.number:
            return
        if next_input(self.store, self.sid, self.number) is None:  # the listing may be old
            raise receipt_gap(self.store, self.number, newest)

    def _loaded(self, claim: Claim | None, read: Callable[[], Loaded]) -> Loaded:
        """What kills a process cannot be caught; what only fails, or was told to stop, did not kill. All else
        (memory that ran out, a time limit) is what a claim counts: it stands, and is kept no longer."""
        try:
            loaded = read()
        except (StreamError, KeyboardInterrupt, SystemExit):
            raise
        except BaseException:
            if claim is not None:
                claim.writer.close(flush=False)
            raise
        loaded.notes += self.notes
        return loaded

    def _claim(self, wait: Wait) -> Claim | None:
        """Write the fence, once nobody holds the session any more."""
        store, clock = self.store, self.store.clock
        watched = Silence(clock)
        while True:
            newest = self.number or newest_input(store, self.sid)
            if not newest:
                return None
            listing = log.newest(store, "out", self.sid, 1)
            log.check_newest(listing)
            segments = log.fetch(store, [place.key for place in listing.entries])
            holder = None
            epoch, position = 0, Cursor()
            if segments:
                header = segments[-1].header
                epoch, position = header.epoch or 0, Cursor(header.last, header.nonce)
                told = told_age(listing.date_ms, listing.entries[0].modified_ms, clock.now_ms())
                age = max(told, watched.seconds(position))
                left = (header.lease or 0) + SLACK - age
                if header.lease and left > 0 and not self.takeover and not _let_go(segments[-1]):
                    holder = Holder(header.run or "", age, left)
                    if told < -SLACK:
                        wait.lengthen(left)
            if holder is None:
                return self._fence(newest, epoch + 1, position, listing.date_ms)
            if wait.left <= 0:
                raise busy(self.session, holder)
            clock.sleep(min(LOOK_EVERY, max(0.0, wait.left)))

    def _fence(self, newest: int, epoch: int, position: Cursor, date_ms: int | None) -> Claim:
        self.before_write()
        clock, run = self.store.clock, f"r-{self.store.clock.token()}"
        until = clock.monotonic() + _LONGEST
        claim = Claim(run, epoch, lambda: clock.monotonic() < until)
        claim.writer = Writer(
            self.store,
            self.sid,
            position=position,
            epoch=epoch,
            run=run,
            delta_of=delta_of,
            lease=claim.promised,
            may_beat=claim.lives,
            date_ms=date_ms,
        )
        body = {"control": "fence", "epoch": epoch, "run": run, "why": "boot", "for": newest}
        if self.cause is not None:
            body["cause"] = reason_text(self.cause)
        self.begun.append(claim)
        claim.writer.append(body, flush=Flush.NOW, end_segment=True)
        claim.writer.beating = True
        return claim

    def _counted(self, claim: Claim, wait: Wait) -> bool:
        """Count before anything is loaded; False when something was sealed."""
        store, clock = self.store, self.store.clock
        blob = store.get(keys.snapshot(self.sid))
        tally = None
        if not isinstance(blob, Broken):
            tally = Tally.of_snapshot(blob.data if blob is not None else None, self.sid)
        if tally is None:
            return True  # another writer's snapshot, or a damaged one: loading tells
        try:
            tail = log.read_after(store, "out", self.sid, Cursor(tally.cursor, tally.nonce))
        except (Gap, Vanished):
            return True  # trimmed, perhaps, and a checkpoint stands higher: loading tells
        for record in values.fill(store, self.sid, tail.records):
            tally.apply(record)
        newest = self.number or newest_input(store, self.sid)
        found, inputs = tally.verdict(newest, limits=self.config.limits, run=claim.run, cause=self.cause)
        if found.gives_up and tally.ledger.claimed(0, claim.run):
            self._seal(claim, tally, found, inputs)
            return False
        left = found.backoff_s - _silence(tail, claim.run, clock.now_ms())
        if left <= 0 or found.gives_up:
            return True
        if left > wait.left:
            claim.leave()
            self.hooks.emit("scheduled", found, retry_after=left)
            raise busy(self.session, Holder(claim.run, 0.0, left, incident=found))
        clock.sleep(left)
        return True

    def _seal(self, claim: Claim, tally: Tally, found: Incident, inputs: list[int]) -> None:
        """Tell the host, then close what kills, with nothing of it loaded."""
        told = RecoveryContext(self.session, found, "unloaded", cause=self.cause)
        self.hooks.exhausted(told)
        bodies = tally.sealing(
            inputs,
            found,
            run=claim.run,
            message_id=f"msg_{self.store.clock.token()}",
            error=self.config.terminal_message,
        )
        claim.writer.beating = False
        claim.lease = lambda: 0
        claim.writer.append_batch(bodies, flush=Flush.NOW, end_segment=True)
        claim.writer.close(flush=False)


def _let_go(segment: Segment) -> bool:
    """True when the segment ends what it, or one before it, began: nobody holds the session after it."""
    names = [control_of(record).get("control") for record in segment.records]
    last = next((name for name in reversed(names) if name in (*_ENDS, *_BEGINNINGS)), None)
    return last in _ENDS


def _silence(tail: Tail, run: str, now_ms: int) -> float:
    """Seconds since the last word that was no polite claim's, by the store's clock. A claim that was taken
    back does not put the next attempt off; nor does this one, of `run`."""
    last: int | None = None
    held: int | None = None
    for segment in tail.segments:
        told = [control_of(record) for record in segment.records]
        names = {record.get("control") for record in told}
        if segment.header.run == run:
            continue
        if names <= {"fence", "heartbeat"}:
            held = segment.modified_ms
        elif names == {"turn-release"} and "turn" not in told[0] and held is not None:
            held = None
        else:
            last, held = segment.modified_ms, None
    last = held if held is not None else last
    date = now_ms if tail.listing.date_ms is None else tail.listing.date_ms
    return float("inf") if last is None else max(0, date - last) / 1000
