"""Reading a session: how many requests it takes, and what damage does to it."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from chat_samples import SID, Place, call, die, first_turn, saying, shape, text, user, write_all

from snapshotter import Corrupt, Gap, NewerVersion, Unreachable
from snapshotter.database import Database
from snapshotter.receipt import Receipt
from streams import keys
from streams.codec import encode_segment
from streams.errors import AccessDenied, BucketMissing, Misconfigured
from streams.testing.clocks import FakeClock
from streams.testing.faults import Fault

SNAPSHOT = f"sessions/{SID}/snapshot.json"


@pytest.fixture
def place() -> Place:
    return Place()


def trips(place: Place, **options: Any) -> tuple[int, int]:
    """(round trips, requests) of a boot."""
    with place.db.boot(SID, takeover=True, **options) as session:
        return session.booted.round_trips, session.booted.requests


def interrupt(place: Place) -> None:
    session = place.db.boot(SID, takeover=True)
    write_all(first_turn(session), [{"type": "start"}, call()])
    die(session)


# -- requests ---------------------------------------------------------------------------------------------


def test_a_receipt_of_a_new_session_takes_one_round_trip(place: Place) -> None:
    receipt = place.send("u1")
    assert trips(place, receipt=receipt) == (1, 3)  # the snapshot, the input, a list of out


def test_a_receipt_takes_one_round_trip(place: Place) -> None:
    for message_id in ("u1", "u2"):
        place.send(message_id)
        place.answer()
    receipt = place.send("u3")
    assert trips(place, receipt=receipt) == (1, 3)
    assert [call.verb for call in place.bucket.calls[-3:]] == ["get", "list", "get"]


def test_a_receipt_after_an_interrupted_turn_takes_two(place: Place) -> None:
    place.send("u1")
    place.answer()
    receipt = place.send("u2")
    interrupt(place)
    # The tail's two segments, and a list of in: a stop or an edit may have come.
    assert trips(place, receipt=receipt) == (2, 3 + 3)


def test_without_a_receipt_one_where_nothing_is_owed_and_two_where_something_is(place: Place) -> None:
    assert trips(place) == (1, 3)
    place.send("u1")
    assert trips(place) == (2, 3 + 1)
    place.answer()
    assert trips(place) == (1, 3)
    place.send("u2")
    place.send("u3")
    assert trips(place) == (2, 3 + 2)


def test_a_receipt_reads_the_inputs_that_it_passes_over(place: Place) -> None:
    place.send("u1")
    place.send("u2")
    receipt = place.send("u3")
    with place.db.boot(SID, receipt=receipt) as session:
        assert [item.ids for item in session.pending] == [(1,), (2,), (3,)]
        assert session.booted.round_trips == 2


def test_a_receipt_whose_input_is_answered_already_finds_nothing_to_do(place: Place) -> None:
    receipt = place.send("u1")
    place.answer()
    with place.db.boot(receipt=str(receipt)) as session:
        assert session.pending == []
        assert list(session.turns()) == []


def test_a_receipt_of_an_input_that_is_not_there_is_not_taken_for_done(place: Place) -> None:
    """A worker that looks into the wrong store must not let its queue message be acknowledged."""
    place.send("u1")
    with pytest.raises(Gap, match="another store or session") as gap:
        place.db.boot(SID, receipt=Receipt(SID, 7))
    assert gap.value.missing == (2, 7)
    with pytest.raises(Gap):
        place.db.boot(receipt=Receipt("nobody", 1))


@pytest.mark.parametrize(
    ("segments", "round_trips", "lists"),
    [(20, 2, 2), (21, 3, 3), (150, 3, 3)],
    ids=["20", "past 20", "150"],
)
def test_a_long_tail_takes_one_listing_more(
    place: Place, segments: int, round_trips: int, lists: int
) -> None:
    place.send("u1")
    session = place.db.boot(SID)
    turn = first_turn(session)
    turn.write({"type": "text-start", "id": "t"})
    turn.flush()
    for index in range(segments - 2):
        turn.write({"type": "text-delta", "id": "t", "delta": f"{index} "})
        turn.flush()
    die(session)
    assert len(place.stored("out/")) == segments
    with place.db.boot(SID, takeover=True) as session:
        whole = "".join(f"{index} " for index in range(segments - 2))
        assert shape(session.messages)[1:] == [("assistant", [whole])]
        assert (session.booted.round_trips, session.booted.lists) == (round_trips, lists)


def test_a_log_of_ten_thousand_segments_with_a_snapshot_boots_as_fast_as_a_small_one(place: Place) -> None:
    """The log is built beside the engine, 3 records a turn, one segment a record; then a turn as always. So
    long a history stands in a block, which is one request, and one round trip, more."""
    turns, nonce, put = 3_333, None, place.bucket.inner.put
    for turn in range(1, turns + 1):
        record = {"id": turn, "ts": 1, "kind": "message", "message": user(f"u{turn}")}
        put(keys.segment("in", SID, turn), encode_segment("in", [record], nonce=f"i{turn}"))
        bodies: list[dict[str, Any]] = [
            {
                "control": "turn-start",
                "turn": turn,
                "attempt": 1,
                "epoch": turn,
                "run": "r",
                "inputs": [turn],
            },
            {"chunk": {"type": "data-x", "data": turn}},
            {"control": "turn-complete", "turn": turn, "status": "completed"},
        ]
        bodies[0] |= {"seen": turn, "mode": "fresh", "messageId": f"a{turn}"}
        for number, body in enumerate(bodies, 3 * turn - 2):
            data = encode_segment(
                "out", [{"id": number, "ts": 1, **body}], nonce=f"o{number}", epoch=turn, prev=nonce
            )
            put(keys.segment("out", SID, number), data)
            nonce = f"o{number}"
    receipt = place.send("last")
    place.answer()  # reads the whole log once, and saves a snapshot
    with place.db.boot(SID) as session:
        assert len(session.messages) == 2 * turns + 2
        assert (session.booted.round_trips, session.booted.requests) == (2, 4)
    assert len(place.stored("blocks/")) == 1
    receipt = place.send("again")
    assert trips(place, receipt=receipt) == (2, 4)


# -- damage -----------------------------------------------------------------------------------------------


def overwrite(place: Place, key: str, data: bytes) -> None:
    place.bucket.inner.put(key, data)


def remove(place: Place, key: str) -> None:
    place.bucket.inner.delete(key)


def two_turns(place: Place) -> list[dict[str, Any]]:
    for message_id in ("u1", "u2"):
        place.send(message_id)
        place.answer(f"to {message_id}")
    return place.db.history(SID)


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"null", b'{"version":"one"}', b'{"version":1,"messages":5}', b"\x00\xff" * 100],
)
def test_a_corrupt_snapshot_is_replayed_reported_and_never_overwritten(place: Place, data: bytes) -> None:
    history = two_turns(place)
    overwrite(place, SNAPSHOT, data)
    found = place.db.peek(SID)
    assert found.messages == history
    assert [line["code"] for line in found.report] == ["snapshot-unreadable"]
    place.send("u3")
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            write_all(turn, saying("to u3"))
        assert [line["code"] for line in session.report] == ["snapshot-unreadable", "snapshot-not-saved"]
    assert place.stored(SNAPSHOT) == {SNAPSHOT: data}
    assert place.db.history(SID)[: len(history)] == history


def test_a_corrupt_snapshot_without_the_whole_log_is_corrupt(place: Place) -> None:
    two_turns(place)
    overwrite(place, SNAPSHOT, b"{")
    oldest = list(place.stored("out/"))[-1]
    remove(place, oldest)
    with pytest.raises(Corrupt) as caught:
        place.db.boot(SID)
    assert not isinstance(caught.value, NewerVersion)
    assert caught.value.key == SNAPSHOT


def test_a_newer_snapshot_is_refused_and_untouched(place: Place) -> None:
    two_turns(place)
    newer = orjson.dumps({"version": 99})
    overwrite(place, SNAPSHOT, newer)
    with pytest.raises(NewerVersion, match=r"99.*1"):
        place.db.boot(SID)
    with pytest.raises(NewerVersion):
        place.db.history(SID)
    assert place.stored(SNAPSHOT) == {SNAPSHOT: newer}


def test_a_newer_segment_is_refused_and_untouched(place: Place) -> None:
    two_turns(place)
    remove(place, SNAPSHOT)
    key = next(iter(place.stored("out/")))
    newer = place.stored(key)[key].replace(b'{"v":1', b'{"v":2', 1)
    overwrite(place, key, newer)
    with pytest.raises(NewerVersion):
        place.db.boot(SID)
    assert place.stored(key) == {key: newer}


@pytest.mark.parametrize("cut", [1, 20, 200])
def test_a_truncated_segment_is_corrupt_and_named(place: Place, cut: int) -> None:
    two_turns(place)
    remove(place, SNAPSHOT)
    key = list(place.stored("out/"))[2]
    overwrite(place, key, place.stored(key)[key][:-cut])
    with pytest.raises(Corrupt) as caught:
        place.db.boot(SID)
    assert caught.value.key == key


def test_objects_of_others_below_the_prefixes_are_passed_over(place: Place) -> None:
    history = two_turns(place)
    for key in (
        f"out/{SID}/README.md",
        f"out/{SID}/0000000000000000-5.jsonl.bak",
        f"out/{SID}/nonsense.jsonl",
        f"in/{SID}/.keep",
        "sessions/README.md",
        "sessions/other/notes.txt",
    ):
        overwrite(place, key, b"garbage")
    remove(place, SNAPSHOT)
    assert place.db.history(SID) == history
    place.send("u3")
    place.answer("to u3")
    assert place.db.history(SID)[:4] == history
    assert [info.id for info in place.db.sessions()] == [SID]


def test_a_missing_segment_is_a_gap_that_names_it(place: Place) -> None:
    two_turns(place)
    remove(place, SNAPSHOT)
    newest_first = list(place.stored("out/"))
    gone = place.segments()[1]
    remove(place, newest_first[-2])
    with pytest.raises(Gap) as caught:
        place.db.boot(SID)
    assert (caught.value.log, caught.value.missing[0]) == ("out", gone[0]["id"])


def test_a_missing_input_that_out_names_is_a_gap(place: Place) -> None:
    two_turns(place)
    remove(place, SNAPSHOT)
    remove(place, keys.segment("in", SID, 2))
    with pytest.raises(Gap) as caught:
        place.db.boot(SID)
    assert (caught.value.log, caught.value.missing) == ("in", (2, 2))


def test_a_missing_input_below_another_is_not_a_healthy_history(place: Place) -> None:
    place.send("u1")
    place.send("u2")
    remove(place, keys.segment("in", SID, 1))
    with pytest.raises(Gap):
        place.db.boot(SID)


def test_a_segment_that_continues_another_log_is_a_gap(place: Place) -> None:
    two_turns(place)
    place.send("u3")
    interrupt(place)
    newest = next(iter(place.stored("out/")))
    last = place.segments()[-1][-1]
    key = keys.segment("out", SID, last["id"] + 1)
    record = {"id": last["id"] + 1, "ts": 1, "control": "heartbeat"}
    overwrite(place, key, encode_segment("out", [record], nonce="x", epoch=9, prev="not-the-one"))
    with pytest.raises(Gap, match="another log"):
        place.db.boot(SID)
    remove(place, key)
    assert newest in place.stored("out/")
    assert place.db.peek(SID).partial is not None


@pytest.mark.parametrize("beyond", [0, 500])
def test_a_segment_that_begins_below_what_was_read_is_dead(place: Place, beyond: int) -> None:
    """Compaction, and writers that slept, leave such; whatever it holds beyond does not count either."""
    history = two_turns(place)
    remove(place, SNAPSHOT)
    middle = place.segments()[1][1]["id"]
    records = [
        {"id": n, "ts": 1, "control": "history", "op": "clear"} for n in range(middle, middle + 1 + beyond)
    ]
    overwrite(place, keys.segment("out", SID, middle), encode_segment("out", records, nonce="dead", epoch=1))
    assert place.db.history(SID) == history
    place.send("u3")
    place.answer("to u3")
    assert place.db.history(SID)[:4] == history


# -- the store itself -------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [BucketMissing, AccessDenied])
@pytest.mark.parametrize("verb", ["get", "list"])
def test_a_store_that_refuses_is_no_empty_session(
    place: Place, verb: Any, error: type[Misconfigured]
) -> None:
    two_turns(place)
    stored = place.stored("")
    place.bucket.plan.append(Fault(verb, times=0, error=lambda: error("injected")))
    with pytest.raises(error):
        place.db.boot(SID)
    assert place.stored("") == stored


def test_an_unreachable_store_is_no_empty_session(place: Place) -> None:
    two_turns(place)
    place.bucket.plan.append(Fault(times=0, seconds=1.0))
    with pytest.raises(Unreachable):
        place.db.boot(SID)


def test_a_listed_object_that_is_gone_starts_the_boot_again(place: Place) -> None:
    history = two_turns(place)
    place.send("u3")
    interrupt(place)
    key, data = next(iter(place.stored("out/").items()))
    hidden: list[bool] = []

    def hide(asked: Any, when: str) -> None:
        """The object is away for one look, as while a merged segment takes its place."""
        if asked.key == key and when == "before" and not hidden:
            remove(place, key)
            hidden.append(True)
        elif hidden and when == "after" and asked.key == key:
            overwrite(place, key, data)

    place.bucket.hook = hide
    assert place.db.peek(SID).messages[: len(history)] == history
    assert hidden


def test_an_input_that_lands_between_two_listings_is_read(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listing of in came before u2; the listing of out shows the turn that took it."""
    place.send("u1")
    place.answer()
    prefix = keys.log_prefix("in", SID)
    stale, fresh = [place.bucket.list(prefix)], place.bucket.list
    place.send("u2")
    interrupt(place)

    def listed(asked: str, **options: Any) -> Any:
        return stale.pop() if asked == prefix and stale else fresh(asked, **options)

    monkeypatch.setattr(place.bucket, "list", listed)
    found = place.db.peek(SID)
    assert not stale
    assert [m["id"] for m in found.messages if m["role"] == "user"] == ["u1", "u2"]
    assert found.resume.kind == "recover_tools"


@pytest.mark.parametrize("hours", [-1.0, 1.0, 20_000.0])
def test_a_clock_that_is_off_changes_nothing(hours: float) -> None:
    """Leases are judged by the store's dates, order by ids."""
    place = Place()
    skewed = FakeClock(start_ms=place.clock.now_ms() + round(hours * 3_600_000), seed=7)
    off = Database(place.bucket, skewed)
    place.send("u1")
    session = place.db.boot(SID)
    write_all(first_turn(session), [{"type": "start"}, call()])
    assert off.peek(SID).busy is not None
    die(session)
    place.clock.advance(53.0)
    assert off.peek(SID).busy is None
    with off.boot(SID) as session:
        with first_turn(session) as turn:
            write_all(turn, [*text("done"), {"type": "finish", "finishReason": "stop"}])
        assert session.report == []
    place.send("u2")
    place.answer()
    assert [m["role"] for m in place.db.history(SID)] == ["user", "assistant"] * 2
    assert json.loads(place.stored(SNAPSHOT)[SNAPSHOT])["turn"] == 2


def test_a_snapshot_at_any_turns_end_gives_the_same_boot(place: Place) -> None:
    """Also an older one, and none."""
    kept: list[bytes] = []
    for message_id in ("u1", "u2", "u3"):
        place.send(message_id)
        place.answer(f"to {message_id}")
        kept.append(place.stored(SNAPSHOT)[SNAPSHOT])
    place.send("u4")
    interrupt(place)
    expected = place.db.peek(SID)
    for data in kept[:-1]:
        overwrite(place, SNAPSHOT, data)
        found = place.db.peek(SID)
        assert (found.messages, found.pending, found.resume) == (
            expected.messages,
            expected.pending,
            expected.resume,
        )
    remove(place, SNAPSHOT)
    assert place.db.peek(SID).messages == expected.messages
