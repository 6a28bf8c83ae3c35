"""Waiting: for a holder whose segments are of the future, since the store's clock was set back meanwhile, and
for the pause before the next attempt, which the observer is told of once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from chat_samples import AT_ONCE, SID, Place, call, die, first_turn, saying, user, write_all

from snapshotter import Busy, ChatRecovery, Database, RecoveryEvent
from snapshotter.holding import SLACK, Silence, Wait
from snapshotter.scribe import LEASE
from streams.buckets.base import Page
from streams.buckets.file import FileBucket
from streams.records import Cursor
from streams.testing.clocks import FakeClock

HOUR_MS = 3_600_000


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(seed=7)


@pytest.fixture
def db(tmp_path: Path, clock: FakeClock) -> Database:
    """A folder that a worker wrote to when its clock was an hour ahead; that worker was killed."""
    ahead = FakeClock(start_ms=clock.now_ms() + HOUR_MS)
    early = Database(FileBucket(tmp_path, ahead), ahead, recovery=AT_ONCE)
    early.send(SID, user("u1"))
    session = early.boot(SID)
    write_all(first_turn(session), [{"type": "start"}, call()])
    die(session)
    return Database(FileBucket(tmp_path, clock), clock, recovery=AT_ONCE)


@pytest.mark.parametrize("claim", [False, True])
def test_a_boot_that_saw_nothing_new_for_a_whole_lease_takes_over(
    db: Database, clock: FakeClock, claim: bool
) -> None:
    with db.boot(SID, stable_timeout=60.0, claim=claim) as session:
        assert LEASE + SLACK <= clock.monotonic() < LEASE + SLACK + 1.5
        assert session.busy is None
        with first_turn(session) as turn:
            assert turn.attempt == 2
            write_all(turn, saying("done"))
    assert db.peek(SID).fold.last_turn["status"] == "completed"  # type: ignore[index]


@pytest.mark.parametrize("claim", [False, True])
def test_one_that_saw_less_than_that_does_not(db: Database, clock: FakeClock, claim: bool) -> None:
    with pytest.raises(Busy) as caught:
        db.boot(SID, stable_timeout=LEASE + SLACK - 1.0, claim=claim)
    assert caught.value.retry_after == pytest.approx(1.0)
    assert clock.monotonic() == pytest.approx(LEASE + SLACK - 1.0)


@pytest.mark.parametrize("claim", [False, True])
def test_one_that_was_not_told_how_long_to_wait_waits_for_the_lease(
    db: Database, clock: FakeClock, claim: bool
) -> None:
    """Else each boot would give up after 25 s, until the clock has caught up: an hour of Busy."""
    with db.boot(SID, claim=claim) as session:
        assert LEASE + SLACK <= clock.monotonic() < LEASE + SLACK + 1.5
        assert first_turn(session).attempt == 2


class SlowAtFirst(FileBucket):
    """A connection that is opened by the first request: it takes longer than those after it."""

    asked = 0

    def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Page:
        self.asked += 1
        self._clock.sleep(0.3 if self.asked < 3 else 0.01)
        return super().list(prefix, after=after, limit=limit)


@pytest.mark.parametrize("claim", [False, True])
def test_a_first_request_that_takes_its_time_makes_the_wait_no_shorter(
    db: Database, tmp_path: Path, clock: FakeClock, claim: bool
) -> None:
    slow = Database(SlowAtFirst(tmp_path, clock), clock, recovery=AT_ONCE)
    with slow.boot(SID, claim=claim) as session:
        assert first_turn(session).attempt == 2


@pytest.mark.parametrize("claim", [False, True])
def test_a_living_worker_whose_dates_lie_is_not_waited_for_for_ever(
    db: Database, tmp_path: Path, clock: FakeClock, claim: bool
) -> None:
    """No date is told, and its clock is an hour ahead of ours: it speaks again and again."""
    ahead = FakeClock(start_ms=clock.now_ms() + HOUR_MS)
    other = Database(FileBucket(tmp_path, ahead), ahead, recovery=AT_ONCE)
    turn = first_turn(other.boot(SID, takeover=True))

    class Speaking(FileBucket):
        def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Page:
            if int(clock.monotonic()) % 9 == 0 and prefix.startswith("out/"):
                turn.write({"type": "data-beat", "data": clock.monotonic()})
                turn.flush()
            return super().list(prefix, after=after, limit=limit)

    with pytest.raises(Busy):
        Database(Speaking(tmp_path, clock), clock, recovery=AT_ONCE).boot(SID, claim=claim)
    assert clock.monotonic() < 2 * (LEASE + SLACK)


@pytest.mark.parametrize("claim", [False, True])
def test_a_deadline_counts_from_the_call_and_bounds_the_wait(claim: bool) -> None:
    place = Place()
    place.send("u1")
    session = place.db.boot(SID)
    write_all(first_turn(session), [{"type": "start"}, call()])
    die(session)
    began = place.clock.monotonic()
    with pytest.raises(Busy):
        place.db.boot(SID, deadline=5.0, claim=claim)
    assert place.clock.monotonic() - began <= 5.0
    began = place.clock.monotonic()
    with place.db.boot(SID, deadline=60.0, stable_timeout=55.0, claim=claim) as booted:
        waited = place.clock.monotonic() - began
        assert waited > 10.0
        assert booted.deadline_left() == pytest.approx(58.0 - waited)


def test_where_no_date_says_when_the_last_attempt_ended_the_next_one_is_not_put_off(
    tmp_path: Path, clock: FakeClock
) -> None:
    ahead = FakeClock(start_ms=clock.now_ms() + HOUR_MS)
    early = Database(FileBucket(tmp_path, ahead), ahead)
    early.send(SID, user("u1"))
    with early.boot(SID) as session, pytest.raises(RuntimeError), first_turn(session):
        raise RuntimeError("once more")
    with pytest.raises(Busy):
        early.boot(SID, stable_timeout=0.0)
    with Database(FileBucket(tmp_path, clock), clock).boot(SID, stable_timeout=0.0) as session:
        assert first_turn(session).attempt == 2


def test_a_log_that_goes_on_is_watched_anew() -> None:
    clock = FakeClock()
    watched = Silence(clock)
    assert watched.seconds(Cursor(5, "a")) == 0.0
    clock.advance(50.0)
    assert watched.seconds(Cursor(5, "a")) == 50.0
    assert watched.seconds(Cursor(6, "b")) == 0.0
    clock.advance(3.0)
    assert watched.seconds(Cursor(6, "b")) == 3.0


def test_a_wait_is_lengthened_once_and_never_behind_the_latest() -> None:
    clock = FakeClock()
    wait = Wait(clock, (5.0, 60.0))
    wait.lengthen(20.0)
    assert wait.left == 21.0
    wait.lengthen(30.0)
    assert wait.left == 21.0
    late = Wait(clock, (5.0, 10.0))
    late.lengthen(20.0)
    assert late.left == 10.0
    long = Wait(clock, (50.0, 60.0))
    long.lengthen(20.0)
    assert long.left == 50.0
    clock.advance(50.0)
    assert long.left == 0.0


# -- the pause before the next attempt ----------------------------------------------------------------------


def paused(events: list[RecoveryEvent], **options: Any) -> Place:
    """A session whose first attempt failed a moment ago: the next may begin after 4 s."""
    options.setdefault("observer", events.append)
    place = Place(recovery=ChatRecovery(**options))
    place.send("u1")
    with pytest.raises(RuntimeError), place.db.boot(SID) as session, first_turn(session):
        raise RuntimeError("provider 500")
    events.clear()
    return place


@pytest.mark.parametrize("claim", [False, True])
def test_a_boot_that_gives_up_before_the_next_attempt_says_when_that_is(claim: bool) -> None:
    events: list[RecoveryEvent] = []
    place = paused(events)
    with pytest.raises(Busy) as raised:
        place.db.boot(SID, stable_timeout=0.0, claim=claim)
    (event,) = events
    assert (event.kind, event.session, event.attempt) == ("scheduled", SID, 2)
    assert event.detail["retry_after"] == raised.value.retry_after == pytest.approx(4.0, abs=0.5)
    assert event.detail["error"] == "RuntimeError: provider 500"


def test_one_that_looks_again_in_vain_says_so_once() -> None:
    events: list[RecoveryEvent] = []
    place = paused(events)
    with pytest.raises(Busy, match="begins in 2 s"):
        place.db.boot(SID, stable_timeout=2.5)
    assert [event.kind for event in events] == ["scheduled"]


def test_one_that_waits_the_pause_out_says_so_before_the_attempt() -> None:
    events: list[RecoveryEvent] = []
    place = paused(events)
    with place.db.boot(SID) as session, first_turn(session) as turn:
        assert turn.attempt == 2
        assert [event.kind for event in events] == ["scheduled", "detected", "attempt"]


def test_an_observer_that_fails_does_not_end_the_wait() -> None:
    def fails(event: RecoveryEvent) -> None:
        if event.kind == "scheduled":
            raise KeyError("no connection")

    place = paused([], observer=fails)
    with place.db.boot(SID) as session:
        (line,) = session.report
        assert line == {"code": "hook-failed", "id": 0, "detail": "observer: KeyError('no connection')"}
        assert first_turn(session).attempt == 2


def test_a_living_holder_schedules_nothing(db: Database) -> None:
    events: list[RecoveryEvent] = []
    watching = Database(db.store.bucket, db.clock, recovery=ChatRecovery(observer=events.append))
    with pytest.raises(Busy):
        watching.boot(SID, stable_timeout=5.0)
    assert events == []
