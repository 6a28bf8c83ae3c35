"""Senders: what is accepted, once, among any number of others."""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest
from chat_samples import SID, Place, shape, user

from snapshotter import Conflict, Database, InvalidValue, Receipt, Refused, TooLarge, Unknown
from streams.buckets.memory import MemoryBucket, Space
from streams.clock import SystemClock
from streams.testing.faults import Call, Fault


@pytest.fixture
def place() -> Place:
    return Place()


def test_a_text_becomes_a_message(place: Place) -> None:
    receipt = place.db.send(SID, "hello", metadata={"a": 1}, body={"b": 2})
    assert (receipt, receipt.duplicate) == (Receipt(SID, 1), False)
    (record,) = place.records("in")
    assert (record["id"], record["kind"], record["ts"]) == (1, "message", place.clock.now_ms())
    assert record["message"]["role"] == "user"
    assert record["message"]["parts"] == [{"type": "text", "text": "hello"}]
    assert record["message"]["id"].startswith("msg_")
    assert (record["metadata"], record["body"]) == ({"a": 1}, {"b": 2})


def test_a_receipt_travels_as_text(place: Place) -> None:
    receipt = place.db.send('ch"at/ü', "hello")
    assert Receipt.parse(str(receipt)) == receipt
    assert Receipt.parse({"session": 'ch"at/ü', "id": 1}) == receipt
    assert [item.kind for item in place.db.boot(receipt=str(receipt)).pending] == ["message"]


def test_every_kind_of_input(place: Place) -> None:
    place.db.send(SID, user("u1"), client_tools=["t"], key="k")
    place.db.edit(SID, "u1", "better")
    place.db.approve(SID, "ap1")
    place.db.approve(SID, tool_call_id="c1", approved=False, reason="no")
    place.db.tool_result(SID, "c1", {"x": 1}, message_id="a1")
    place.db.tool_result(SID, "c2", error_text="failed")
    place.db.stop(SID, "u1")
    place.db.stop(SID)
    place.db.regenerate(SID, "a1")
    place.db.action(SID, "rename", {"to": "T"})
    place.db.close_session(SID)
    bodies = [{k: v for k, v in r.items() if k not in ("id", "ts")} for r in place.records("in")]
    assert bodies == [
        {"kind": "message", "message": user("u1"), "key": "k", "clientTools": ["t"]},
        {"kind": "edit", "messageId": "u1", "message": {**user("u1", "better")}},
        {"kind": "tool-approval", "approvalId": "ap1", "approved": True},
        {"kind": "tool-approval", "toolCallId": "c1", "approved": False, "reason": "no"},
        {"kind": "tool-result", "toolCallId": "c1", "output": {"x": 1}, "messageId": "a1"},
        {"kind": "tool-result", "toolCallId": "c2", "errorText": "failed"},
        {"kind": "stop", "messageId": "u1"},
        {"kind": "stop"},
        {"kind": "regenerate", "messageId": "a1"},
        {"kind": "action", "name": "rename", "input": {"to": "T"}},
        {"kind": "close"},
    ]
    assert [len(segment) for segment in place.segments("in")] == [1] * 11


# -- once -------------------------------------------------------------------------------------------------


def test_the_same_message_again_is_the_first(place: Place) -> None:
    first = place.send("u1")
    place.send("u2")
    again = place.send("u1")
    assert (again.id, again.duplicate) == (first.id, True)
    assert len(place.records("in")) == 2


def test_a_key_stands_for_a_message_without_an_id(place: Place) -> None:
    first = place.db.send(SID, "hello", key="k1")
    assert place.db.send(SID, "hello", key="k1") == Receipt(SID, first.id, duplicate=True)
    assert place.db.send(SID, "hello", key="k2").id == 2
    names = [record["message"]["id"] for record in place.records("in")]
    assert len(set(names)) == 2


def test_what_travels_with_the_request_is_not_its_body(place: Place) -> None:
    """A client that tries again may have another time, body or metadata."""
    place.send("u1", metadata={"try": 1}, body={"m": 1})
    assert place.send("u1", metadata={"try": 2}, body={"m": 2}).duplicate


@pytest.mark.parametrize("by", ["id", "key"])
def test_another_body_under_the_same_name_is_refused_and_nothing_is_written(place: Place, by: str) -> None:
    key = "k" if by == "key" else None
    first, second = (user("u1"), user("u1", "other")) if by == "id" else ("hi", "other")
    place.db.send(SID, first, key=key)
    with pytest.raises(Conflict, match="edit") as caught:
        place.db.send(SID, second, key=key)
    assert caught.value.first == 1
    assert len(place.records("in")) == 1


def test_a_repeat_after_minutes_is_found_by_the_reader(place: Place) -> None:
    place.send("u1")
    place.clock.advance(180.0)
    assert place.send("u1").id == 2
    place.answer()
    place.send("u2")
    found = place.db.peek(SID)
    assert [m["id"] for m in found.messages if m["role"] == "user"] == ["u1"]
    assert [item.messages[0]["id"] for item in found.pending] == ["u2"]
    assert len(place.controls("turn-start")) == 1


def test_a_log_that_already_holds_a_double_shows_it_once(place: Place) -> None:
    place.send("u1")
    place.clock.advance(180.0)
    place.send("u1")
    found = place.db.peek(SID)
    assert [item.ids for item in found.pending] == [(1,)]
    assert [line["code"] for line in found.report] == ["duplicate-input"]


def test_a_create_whose_reply_was_lost_is_one_record(place: Place) -> None:
    place.bucket.plan.append(Fault("put", when="after", seconds=5.0))
    assert place.send("u1") == Receipt(SID, 1)
    assert len(place.records("in")) == 1


def test_a_create_that_is_never_answered_is_unknown_and_can_be_sent_again(place: Place) -> None:
    place.bucket.plan += [Fault("put", when="late", seconds=5.0), Fault("put", nth=2, times=0, seconds=5.0)]
    with pytest.raises(Unknown):
        place.send("u1")
    place.bucket.plan.clear()
    place.bucket.land()
    assert place.send("u1") == Receipt(SID, 1, duplicate=True)


def test_a_lost_race_takes_the_next_place(place: Place) -> None:
    other = Database(place.bucket.inner, place.clock)
    raced: list[bool] = []

    def race(asked: Call, when: str) -> None:
        if asked.verb == "put" and when == "before" and not raced:
            raced.append(True)
            other.send(SID, user("u2"))

    place.bucket.hook = race
    assert place.send("u1").id == 2
    assert [record["message"]["id"] for record in place.records("in")] == ["u2", "u1"]


def test_a_race_lost_to_the_same_message_is_its_receipt(place: Place) -> None:
    other = Database(place.bucket.inner, place.clock)
    raced: list[bool] = []

    def race(asked: Call, when: str) -> None:
        if asked.verb == "put" and when == "before" and not raced:
            raced.append(True)
            other.send(SID, user("u1"))

    place.bucket.hook = race
    assert place.send("u1") == Receipt(SID, 1, duplicate=True)
    assert len(place.records("in")) == 1


@pytest.mark.parametrize("same", [False, True], ids=["their own", "the same"])
def test_many_senders_at_once(same: bool) -> None:
    space = Space()
    found: list[int] = []

    def send(number: int) -> None:
        db = Database(MemoryBucket(space=space), SystemClock())
        for index in range(5):
            found.append(db.send(SID, user(f"u{0 if same else number}-{index}")).id)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    count = 5 if same else 30
    assert len(found) == 30
    assert sorted(set(found)) == list(range(1, count + 1))
    assert len(Database(MemoryBucket(space=space)).peek(SID).pending) == count


# -- what is refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "path"),
    [
        ({}, "message.parts"),
        ({"role": "user", "parts": "text"}, "message.parts"),
        ({"role": "user", "parts": [{"type": "text"}, "x"]}, "message.parts[1]"),
        ({"role": "user", "parts": [{"text": "x"}]}, "message.parts[0]"),
        ({"role": "system", "parts": []}, "message.role"),
        ({"id": 5, "role": "user", "parts": []}, "message.id"),
        ({"role": "user", "parts": [{"type": "data-x", "data": math.nan}]}, "message.parts[0].data"),
        ({"role": "user", "parts": [], "metadata": {"n": 2**70}}, "message.metadata.n"),
        ({"role": ["user"], "parts": []}, "message.role"),
        (5, ""),
        (None, ""),
    ],
)
def test_what_is_no_message_is_refused_with_its_place(place: Place, message: Any, path: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        place.db.send(SID, message)
    assert caught.value.path == path
    assert place.stored("") == {}


def test_values_beside_the_message_are_checked_too(place: Place) -> None:
    with pytest.raises(InvalidValue):
        place.db.send(SID, "x", body={"n": math.inf})
    with pytest.raises(InvalidValue):
        place.db.action(SID, "x", {"n": math.inf})
    with pytest.raises(InvalidValue):
        place.db.tool_result(SID, "c", math.nan)
    assert place.stored("") == {}


def test_a_message_above_the_limit_is_refused_with_its_size(place: Place) -> None:
    with pytest.raises(TooLarge) as caught:
        place.db.send(SID, "a" * 1_048_576)
    assert caught.value.size > caught.value.limit == 1_048_576
    assert place.stored("") == {}


def test_halves_of_surrogate_pairs_can_always_be_stored(place: Place) -> None:
    place.db.send(SID, "a\ud83d\ude00b\ud83d")
    place.answer()
    assert shape(place.db.history(SID))[0] == ("user", ["a\U0001f600b\ufffd"])


def test_names_that_are_needed(place: Place) -> None:
    with pytest.raises(Refused):
        place.db.approve(SID)
    with pytest.raises(Refused):
        place.db.approve(SID, "ap", tool_call_id="c")
    with pytest.raises(Refused):
        place.db.tool_result(SID, "")
    with pytest.raises(Refused):
        place.db.action(SID, "")
    with pytest.raises(Refused):
        place.db.edit(SID, "", "x")
    with pytest.raises(Refused):
        place.db.edit(SID, "u1", {"role": "assistant", "parts": []})
    assert place.stored("") == {}
