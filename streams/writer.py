"""The out log's single writer: buffer, flush policy, fence, heartbeat, durable watermark.

`append` gives a record its id and puts it in the buffer; one flusher beside the caller turns the buffer
into segments, one request in flight at a time, each naming the nonce of the one before. So the log is a
chain, and a place that is lost to another writer is noticed at the next segment: `Fenced`.

    buffer      batches in order; a batch becomes one segment; only the last is open
    due         by time (a pace that slows from 1 to 5 s), by size, or because someone wants it (SOON, NOW,
                `flush`, a full buffer), or because the lease runs out
    written     the watermark `durable_id` moves, waiters wake
    failed      poisoned for good: this and every later call raises the same error. What was acknowledged
                stays so; what was not may or may not be there, and the next boot finds out

The flusher is started when there is something to do and ends when there is not. Only it talks to the
store, so an interrupt of the caller never cuts a request in two, and what the caller does between two
steps leaves a whole buffer (see `Packer`).

*Lease and heartbeat.* Each segment promises another within its `lease`. While `beating` is on and two
thirds of it have passed, the flusher writes what is buffered, or else a heartbeat, as long as `may_beat`
allows.

*A writer that slept.* A machine can be frozen for hours between two requests; its own clocks prove
nothing then. So the store's date of each success is compared with that of the last one. More than half
the minimum age apart, the log may have been tidied meanwhile and the place free again: it is listed
before anything is acknowledged, and unless our segment is the newest, the writer is fenced.

Callbacks (`lease`, `may_beat`, `heartbeat`, `patience`) run in the flusher, without a lock held.
"""

from __future__ import annotations

import enum
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from streams import keys
from streams.buckets.base import Written
from streams.clock import Task
from streams.codec import frame
from streams.errors import Fenced, PreconditionFailed, Refused
from streams.log import HALF_AGE_MS, is_newest
from streams.packing import DeltaOf, Packer
from streams.records import Cursor, Record
from streams.store import Store


class Flush(enum.Enum):
    """How soon a record has to be durable."""

    LATER = "later"
    """By time or size, as the policy says."""
    BRIEF = "brief"
    """In the background within 50 ms: what follows on its heels, as a turn's end does, shares the segment."""
    SOON = "soon"
    """At once, in the background."""
    NOW = "now"
    """Before the call returns."""


@dataclass(frozen=True, slots=True)
class FlushPolicy:
    """When the buffer is written unasked: seconds between writes, growing to `longest`, or a size.

    `max_bytes` asks for a write; `hold_bytes` makes `append` wait for it.
    """

    interval: float = 1.0
    longest: float = 5.0
    growth: float = 1.5
    max_bytes: int = 256 * 1024
    hold_bytes: int = 8 * 1024 * 1024


STREAM = FlushPolicy()
LIVE = FlushPolicy(interval=0.2, longest=0.2)
STEPS = FlushPolicy(interval=math.inf, longest=math.inf)


_BRIEFLY = 0.05


class _Batch:
    """One segment to be. Sealed: takes no more records."""

    __slots__ = ("packer", "sealed")

    def __init__(self, packer: Packer) -> None:
        self.packer = packer
        self.sealed = False


def _never(chunk: Record) -> None:
    """The default `delta_of`: nothing packs."""


class Writer:
    """Appends to one session's out log. Safe between threads.

    `position` is where the log ends by what was read; the next record gets `position.id + 1`. `epoch` and
    `run` go into each header. `lease()` gives the seconds to promise with the next segment, `may_beat()`
    whether a heartbeat may still be written, `heartbeat()` its body, `patience()` the seconds after which
    an unanswered write counts as unknown. `date_ms` is the store's date of the last look at the log.
    """

    def __init__(
        self,
        store: Store,
        sid: str,
        *,
        position: Cursor,
        epoch: int,
        run: str,
        delta_of: DeltaOf = _never,
        policy: FlushPolicy = STREAM,
        lease: Callable[[], int] = lambda: 45,
        may_beat: Callable[[], bool] = lambda: True,
        heartbeat: Callable[[], Record] = lambda: {"control": "heartbeat"},
        patience: Callable[[], float] = lambda: 60.0,
        date_ms: int | None = None,
    ) -> None:
        self._store = store
        self._clock = store.clock
        self._sid = sid
        self._epoch = epoch
        self._run_id = run
        self._delta_of = delta_of
        self.policy = policy
        self._lease_of = lease
        self._may_beat = may_beat
        self._heartbeat = heartbeat
        self._patience = patience
        self._date_ms = date_ms
        self._bytes = 0

        self._cond = self._clock.waiter()
        self._durable = position
        self._batches: deque[_Batch] = deque()
        self._want = position.id  # up to this id somebody waits, or would rather not
        self._due: float | None = None  # when the buffer is written unasked; None while it is empty
        self._pace = policy.interval
        self._beating = False
        self._quiet = False  # `may_beat` said no, and nothing was appended since
        self._written_at: float | None = None  # start of the last successful write
        self._lease = 0
        self._failure: BaseException | None = None
        self._closed = False
        self._task: Task | None = None
        self._at_work = False

    # --- what the caller sees ---------------------------------------------------------------------------

    @property
    def next_id(self) -> int:
        """The id that the next record gets."""
        with self._cond:
            return self._next()

    @property
    def durable_id(self) -> int:
        """The last id that would survive now."""
        return self._durable.id

    @property
    def position(self) -> Cursor:
        """The durable end of the log: `durable_id` and the nonce of its segment."""
        return self._durable

    @property
    def bytes_written(self) -> int:
        """Bytes of all segments that this writer has made durable."""
        return self._bytes

    @property
    def buffered_bytes(self) -> int:
        """About how many bytes wait to become durable."""
        with self._cond:
            return self._held()

    @property
    def failure(self) -> BaseException | None:
        """What poisoned this writer, or None."""
        return self._failure

    @property
    def beating(self) -> bool:
        """Whether the lease is kept while nothing else is written: on while a turn or a claim is open."""
        return self._beating

    @beating.setter
    def beating(self, on: bool) -> None:
        with self._cond:
            self._beating = on
            self._quiet = False
            if on and self._failure is None and not self._closed:
                self._wake()

    def append(self, body: Record, *, flush: Flush = Flush.LATER, end_segment: bool = False) -> int:
        """Append a record; returns its id. `end_segment`: what comes later goes into another segment.

        Waits while more than `policy.hold_bytes` are not durable yet. Raises TooLarge or InvalidValue, and
        then nothing was appended; Fenced, Unknown or another store error, and then the writer is poisoned.
        """
        with self._cond:
            batch = self._admit()
            last = batch.packer.add(self._clock.now_ms(), body)
            self._note(batch, last, flush, end_segment)
            if flush is Flush.NOW:
                self._await(last)
        return last

    def append_batch(
        self, bodies: list[Record], *, flush: Flush = Flush.LATER, end_segment: bool = False
    ) -> int:
        """Append records that share one segment: all become durable, or none. Returns the last one's id.

        Waits and raises as `append` does.
        """
        if not bodies:
            raise ValueError("an empty batch")
        with self._cond:
            batch = self._admit()
            last = batch.packer.add_all(self._clock.now_ms(), bodies)
            self._note(batch, last, flush, end_segment)
            if flush is Flush.NOW:
                self._await(last)
        return last

    def flush(self) -> None:
        """Return when everything appended so far is durable. Raises as `append` does."""
        with self._cond:
            self._check()
            last = self._next() - 1
            if last > self._durable.id:
                self._want = max(self._want, last)
                self._wake()
                self._await(last)

    def seal(self) -> None:
        """End the segment here: what comes later goes into another one."""
        with self._cond:
            self._check()
            if self._batches and self._batches[-1].packer:
                self._batches[-1].sealed = True

    def reset_pace(self) -> None:
        """Begin again with short intervals, as at the start of a turn."""
        with self._cond:
            self._pace = self.policy.interval

    def close(self, *, flush: bool = True) -> None:
        """Take no more records. `flush=False` drops what is not durable. Raises as `append` does."""
        try:
            if flush and not self._closed:
                self.flush()
        finally:
            with self._cond:
                self._closed = True
                self._cond.notify_all()

    # --- the buffer; the lock is held -------------------------------------------------------------------

    def _next(self) -> int:
        return self._batches[-1].packer.next if self._batches else self._durable.id + 1

    def _held(self) -> int:
        return sum(batch.packer.size for batch in self._batches)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise Refused("this writer is closed")

    def _admit(self) -> _Batch:
        """The open batch, as soon as there is room."""
        self._check()
        while self._batches and self._held() > self.policy.hold_bytes:
            self._want = max(self._want, self._next() - 1)
            self._wake()
            self._cond.wait()
            self._check()
        if not self._batches or self._batches[-1].sealed:
            self._batches.append(_Batch(Packer(self._next(), self._delta_of)))
        return self._batches[-1]

    def _note(self, batch: _Batch, last: int, flush: Flush, end_segment: bool) -> None:
        """See to it that what was just appended is written in time."""
        if end_segment:
            batch.sealed = True
        full = batch.packer.size >= self.policy.max_bytes and self._want < batch.packer.first
        if flush in (Flush.SOON, Flush.NOW) or full:
            self._want = last
        elif flush is Flush.LATER and self._due is not None:
            return
        due = self._clock.monotonic() + (_BRIEFLY if flush is Flush.BRIEF else self._pace)
        if self._due is None:
            self._due, self._quiet = due, False
        self._due = min(self._due, due)
        self._wake()

    def _await(self, last: int) -> None:
        while self._durable.id < last:
            self._check()
            self._cond.wait()

    def _wake(self) -> None:
        if self._task is None:
            self._task = self._clock.spawn(self._flush_on, f"flush-{self._sid}")
        else:
            self._cond.notify_all()

    # --- the flusher ------------------------------------------------------------------------------------

    def _flush_on(self) -> None:
        """Write what is due until there is nothing left to wait for."""
        with self._cond:
            if self._at_work:
                return  # an interrupt fell between starting a flusher and noting it
            self._at_work = True
        try:
            while (job := self._next_job()) is not None:
                job()
        except BaseException as error:  # noqa: BLE001 - nobody else is here to hear it: the caller's next call is
            with self._cond:
                self._failure = error
                self._at_work, self._task = False, None
                self._cond.notify_all()

    def _next_job(self) -> Callable[[], None] | None:
        with self._cond:
            while (wait := self._wait_seconds()) is not None and wait > 0:
                self._cond.wait(wait)
            if wait is None:
                self._at_work, self._task = False, None
                return None
            if not self._pending():
                return self._beat
            batch = self._batches[0]
            batch.sealed = True
            return lambda: self._write(batch)

    def _pending(self) -> bool:
        return bool(self._batches) and bool(self._batches[0].packer)

    def _wait_seconds(self) -> float | None:
        """Seconds until something is due; None if nothing ever is unless somebody calls."""
        if self._failure is not None or self._closed:
            return None
        at = math.inf
        pending = self._pending()
        if pending and (self._want > self._durable.id or self._due is None):
            return 0.0
        if pending and self._due is not None:
            at = self._due
        if self._beating and self._written_at is not None and (pending or not self._quiet):
            at = min(at, self._written_at + self._lease * 2 / 3)
        return None if at == math.inf else at - self._clock.monotonic()

    def _beat(self) -> None:
        body = self._heartbeat() if self._may_beat() else None
        with self._cond:
            if body is None:
                self._quiet = not self._pending()
            elif self._beating and not self._closed and not self._pending():
                batch = self._admit()
                self._note(batch, batch.packer.add(self._clock.now_ms(), body), Flush.SOON, False)

    def _write(self, batch: _Batch) -> None:
        """Make one segment durable, then say so."""
        first, last = batch.packer.first, batch.packer.next - 1
        nonce = self._clock.token()
        lease = self._lease_of()
        data = frame(
            "out",
            first,
            last,
            batch.packer.lines(),
            epoch=self._epoch,
            run=self._run_id,
            nonce=nonce,
            prev=self._durable.nonce or None,
            lease=lease,
        )
        started = self._clock.monotonic()
        key = keys.segment("out", self._sid, first)
        try:
            written = self._store.put_once(key, data, if_absent=True, nonce=nonce, deadline=self._patience())
        except PreconditionFailed:
            raise self._fenced(f"another writer holds place {first}") from None
        self._look_again(first, written)
        with self._cond:
            if self._want <= self._durable.id:  # nobody asked: it was the pace's turn
                self._pace = min(self.policy.longest, self._pace * self.policy.growth)
            self._durable = Cursor(last, nonce, first)
            self._bytes += len(data)
            self._written_at, self._lease = started, lease
            self._batches.popleft()
            self._due = started + self._pace if self._pending() else None
            self._cond.notify_all()

    def _look_again(self, first: int, written: Written) -> None:
        """See *A writer that slept*."""
        date = self._clock.now_ms() if written.date_ms is None else written.date_ms
        before, self._date_ms = self._date_ms, date
        if before is None or abs(date - before) <= HALF_AGE_MS:
            return
        if not is_newest(self._store, "out", self._sid, first):
            raise self._fenced(f"this writer slept before place {first}, and the log went on")

    def _fenced(self, why: str) -> Fenced:
        return Fenced(f"{why} of the out log of {self._sid}: stop, and do not acknowledge the message")
