"""Redaction: nothing of the message is stored anywhere, everything else is as it was."""

from __future__ import annotations

import gzip
from typing import Any, Literal

import pytest
from blocky import LARGE, tiny
from chat_samples import SID, Place, ask, call, die, first_turn, result, saying, user, write_all
from upkeep import HOURS, check, fresh, killed_at, watched

from snapshotter import Busy, InvalidValue, Refused, Unreachable, Unsupported
from snapshotter.database import Database
from snapshotter.maintenance import Keep, compact, gc, redact, trim
from streams import keys
from streams.buckets.memory import MemoryBucket
from streams.testing.faults import Fault, FaultyBucket

SECRET = "my secret"


def life(place: Place) -> None:
    """Five turns. The third question and its answer hold the secret in every way there is."""
    for number in range(1, 6):
        hold = f"{SECRET} {LARGE}" if number == 3 else f"question {number}"
        receipt = place.db.send(
            SID,
            user(f"u{number}", hold),
            metadata={"note": hold},
            body={"note": hold},
        )
        with place.db.boot(SID, receipt=receipt) as booted, first_turn(booted) as turn:
            turn.write({"type": "start", "messageId": f"a{number}", "messageMetadata": {"note": hold}})
            turn.stash({"note": hold})
            turn.write({"type": "start-step"})
            write_all(turn, [{**call(f"c{number}"), "input": {"q": hold}}, result(f"c{number}", hold)])
            write_all(turn, [{**call(f"e{number}"), "input": {"q": hold}}])
            turn.write({"type": "tool-output-error", "toolCallId": f"e{number}", "errorText": hold})
            turn.write({"type": "file", "url": f"data:{hold}", "mediaType": "text/plain"})
            turn.write({"type": "data-x", "id": "d", "data": {"q": hold}})
            turn.flush()
            for chunk in list(saying(f"{hold} answered {number}"))[2:]:
                turn.write(chunk)
                turn.flush()
    place.clock.advance(24 * HOURS)


@pytest.fixture(params=["plain", "blocks", "trimmed", "compacted"])
def place(request: pytest.FixtureRequest) -> Place:
    made = tiny() if request.param in ("blocks", "trimmed") else Place()
    life(made)
    if request.param == "trimmed":
        trim(made.db, SID, keep=Keep(turns=4))
    if request.param == "compacted":
        compact(made.db, SID)
    return made


def everything(place: Place) -> str:
    """All that is stored, blocks unpacked."""
    stored = place.stored("").items()
    plain = [gzip.decompress(data) if key.endswith(".gz") and data else data for key, data in stored]
    return b"\n".join(plain).decode()


def without(messages: list[dict[str, Any]], *ids: str) -> list[dict[str, Any]]:
    return [message for message in messages if message["id"] not in ids]


def test_nothing_of_two_messages_is_left_and_the_rest_is_as_it_was(place: Place) -> None:
    before = fresh(place).history(SID)
    assert everything(place).count(SECRET) > 5
    done = redact(place.db, SID, "u3")
    assert done.written > 0
    assert SECRET in everything(place), "the answer still has it"
    check(place)
    redact(place.db, SID, "a3")
    assert SECRET not in everything(place)
    after = fresh(place).history(SID)
    assert [m["id"] for m in after] == [m["id"] for m in before]
    assert without(after, "u3", "a3") == without(before, "u3", "a3")
    told = [m["parts"] for m in after if m["id"] in ("u3", "a3")]
    assert [[part["text"] for part in parts] for parts in told] == [["[redacted]"], ["[redacted]"]]
    check(place)
    place.send("u6")
    place.answer("six")
    check(place)
    place.clock.advance(24 * HOURS)
    gc(place.db, SID)
    assert len(fresh(place).history(SID)) == 12
    check(place)


def test_the_log_alone_says_the_same(place: Place) -> None:
    redact(place.db, SID, "u3")
    redact(place.db, SID, "a3")
    seen = fresh(place).history(SID)
    place.bucket.inner.delete(keys.snapshot(SID))
    assert fresh(place).history(SID) == seen, "from the whole log, or from the checkpoint"


def test_a_receipt_of_a_redacted_input_is_answered(place: Place) -> None:
    redact(place.db, SID, "u3")
    with fresh(place).boot(SID, receipt={"session": SID, "id": 3}) as session:
        assert list(session.turns()) == []


def test_by_the_name_of_a_value() -> None:
    place = tiny()
    life(place)
    done = set()
    for key in place.stored("values/"):
        parsed = keys.parse_content(key)
        assert parsed is not None
        if place.stored("values/")[key]:
            redact(place.db, SID, value=parsed[2])
            done |= {m["id"] for m in fresh(place).history(SID) if "[redacted]" in str(m)}
    assert done == {"u3", "a3"}
    assert SECRET not in everything(place)
    check(place)
    with pytest.raises(Refused, match="names the value"):
        redact(place.db, SID, value="0" * 64 + "-abc")


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_around_any_write_it_is_run_again(when: Literal["before", "after"]) -> None:
    whole = Place()
    life(whole)
    before = fresh(whole).history(SID)
    stored = dict(whole.space.objects)
    bucket = FaultyBucket(MemoryBucket(whole.clock, space=whole.space), clock=whole.clock)
    redact(Database(bucket, whole.clock), SID, "a3")
    left = everything(whole).count(SECRET)
    writes = [asked.number for asked in bucket.calls if asked.verb == "put"]
    assert len(writes) > 5
    for number in writes:
        place = Place()
        place.clock.advance(whole.clock.monotonic())
        place.space.objects, place.space.order = dict(stored), sorted(stored)
        assert killed_at(place, number, when, lambda db: redact(db, SID, "a3"))
        assert without(fresh(place).history(SID), "a3") == without(before, "a3"), number
        redact(place.db, SID, "a3")
        assert everything(place).count(SECRET) == left, number
        check(place)


def test_readers_at_any_moment_see_the_message_or_its_place(place: Place) -> None:
    before = fresh(place).history(SID)
    seen: list[str] = []

    def look() -> None:
        shown = fresh(place).history(SID)
        assert without(shown, "a3") == without(before, "a3")
        seen.append(str([m for m in shown if m["id"] == "a3"]))

    redact(watched(place, look), SID, "a3")
    assert len(set(seen)) == 2
    assert seen == sorted(seen, key=lambda text: SECRET not in text)


def test_a_worker_that_still_holds_it_is_fenced(place: Place) -> None:
    place.send("u6")
    zombie = place.db.boot(SID)
    held = zombie.fold.chain.messages
    redact(fresh(place), SID, "a3")
    redact(fresh(place), SID, "u3")
    assert SECRET in str(held)
    zombie.fold.chain.changed = True
    turns = zombie.turns()
    turn = next(turns)  # it read the session again
    assert SECRET not in str(turn.messages)
    turn.release("cancelled")
    assert SECRET not in everything(place)


def test_a_worker_in_the_middle_of_a_turn_is_waited_for(place: Place) -> None:
    place.send("u6")
    session = place.db.boot(SID)
    turn = first_turn(session)
    write_all(turn, [{"type": "start"}])
    turn.flush()
    other = Database(MemoryBucket(place.clock, space=place.space), place.clock, stable_timeout=0)
    with pytest.raises(Busy):
        redact(other, SID, "a3")
    die(session)
    with pytest.raises(Refused, match="open"):
        redact(other, SID, "a3", takeover=True)
    assert SECRET in everything(place)


def test_nothing_is_forgotten_before_a_snapshot_says_what_is_left(place: Place) -> None:
    before = fresh(place).history(SID)
    place.bucket.plan.append(Fault("put", key="sessions/", times=0))
    with pytest.raises(Unreachable, match="run the redaction again"):
        redact(place.db, SID, "a3")
    place.bucket.plan.clear()
    assert without(fresh(place).history(SID), "a3") == without(before, "a3")
    check(place)
    redact(place.db, SID, "a3")
    check(place)


def test_a_dry_run_writes_nothing(place: Place) -> None:
    before = place.stored("")
    assert redact(place.db, SID, "a3", dry_run=True).written > 0
    assert place.stored("") == before


def test_a_dry_run_waits_for_nobody(place: Place) -> None:
    place.send("u9")
    with place.db.boot(SID) as worker:
        first_turn(worker)
        now = place.clock.monotonic()
        with pytest.raises(Busy):
            redact(fresh(place), SID, "a3", dry_run=True)
        assert place.clock.monotonic() - now < 1.0


def test_what_is_not_there(place: Place) -> None:
    before = place.stored("")
    for wrong in ("nobody", ""):
        with pytest.raises(Refused, match="no message"):
            redact(place.db, SID, wrong)
    with pytest.raises(InvalidValue):
        redact(place.db, SID)
    assert place.stored("") == before


def test_a_message_that_was_removed_before_is_erased_from_the_log() -> None:
    place = Place()
    life(place)
    with place.db.boot(SID) as session:
        session.edit_history("remove", message_id="u3")
        session.edit_history("remove", message_id="a3")
    assert SECRET in everything(place)
    redact(place.db, SID, "u3")
    redact(place.db, SID, "a3")
    assert SECRET not in everything(place)
    assert len(place.db.history(SID)) == 8
    check(place)


def test_answers_from_a_client_go_too() -> None:
    place = Place()
    place.send("u1")
    with place.db.boot(SID) as session, first_turn(session) as turn:
        write_all(turn, [{"type": "start", "messageId": "a1"}, call("c1"), ask("c1")])
        write_all(turn, [call("c2")])
    place.db.approve(SID, tool_call_id="c1", reason=SECRET)
    place.db.tool_result(SID, "c2", {"a": SECRET})
    place.answer("done")
    place.clock.advance(24 * HOURS)
    assert SECRET in everything(place)
    redact(place.db, SID, "a1")
    assert SECRET not in everything(place)
    check(place)


def test_a_store_without_if_match_is_refused() -> None:
    place = Place()
    life(place)

    class NoMatch(MemoryBucket):
        def put(self, key: str, data: bytes, **options: Any) -> Any:
            if options.pop("if_match", None) is not None:
                raise Unsupported("no If-Match here")
            return super().put(key, data, **options)

    bucket = FaultyBucket(NoMatch(place.clock, space=place.space), clock=place.clock, trusted=False)
    with pytest.raises(Unsupported, match="nothing can be redacted"):
        redact(Database(bucket, place.clock), SID, "a3")


def test_redacting_again_writes_nothing_to_the_log(place: Place) -> None:
    redact(place.db, SID, "a3")
    before = {**place.stored("out/"), **place.stored("in/"), **place.stored("sessions/")}
    done = redact(place.db, SID, "a3")
    assert (done.written, done.why) == (0, "it is redacted already")
    assert {**place.stored("out/"), **place.stored("in/"), **place.stored("sessions/")} == before


def test_a_message_that_is_owed_is_answered_as_what_is_left_of_it(place: Place) -> None:
    place.db.send(SID, {"id": "owed", "role": "user", "parts": [{"type": "text", "text": "a secret"}]})
    redact(place.db, SID, "owed")
    assert b"a secret" not in b"".join(place.stored("").values())
    (item,) = place.db.peek(SID).pending
    assert [part["text"] for message in item.messages for part in message["parts"]] == ["[redacted]"]
