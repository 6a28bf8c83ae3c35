"""Large chunks and messages are stored apart, once, and nobody who reads them notices."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import orjson
import pytest
from chat_samples import SID, Place, call, die, first_turn, result, saying, text, user, write_all

from snapshotter import AccessDenied, Conflict, Corrupt, InvalidValue, Missing, TooLarge, Unknown, aio
from snapshotter.core.blocks import Sizes
from snapshotter.core.contract import fold_records
from snapshotter.errors import Refused
from snapshotter.maintenance import delete
from snapshotter.verify import verify
from streams.records import LIMIT
from streams.testing.faults import Fault

SIZES = Sizes(inline=1_000, tail=6_000, turns=6, value=1_000)
LARGE = "r" * 1_500

ROOMY = replace(SIZES, inline=6_000)


class Died(BaseException):
    """The process ends here."""


@pytest.fixture
def place() -> Place:
    return Place(sizes=SIZES)


def values(place: Place) -> dict[str, bytes]:
    return place.stored("values/")


def looked_up(place: Place, output: Any = LARGE) -> None:
    """A turn with a tool whose result is large."""
    place.send("u1")
    with place.db.boot(SID) as session, first_turn(session) as turn:
        write_all(turn, [{"type": "start", "messageId": "a1"}, call(), result(output=output), *text("found")])


# -- the out log -----------------------------------------------------------------------------------------


def test_a_large_chunk_is_a_value_and_its_record_names_it(place: Place) -> None:
    place.send("u1")
    with place.db.boot(SID) as session, first_turn(session) as turn:
        write_all(turn, [{"type": "start"}, call(), result(output=LARGE)])
        ((key, data),) = values(place).items()
    (record,) = [r for r in place.records() if "ref" in r]
    assert set(record) == {"id", "ts", "ref"}
    assert key == f"values/{SID}/{record['ref']['key']}.json"
    assert record["ref"]["bytes"] == len(data)
    assert record["ref"]["key"].startswith(hashlib.sha256(data).hexdigest() + "-")
    assert orjson.loads(data) == result(output=LARGE)


def test_every_reader_sees_the_chunk(place: Place) -> None:
    looked_up(place)
    for key in place.stored("sessions/"):
        place.bucket.inner.delete(key)
    assert place.db.history(SID)[1]["parts"][0]["output"] == LARGE
    chunk = result(output=LARGE)
    assert chunk in [record.get("chunk") for record in place.db.records(SID, "out")]
    assert chunk in [event.record.get("chunk") for event in place.db.follow(SID, timeout=0)]
    assert not any("ref" in event.record for event in place.db.follow(SID, timeout=0))
    number = next(r["id"] for r in place.records() if "ref" in r)
    assert next(iter(place.db.records(SID, "out", after=number - 1)))["chunk"] == chunk
    assert verify(place.db, SID).problems == []


def test_an_interrupted_turn_finds_it_with_one_round_trip_more(place: Place) -> None:
    place.send("u1")
    session = place.db.boot(SID)
    turn = first_turn(session)
    write_all(turn, [{"type": "start"}, call(), result(output=LARGE)])
    die(session)
    again = place.db.peek(SID)
    assert again.partial is not None
    assert again.partial["parts"][0]["output"] == LARGE
    assert again.booted.round_trips == 3


def test_a_value_is_not_written_for_a_chunk_that_is_refused(place: Place) -> None:
    place.send("u1")
    with place.db.boot(SID) as session, first_turn(session) as turn:
        turn.write({"type": "start"})
        with pytest.raises(TooLarge) as caught:
            turn.write({"type": "data-x", "data": "x" * LIMIT})
        with pytest.raises(InvalidValue):
            turn.write({"type": "data-x", "data": ["x" * 2_000, float("nan")]})
        assert caught.value.limit == LIMIT
        assert values(place) == {}
        write_all(turn, text("ok"))


def test_a_value_that_cannot_be_written_leaves_the_turn_as_it_was(place: Place) -> None:
    place.send("u1")
    with place.db.boot(SID) as session, first_turn(session) as turn:
        write_all(turn, [{"type": "start"}, call()])
        place.bucket.plan.append(Fault("put", key="values/", times=0, seconds=30.0))
        with pytest.raises(Unknown):
            turn.write(result(output=LARGE))
        assert turn.message["parts"][0]["state"] == "input-available"
        place.bucket.plan.clear()
        write_all(turn, [result(output=LARGE), *text("ok")])
    assert place.db.history(SID)[1]["parts"][0]["output"] == LARGE


def test_who_was_frozen_before_the_record_was_durable_stores_the_value_again(place: Place) -> None:
    place.send("u1")
    with place.db.boot(SID) as session, first_turn(session) as turn:
        write_all(turn, [{"type": "start"}, call()])

        def tidy(asked: Any, when: str) -> None:
            if when == "after" and asked.verb == "put" and asked.key.startswith("out/"):
                for key in values(place):
                    place.bucket.inner.delete(key)

        place.bucket.hook = tidy
        turn.write(result(output=LARGE))
        place.bucket.hook = None
        write_all(turn, text("ok"))
    assert place.db.history(SID)[1]["parts"][0]["output"] == LARGE


def test_the_async_door_never_waits_for_a_value_in_the_loop(place: Place) -> None:
    place.send("u1")
    threads: list[bool] = []

    def note(asked: Any, when: str) -> None:
        if asked.key.startswith("values/"):
            try:
                asyncio.get_running_loop()
                threads.append(True)
            except RuntimeError:
                threads.append(False)

    place.bucket.hook = note

    async def answer() -> None:
        db = aio.AsyncDatabase(place.db)
        async with await db.boot(SID) as session:
            async for turn in session.turns():
                async with turn:
                    for chunk in [{"type": "start"}, call(), result(output={"deep": [LARGE]}), *text(LARGE)]:
                        await turn.write(chunk)

    asyncio.run(answer())
    assert threads
    assert not any(threads)
    # The result and the message; a delta is packed with others, and large only from 64 Ki characters on.
    assert len(values(place)) == 2


# -- the in log ------------------------------------------------------------------------------------------


def test_a_large_message_is_a_value_and_is_answered_as_any(place: Place) -> None:
    message = user("u1", LARGE)
    receipt = place.db.send(SID, message)
    (record,) = place.records("in")
    assert "message" not in record
    assert place.db.history(SID) == [message]
    with place.db.boot(SID, receipt=receipt) as session, first_turn(session) as turn:
        assert turn.messages == [message]
        write_all(turn, saying("ok"))
    assert place.db.history(SID)[0] == message
    assert len(values(place)) == 1
    assert verify(place.db, SID).problems == []


def test_sending_it_again_is_one_message_and_one_value(place: Place) -> None:
    first = place.db.send(SID, user("u1", LARGE))
    assert place.db.send(SID, user("u1", LARGE)).id == first.id
    assert len(values(place)) == 1
    with pytest.raises(Conflict):
        place.db.send(SID, user("u1", LARGE + "!"))
    assert len(values(place)) == 1
    place.db.edit(SID, "u1", user("u1", LARGE + "!"))
    assert place.records("in")[1]["ref"]["bytes"] > 1_000


def test_a_sender_needs_to_read_no_value(place: Place) -> None:
    """Values hold what the agent says, too. A message sent again is known by its hash; another
    with its id, which only its text would show, becomes a message of its own."""
    allowed = list(place.bucket.plan)
    for verb in ("get", "head", "list"):
        place.bucket.plan.append(Fault(verb, key="values/", times=0, error=lambda: AccessDenied("injected")))
    first = place.db.send(SID, user("u1", LARGE))
    again = place.db.send(SID, user("u1", LARGE))
    assert (again.id, again.duplicate) == (first.id, True)
    assert place.db.send(SID, user("u1", LARGE + "!")).id == first.id + 1
    place.bucket.plan[:] = allowed
    place.answer("ok")
    asked = [m for m in place.db.history(SID) if m["role"] == "user"]
    assert asked == [user("u1", LARGE), user("msg-in2", LARGE + "!")]
    assert verify(place.db, SID).problems == []


def test_a_message_that_is_known_by_its_hash_is_not_read(place: Place) -> None:
    place.db.send(SID, user("u1", LARGE))
    place.bucket.calls.clear()
    place.db.send(SID, user("u1", LARGE))
    assert [c.verb for c in place.bucket.calls if c.key.startswith("values/")] == ["head"]  # it is there


def test_a_message_above_the_limit_is_refused_before_anything_is_written(place: Place) -> None:
    with pytest.raises(TooLarge) as caught:
        place.db.send(SID, user("u1", "x" * LIMIT))
    assert caught.value.limit == LIMIT
    assert place.space.order == []


def test_who_was_frozen_while_sending_stores_the_value_again(place: Place) -> None:
    def tidy(asked: Any, when: str) -> None:
        if when == "after" and asked.verb == "put" and asked.key.startswith("in/"):
            for key in values(place):
                place.bucket.inner.delete(key)

    place.bucket.hook = tidy
    place.db.send(SID, user("u1", LARGE))
    assert place.db.history(SID) == [user("u1", LARGE)]


# -- the snapshot ----------------------------------------------------------------------------------------


def apart(place: Place) -> list[dict[str, Any]]:
    document = orjson.loads(place.stored("sessions/")[f"sessions/{SID}/snapshot.json"])
    return [message for message in document["messages"] if "ref" in message]


def test_a_large_message_in_a_short_session_stays_in_the_document() -> None:
    place = Place(sizes=ROOMY)
    place.db.send(SID, user("u1", LARGE))
    place.answer()
    assert apart(place) == []


def test_a_large_message_of_a_long_history_is_written_once(place: Place) -> None:
    place.db.send(SID, user("u1", LARGE))
    place.answer("y" * 1_500)
    for number in range(2, 30):
        place.send(f"u{number}")
        place.answer("z" * 700)
    # The question's, from the log; the answer's, from the first checkpoint with blocks.
    assert len(values(place)) == 2
    with place.db.boot(SID) as session:
        assert session.messages[0] == user("u1", LARGE)
        assert session.messages[1]["parts"][1]["text"] == "y" * 1_500
        session.edit_history("put", message=user("u2", "another " * 200))
    assert len(values(place)) == 3
    assert place.db.history(SID)[2] == user("u2", "another " * 200)
    assert verify(place.db, SID).problems == []


@pytest.mark.parametrize("op", ["put", "replace"])
def test_an_edit_with_large_messages_names_them(place: Place, op: str) -> None:
    place.send("u1")
    place.answer()
    messages = [user("u1", LARGE), user("h2", "s"), user("h3", LARGE + "!")]
    with place.db.boot(SID) as session:
        if op == "put":
            session.edit_history("put", message=messages[0])
        else:
            session.edit_history("replace", messages=messages)
        session.set_context("u1", [user("sum", LARGE)])
    (history,), (context,) = place.controls("history"), place.controls("context")
    assert ("ref" in history) == (op == "put")
    assert context["messages"][0].keys() == {"ref"}
    for _ in range(2):
        found = place.db.peek(SID)
        assert found.context == {"upto": "u1", "messages": [user("sum", LARGE)]}
        assert found.messages[0] == messages[0]
        assert op == "put" or found.messages == messages
        for key in place.stored("sessions/"):
            place.bucket.inner.delete(key)


def test_a_large_context_is_written_once_in_a_long_session(place: Place) -> None:
    for number in range(12):
        place.send(f"u{number}")
        place.answer("z" * 700)
    with place.db.boot(SID) as session:
        session.set_context("u3", [user("sum", LARGE)])
    before = len(values(place))
    for number in range(12, 30):
        place.send(f"u{number}")
        place.answer("z" * 700)
    assert len(values(place)) <= before + 1
    assert place.db.peek(SID).context == {"upto": "u3", "messages": [user("sum", LARGE)]}


# -- damage ----------------------------------------------------------------------------------------------


def lose(place: Place, how: str) -> Iterator[type[Exception]]:
    for key, data in values(place).items():
        if how == "gone":
            place.bucket.inner.delete(key)
        else:
            place.bucket.inner.put(key, {"empty": b"", "flipped": data[:-1] + b"?"}[how])
    yield Corrupt if how == "flipped" else Missing


@pytest.mark.parametrize("how", ["gone", "empty", "flipped"])
def test_a_value_that_is_lost_is_told_by_its_name(place: Place, how: str) -> None:
    receipt = place.db.send(SID, user("u1", LARGE))
    (key,) = values(place)
    (kind,) = lose(place, how)
    reads: list[Callable[[], Any]] = [
        lambda: list(place.db.records(SID, "in")),
        lambda: place.db.boot(receipt=receipt),  # it was acknowledged
    ]
    if kind is Corrupt:
        reads += [lambda: place.db.peek(SID), lambda: place.db.history(SID)]
    for read in reads:
        with pytest.raises(kind) as caught:
            read()
        assert getattr(caught.value, "key", None) == key
    told = "message-missing" if kind is Missing else "corrupt"
    assert {p.code for p in verify(place.db, SID).problems} == {told}


def test_an_owed_message_that_is_not_there_keeps_no_other(place: Place) -> None:
    """Whoever sent it may have died before it was acknowledged. It stays owed until it is sent again."""
    receipt = place.db.send(SID, user("u0", LARGE))
    (key,) = values(place)
    place.db.store.delete(key)
    place.send("u1")
    with place.db.boot(SID) as session:
        assert [item.ids for item in session.pending] == [(2,)]
        assert ("message-missing", 1) in [(line["code"], line["id"]) for line in session.report]
    place.answer("of the second")
    assert [m["role"] for m in place.db.history(SID)] == ["user", "assistant"]
    assert [problem.code for problem in verify(place.db, SID).problems] == ["message-missing"]
    again = place.db.send(SID, user("u0", LARGE))
    assert (again.id, again.duplicate) == (receipt.id, True)
    assert list(values(place)) == [key]
    place.answer("of the first")
    assert [m["role"] for m in place.db.history(SID)] == ["user", "assistant"] * 2
    assert verify(place.db, SID).ok


def test_a_message_that_a_turn_took_is_missed(place: Place) -> None:
    place.db.send(SID, user("u0", LARGE))
    place.answer()
    for key in [*values(place), *place.stored("sessions/"), *place.stored("blocks/")]:
        place.db.store.delete(key)
    with pytest.raises(Missing, match="values/"):
        place.db.history(SID)


@pytest.mark.parametrize("step", ["value", "input"])
def test_a_sender_that_dies_beside_a_deletion_strands_nobody(place: Place, step: str) -> None:
    """The value goes with the deletion; the input comes behind it, and its sender sees to nothing more."""
    place.send("u1")
    place.answer()

    def hook(asked: Any, when: str) -> None:
        prefix = "values/" if step == "value" else "in/"
        if (asked.verb, when) == ("put", "after" if step == "value" else "before") and asked.key.startswith(
            prefix
        ):
            place.bucket.hook = dying
            delete(place.db, SID)

    def dying(asked: Any, when: str) -> None:
        if asked.verb == "head" and asked.key.startswith("values/"):
            raise Died

    place.bucket.hook = hook
    with pytest.raises(Died):
        place.db.send(SID, user("late", LARGE))
    place.bucket.hook = None
    assert place.db.history(SID) == []
    place.db.create(SID)
    place.send("anew")
    place.answer()
    assert [m["role"] for m in place.db.history(SID)] == ["user", "assistant"]


def test_a_value_that_nothing_needs_any_more_bricks_nothing() -> None:
    """A short session has its messages in the document: the log's values are history."""
    place = Place(sizes=ROOMY)
    place.db.send(SID, user("u1", LARGE))
    place.answer()
    for key in values(place):
        place.bucket.inner.delete(key)
    place.send("u2")
    place.answer("on")
    assert [m["role"] for m in place.db.history(SID)] == ["user", "assistant"] * 2


def test_an_applied_input_without_its_value_is_known_by_its_key(place: Place) -> None:
    """It is read only because the input below it is still owed."""
    place.db.send(SID, user("u1"))
    place.db.send(SID, {"id": "a1", "role": "assistant", "parts": [{"type": "text", "text": LARGE}]})
    with place.db.boot(SID) as session:
        assert session.plan.spent == [2]
        session._edit([{"control": "input-applied", "inputs": [2]}])
    for key in values(place):
        place.bucket.inner.delete(key)
    found = place.db.peek(SID)
    assert [item.ids for item in found.pending] == [(1,)]


def test_a_window_does_not_ask_for_the_values_of_older_messages(place: Place) -> None:
    place.db.send(SID, user("u1", LARGE))
    place.answer("y" * 1_500)
    for number in range(2, 200):
        place.send(f"u{number}")
        place.answer("z" * 3_000)
    assert len(values(place)) > 100
    place.bucket.inner.delete(f"values/{SID}/{place.records('in')[0]['ref']['key']}.json")
    with pytest.raises(Missing):
        place.db.peek(SID)
    with place.db.boot(SID, window=0) as session:
        assert session.messages[-1]["parts"][1]["text"] == "z" * 3_000
        assert session.report == []


@pytest.mark.parametrize(
    "ref", [None, {}, {"key": "x", "bytes": 1}, {"key": f"{'a' * 64}-n", "bytes": 1 << 40}]
)
def test_a_reference_of_another_shape_is_corrupt(place: Place, ref: Any) -> None:
    from streams.codec import encode_segment

    record = {"id": 1, "ts": 1, "kind": "message", "ref": ref}
    place.bucket.inner.put("in/chat/9999999999999998-1.jsonl", encode_segment("in", [record], nonce="n"))
    with pytest.raises(Corrupt):
        place.db.peek(SID)


def test_a_record_alone_says_where_its_value_is_read(place: Place) -> None:
    place.db.send(SID, user("u0", LARGE))
    with pytest.raises(Refused, match="stored apart"):
        fold_records(place.records("in"), [])
    looked_up(place)
    with pytest.raises(Refused, match="stored apart"):
        fold_records([{"id": 1, "kind": "close"}, {"id": 2, "kind": "close"}], place.records())


def test_what_a_later_release_means_by_a_ref_is_passed_over(place: Place) -> None:
    from streams.codec import encode_segment

    place.send("u1")
    place.answer()
    odd = {"id": 2, "ts": 1, "kind": "from-a-later-release", "ref": "u1"}
    place.bucket.inner.put("in/chat/9999999999999997-2.jsonl", encode_segment("in", [odd], nonce="n"))
    with place.db.boot(SID) as session:
        session._edit([{"control": "from-a-later-release", "ref": {"of": 1}, "messages": [{"ref": {}}]}])
        codes = {note["code"] for note in session.report}
    assert codes == {"unknown-input-kind", "unknown-control"}
    assert odd in list(place.db.records(SID, "in"))
    assert len(place.db.history(SID)) == 2
    assert verify(place.db, SID).problems == []
