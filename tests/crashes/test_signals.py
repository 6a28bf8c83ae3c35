"""Signals at every storage call of a worker.

SIGTERM: what it holds is released, at once, and for the right reason. SIGINT cuts a step of the engine in
two; then nothing but the lease may be left behind.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from types import FrameType

import pytest
from crash_checker import check_out, records_of
from crash_world import When

from snapshotter import ChatRecovery, Database, Terminated, release_on_sigterm
from streams.buckets.memory import MemoryBucket, Space
from streams.testing.clocks import FakeClock
from streams.testing.faults import Call, FaultyBucket

AT_ONCE = ChatRecovery(max_backoff=0)  # these runs end and begin in no time

SESSION = "chat/1"


class Signaller:
    """Sends a signal at the n-th storage call, and lets that call go on once the main thread has it."""

    def __init__(self, signum: signal.Signals, number: int, when: When) -> None:
        self._signum = signum
        self._at = (number, when)
        self._heard = threading.Event()

    def __call__(self, call: Call, when: When) -> None:
        if (call.number, when) == self._at:
            signal.pthread_kill(threading.main_thread().ident or 0, self._signum)
            assert self._heard.wait(10)

    @contextmanager
    def listening(self) -> Iterator[None]:
        with release_on_sigterm():
            handler = signal.getsignal(self._signum)
            assert callable(handler)

            def hear(number: int, frame: FrameType | None) -> None:
                self._heard.set()
                handler(number, frame)

            signal.signal(self._signum, hear)
            try:
                yield
            finally:
                signal.signal(self._signum, handler)


def answer(db: Database, *, takeover: bool = False) -> None:
    with db.boot(SESSION, stable_timeout=0.0, takeover=takeover) as session:
        for turn in session.turns():
            with turn:
                turn.write({"type": "start"})
                turn.write({"type": "text-start", "id": "t"})
                turn.write({"type": "text-delta", "id": "t", "delta": "half"})
                turn.flush()
                turn.write({"type": "text-end", "id": "t"})
                turn.write({"type": "finish", "finishReason": "stop"})


@pytest.mark.parametrize("when", ["before", "after"])
def test_sigterm_at_any_call_leaves_nothing_busy(when: When) -> None:
    released = 0
    for number in count(1):
        space, clock = Space(), FakeClock()
        plain = Database(MemoryBucket(clock, space=space), clock, recovery=AT_ONCE)
        plain.send(SESSION, {"id": "u1", "role": "user", "parts": []})
        terminator = Signaller(signal.SIGTERM, number, when)
        bucket = FaultyBucket(MemoryBucket(clock, space=space), hook=terminator)
        with terminator.listening(), pytest.raises(Terminated) as caught:
            answer(Database(bucket, clock, recovery=AT_ONCE))
            # All was done before the signal was heard; or it came with the last request.
            raise Terminated
        if len(bucket.calls) < number:
            assert number > 8
            break
        assert caught.value.code == 143
        _, outs = records_of(MemoryBucket(space=space), "out")
        whys = [record["why"] for record in outs if record.get("control") == "turn-release"]
        assert whys in ([], ["signal"]), f"call {number}"
        released += len(whys)
        answer(plain)  # never Busy
        history = plain.history(SESSION)
        assert [m["role"] for m in history] == ["user", "assistant"], f"call {number}"
    assert released == 2  # in the claim, and while text is written


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_interrupt_at_any_call_leaves_a_log_that_can_be_carried_on(when: When) -> None:
    for number in count(1):
        space, clock = Space(), FakeClock()
        plain = Database(MemoryBucket(clock, space=space), clock, recovery=AT_ONCE)
        plain.send(SESSION, {"id": "u1", "role": "user", "parts": []})
        signaller = Signaller(signal.SIGINT, number, when)
        bucket = FaultyBucket(MemoryBucket(clock, space=space), hook=signaller)
        with signaller.listening(), suppress(KeyboardInterrupt):
            answer(Database(bucket, clock, recovery=AT_ONCE))
        if len(bucket.calls) < number:
            assert number > 8
            break
        answer(plain, takeover=True)
        headers, outs = records_of(MemoryBucket(space=space), "out")
        assert check_out(outs, headers)[1] == {}, f"call {number}"
        history = plain.history(SESSION)
        assert [m["role"] for m in history] == ["user", "assistant"], f"call {number}"
        assert [part.get("text") for part in history[1]["parts"]][-1:] == ["half"], f"call {number}"
