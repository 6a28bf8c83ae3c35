"""Redaction: what is whose, where ids are not unique, and words that were copied elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
from chat_samples import SID, Chunk, Place, ask, call, first_turn, result, saying, user, write_all
from test_redact_beside import copies, left
from upkeep import HOURS, check, fresh, killed_at

from snapshotter.maintenance import Keep, redact, trim
from streams import keys
from streams.testing.faults import Fault

WORDS = "words of it"


def answers(place: Place, number: int, *chunks: Chunk) -> None:
    """The next turn, which makes this assistant message."""
    with place.db.boot(SID) as session, first_turn(session) as turn:
        write_all(turn, [{"type": "start", "messageId": f"a{number}"}, *chunks])


def goes_on(place: Place) -> None:
    with place.db.boot(SID) as session, first_turn(session) as turn:
        write_all(turn, list(saying("it went on"))[2:])


def two_with_one_call_id(last: int = 2) -> Place:
    """Two messages that have a call of the same id, each with a client's result; that of the second is owed,
    unless the `last` is answered as well."""
    place = Place()
    for number in (1, 2):
        place.send(f"u{number}")
        answers(place, number, call("call_0"))
        place.db.tool_result(SID, "call_0", f"result {number}")
        if number <= last:
            goes_on(place)
    return place


def outputs(place: Place) -> dict[str, list[Any]]:
    history = fresh(place).history(SID)
    return {m["id"]: [p["output"] for p in m["parts"] if "output" in p] for m in history}


@pytest.mark.parametrize(("target", "other"), [(1, 2), (2, 1)])
def test_a_result_belongs_to_the_message_whose_call_it_was_laid_over(target: int, other: int) -> None:
    place = two_with_one_call_id()
    redact(place.db, SID, f"a{target}")
    assert not left(place, f"result {target}")
    assert outputs(place)[f"a{other}"] == [f"result {other}"]
    check(place)
    place.bucket.inner.delete(keys.snapshot(SID))
    assert outputs(place)[f"a{other}"] == [f"result {other}"], "from the log"


@pytest.mark.parametrize(("target", "other"), [(1, 2), (2, 1)])
def test_so_it_does_where_the_first_message_is_trimmed_away(target: int, other: int) -> None:
    place = two_with_one_call_id()
    place.clock.advance(24 * HOURS)
    trim(place.db, SID, keep=Keep(turns=2))
    before = [key for key in left(place, f"result {other}") if key.startswith("in/")]
    assert len(before) == (other == 2)
    redact(place.db, SID, f"a{target}")
    assert not left(place, f"result {target}")
    assert [key for key in left(place, f"result {other}") if key.startswith("in/")] == before
    assert outputs(place)[f"a{other}"] == [f"result {other}"]
    check(place)


def test_a_result_that_is_owed_for_another_message_is_answered() -> None:
    place = two_with_one_call_id(last=1)
    redact(place.db, SID, "a1")
    assert not left(place, "result 1")
    goes_on(place)
    assert outputs(place)["a2"] == ["result 2"]
    check(place)


def test_a_result_that_is_owed_for_the_message_goes() -> None:
    place = two_with_one_call_id(last=1)
    redact(place.db, SID, "a2")
    assert not left(place, "result 2")
    assert outputs(place)["a1"] == ["result 1"]
    check(place)


def test_a_result_that_names_its_message_belongs_to_that() -> None:
    place = Place()
    for number in (1, 2):
        place.send(f"u{number}")
        answers(place, number, call("call_0"))
    for number in (1, 2):
        place.db.tool_result(SID, "call_0", f"result {number}", message_id=f"a{number}")
    redact(place.db, SID, "a1")
    assert not left(place, "result 1")
    goes_on(place)
    assert outputs(place)["a2"] == ["result 2"]
    check(place)


def test_a_result_that_comes_late_belongs_to_the_message_that_called() -> None:
    place = Place()
    place.send("u1")
    answers(place, 1, call("c1"))
    place.bucket.plan.append(Fault("put", key="sessions/", times=1))
    place.db.action(SID, "more")
    answers(place, 2, result("c1", "came late"), *list(saying(WORDS))[1:])
    before = outputs(place)["a1"]
    assert before == ["came late"]
    redact(place.db, SID, "a2")
    assert not left(place, WORDS)
    assert outputs(place)["a1"] == before
    check(place)
    redact(place.db, SID, "a1")
    assert not left(place, "came late")
    check(place)


def test_an_input_with_an_id_of_its_own_is_not_the_message_of_its_number() -> None:
    place = Place()
    place.send("msg-in2")
    place.answer()
    place.db.send(SID, user("v", "acknowledged"))
    redact(place.db, SID, "msg-in2")
    place.answer()
    assert [m["parts"][0]["text"] for m in fresh(place).history(SID) if m["role"] == "user"] == [
        "[redacted]",
        "acknowledged",
    ]
    check(place)


@pytest.mark.parametrize("owed", [True, False])
def test_a_namesake_under_another_id_stays(owed: bool) -> None:
    """Its id was taken 32 inputs before; it is stored under the id of its number."""
    place = Place()
    place.db.send(SID, user("u", "the first"))
    place.answer()
    for _ in range(32):
        place.db.stop(SID)
    number = place.db.send(SID, user("u", "the second")).id
    if not owed:
        place.answer()
    redact(place.db, SID, "u")
    assert not left(place, "the first")
    if owed:
        place.answer()
    (found,) = [m for m in fresh(place).history(SID) if m["id"] == f"msg-in{number}"]
    assert found["parts"][0]["text"] == "the second"
    check(place)
    redact(place.db, SID, f"msg-in{number}")
    assert not left(place, "the second")
    check(place)


def denied() -> Place:
    """A call that was denied, by its approval's id alone; and with a key."""
    place = Place()
    place.send("u1")
    answers(place, 1, call("c1"), ask("c1", "ap1"), call("c2"), ask("c2", "ap2"))
    place.db.approve(SID, "ap1", approved=False, reason=WORDS)
    place.db.approve(SID, "ap2", approved=False, reason=WORDS, key="once")
    goes_on(place)
    return place


def failed() -> Place:
    """A turn that ended with an error."""
    place = Place()
    place.send("u1")
    answers(place, 1, *list(saying("half"))[1:4], {"type": "error", "errorText": WORDS})
    return place


def let_go() -> Place:
    """A turn that its worker let go with an error, and that was ended with another one then."""
    place = Place()
    place.send("u1")
    with pytest.raises(ValueError, match=WORDS), place.db.boot(SID) as session, first_turn(session) as turn:
        write_all(turn, [{"type": "start", "messageId": "a1"}, *list(saying("half"))[1:4]])
        raise ValueError(WORDS)
    place.clock.advance(HOURS)
    with place.db.boot(SID) as session, first_turn(session) as turn:
        turn.fail(WORDS)
    return place


@pytest.mark.parametrize("made", [denied, failed, let_go])
def test_words_that_were_copied_go_too_and_a_second_run_finds_them(made: Any) -> None:
    whole = made()
    assert left(whole, WORDS)
    number = 0
    for number in range(1, 200):
        place = copies(whole)()
        if not killed_at(place, number, "after", lambda db: redact(db, SID, "a1")):
            break
        redact(place.db, SID, "a1")
        assert not left(place, WORDS), number
        check(place)
    assert 10 < number < 199
    assert not left(place, WORDS)
    assert (place.db.outcome(SID).error is None) == (made is denied)


def test_the_receipt_of_an_answer_with_a_key_is_answered_when_it_is_redacted() -> None:
    place = Place()
    place.send("u1")
    answers(place, 1, call("c1"))
    receipt = place.db.tool_result(SID, "c1", WORDS, key="once")
    goes_on(place)
    redact(place.db, SID, "a1")
    with fresh(place).boot(SID, receipt=receipt) as session:
        assert list(session.turns()) == []
    check(place)
