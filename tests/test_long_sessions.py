"""A long history in blocks: what is written when, what is read, and what happens when a part is gone."""

from __future__ import annotations

import gzip
import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
from chat_samples import SID, Place, ask, call, first_turn, saying, text, user, write_all

from snapshotter import Corrupt, Database, Fenced, InvalidValue, Missing, Refused, Unreachable
from snapshotter.core.blocks import Sizes
from snapshotter.core.snapshot import decode
from snapshotter.maintenance import gc
from snapshotter.verify import verify
from streams.buckets.memory import MemoryBucket
from streams.testing.faults import Call, Fault, FaultyBucket

SIZES = Sizes(inline=2_000, tail=3_000, turns=6, small=8_000, large=30_000, value=1 << 30)
KEY = f"sessions/{SID}/snapshot.json"
HOUR = 3_600.0


@pytest.fixture
def place() -> Place:
    return Place(sizes=SIZES)


def grow(place: Place, turns: int, *, size: int = 400, window: int | None = None) -> None:
    """So many turns, each by a worker of its own. Ids of questions go on from the last."""
    first = len(place.stored("in/")) + 1
    for number in range(first, first + turns):
        place.send(f"u{number}")
        with place.db.boot(SID, window=window) as session:
            for turn in session.turns():
                with turn:
                    write_all(turn, saying(f"{number} " + "x" * size))
            assert session.report == []


def snapshot(place: Place) -> dict[str, Any]:
    return decode(place.stored(KEY)[KEY], session=SID)


def rows(place: Place) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = snapshot(place).get("blocks", [])
    return found


def names(place: Place) -> list[str]:
    return [row["key"] for row in rows(place)]


def block_key(row: dict[str, Any]) -> str:
    return f"blocks/{SID}/{row['key']}.json.gz"


def puts(place: Place) -> list[str]:
    return [call.key.split("/")[0] for call in place.bucket.calls if call.verb == "put"]


# -- layout ----------------------------------------------------------------------------------------------


def test_a_short_session_is_one_plain_document_after_each_turn(place: Place) -> None:
    grow(place, 2, size=200)
    assert "blocks" not in snapshot(place)
    assert len(snapshot(place)["messages"]) == 4
    assert puts(place).count("sessions") == 2


def test_a_block_is_the_gzip_of_its_messages_under_the_hash_of_what_is_stored(place: Place) -> None:
    grow(place, 12)
    found: list[Any] = []
    assert len(rows(place)) > 1
    for row in rows(place):
        data = place.stored(block_key(row))[block_key(row)]
        assert row["key"].startswith(hashlib.sha256(data).hexdigest() + "-")
        assert len(gzip.decompress(data)) == row["bytes"]
        messages = json.loads(gzip.decompress(data))
        assert len(messages) == row["count"]
        found += messages
    found += snapshot(place)["messages"]
    assert found == place.db.history(SID)[: len(found)]


def test_only_a_grown_tail_makes_a_checkpoint_due(place: Place) -> None:
    grow(place, 8)
    place.bucket.calls.clear()
    stood = int(snapshot(place)["lastOutEventId"])
    grow(place, 1, size=10)
    assert set(puts(place)) == {"in", "out"}
    assert int(snapshot(place)["lastOutEventId"]) == stood
    assert place.db.history(SID)[-1]["parts"][1]["text"] == "9 " + "x" * 10
    grow(place, 1, size=3_000)
    assert int(snapshot(place)["lastOutEventId"]) > stood
    assert puts(place).count("blocks") == 1


def test_so_do_many_short_turns(place: Place) -> None:
    grow(place, 8)
    grow(place, 12, size=1)
    turns = snapshot(place)["turn"]
    assert 20 - SIZES.turns < turns <= 20


def test_a_worker_counts_what_it_writes_itself(place: Place) -> None:
    grow(place, 8)
    place.bucket.calls.clear()
    for number in range(20, 24):
        place.send(f"u{number}")
    with place.db.boot(SID) as session:
        for turn in session.turns():
            with turn:
                write_all(turn, saying("x" * 1_200))
    assert 1 <= puts(place).count("sessions") < 4


@pytest.mark.parametrize("op", [{"op": "truncate-after", "message_id": "u8"}, {"op": "clear"}])
def test_a_removal_is_saved_at_once(place: Place, op: dict[str, Any]) -> None:
    grow(place, 8)
    before = names(place)
    with place.db.boot(SID) as session:
        session.edit_history(**op)
    document = snapshot(place)
    assert int(document["lastOutEventId"]) == place.db.peek(SID).fold.cursor
    if op["op"] == "clear":
        assert (document["messages"], "blocks" in document) == ([], False)
    else:
        assert 0 < sum(a == b for a, b in zip(before, names(place), strict=False)) < len(before) + 1


def test_the_end_of_a_session_is_saved_at_once(place: Place) -> None:
    grow(place, 8)
    place.db.close_session(SID)
    with place.db.boot(SID) as session:
        assert list(session.turns()) == []
    assert snapshot(place)["closed"] is True


def test_a_change_in_a_block_seals_that_block_anew_and_no_other(place: Place) -> None:
    place.send("u1")
    with place.db.boot(SID) as session, first_turn(session) as turn:
        write_all(turn, [{"type": "start", "messageId": "asked"}, call(), ask()])
    with place.db.boot(SID) as session:
        for number in range(12):
            session.edit_history("put", message=user(f"h{number}", "x" * 900))
        while not rows(place)[0].get("open"):
            raise AssertionError("the block holds a question")
        before = rows(place)
    place.db.approve(SID, "ap1", approved=True)
    with place.db.boot(SID, window=3) as session, first_turn(session) as turn:
        assert turn.message_id == "asked"
        write_all(
            turn, [{"type": "tool-output-available", "toolCallId": "c1", "output": 1}, *saying("y" * 3_000)]
        )
    after = rows(place)
    assert "open" not in after[0]
    assert after[0]["key"] != before[0]["key"]
    assert [row["key"] for row in after[1 : len(before)]] == [row["key"] for row in before[1:]]
    assert place.db.history(SID)[1]["parts"][0]["state"] == "output-available"
    assert verify(place.db, SID).problems == []


def test_an_imported_history_is_split_into_blocks(place: Place) -> None:
    messages = [user(f"h{n}", "x" * 700) for n in range(200)]
    place.db.create(SID, messages=messages)
    assert sum(row["count"] for row in rows(place)) == 200
    assert SIZES.large < max(row["bytes"] for row in rows(place)) <= 2 * SIZES.large + SIZES.small
    assert place.db.history(SID) == messages


def test_blocks_of_a_session_that_became_short_are_one_document_again(place: Place) -> None:
    grow(place, 20)
    with place.db.boot(SID) as session:
        session.edit_history("truncate-after", message_id="u2")
    assert "blocks" not in snapshot(place)
    assert [m["role"] for m in snapshot(place)["messages"]] == ["user", "assistant", "user"]


# -- reading ---------------------------------------------------------------------------------------------


def test_a_boot_takes_two_round_trips_and_one_request_a_block(place: Place) -> None:
    grow(place, 40)
    session = place.db.peek(SID)
    assert len(session.messages) == 80
    tail = session.booted.gets - 1 - len(rows(place))
    assert (session.booted.round_trips, session.booted.lists) == (2, 2)
    assert 0 <= tail <= 3 * SIZES.turns


def test_a_window_reads_the_newest_blocks_only(place: Place) -> None:
    grow(place, 120)
    with place.db.boot(SID, window=10) as session:
        read = session.messages
        assert session.booted.round_trips == 2
        assert session.booted.bytes_read < place.db.peek(SID).booted.bytes_read
    whole = place.db.history(SID)
    assert 64 <= len(read) < len(whole)
    assert read == whole[-len(read) :]
    with place.db.boot(SID, window=1_000) as session:
        assert session.messages == whole


def test_a_windowed_worker_reads_what_it_needs_and_writes_the_same(place: Place) -> None:
    grow(place, 60, window=0)
    place.db.edit(SID, "u2", user("e2", "again"))
    with place.db.boot(SID, window=0) as session, first_turn(session) as turn:
        assert [m["id"] for m in turn.messages][-1] == "e2"
        write_all(turn, saying("short"))
    assert [m["id"] for m in place.db.history(SID) if m["role"] == "user"] == ["u1", "e2"]
    assert verify(place.db, SID).problems == []


def test_a_windowed_worker_that_slept_until_its_blocks_were_gone_reads_again(place: Place) -> None:
    """What it needs went with the snapshot that named it: others have answered since."""
    grow(place, 120, window=0)
    oldest = next(m for m in place.db.peek(SID, window=0).messages if m["role"] == "user")
    place.db.edit(SID, oldest["id"], user("e2", "again"))
    sleeper = place.db.boot(SID, window=0)
    lacking = [span for span in sleeper.fold.chain.spans if not span.loaded]
    place.clock.advance(HOUR)
    with place.db.boot(SID, takeover=True) as session:
        with first_turn(session) as turn:
            write_all(turn, saying("short"))
        session.edit_history("remove", message_id="u1")
    place.clock.advance(48 * HOUR)
    gc(place.db, SID)
    assert lacking
    assert not set(place.stored("blocks/")) & {block_key({"key": span.block.key}) for span in lacking}
    with sleeper:
        assert list(sleeper.turns()) == []
        assert [m["id"] for m in sleeper.messages][-2] == "e2"
    assert verify(place.db, SID).problems == []


def test_a_windowed_worker_that_is_held_up_in_an_edit_is_fenced(place: Place) -> None:
    grow(place, 120)
    sleeper = place.db.boot(SID, window=0)
    with place.db.boot(SID) as session:
        session.edit_history("replace", messages=[user("anew")])
    place.clock.advance(48 * HOUR)
    gc(place.db, SID)
    with sleeper, pytest.raises(Fenced):
        sleeper.edit_history("remove", message_id="u1")
    assert [m["id"] for m in place.db.history(SID)] == ["anew"]


def test_a_windowed_worker_whose_block_is_lost_says_so(place: Place) -> None:
    """The snapshot that names it stands there as it was: this is damage."""
    grow(place, 120)
    with place.db.boot(SID, window=0) as session:
        place.bucket.inner.delete(block_key(rows(place)[0]))
        with pytest.raises(Missing):
            session.edit_history("remove", message_id="u1")


def test_an_edit_from_inside_reads_what_it_names(place: Place) -> None:
    grow(place, 120)
    with place.db.boot(SID, window=0) as session:
        assert len(session.messages) < 240
        with pytest.raises(Refused):
            session.edit_history("remove", message_id="never there")
        session.edit_history("remove", message_id="u1")
        session.set_context("u2", [user("sum", "short")])
    found = [m["id"] for m in place.db.history(SID) if m["role"] == "user"]
    assert found == [f"u{n}" for n in range(2, 121)]
    assert place.db.peek(SID).context is not None
    with place.db.boot(SID, window=0) as session:
        assert "u2" in [m["id"] for m in session.messages]  # what the context ends with is read


def test_pages_of_the_history_go_backwards_block_by_block(place: Place) -> None:
    grow(place, 120)
    whole = place.db.history(SID)
    store = place.bucket
    store.calls.clear()
    assert place.db.history(SID, limit=5) == whole[-5:]
    newest = sum(call.key.startswith("blocks/") for call in store.calls)
    store.calls.clear()
    assert place.db.history(SID, limit=5, before=whole[100]["id"]) == whole[95:100]
    assert newest < sum(call.key.startswith("blocks/") for call in store.calls)
    assert place.db.history(SID, limit=500) == whole
    assert place.db.history(SID, limit=0) == []
    with pytest.raises(InvalidValue):
        place.db.history(SID, limit=-1)


def test_a_window_is_a_number_of_messages(place: Place) -> None:
    for wrong in (-1, True, "10"):
        with pytest.raises(InvalidValue):
            place.db.boot(SID, window=wrong)  # type: ignore[arg-type]


def test_hooks_that_see_the_history_see_all_of_it(place: Place) -> None:
    grow(place, 60)
    whole = place.db.history(SID)
    seen: list[int] = []
    place.send("last")
    hooked = Database(
        place.bucket,
        place.clock,
        sizes=SIZES,
        recovery=place.db.recovery,
        on_recovery_boot=lambda told: seen.append(len(told.messages)),  # type: ignore[arg-type,func-returns-value]
    )
    session = hooked.boot(SID)
    first_turn(session).release()
    with hooked.boot(SID, window=0) as session:
        first_turn(session)
    assert seen == [120]
    owned = Database(place.bucket, place.clock, sizes=SIZES, hydrate=lambda _id: whole)
    assert owned.boot(SID, window=0, takeover=True).messages[:120] == whole


def test_a_claim_counts_with_the_head_of_such_a_snapshot(place: Place) -> None:
    grow(place, 12)
    place.send("last")
    place.bucket.calls.clear()
    with place.db.boot(SID, delivery=2) as session:
        first_turn(session).release()
    assert [r["why"] for r in place.controls("fence")] == ["boot"]


def test_a_snapshot_with_blocks_cannot_be_read_alone(place: Place) -> None:
    from snapshotter.core.snapshot import restore

    grow(place, 12)
    with pytest.raises(Refused, match="stored apart"):
        restore(snapshot(place))


# -- damage ----------------------------------------------------------------------------------------------


def damage(place: Place, how: str, row: dict[str, Any]) -> type[Exception]:
    key = block_key(row)
    data = place.stored(key)[key]
    if how == "gone":
        place.bucket.inner.delete(key)
        return Missing
    bad = {"empty": b"", "flipped": data[:-3] + bytes([data[-3] ^ 1]) + data[-2:], "short": data[:-5]}
    place.bucket.inner.put(key, bad[how])
    return Missing if how == "empty" else Corrupt


@pytest.mark.parametrize("how", ["gone", "empty", "flipped", "short"])
def test_a_block_that_is_lost_makes_the_snapshot_unreadable(place: Place, how: str) -> None:
    grow(place, 120)
    whole, stored = place.db.history(SID), place.stored(KEY)[KEY]
    kind = damage(place, how, rows(place)[0])
    place.send("more")
    with place.db.boot(SID) as session:
        assert [note["code"] for note in session.report] == ["snapshot-unreadable"]
        assert session.messages == whole
        for turn in session.turns():
            with turn:
                write_all(turn, saying("x" * 4_000))
        assert session.report[-1]["code"] == "snapshot-not-saved"
    assert place.stored(KEY)[KEY] == stored
    assert {p.code for p in verify(place.db, SID).problems} == {"missing" if kind is Missing else "corrupt"}
    # A window that does not need it boots; nothing else does once the log is gone, too.
    for key in sorted(place.stored("out/"), reverse=True)[:40]:
        place.bucket.inner.delete(key)
    with pytest.raises(kind) as caught:
        place.db.peek(SID)
    assert getattr(caught.value, "key", "") == block_key(rows(place)[0])
    with place.db.boot(SID, window=0) as session:
        assert session.messages[-1]["parts"][1]["text"] == "x" * 4_000


@pytest.mark.parametrize(("field", "by"), [("count", 1), ("bytes", -1), ("bytes", 1)])
def test_a_block_that_is_not_what_the_snapshot_says_is_corrupt(place: Place, field: str, by: int) -> None:
    """A bomb among them: unpacking stops where the snapshot says that the block ends."""
    grow(place, 12)
    document = snapshot(place)
    document["blocks"][0][field] += by
    del document["crc"]
    place.bucket.inner.put(KEY, json.dumps(document).encode())
    for key in sorted(place.stored("out/"), reverse=True)[:2]:
        place.bucket.inner.delete(key)
    with pytest.raises(Corrupt):
        place.db.peek(SID)


@pytest.mark.parametrize(
    "row",
    [
        {},
        "x",
        {"key": "x", "count": 1, "bytes": 2},
        {"key": f"{'a' * 64}-n", "count": 0, "bytes": 2},
        {"key": f"{'a' * 64}-n", "count": 1, "bytes": 1 << 40},
        {"key": f"{'a' * 64}-n", "count": 1, "bytes": 2, "open": 1},
    ],
)
def test_a_row_of_another_shape_is_corrupt(row: Any) -> None:
    with pytest.raises(Corrupt, match="blocks"):
        decode(json.dumps({"version": 1, "blocks": [row]}).encode())


def test_a_block_that_was_merged_away_while_the_session_is_read_starts_the_boot_again(place: Place) -> None:
    grow(place, 12)
    old = rows(place)[0]
    data = place.stored(block_key(old))[block_key(old)]
    struck: list[int] = []

    def strike(asked: Any, when: str) -> None:
        if when == "before" and asked.verb == "get" and asked.key == block_key(old) and not struck:
            struck.append(1)
            document = snapshot(place)
            fresh = f"{hashlib.sha256(data).hexdigest()}-{'n' * 24}"
            document["blocks"][0]["key"] = fresh
            del document["crc"]
            place.bucket.inner.put(f"blocks/{SID}/{fresh}.json.gz", data)
            place.bucket.inner.put(KEY, json.dumps(document).encode())
            place.bucket.inner.delete(block_key(old))

    place.bucket.hook = strike
    session = place.db.peek(SID)
    assert (len(session.messages), session.report, struck) == (24, [], [1])


# -- saving ----------------------------------------------------------------------------------------------


def test_a_block_that_cannot_be_written_is_reported_and_written_next_time(place: Place) -> None:
    grow(place, 8)
    before = names(place)
    place.bucket.plan.append(Fault("put", key="blocks/", times=0, seconds=30.0))
    place.send("more")
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            write_all(turn, saying("x" * 4_000))
        assert [note["code"] for note in session.report] == ["snapshot-not-saved"]
    assert names(place) == before
    place.bucket.plan.clear()
    grow(place, 1, size=1)
    assert names(place) != before
    assert verify(place.db, SID).problems == []


def test_what_another_snapshot_does_not_name_is_not_named_in_its_place(place: Place) -> None:
    """Somebody put an older snapshot back, after this worker had read its own: that one's blocks may be gone
    by now."""
    grow(place, 2, size=200)
    older = place.stored(KEY)[KEY]
    grow(place, 16)
    place.send("more")
    with place.db.boot(SID) as session:
        place.bucket.inner.put(KEY, older)
        with first_turn(session) as turn:
            write_all(turn, saying("x" * 4_000))
        (note,) = session.report
        assert note["code"] == "snapshot-not-saved"
        assert "another snapshot" in note["detail"]
    assert place.stored(KEY)[KEY] == older
    grow(place, 1)
    assert len(names(place)) > 0
    assert verify(place.db, SID).problems == []


def test_a_newer_snapshot_is_left(place: Place) -> None:
    grow(place, 8)
    place.send("more")
    with place.db.boot(SID) as session:
        document = snapshot(place) | {"lastOutEventId": "9999"}
        del document["crc"]
        place.bucket.inner.put(KEY, json.dumps(document).encode())
        with first_turn(session) as turn:
            write_all(turn, saying("x" * 4_000))
        assert session.report == []
    assert snapshot(place)["lastOutEventId"] == "9999"


def test_who_was_frozen_between_blocks_and_snapshot_seals_them_anew(place: Place) -> None:
    """What nothing names is tidied away after a time: it is done once more, with names of its own."""
    grow(place, 8)
    place.send("more")
    slept: list[list[str]] = []

    def sleep(asked: Any, when: str) -> None:
        if when == "before" and asked.verb == "put" and asked.key == KEY and not slept:
            slept.append(list(place.stored("blocks/")))
            place.clock.sleep(HOUR)

    place.bucket.hook = sleep
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            write_all(turn, saying("x" * 4_000))
        assert session.report == []
    fresh = [block_key(row) for row in rows(place) if block_key(row) not in slept[0]]
    assert len(fresh) == 1
    assert verify(place.db, SID).problems == []


def test_a_plain_database_reads_what_another_sealed(place: Place) -> None:
    grow(place, 12)
    whole = place.db.history(SID)
    other = Database(place.bucket, place.clock, sizes=replace(SIZES, inline=1 << 30))
    assert other.history(SID) == whole


def test_a_last_message_whose_calls_wait_is_not_sealed_yet(place: Place) -> None:
    grow(place, 8)
    place.send("more")
    with place.db.boot(SID) as session, first_turn(session) as turn:
        write_all(turn, [{"type": "start", "messageId": "asked"}, *text("x" * 3_000), call(), ask()])
    assert [m["id"] for m in snapshot(place)["messages"]] == ["asked"]
    before = names(place)
    place.db.approve(SID, "ap1", approved=False)
    grow(place, 1, size=3_000)
    assert [a for a in before if a in names(place)] == before[: len(names(place)) - 1]


def test_who_asks_only_how_the_session_stands_reads_no_old_block(place: Place) -> None:
    grow(place, 120)
    oldest = block_key(rows(place)[0])
    place.bucket.calls.clear()
    outcome = place.db.outcome(SID)
    assert outcome is not None
    assert outcome.turn == 120
    assert not place.db.recovering(SID)
    assert 64 <= len(place.db.peek(SID, window=0).messages) < 240
    place.db.clear(SID)
    assert oldest not in [call.key for call in place.bucket.calls]
    assert place.db.history(SID) == []


def test_what_is_read_while_a_message_is_continued_leaves_it_in_its_place(place: Place) -> None:
    grow(place, 120)
    place.send("more")
    with place.db.boot(SID) as session, first_turn(session) as turn:
        write_all(turn, [{"type": "start", "messageId": "asked"}, call(), ask()])
    place.db.approve(SID, "ap1", approved=True)
    with place.db.boot(SID, window=70) as session, first_turn(session) as turn:
        read = len(session.messages)
        assert read < 242
        turn.edit_history("put", message=user("beside"))  # looked for in the whole history
        write_all(turn, [{"type": "tool-output-available", "toolCallId": "c1", "output": 1}])
        assert turn.message_id == "asked"
    whole = place.db.history(SID)
    assert [m["id"] for m in whole[-3:]] == ["more", "asked", "beside"]
    assert whole[-2]["parts"][0]["output"] == 1
    assert len(whole) == 243
    assert verify(place.db, SID).problems == []


def test_blocks_of_a_snapshot_that_landed_unanswered_are_the_next_ones_too(place: Place) -> None:
    """Its worker hears nothing, another one goes on from it and merges nothing; then the first, asked again,
    is told that a newer snapshot stands there. What it sealed is that one's by now."""
    grow(place, 12)
    heard: list[str] = []

    def hook(request: Call, when: str) -> None:
        if (request.verb, request.key, when) == ("put", KEY, "after") and not heard:
            heard.append("nothing")
            other = Database(MemoryBucket(place.clock, space=place.space), place.clock, sizes=place.db._sizes)
            other.send(SID, user("other"))
            with other.boot(SID, takeover=True) as session, first_turn(session) as turn:
                write_all(turn, saying("y" * 4_000))
            raise Unreachable("no answer")

    bucket = FaultyBucket(MemoryBucket(place.clock, space=place.space), clock=place.clock, hook=hook)
    slow = Database(bucket, place.clock, sizes=place.db._sizes)
    slow.send(SID, user("mine"))
    with slow.boot(SID) as session, first_turn(session) as turn:
        write_all(turn, saying("x" * 4_000))
    assert heard
    assert [m["id"] for m in place.db.history(SID) if m["role"] == "user"][-2:] == ["mine", "other"]
    assert all(place.stored("blocks/").values())
    assert verify(place.db, SID).problems == []
