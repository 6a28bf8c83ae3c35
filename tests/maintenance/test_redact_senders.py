"""Redaction beside senders of large messages: a value is stored before what names it."""

from __future__ import annotations

import pytest
from blocky import LARGE, TINY
from chat_samples import SID, Place, user
from test_redact_beside import copies, left
from upkeep import HOURS, check, fresh, interrupted

from snapshotter import values
from snapshotter.maintenance import gc, redact
from streams import keys, log
from streams.codec import decode_segment

SENT = f"what was sent meanwhile {LARGE}"


def sent(message_id: str) -> tuple[Place, dict[str, bytes]]:
    """A session with a question and its answer, and what a sender of one more large message stores. Under the
    same id that may be sent 32 inputs later."""
    before = Place(sizes=TINY)
    before.db.send(SID, user("u1", f"asked {LARGE}"))
    before.answer()
    for _ in range(32 if message_id == "u1" else 0):
        before.db.stop(SID)
    after = copies(before)()
    after.db.send(SID, user(message_id, SENT))
    return before, {key: data for key, data in after.stored("").items() if key not in before.stored("")}


@pytest.mark.parametrize(("message_id", "verb"), [("u2", ""), ("u1", "put")])
def test_a_large_message_that_is_sent_beside_it_can_be_answered(message_id: str, verb: str) -> None:
    """Its value is there, and is named before each request (write) of the redaction in turn; its sender has
    looked for it then, and is acknowledged."""
    before, new = sent(message_id)
    (value,) = (key for key in new if key.startswith("values/"))
    (segment,) = (key for key in new if key.startswith("in/"))
    name = str((keys.parse_content(value) or ("", "", ""))[2])
    parsed = decode_segment(new[segment], key=segment)
    assert parsed is not None
    (record,) = parsed.records
    made = copies(before)
    number = 0
    for number in range(1, 300):
        place = made()
        place.bucket.inner.put(value, new[value])
        happened: list[int] = []

        def now(place: Place = place, happened: list[int] = happened) -> None:
            happened.append(1)
            store = fresh(place).store
            log.append_input(store, SID, lambda _number: record)
            values.confirm(store, SID, "in", {"key": name, "bytes": len(new[value])}, new[value])

        redact(interrupted(place, verb, "", number, now), SID, "u1")
        if not happened:
            break
        assert not left(place, "asked"), number
        (item,) = fresh(place).peek(SID).pending
        (text,) = [part["text"] for message in item.messages for part in message["parts"]]
        assert text in ((SENT,) if message_id == "u2" else (SENT, "[redacted]")), number
        place.answer()
        check(place)
        place.clock.advance(24 * HOURS)
        gc(place.db, SID)
        check(place)
    assert 6 < number < 299


def test_what_a_sender_who_died_has_stored_is_left_to_gc() -> None:
    before, new = sent("u2")
    (value,) = (key for key in new if key.startswith("values/"))
    before.bucket.inner.put(value, new[value])
    redact(before.db, SID, "u1")
    assert left(before, SENT) == [value]
    assert redact(before.db, SID, "u1").why == "it is redacted already"
    before.clock.advance(24 * HOURS)
    gc(before.db, SID)
    assert not left(before, SENT)
    check(before)


def test_a_large_message_under_the_id_of_its_number_goes_with_its_value() -> None:
    place, _ = sent("u1")
    number = place.db.send(SID, user("u1", SENT)).id
    place.answer()
    redact(place.db, SID, f"msg-in{number}")
    assert not left(place, SENT)
    assert left(place, "asked")
    check(place)
