"""Readers beside maintenance: a value or a block that was named, and went with what named it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from blocky import LARGE, TINY, tiny
from chat_samples import SID, Place, saying, user
from upkeep import HOURS, fresh, interrupted, killed_at, session_of

from snapshotter.database import Database
from snapshotter.maintenance import Keep, delete, fork, maintain, redact
from snapshotter.rebuilding.results import Options
from snapshotter.rebuilding.working import rebuild_in
from snapshotter.verify import verify
from streams import keys
from streams.errors import Gap, Missing, Refused


@pytest.fixture
def place() -> Place:
    """Four turns in many segments, with values in both logs."""
    found = tiny()
    for number in range(1, 5):
        found.db.send(SID, user(f"u{number}", f"{LARGE} {number}"))
        with found.db.boot(SID, takeover=True) as booted:
            for turn in booted.turns():
                with turn:
                    for chunk in saying(f"answer {number} " * 60):
                        turn.write(chunk)
                        turn.flush()
        found.clock.advance(24 * HOURS)
    return found


def upkeep(place: Place) -> None:
    (kept,) = maintain(fresh(place), [SID], keep=Keep(turns=1))
    assert kept.error is None


def beside(
    place: Place, verb: str, prefix: str, act: Callable[[Place], Any], read: Callable[[Database], Any]
) -> Iterator[Any]:
    """What a reader finds beside `act`, before each of its requests of this kind in turn."""
    objects, order = dict(place.space.objects), list(place.space.order)
    for number in range(1, 200):
        place.space.objects, place.space.order = dict(objects), list(order)
        happened: list[int] = []

        def now(happened: list[int] = happened) -> None:
            happened.append(1)
            act(place)

        found = read(interrupted(place, verb, prefix, number, now))
        if not happened:
            return
        yield found


def rebuilt(place: Place) -> Callable[[Database], str]:
    def read(db: Database) -> str:
        options = Options(mode="write", until_ms=place.clock.now_ms(), sizes=TINY)
        return str(rebuild_in(db, options, [SID])[0].status)

    return read


def test_a_rebuild_beside_maintenance_reads_again(place: Place) -> None:
    assert {*beside(place, "get", "values/", upkeep, rebuilt(place))} == {"same"}


def test_a_rebuild_beside_a_redaction_reads_again(place: Place) -> None:
    act = lambda place: redact(fresh(place), SID, "u1", takeover=True)  # noqa: E731
    assert {*beside(place, "get", "values/", act, rebuilt(place))} <= {"same", "newer", "written"}


def test_verify_beside_maintenance_finds_nothing_wrong(place: Place) -> None:
    def read(db: Database) -> list[str]:
        return [problem.code for problem in verify(db, SID).problems]

    found = list(beside(place, "get", "values/", upkeep, read))
    assert found
    assert not any(found)


def test_a_follower_beside_a_redaction_goes_on_from_where_it_was(place: Place) -> None:
    def read(db: Database) -> list[int]:
        return [record["id"] for record in db.records(SID, "in")]

    act = lambda place: redact(fresh(place), SID, "u1", takeover=True)  # noqa: E731
    found = list(beside(place, "get", "", act, read))
    assert found
    assert all(ids in ([1, 2, 3, 4], [1, 2, 3, 4, 5]) for ids in found)  # the last says what is redacted


def test_a_reader_of_records_beside_a_deletion_says_that_the_log_is_gone(place: Place) -> None:
    def read(db: Database) -> str:
        try:
            list(db.records(SID, "out"))
        except Gap:
            return "gone"
        return "read"

    act = lambda place: delete(fresh(place), SID)  # noqa: E731
    assert {*beside(place, "get", "values/", act, read)} <= {"gone", "read"}


def test_a_value_that_is_really_gone_is_missing(place: Place) -> None:
    for key in place.stored(keys.values_prefix(place.db.sid(SID))):
        del place.space.objects[key]
        place.space.order.remove(key)
    with pytest.raises(Missing):
        list(fresh(place).records(SID, "in"))
    assert rebuilt(place)(fresh(place)) == "failed"
    assert "missing" in [problem.code for problem in verify(fresh(place), SID).problems]


def test_a_checkpoint_that_a_deletion_empties_before_it_is_read_is_no_damage(place: Place) -> None:
    """The log says that the session is deleted, and that is what a boot and a fork find."""
    upkeep(place)
    place.db.store.delete(keys.snapshot(SID))
    boots = beside(place, "get", "checkpoints/", lambda at: delete(fresh(at), SID), lambda db: db.peek(SID))
    assert [booted.fold.deleted for booted in boots] == [True]

    def forked(db: Database) -> str:
        try:
            return fork(db, SID, "other").operation
        except Refused as refused:
            return str(refused)

    told = [*beside(place, "get", "checkpoints/", lambda at: delete(fresh(at), SID), forked)]
    assert told[0] == f"session '{SID}' is deleted"
    assert {*told} <= {told[0], "fork"}  # what was read before is the session as it stood then


def test_a_deletion_beside_another_and_a_create_finds_no_damage() -> None:
    """What it has listed was emptied by the one that the create has brought to its end."""
    place = tiny()
    place.send("u1")
    delete(place.db, SID)
    place.send("u2")

    def act(at: Place) -> None:
        fresh(at).create(SID)

    for done in beside(place, "get", "out/", act, lambda db: delete(db, SID)):
        assert done.operation == "delete"
        assert fresh(place).history(SID) == []
        assert verify(fresh(place), SID).ok


@pytest.mark.parametrize("owed", [False, True])
def test_a_history_beside_a_deletion_shows_all_or_nothing(owed: bool) -> None:
    """However far the deletion has come when the reader makes a request: all, or nothing."""
    place = tiny()
    session_of(place, turns=1)
    if owed:
        place.send("u9")
    place.db.store.delete(keys.snapshot(SID))
    seen = set()
    for far in range(1, 60):
        killed: list[bool] = []

        def act(at: Place, far: int = far, killed: list[bool] = killed) -> None:
            killed.append(killed_at(at, far, "after", lambda db: delete(db, SID)))

        for messages in beside(place, "get", "", act, lambda db: db.history(SID)):
            seen.add(tuple(message["role"] for message in messages))
        if not any(killed):
            break
    else:
        raise AssertionError("the deletion never came to its end")
    assert seen == {("user", "assistant", *["user"] * owed), ()}
