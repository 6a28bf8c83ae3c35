"""Whatever is handed in or found: a typed error before anything is written, or a report, nothing else."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from chat_samples import SID, Place, call, die, first_turn, result, saying, user, write_all

from snapshotter import Database, InvalidValue, Receipt, Refused
from snapshotter.core.snapshot import encode
from snapshotter.sending import tool_names
from streams import keys
from streams.buckets.memory import MemoryBucket, Space
from streams.clock import SystemClock
from streams.codec import frame
from streams.testing.faults import Call


@pytest.fixture
def place() -> Place:
    return Place()


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


def put_input(place: Place, **fields: Any) -> None:
    """An in record as another writer may have left it."""
    number = len(place.stored("in/")) + 1
    line = json.dumps({"id": number, "ts": 1, **fields}).encode()
    data = frame("in", number, number, [line], nonce=f"n{number}")
    place.bucket.inner.put(keys.segment("in", place.db.sid(SID), number), data)


# -- receipts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        "[" * 100_000,
        '{"session":' * 50_000,
        "not json",
        "",
        '{"session":"s"}',
        '{"session":"s","id":0}',
        '{"session":"s","id":true}',
        '{"session":"s","id":"1"}',
        '{"session":"s","id":1.0}',
        '{"session":5,"id":1}',
        '{"session":"s","id":10000000000000000}',
        '{"session":"s","id":' + "9" * 5_000 + "}",
        ["s", 1],
        7,
    ],
)
def test_what_is_no_receipt_is_told_as_that(place: Place, given: Any) -> None:
    with pytest.raises(InvalidValue) as caught:
        Receipt.parse(given)
    assert caught.value.path == "receipt"
    assert len(str(caught.value)) < 200
    with pytest.raises(InvalidValue):
        place.db.boot(receipt=given)


def test_the_largest_receipt_is_one() -> None:
    assert Receipt.parse(f'{{"session":"s","id":{keys.MAX}}}') == Receipt("s", keys.MAX)


# -- senders -----------------------------------------------------------------------------------------------

HALF = "\ud800"
BROKEN = {"id": "b", "role": "user", "parts": [None]}


@pytest.mark.parametrize(
    ("path", "ask"),
    [
        ("key", lambda db: db.send(SID, "x", key=5)),
        ("key", lambda db: db.send(SID, "x", key=HALF)),
        ("key", lambda db: db.send(SID, user("u1"), key=b"k")),
        ("key", lambda db: db.stop(SID, key=5)),
        ("key", lambda db: db.close_session(SID, key=HALF)),
        ("metadata", lambda db: db.send(SID, "x", metadata={"a": {1, 2}})),
        ("metadata", lambda db: db.send(SID, "x", metadata=float("nan"))),
        ("body", lambda db: db.send(SID, "x", body=object())),
        ("body", lambda db: db.regenerate(SID, body=[2**70])),
        ("client_tools", lambda db: db.send(SID, "x", client_tools="tool")),
        ("client_tools", lambda db: db.send(SID, "x", client_tools=[5])),
        ("client_tools", lambda db: db.send(SID, "x", client_tools=5)),
        ("message.id", lambda db: db.send(SID, {"id": 5, "role": "user", "parts": []})),
        ("message.role", lambda db: db.send(SID, {"id": "u", "role": ["user"], "parts": []})),
        ("message.parts[0]", lambda db: db.send(SID, {"id": "u", "role": "user", "parts": [None]})),
        ("", lambda db: db.send(SID, b"bytes")),
        ("message_id", lambda db: db.edit(SID, 5, "x")),
        ("message_id", lambda db: db.edit(SID, None, "x")),
        ("message_id", lambda db: db.stop(SID, 123)),
        ("message_id", lambda db: db.stop(SID, "")),
        ("message_id", lambda db: db.regenerate(SID, 7)),
        ("message_id", lambda db: db.tool_result(SID, "c1", 1, message_id=7)),
        ("tool_call_id", lambda db: db.tool_result(SID, 7, 1)),
        ("error_text", lambda db: db.tool_result(SID, "c1", error_text=7)),
        ("approval_id", lambda db: db.approve(SID, {"a": 1})),
        ("approval_id", lambda db: db.approve(SID, "")),
        ("tool_call_id", lambda db: db.approve(SID, tool_call_id=5)),
        ("approved", lambda db: db.approve(SID, "ap", approved="false")),
        ("approved", lambda db: db.approve(SID, "ap", approved=1)),
        ("reason", lambda db: db.approve(SID, "ap", reason=5)),
        ("name", lambda db: db.action(SID, 5)),
        ("limit", lambda db: db.history(SID, limit="x")),
        ("limit", lambda db: db.history(SID, limit=True)),
        ("limit", lambda db: db.history(SID, limit=-1)),
        ("deadline", lambda db: db.boot(SID, deadline="soon", claim=True)),
        ("client_tools", lambda db: db.boot(SID, client_tools="tool")),
    ],
)
def test_a_value_of_a_wrong_type_is_refused_before_anything_is_written(
    place: Place, path: str, ask: Callable[[Database], object]
) -> None:
    with pytest.raises(InvalidValue) as caught:
        ask(place.db)
    assert caught.value.path.startswith(path)
    assert place.stored("") == {}


def test_a_page_before_what_is_no_id_is_refused(place: Place) -> None:
    place.send("u1")
    with pytest.raises(Refused, match="no message 5"):
        place.db.history(SID, before=5)  # type: ignore[arg-type]


def test_names_of_tools_may_come_as_any_list() -> None:
    assert tool_names(("a", "b")) == ["a", "b"]


# -- what another writer left ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "message",
    [
        {"id": [1], "role": "user", "parts": []},
        {"id": {"a": 1}, "role": "user", "parts": []},
        {"id": 5, "role": "assistant", "parts": []},
        {"id": "u0", "role": "user", "parts": [{"type": "data-x", "data": deep(400)}]},
    ],
    ids=["a list", "an object", "a number", "too deep"],
)
def test_an_input_that_cannot_be_understood_stays_owed_and_is_reported(place: Place, message: Any) -> None:
    put_input(place, kind="message", message=message)
    assert place.db.history(SID) == []
    place.send("u1")
    place.answer("one")
    place.send("u2")
    place.answer("two")
    found = place.db.peek(SID)
    assert [note["code"] for note in found.report] == ["unknown-input-kind"]
    assert found.report[0]["id"] == 1
    assert [m["role"] for m in found.messages] == ["user", "assistant", "user", "assistant"]
    assert found.cursor["in"] == 0


def test_a_message_with_parts_that_are_none_and_an_odd_id_is_answered(place: Place) -> None:
    put_input(place, kind="message", message={"id": "\0", "role": "user", "parts": [5, None]})
    put_input(place, kind="message", message={"role": "user", "parts": []})
    place.answer("one")
    assert [m["id"] for m in place.db.history(SID) if m["role"] == "user"] == ["\0", "msg-in2"]


def test_a_foreign_body_too_deep_to_be_copied_is_left_out_and_reported(place: Place) -> None:
    put_input(place, kind="message", message=user("u1"), body=deep(400))
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            assert turn.body == deep(400)
            write_all(turn, saying("ok"))
        assert [note["code"] for note in session.report] == ["request-not-copied"]
    assert len(place.db.history(SID)) == 2


def test_a_history_that_cannot_be_written_as_a_snapshot_is_reported(place: Place) -> None:
    """Another writer's tool result nests deeper than this one can write."""
    place.send("u1")
    session = place.db.boot(SID)
    turn = first_turn(session)
    write_all(turn, [{"type": "start"}, call()])
    die(session)
    last = place.records()[-1]["id"]
    chunk = result(output=deep(300))
    line = json.dumps({"id": last + 1, "ts": 1, "chunk": chunk}).encode()
    prev = json.loads(next(iter(place.stored("out/").values())).splitlines()[0])["nonce"]
    data = frame("out", last + 1, last + 1, [line], nonce="x", epoch=1, run="r", prev=prev, lease=1)
    place.bucket.inner.put(keys.segment("out", place.db.sid(SID), last + 1), data)
    with place.db.boot(SID, takeover=True) as session:
        with first_turn(session) as turn:
            write_all(turn, saying("ok"))
        assert [note["code"] for note in session.report] == ["snapshot-not-saved"]
    assert place.stored("sessions/") == {}
    parts = place.db.history(SID)[1]["parts"]
    assert parts[0]["output"] == deep(300)
    with pytest.raises(InvalidValue, match="cannot be written as a snapshot"):
        encode(session.fold, "n", 1)


# -- a session that is over --------------------------------------------------------------------------------


@pytest.mark.parametrize("written", [False, True])
def test_a_closed_session_refuses_what_would_write(place: Place, written: bool) -> None:
    place.db.send(SID, "hi")
    session = place.db.boot(SID)
    if written:
        session.set_state({"a": 1})
    session.close()
    before = place.records()
    for ask in (
        lambda: session.set_state({"b": 1}),
        lambda: session.edit_history("clear"),
        session.clear,
        lambda: next(session.turns()),
    ):
        with pytest.raises(Refused, match="was closed here"):
            ask()
    assert place.records() == before
    session.close()


def test_a_turn_of_a_closed_session_refuses_chunks(place: Place) -> None:
    place.db.send(SID, "hi")
    session = place.db.boot(SID)
    turn = first_turn(session)
    session.close()
    for ask in (lambda: turn.write({"type": "start"}), turn.flush, lambda: turn.stash(1)):
        with pytest.raises(Refused):
            ask()
    assert turn.durable_id == place.records()[-1]["id"]


# -- editing from inside a session -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "ask"),
    [
        ("values", lambda it: it.set_state(["x"])),
        ("message", lambda it: it.edit_history("put", message="x")),
        ("message.role", lambda it: it.edit_history("put", message={"id": "x", "parts": []})),
        ("message.parts", lambda it: it.edit_history("put", message={"id": "x", "role": "user"})),
        ("message.id", lambda it: it.edit_history("put", message={"id": 5, "role": "user", "parts": []})),
        ("messages", lambda it: it.edit_history("replace", messages=5)),
        ("messages", lambda it: it.edit_history("replace", messages=user("x"))),
        ("messages[1].parts[0]", lambda it: it.edit_history("replace", messages=[user("x"), BROKEN])),
        ("message_id", lambda it: it.edit_history("remove", message_id=["u1"])),
        ("messages[0].parts[0]", lambda it: it.set_context("u1", [BROKEN])),
        ("messages", lambda it: it.set_context("u1", "a summary")),
    ],
)
@pytest.mark.parametrize("within", [False, True], ids=["session", "turn"])
def test_an_edit_of_a_wrong_type_is_refused_before_anything_is_written(
    place: Place, path: str, ask: Callable[[Any], object], within: bool
) -> None:
    place.send("u1")
    place.answer()
    if within:
        place.send("u2")
    with place.db.boot(SID) as session:
        it: Any = first_turn(session) if within else session
        before = place.records()
        with pytest.raises(InvalidValue) as caught:
            ask(it)
        assert caught.value.path == path
        assert place.records() == before


# -- importing a history -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("messages", "path"),
    [
        ([user("a"), user("b"), user("a")], "messages[2].id"),
        ([user("a"), {"id": 5, "role": "user", "parts": []}], "messages[1].id"),
        ([{"id": "a", "role": "user", "parts": [None]}], "messages[0].parts[0]"),
        (
            [{"id": "a", "role": "user", "parts": [{"type": "text", "text": "x"}, {"x": 1}]}],
            "messages[0].parts[1]",
        ),
        (
            [{"id": "a", "role": "user", "parts": [{"type": "data-x", "data": 2**70}]}],
            "messages[0].parts[0].data",
        ),
        (5, "messages"),
        (["x"], "messages[0]"),
    ],
)
def test_a_history_is_checked_before_it_is_imported(place: Place, messages: Any, path: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        place.db.create(SID, messages=messages)
    assert caught.value.path == path
    assert place.stored("") == {}


def test_messages_without_an_id_are_imported_under_ids_of_their_own(place: Place) -> None:
    place.db.create(SID, messages=[{"role": "user", "parts": []}, {"role": "user", "parts": []}])
    assert len({message["id"] for message in place.db.history(SID)}) == 2


def test_a_state_that_is_none_is_refused(place: Place) -> None:
    with pytest.raises(InvalidValue):
        place.db.create(SID, state=["x"])  # type: ignore[arg-type]
    assert place.stored("") == {}


def test_of_two_that_create_a_session_one_is_told_that_it_exists() -> None:
    """The other one's whole import comes just before the first one's fence."""
    place = Place()
    other = Database(MemoryBucket(place.clock, space=place.space), place.clock)
    raced: list[str] = []

    def race(asked: Call, when: str) -> None:
        if asked.verb == "put" and asked.key.startswith("out/") and when == "before" and not raced:
            raced.append(asked.key)
            other.create(SID, messages=[user("theirs")])

    place.bucket.hook = race
    with pytest.raises(Refused, match="exists already"):
        place.db.create(SID, messages=[user("ours")])
    assert raced
    assert [message["id"] for message in place.db.history(SID)] == ["theirs"]


def test_creates_at_once_leave_one_history() -> None:
    space, told, start = Space(), [], threading.Barrier(4)

    def create(number: int) -> None:
        db = Database(MemoryBucket(space=space), SystemClock())
        start.wait()
        try:
            db.create(SID, messages=[user(f"m{number}")])
        except Exception as error:
            told.append(type(error))
        else:
            told.append(None)

    threads = [threading.Thread(target=create, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, told)) == sorted(map(str, [None, Refused, Refused, Refused]))
