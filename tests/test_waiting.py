"""Waiting for a holder whose segments are of the future: the store's clock was set back meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest
from chat_samples import AT_ONCE, SID, call, die, first_turn, saying, user, write_all

from snapshotter import Busy, Database
from snapshotter.loading import SLACK, Watched
from snapshotter.scribe import LEASE
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


def test_a_log_that_goes_on_is_watched_anew() -> None:
    clock = FakeClock()
    watched = Watched(clock)
    assert watched.seconds(Cursor(5, "a")) == 0.0
    clock.advance(50.0)
    assert watched.seconds(Cursor(5, "a")) == 50.0
    assert watched.seconds(Cursor(6, "b")) == 0.0
    clock.advance(3.0)
    assert watched.seconds(Cursor(6, "b")) == 3.0
