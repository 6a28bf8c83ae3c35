"""Following a session live, from any id on."""

from __future__ import annotations

from typing import Any

import pytest
from chat_samples import SID, Place, call, die, first_turn, result, saying, text, user, write_all

from snapshotter import Gap, InvalidValue, Unreachable
from streams import keys
from streams.codec import encode_segment
from streams.log import Vanished
from streams.testing.faults import Call, Fault


@pytest.fixture
def place() -> Place:
    place = Place()
    place.send("u1")
    place.answer("one two three")
    return place


def events(place: Place, **options: Any) -> list[tuple[str, int]]:
    return [(event.log, event.id) for event in place.db.follow(SID, timeout=0.0, **options)]


def test_both_logs_each_in_its_order(place: Place) -> None:
    last = place.records()[-1]["id"]
    found = events(place)
    assert [e for e in found if e[0] == "in"] == [("in", 1)]
    assert [e for e in found if e[0] == "out"] == [("out", n) for n in range(1, last + 1)]


def test_from_any_id_on_also_the_middle_of_a_segment(place: Place) -> None:
    last = place.records()[-1]["id"]
    for after in range(last + 1):
        assert events(place, after={"out": after, "in": 1}) == [
            ("out", n) for n in range(after + 1, last + 1)
        ]
        assert [e for e in events(place, after=after) if e[0] == "out"] == [
            ("out", n) for n in range(after + 1, last + 1)
        ]


def test_an_id_that_is_not_there_yet_has_nothing_behind_it(place: Place) -> None:
    assert events(place, after={"out": 10_000, "in": 10_000}) == []


def test_packed_runs_are_unpacked(place: Place) -> None:
    place.send("u2")
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            turn.write({"type": "text-start", "id": "t"})
            for word in ("a ", "b ", "c "):
                turn.write({"type": "text-delta", "id": "t", "delta": word})
    assert any(record.get("cuts") == [2, 4, 6] for record in place.records())
    deltas = [
        record["chunk"]["delta"]
        for record in place.db.records(SID, "out")
        if record.get("chunk", {}).get("type") == "text-delta"
    ]
    assert deltas == ["one two three", "a ", "b ", "c "]
    ids = [record["id"] for record in place.db.records(SID, "out")]
    assert ids == list(range(1, len(ids) + 1))


def test_records_of_one_log(place: Place) -> None:
    assert [record["kind"] for record in place.db.records(SID, "in")] == ["message"]
    assert next(place.db.records(SID, "out", after=3))["id"] == 4


@pytest.mark.parametrize("after", ["5", {"up": 1}, {"out": -1}, {"out": "1"}, {"in": None}])
def test_a_place_that_is_none_is_refused(place: Place, after: Any) -> None:
    with pytest.raises(InvalidValue):
        list(place.db.follow(SID, after=after, timeout=0.0))


def test_events_come_as_they_become_durable(place: Place) -> None:
    last = place.records()[-1]["id"]
    place.send("u2")
    session = place.db.boot(SID)
    turn = first_turn(session)
    stream = place.db.follow(SID, after={"out": last, "in": 2}, timeout=60.0, poll=0.5)
    assert next(stream).record["control"] == "turn-start"
    write_all(turn, [{"type": "start"}, call()])
    assert [next(stream).record["chunk"]["type"] for _ in range(2)] == ["start", "tool-input-available"]
    write_all(turn, text("not flushed yet"))
    turn.write(result())
    assert [next(stream).id for _ in range(4)] == [last + n for n in (4, 5, 6, 7)]
    die(session)


def test_it_ends_after_the_silence_that_was_asked_for(place: Place) -> None:
    place.clock.slept.clear()
    assert [event.id for event in place.db.follow(SID, after={"out": 9_999, "in": 9}, timeout=7.0)] == []
    assert sum(place.clock.slept) == pytest.approx(7.0)
    assert max(place.clock.slept) <= 0.5


def test_waiting_asks_by_name_and_lists_only_now_and_then(place: Place) -> None:
    last = place.records()[-1]["id"]
    before = len(place.bucket.calls)
    list(place.db.follow(SID, after={"out": last, "in": 1}, timeout=20.0, poll=1.0))
    verbs = [asked.verb for asked in place.bucket.calls[before:]]
    assert verbs.count("list") <= 8
    assert verbs.count("get") > 25


def test_a_gap_is_said(place: Place) -> None:
    place.send("u2")
    place.answer()
    gone = keys.segment("out", SID, 2)
    assert gone in place.stored("out/")
    place.bucket.inner.delete(gone)
    with pytest.raises(Gap) as caught:
        events(place)
    assert caught.value.missing[0] == 2


def test_a_store_that_is_away_is_said_and_an_empty_session_is_not(place: Place) -> None:
    assert list(place.db.follow("nobody", timeout=0.0)) == []
    place.bucket.plan.append(Fault(times=0, seconds=1.0))
    with pytest.raises(Unreachable):
        events(place)


def test_a_listed_object_that_is_gone_is_looked_for_again(place: Place) -> None:
    expected = events(place)
    key, data = next(iter(place.stored("out/").items()))
    away: list[bool] = []

    def blink(asked: Call, when: str) -> None:
        if asked.key == key and when == "before" and not away:
            place.bucket.inner.delete(key)
            away.append(True)
        elif asked.key == key and when == "after":
            place.bucket.inner.put(key, data)

    place.bucket.hook = blink
    found = [(event.log, event.id) for event in place.db.follow(SID, timeout=2.0)]
    assert sorted(found) == sorted(expected)
    assert away


def test_one_that_stays_away_is_said(place: Place) -> None:
    key = next(iter(place.stored("out/")))
    place.bucket.plan.append(Fault("get", key=key, times=0, error=lambda: Vanished("injected")))
    with pytest.raises(Vanished):
        list(place.db.follow(SID, timeout=60.0))


def test_a_reader_of_another_log_is_told(place: Place) -> None:
    """The log was replaced behind the reader's place: its next segment continues another."""
    last = place.records()[-1]["id"]
    stream = place.db.follow(SID, after={"out": last - 1, "in": 1}, timeout=60.0)
    assert next(stream).id == last
    record = {"id": last + 1, "ts": 1, "control": "heartbeat"}
    data = encode_segment("out", [record], nonce="x", epoch=9, prev="another")
    place.bucket.inner.put(keys.segment("out", SID, last + 1), data)
    with pytest.raises(Gap, match="another log"):
        next(stream)


def test_a_follower_sees_what_a_boot_sees(place: Place) -> None:
    place.send("u2")
    place.db.stop(SID, "u2")
    place.send("u3")
    with place.db.boot(SID) as session:
        for turn in session.turns():
            with turn:
                write_all(turn, saying("x"))
    kinds = [e.record["kind"] for e in place.db.follow(SID, timeout=0.0) if e.log == "in"]
    assert kinds == ["message", "message", "stop", "message"]
    assert user("u3") in place.db.history(SID)
