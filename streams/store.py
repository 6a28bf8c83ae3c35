"""The engine's own request layer over one bucket: retries, deadlines, counters, unanswered writes.

A bucket does one request and never retries. Here a request that was not answered (`Unreachable`,
`Throttled`) is repeated with growing, jittered waits, until a deadline or a number of attempts.

Reads and deletes are simply repeated. A conditional write is not that simple: a reply may be lost
after the write was applied, and repeating it then meets its own object and looks like a lost race.
So each write carries a nonce, and `put_once` does this:

    put             answered 200                      written
                    not answered, 409, 5xx            repeat the very same put
                    412, the object has our nonce     written (an earlier attempt of ours landed)
                    412, it has another's             PreconditionFailed: the place is lost
                    412, and then it is gone          repeat
    deadline        with no answer                    Unknown: it may be there, or may still land

A 404 never counts as proof that a write did not happen: it may land later. Only repeating the write
settles it. Where a bucket keeps no nonces (files), the stored bytes are compared instead, so bytes
must differ between writers; every segment's header holds its nonce.

Stores that do not let a caller list a bucket refuse a read of what is not there (403), as if it were
forbidden. Absent and forbidden are told apart by listing that one key, where the caller may.

Time, waits and randomness come from the clock, so a test decides them.
"""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, TypeVar

from streams.buckets.base import Blob, Broken, Bucket, Entry, Head, Page, Written
from streams.clock import Clock
from streams.encryption import MAGIC, no_key
from streams.errors import (
    AccessDenied,
    PreconditionFailed,
    StreamError,
    Throttled,
    Unknown,
    Unreachable,
    WrongEndpoint,
)
from streams.stats import Stats

if TYPE_CHECKING:
    from tenacity import RetryCallState

T = TypeVar("T")

_PAGE = 1000  # what S3 gives at most
_LONG_PAGE = 20_000


@dataclass(frozen=True, slots=True)
class Retries:
    """How long to go on. Seconds; waits double from `first` to `longest`, each by half at random."""

    read_deadline: float = 20.0
    write_deadline: float = 60.0
    attempts: int = 40
    first: float = 0.1
    longest: float = 3.0


class _Trips(threading.local):
    """Where this thread's round trips go: to the batch it works for, else (None) to the store."""

    batch: list[int] | None = None


class Store:
    """Requests to one bucket. Safe to share between threads.

    Every method may raise Unreachable or Throttled when its deadline has passed, and the Misconfigured
    errors (BucketMissing, AccessDenied, CredentialsExpired …) at once. `page`: entries that one listing is
    asked for by who wants all of them.
    """

    def __init__(self, bucket: Bucket, clock: Clock, *, retries: Retries | None = None) -> None:
        self.bucket = bucket
        self.clock = clock
        self.retries = retries or Retries()
        self.stats = Stats()
        self._at_hand = bucket.url.startswith("file:")
        # In a folder each listing looks through all names.
        self.page = _LONG_PAGE if self._at_hand else _PAGE
        self._trips = _Trips()

    @property
    def url(self) -> str:
        return self.bucket.url

    @property
    def room(self) -> int:
        return self.bucket.room

    def get(self, key: str) -> Blob | None:
        """The object, or None where there is none. Raises WrongKey for one that is encrypted still, so that
        no worker without a key takes it for damaged, or goes on beside it in plain text. One whose seal does
        not hold raises Corrupt where its bytes are asked for."""

        def call() -> Blob | None:
            self._count("gets")
            return self.bucket.get(key)

        blob = self._repeat(partial(self._or_absent, key, call), self.retries.read_deadline)
        if blob is not None and not isinstance(blob, Broken):
            self.stats.add("bytes_read", len(blob.data))
            if blob.data.startswith(MAGIC):
                raise no_key(key)
        return blob

    def head(self, key: str) -> Head | None:
        """The object's metadata, or None where there is none."""

        def call() -> Head | None:
            self._count("heads")
            return self.bucket.head(key)

        return self._repeat(partial(self._or_absent, key, call), self.retries.read_deadline)

    def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Page:
        """One page. It may be short, even empty, while `more` is true."""

        def call() -> Page:
            self._count("lists")
            return self.bucket.list(prefix, after=after, limit=limit)

        return self._repeat(call, self.retries.read_deadline)

    def entries(self, prefix: str, *, after: str = "", page: int | None = None) -> Iterator[Entry]:
        """Every entry under `prefix`, page by page. Raises WrongEndpoint if a listing does not advance."""
        while True:
            found = self.list(prefix, after=after, limit=page or self.page)
            yield from found.entries
            if not found.more:
                return
            if found.resume == after:
                raise WrongEndpoint(f"the listing of {prefix!r} at {self.url} stands still at {after!r}")
            after = found.resume

    def delete(self, key: str) -> None:
        """Delete the object; an absent one is no error. Repeated until it is answered."""

        def call() -> None:
            self._count("deletes")
            self.bucket.delete(key)

        self._repeat(call, self.retries.read_deadline)

    def put(self, key: str, data: bytes, *, nonce: str = "") -> Written:
        """Overwrite whatever is there. Only for objects that no two writers ever share."""

        def call() -> Written:
            self._count_put(data)
            return self.bucket.put(key, data, nonce=nonce)

        return self._repeat(call, self.retries.write_deadline)

    def copy(
        self, source: str, target: str, check: Callable[[bytes], object] = bytes, *, inside: bool = False
    ) -> bool:
        """Create `target` with what stands at `source`, as it was before where that copy is there already;
        False where nothing stands at `source`, or at either an object that a deletion emptied. `check`
        raises where the bytes are not what was stored. `inside`: the store may copy by itself, unchecked."""
        if inside and self._copied(source, target):
            return True
        blob = self.get(source)
        if blob is None or not blob.data:
            return False
        check(blob.data)
        try:
            self.put_once(target, blob.data, if_absent=True, nonce=blob.nonce or "")
        except PreconditionFailed:
            return False
        return True

    def put_once(
        self,
        key: str,
        data: bytes,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        nonce: str,
        sole: bool = False,
        deadline: float | None = None,
    ) -> Written:
        """Write under a condition, exactly once, whatever becomes of the replies.

        Give either `if_absent=True` or `if_match`. `nonce` must be new for each write (and the same when
        that write is tried again). `sole`: nobody else writes this key, so what stands there is this write,
        also where the caller may write here and not read; and an empty object there, which only a deletion
        leaves, counts as none and is overwritten. `deadline` is in seconds, by default
        `retries.write_deadline`.

        Raises PreconditionFailed when another's write holds the place, Unknown when no attempt was answered
        in time. A replacement that was only ever throttled raises Throttled.
        """
        if if_absent == (if_match is not None):
            raise ValueError("give either if_absent=True or if_match")
        throttled_only = True

        def call() -> Written:
            nonlocal throttled_only
            try:
                self._count_put(data)
                return self.bucket.put(key, data, if_absent=if_absent, if_match=if_match, nonce=nonce)
            except PreconditionFailed:
                found = self._find_own(key, data, nonce, sole)
                if sole and found is None:
                    return self._put_over(key, data, nonce)
                if found is None and if_absent:
                    raise Unreachable(f"{key} was taken, and then gone") from None
                if found is None or not found[0]:
                    raise
                return found[1]
            except Unreachable as error:
                throttled_only = throttled_only and isinstance(error, Throttled)
                raise

        try:
            return self._repeat(call, self.retries.write_deadline if deadline is None else deadline)
        except Throttled:
            if throttled_only and if_match is not None:
                raise
            raise Unknown(_unknown(key)) from None
        except Unreachable as error:
            raise Unknown(f"{_unknown(key)}: {error}") from error

    def gather(self, calls: Sequence[Callable[[], T]], *, writes: bool = False) -> builtins.list[T]:
        """Run the calls in parallel, results in order; the first exception, in order, is raised. In a folder
        only those that write, which wait for the disk: a read takes microseconds, and a thread more.

        The batch counts as the round trips of its longest call, which is one where each call is one request.
        """
        counts = [[0] for _ in calls]

        def counted(call: Callable[[], T], count: list[int]) -> T:
            outer, self._trips.batch = self._trips.batch, count
            try:
                return call()
            finally:
                self._trips.batch = outer

        try:
            if self._at_hand and not writes:
                return [*map(counted, calls, counts)]
            each: builtins.list[Callable[[], Any]] = [*map(partial, repeat(counted), calls, counts)]
            return self.clock.gather(each)
        finally:
            self._trip(max((n[0] for n in counts), default=0))

    def close(self) -> None:
        self.bucket.close()

    # --- inside -----------------------------------------------------------------------------------------

    def _copied(self, source: str, target: str) -> bool:
        """Whether the store has made the copy by itself. It is asked once: whatever else it answers, or does
        not, the way through here settles, since either is a create of the same bytes and nonce. The version
        is named, so that no copy lands of what a deletion has emptied meanwhile."""
        head = self.head(source)
        if head is None or not head.size:
            return False
        self._count("puts")
        with suppress(StreamError):
            return self.bucket.copy(source, target, head.etag)
        return False

    def _count(self, verb: str) -> None:
        self.stats.add(verb)
        self._trip(1)

    def _count_put(self, data: bytes) -> None:
        self._count("puts")
        self.stats.add("bytes_written", len(data))

    def _trip(self, amount: int) -> None:
        if self._trips.batch is None:
            self.stats.add("round_trips", amount)
        else:
            self._trips.batch[0] += amount

    def _or_absent(self, key: str, call: Callable[[], T | None]) -> T | None:
        """A read; None where it was refused and a listing shows that there is nothing to read."""
        try:
            return call()
        except AccessDenied:
            listed = self._is_listed(key)
            if listed is None:
                raise
        return call() if listed else None  # written in between; else the refusal is what it says

    def _is_listed(self, key: str) -> bool | None:
        """None where the caller may not list this key."""
        self._count("lists")
        with suppress(AccessDenied):
            return any(entry.key == key for entry in self.bucket.list(key, limit=1).entries)
        return None

    def _put_over(self, key: str, data: bytes, nonce: str) -> Written:
        self._count_put(data)
        return self.bucket.put(key, data, nonce=nonce)

    def _find_own(self, key: str, data: bytes, nonce: str, sole: bool) -> tuple[bool, Written] | None:
        """Whether what stands at `key` is this very write; None where nothing stands there, or (`sole`) an
        object that a deletion emptied."""
        self._count("heads")
        try:
            head = self.bucket.head(key)
        except AccessDenied:
            if sole:
                return True, Written("", None)
            raise
        if head is None or (sole and not head.size):
            return None
        if head.nonce is not None:
            return head.nonce == nonce, Written(head.etag, head.date_ms)
        if head.size != len(data):
            return False, Written(head.etag, head.date_ms)
        self._count("gets")
        blob = self.bucket.get(key)
        if blob is None:
            return None
        self.stats.add("bytes_read", len(blob.data))
        return blob.data == data, Written(blob.etag, blob.date_ms)

    def _repeat(self, call: Callable[[], T], seconds: float) -> T:
        """Call until it is answered. Raises the last Unreachable, with what was tried, past the deadline."""
        end = self.clock.monotonic() + seconds
        try:
            return call()
        except Unreachable as error:
            if self.clock.monotonic() >= end or self.retries.attempts < 2:
                raise
            first = error
        self.clock.sleep(self._wait(1, first, end))
        return self._repeat_more(call, end, seconds)

    def _repeat_more(self, call: Callable[[], T], end: float, seconds: float) -> T:
        # Imported at the first failure: a process whose store answers never pays for it.
        import tenacity

        done = 1  # the attempt that brought us here

        def stop(state: RetryCallState) -> bool:
            return self.clock.monotonic() >= end or done + state.attempt_number >= self.retries.attempts

        def wait(state: RetryCallState) -> float:
            return self._wait(done + state.attempt_number, _error_of(state), end)

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(Unreachable),
            stop=stop,
            wait=wait,
            sleep=self.clock.sleep,
            reraise=True,
        )
        try:
            return retrying(call)
        except Unreachable as error:
            tries = done + retrying.statistics["attempt_number"]
            raise type(error)(f"{error} (tried {tries} times in {seconds:g} s)") from error

    def _wait(self, attempt: int, error: Any, end: float) -> float:
        """Seconds to wait after the `attempt`th failure; never past the end, so a last attempt fits."""
        first = self.retries.first * (4 if isinstance(error, Throttled) else 1)
        full = min(self.retries.longest, first * 2.0 ** (attempt - 1))
        return max(0.0, min(full * (1 + self.clock.jitter()) / 2, end - self.clock.monotonic()))


def _error_of(state: RetryCallState) -> BaseException | None:
    return None if state.outcome is None else state.outcome.exception()


def _unknown(key: str) -> str:
    return f"the write of {key} was not answered in time; it may be there or may still land"
