"""Maintenance beside senders, deletions, trims and bytes that flip: what the simulation has found."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from blocky import LARGE, tiny
from blocky import session as long_session
from chat_samples import SID, Place, call, first_turn, result, saying, user, write_all
from upkeep import HOURS, check, fresh, interrupted, names, session_of

from snapshotter.core.blocks import Sizes
from snapshotter.database import Database
from snapshotter.maintenance import Keep, compact, delete, fork, gc, redact, trim
from snapshotter.maintenance.rules import Rules
from streams import keys
from streams.buckets.base import Blob
from streams.buckets.memory import MemoryBucket
from streams.codec import encode_segment
from streams.errors import Corrupt, Fenced
from streams.store import Store

HOUR = Rules(minimum_age=HOURS)


def segments(place: Place, which: str = "out") -> list[int]:
    return names(key for key, data in place.stored(f"{which}/").items() if data)


def test_an_edit_under_another_id_is_no_part_of_the_message_that_it_replaced() -> None:
    place = Place()
    place.send("u1")
    place.answer()
    place.db.edit(SID, "u1", user("u2", "what I meant"))
    place.answer("better")
    place.clock.advance(24 * HOURS)
    redact(place.db, SID, "u1")
    texts = [p["text"] for m in fresh(place).history(SID) for p in m["parts"] if p["type"] == "text"]
    assert texts == ["what I meant", "better"]
    said = [r["message"]["parts"][0]["text"] for r in place.records("in") if "message" in r]
    assert said == ["[redacted]", "what I meant"]
    check(place)


def test_a_redaction_reads_inputs_that_come_while_it_reads() -> None:
    """An input that is sent and named by the out log between its two readings is there when it looks."""
    place = Place()
    session_of(place, 2)

    def another() -> None:
        fresh(place).stop(SID, "nobody")
        with fresh(place).boot(SID, takeover=True) as session:
            assert list(session.turns()) == []

    # Its own boot lists the newest of both; then it reads each of the logs three times.
    for number in range(2, 8):
        db = interrupted(place, "list", "out/", number, another)
        with suppress(Fenced):  # the other one took the log: run it again
            redact(db, SID, "u1", takeover=True)
        check(place)
    redact(place.db, SID, "u1")
    texts = [m["parts"][0].get("text") for m in fresh(place).history(SID) if m["role"] == "user"]
    assert texts == ["[redacted]", "hi"]


def test_a_compaction_beside_a_deletion_finds_nothing_damaged() -> None:
    place = Place()
    session_of(place)
    before = segments(place)
    hollow = keys.segment("out", SID, before[2])
    inner = MemoryBucket(place.clock, space=place.space)
    db = interrupted(place, "get", hollow, 1, lambda: inner.put(hollow, b""))
    compact(db, SID)
    assert segments(place)[:2] == before[:2]


def test_a_compaction_of_a_deletion_that_was_broken_off_leaves_the_rest_alone() -> None:
    place = Place()
    session_of(place)
    before = segments(place)
    hollow = keys.segment("out", SID, before[2])
    MemoryBucket(place.clock, space=place.space).put(hollow, b"")
    place.clock.advance(24 * HOURS)
    compact(place.db, SID)
    assert segments(place)[:2] == before[:2]


def test_what_a_sleeper_left_below_a_trimmed_log_stops_no_compaction() -> None:
    place = Place()
    session_of(place, 5)
    trim(place.db, SID, keep=Keep(turns=3))
    start = segments(place)[0]
    late = encode_segment(
        "out",
        [{"id": 1, "ts": 1, "control": "fence", "epoch": 1, "run": "r-late", "why": "boot"}],
        nonce="late",
        epoch=1,
        run="r-late",
        lease=0,
    )
    MemoryBucket(place.clock, space=place.space).put(keys.segment("out", SID, 1), late)
    place.clock.advance(24 * HOURS)
    count = len(segments(place))
    assert compact(place.db, SID).written > 0
    assert segments(place)[:2] == [1, start]
    assert len(segments(place)) < count
    check(place)


def test_inputs_stay_as_long_as_what_answers_them() -> None:
    """A compaction makes a turn's object young again: the trim that leaves it leaves its inputs, too."""
    place = Place()
    session_of(place, 3)
    compact(place.db, SID)
    trim(place.db, SID, rules=HOUR, keep=Keep(turns=1))
    named = {n for r in place.records() for n in r.get("inputs", ())}
    assert named <= {record["id"] for record in place.records("in")}
    assert len(named) == 3
    check(place)


def test_a_trim_beside_a_compaction_keeps_the_newest_covered_turn() -> None:
    """The compaction puts the turn into the place of the claim before it, which the trim has listed."""
    place = Place()
    session_of(place, 2)
    for name in ("u3", "u4"):
        place.send(name)
        with place.db.boot(SID, takeover=True, claim=True) as booted:
            for turn in booted.turns():
                with turn:
                    for chunk in saying(f"to {name}"):
                        turn.write(chunk)
                        turn.flush()
    place.clock.advance(24 * HOURS)
    place.send("u5")
    place.answer("newest")
    db = interrupted(place, "delete", "out/", 1, lambda: compact(fresh(place), SID))
    trim(db, SID, keep=Keep(turns=2))
    kept, *_ = place.segments()
    assert kept[0]["why"] == "boot"
    assert [record["turn"] for record in kept if "turn" in record] == [4, 4]
    check(place)


def test_a_reader_that_slept_through_a_trim_begins_again() -> None:
    """A tool's large result stands in the record of the call alone, which is gone when it is wanted."""
    place = Place(sizes=Sizes(inline=1, tail=100_000, turns=2, small=2_000, large=8_000, value=600))

    def answer(name: str, output: str) -> None:
        place.send(name)
        with place.db.boot(SID, takeover=True) as booted, first_turn(booted) as turn:
            write_all(turn, [{"type": "start"}, call("c"), result("c", output)])
            write_all(turn, [*saying(f"to {name}")][2:])

    answer("u1", "short")
    answer("u2", LARGE)
    place.clock.advance(24 * HOURS)

    def meanwhile() -> None:
        for name in ("u3", "u4", "u5"):
            answer(name, "short")
        place.clock.advance(24 * HOURS)
        trim(fresh(place), SID, keep=Keep(turns=1))
        gc(fresh(place), SID)

    seen = interrupted(place, "get", "values/", 1, meanwhile).history(SID)
    assert [m["id"] for m in seen if m["role"] == "user"] == ["u1", "u2", "u3", "u4", "u5"]
    assert seen == fresh(place).history(SID)


def test_gc_opens_a_block_that_was_sealed_since_it_listed_them() -> None:
    """The new one has taken over a value that only an older one named, which the snapshot names no more."""
    place = tiny()

    def answer(number: int, times: int) -> None:
        place.send(f"u{number}")
        place.answer("as long as a value " * times)

    answer(1, 60)
    place.clock.advance(24 * HOURS)
    (value,) = place.stored("values/")

    def merging() -> None:
        for number in range(2, 12):
            answer(number, 25)

    gc(interrupted(place, "get", "sessions/", 1, merging), SID)
    assert value in place.stored("values/")
    check(place)


def test_a_copy_that_a_bit_flipped_in_is_not_written() -> None:
    """Where the store does not copy by itself the bytes take the way through the fork."""
    place = tiny()
    long_session(place, 4)
    inner = MemoryBucket(place.clock, space=place.space)
    flipping: list[str] = []

    class Through:
        """Everything but `copy`."""

        url, room, trusted, copies = inner.url, inner.room, inner.trusted, False
        head, put, list, delete, close = inner.head, inner.put, inner.list, inner.delete, inner.close

        def get(self, key: str) -> Blob | None:
            found = inner.get(key)
            if found is None or not key.startswith("blocks/") or key in flipping:
                return found
            flipping.append(key)
            return replace(found, data=bytes([found.data[0] ^ 1]) + found.data[1:])

    flipping += place.stored("blocks/")
    db = Database(Through(), place.clock, sizes=place.db._sizes)
    copy = Store.copy

    def copying(store: Store, source: str, target: str, check: Any, *, inside: bool) -> bool:
        flipping.remove(source)
        return copy(store, source, target, check, inside=inside)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "copy", copying)
        with pytest.raises(Corrupt, match="is not what its name says"):
            fork(db, SID, "other")
    assert not place.stored("blocks/other/")
    fork(db, SID, "other")
    assert fresh(place).history("other") == fresh(place).history(SID)
    check(place, "other")


def sealed_anew(place: Place) -> None:
    """The snapshot of the same turn names other blocks."""
    with fresh(place).boot(SID, takeover=True) as session:
        session.fold.chain.changed = True
        for span in session.fold.chain.spans:
            span.dirty = True
        session.set_state({"a": 1})


def test_a_checkpoint_on_which_another_trim_rests_is_not_taken_back() -> None:
    """Its writer looks late, when a worker has merged what it names; the other has looked in time."""
    for number in range(1, 200):
        place = tiny()
        long_session(place, 4)
        happened: list[int] = []

        def meanwhile(place: Place = place, happened: list[int] = happened) -> None:
            happened.append(1)
            trim(fresh(place), SID, keep=Keep(turns=1))
            sealed_anew(place)

        trim(interrupted(place, "", "", number, meanwhile), SID, keep=Keep(turns=1))
        if not happened:
            break
        check(place)
        history = fresh(place).history(SID)
        place.bucket.inner.delete(keys.snapshot(SID))
        assert fresh(place).history(SID) == history, number
    assert number > 10


def test_a_trim_rests_on_no_checkpoint_whose_blocks_the_snapshot_names_no_more() -> None:
    """It was written, and its writer died before it looked; gc may not have seen it."""
    place = tiny()
    long_session(place, 4)
    key, standing = keys.snapshot(SID), fresh(place).peek(SID).fold.turn
    old = place.stored(key)[key]
    sealed_anew(place)
    assert fresh(place).peek(SID).fold.turn == standing
    place.bucket.inner.put(keys.checkpoint(SID, standing), old)
    place.clock.advance(24 * HOURS)
    trim(place.db, SID, keep=Keep(turns=1))
    (held,) = place.stored("checkpoints/").values()
    assert held != old
    assert held == place.stored(key)[key]
    check(place)


def test_a_gc_beside_a_trim_finds_no_damage_in_what_the_trim_took_away() -> None:
    """What a deletion had emptied, and then the deletion itself, of a session that was opened again."""
    for number in range(1, 200):
        place = Place()
        session_of(place, 2)
        delete(place.db, SID)
        place.db.create(SID)
        session_of(place, 2)
        happened: list[int] = []

        def meanwhile(place: Place = place, happened: list[int] = happened) -> None:
            trim(fresh(place), SID, keep=Keep(turns=1))
            happened.append(1)

        gc(interrupted(place, "", "", number, meanwhile), SID)
        if not happened:
            break
        check(place)
    assert number > 5
