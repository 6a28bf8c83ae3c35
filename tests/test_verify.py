"""Verify finds what is wrong, names it, and finds nothing where nothing is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import snapshotter
from snapshotter import Database
from snapshotter.catalogue import all_sessions
from snapshotter.core.snapshot import VERSION
from snapshotter.findings import Verdict
from snapshotter.verify import verify
from streams import keys
from streams.buckets.memory import MemoryBucket
from streams.codec import encode_segment
from streams.testing.clocks import FakeClock

SNAPSHOT = keys.snapshot("s")


@pytest.fixture
def db() -> Iterator[Database]:
    clock = FakeClock()
    with Database(MemoryBucket(clock), clock, durability="steps") as db:
        yield db


def answer(name: str) -> Iterator[dict[str, Any]]:
    yield {"type": "start", "messageId": name}
    yield {"type": "start-step"}
    yield {"type": "text-start", "id": "t"}
    for word in ("so ", "it ", "goes"):
        yield {"type": "text-delta", "id": "t", "delta": word}
    yield {"type": "text-end", "id": "t"}
    yield {"type": "tool-input-available", "toolCallId": "c", "toolName": "look", "input": {}}
    yield {"type": "tool-output-available", "toolCallId": "c", "output": name}
    yield {"type": "finish-step"}
    yield {"type": "finish", "finishReason": "stop"}


def work(db: Database, turns: int, session_id: str = "s") -> None:
    for number in range(1, turns + 1):
        db.send(session_id, f"question {number}")
        with db.boot(session_id) as session:
            for turn in session.turns():
                with turn:
                    for chunk in answer(f"a{number}"):
                        turn.write(chunk)
                    turn.set_state({"turns": number})


def die(db: Database) -> None:
    """A turn that stays open: its worker says no more."""
    db.send("s", "and then?")
    session = db.boot("s")
    turn = next(session.turns())
    for chunk in list(answer("a9"))[:8]:
        turn.write(chunk)
    turn.flush()
    turn._stop_watching()
    session.writer.close(flush=False)


def segments(db: Database, which: keys.Log) -> list[str]:
    """Keys, oldest first."""
    return [entry.key for entry in db.store.entries(keys.log_prefix(which, "s"))][::-1]


def rewrite(db: Database, key: str, change: Callable[[bytes], bytes]) -> None:
    blob = db.store.get(key)
    assert blob is not None
    db.store.put(key, change(blob.data))


def change_snapshot(db: Database, **fields: Any) -> None:
    """As a person would: without the checksum, which nobody can write by hand."""

    def change(data: bytes) -> bytes:
        document = {**json.loads(data), **fields}
        del document["crc"]
        return json.dumps(document).encode()

    rewrite(db, SNAPSHOT, change)


def codes(verdict: Verdict) -> list[str]:
    return [finding.code for finding in verdict.problems]


def test_what_is_whole_is_found_whole_and_nothing_is_written(db: Database) -> None:
    work(db, 3)
    before = db.store.stats.snapshot()
    verdict = verify(db, "s")
    cost = db.store.stats.snapshot() - before
    assert verdict.ok
    assert verdict.rebuildable
    assert (verdict.problems, verdict.notes) == ([], [])
    records = [list(db.records("s", which)) for which in ("in", "out")]
    assert verdict.records == sum(map(len, records))
    assert verdict.segments == len(segments(db, "in")) + len(segments(db, "out"))
    assert (cost.puts, cost.deletes) == (0, 0)


def test_an_open_turn_and_an_owed_input_are_no_fault(db: Database) -> None:
    work(db, 1)
    die(db)
    assert verify(db, "s").ok
    db.send("s", "hello?")
    assert verify(db, "s").ok
    db.send("other", "hi")
    assert verify(db, "other").to_json() == {
        "session": "other",
        "ok": True,
        "segments": 1,
        "records": 1,
        "rebuildable": True,
        "problems": [],
        "notes": [],
    }


def test_an_imported_history_is_whole(db: Database) -> None:
    message = {"id": "u", "role": "user", "parts": [{"type": "text", "text": "x"}]}
    db.create("s", messages=[message], state={"a": 1})
    assert verify(db, "s").ok


@pytest.mark.parametrize("place", [0, 3, -1])
def test_a_flipped_byte_is_corrupt_and_its_segment_named(db: Database, place: int) -> None:
    work(db, 3)
    key = segments(db, "out")[place]
    rewrite(db, key, lambda data: data[:-4] + bytes([data[-4] ^ 1]) + data[-3:])
    verdict = verify(db, "s")
    assert not verdict.ok
    assert not verdict.rebuildable
    assert [(p.code, p.key) for p in verdict.problems] == [("corrupt", key)]


def test_a_broken_input_is_corrupt(db: Database) -> None:
    work(db, 3)
    key = segments(db, "in")[1]
    rewrite(db, key, lambda data: data[: len(data) // 2])
    verdict = verify(db, "s")
    assert ("corrupt", key) in [(p.code, p.key) for p in verdict.problems]


def test_a_hole_in_the_out_log_is_a_gap(db: Database) -> None:
    work(db, 3)
    lost = segments(db, "out")[3]
    place = keys.parse_segment(lost)
    assert place is not None
    db.store.delete(lost)
    verdict = verify(db, "s")
    assert codes(verdict) == ["gap"]
    assert f"records {place[2]} to" in verdict.problems[0].detail
    assert not verdict.rebuildable


def test_a_hole_in_the_in_log_is_a_gap(db: Database) -> None:
    work(db, 3)
    db.store.delete(segments(db, "in")[1])
    verdict = verify(db, "s")
    assert "gap" in codes(verdict)
    assert "inputs 2 to 2" in verdict.problems[0].detail


def test_lost_newest_segments_leave_the_snapshot_ahead(db: Database) -> None:
    work(db, 2)
    db.store.delete(segments(db, "out")[-1])
    verdict = verify(db, "s")
    assert set(codes(verdict)) == {"snapshot-ahead"}
    assert verdict.problems[0].key == SNAPSHOT


def test_a_trimmed_log_is_not_rebuildable_and_not_broken(db: Database) -> None:
    work(db, 3)
    die(db)
    for key in [*segments(db, "out")[:3], segments(db, "in")[0]]:
        db.store.delete(key)
    verdict = verify(db, "s")
    assert verdict.ok
    assert not verdict.rebuildable
    assert [note.code for note in verdict.notes] == ["not-rebuildable"] * 2


def test_what_a_deletion_emptied_counts_as_absent(db: Database) -> None:
    work(db, 3)
    for key in segments(db, "out")[:2]:
        db.store.put(key, b"")
    verdict = verify(db, "s")
    assert verdict.ok
    assert not verdict.rebuildable


def test_without_a_snapshot_a_missing_beginning_is_a_gap(db: Database) -> None:
    work(db, 3)
    db.store.delete(SNAPSHOT)
    assert verify(db, "s").ok
    db.store.delete(segments(db, "out")[0])
    assert codes(verify(db, "s")) == ["gap"]


def test_a_beginning_that_is_missing_beyond_the_snapshot_is_a_gap(db: Database) -> None:
    work(db, 1)
    blob = db.store.get(SNAPSHOT)
    assert blob is not None
    work(db, 2)
    db.store.put(SNAPSHOT, blob.data)
    for key in segments(db, "out")[:-1]:
        db.store.delete(key)
    assert "gap" in codes(verify(db, "s"))


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"state": {"turns": 7}}, "state"),
        ({"messages": []}, "messages"),
        ({"context": {"upto": "a1", "messages": []}}, "context"),
        ({"lastInEventId": "0", "inApplied": []}, "cursor"),
        ({"turn": 9}, "turn"),
        ({"closed": True}, "closed"),
    ],
)
def test_a_snapshot_that_says_something_else_breaks_the_law(
    db: Database, fields: dict[str, Any], named: str
) -> None:
    work(db, 2)
    change_snapshot(db, **fields)
    verdict = verify(db, "s")
    assert set(codes(verdict)) == {"law"}
    assert named in verdict.problems[0].detail
    assert verdict.rebuildable  # the log is whole: the snapshot may be deleted


def test_a_snapshot_of_another_log_is_found_by_its_nonce(db: Database) -> None:
    work(db, 2)
    change_snapshot(db, lastOutNonce="another")
    assert codes(verify(db, "s")) == ["chain"]


def test_a_snapshot_of_another_session_is_corrupt(db: Database) -> None:
    work(db, 2)
    work(db, 1, "other")
    blob = db.store.get(keys.snapshot("other"))
    assert blob is not None
    db.store.put(SNAPSHOT, blob.data)
    verdict = verify(db, "s")
    assert [(p.code, p.key) for p in verdict.problems] == [("corrupt", SNAPSHOT)]
    assert verdict.rebuildable


def test_an_in_log_that_began_anew_is_a_gap(db: Database) -> None:
    work(db, 3)
    for key in segments(db, "in"):
        db.store.delete(key)
    db.send("s", "after the loss")
    assert "gap" in codes(verify(db, "s"))


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"{", "corrupt"),
        (b"[]", "corrupt"),
        (json.dumps({"version": VERSION + 1}).encode(), "newer-version"),
    ],
)
def test_a_snapshot_that_cannot_be_read(db: Database, data: bytes, code: str) -> None:
    work(db, 2)
    db.store.put(SNAPSHOT, data)
    verdict = verify(db, "s")
    assert [(p.code, p.key) for p in verdict.problems] == [(code, SNAPSHOT)]
    assert verdict.rebuildable


def test_what_is_not_ours_is_noted(db: Database) -> None:
    work(db, 1)
    db.store.put("out/s/readme.txt", b"hello")
    verdict = verify(db, "s")
    assert verdict.ok
    assert [(note.code, note.key) for note in verdict.notes] == [("foreign-object", "out/s/readme.txt")]


def test_a_segment_that_a_sleeper_left_is_noted(db: Database) -> None:
    work(db, 2)
    late = encode_segment("out", [{"id": 3, "ts": 1, "control": "heartbeat"}], nonce="late", epoch=1, run="r")
    key = keys.segment("out", "s", 3)
    assert db.store.get(key) is None
    db.store.put(key, late)
    verdict = verify(db, "s")
    assert verdict.ok
    assert [(note.code, note.key) for note in verdict.notes] == [("dead-segment", key)]


def test_what_is_not_there_is_no_session(db: Database) -> None:
    assert codes(verify(db, "nobody")) == ["absent"]
    with pytest.raises(snapshotter.InvalidId):
        verify(db, "..")


def test_all_sessions_are_found_also_those_without_a_snapshot(db: Database) -> None:
    names = ["a", "a-b", "a.b", "a/b", "a b", "ä", "0", "~"]
    work(db, 1, "whole")
    for name in names:
        db.send(name, "hi")
        db.send(name, "again")
    db.store.put("in/zz/readme.txt", b"")
    db.store.put("in/a/zz.txt", b"")
    found = list(all_sessions(db))
    assert sorted(found) == sorted([*names, "whole"])
    assert all(verify(db, name).ok for name in found)


def test_what_is_no_sessions_name_is_passed_over(db: Database) -> None:
    """Each session has one spelling; another's object under a second one stops no listing."""
    work(db, 1)
    for name in ("%41", "%FF", "a%2e"):
        for key in (f"sessions/{name}/snapshot.json", f"out/{name}/9999999999999998-1.jsonl"):
            db.store.put(key, b"{}")
    assert [info.id for info in db.sessions()] == ["s"]
    assert list(all_sessions(db)) == ["s"]


def test_a_session_at_work_is_verified_meanwhile(db: Database) -> None:
    db.send("s", "hi")
    with db.boot("s") as session:
        for turn in session.turns():
            with turn:
                for chunk in answer("a1"):
                    turn.write(chunk)
                    turn.flush()
                    assert verify(db, "s").problems == []
    assert verify(db, "s").ok
