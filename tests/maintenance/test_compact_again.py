"""Compaction that is run again: what is compact is not read any more, and nothing is forgotten for it."""

from __future__ import annotations

import json
from collections import Counter
from itertools import count
from typing import Any, Literal

import pytest
from chat_samples import SID, Place, die, user
from upkeep import HOURS, check, fresh, killed_at, out_records, overtaken, picture, session_of

from snapshotter import Fenced
from snapshotter.maintenance import Keep, compact, compacting, redact, trim
from snapshotter.maintenance.bench import Bench
from snapshotter.windows import WINDOW
from streams import keys
from streams.buckets.memory import MemoryBucket
from streams.codec import encode_segment
from streams.testing.faults import FaultyBucket
from streams.writer import Flush

TURNS = 40
FEW = 12
"""Requests of a run that finds little to do: listings, the log's beginning, the mark, the newest turn."""


def answered(place: Place, turns: int) -> None:
    """So many turns more, of two segments each; then a day passes."""
    for _ in range(turns):
        place.db.send(SID, user(f"u{place.db.peek(SID).fold.inputs.last + 1}"))
        place.answer("it is so")
    place.clock.advance(24 * HOURS)


def compacted(place: Place) -> tuple[int, int, int]:
    """Compact by a process of its own: GETs, objects written and deleted."""
    bucket = FaultyBucket(MemoryBucket(place.clock, space=place.space), clock=place.clock)
    done = compact(type(place.db)(bucket, place.clock), SID)
    return Counter(bucket.verbs())["get"], done.written, done.deleted


def marked(place: Place) -> list[int]:
    """The first ids of the segments that say that all below is compact, oldest first."""
    heads = [json.loads(data.partition(b"\n")[0]) for data in place.stored("out/").values()]
    return sorted(head["first"] for head in heads if head.get("compact") is True)


def is_compact(place: Place) -> bool:
    """Whether all that a later turn stands behind is one object a turn, and nothing dead is left, by a
    reading from the log's beginning."""
    bench = Bench(fresh(place), SID, "compact", None, True)
    stretches = list(compacting.settled(bench, bench.places("out")[0]))
    return len(stretches) > 2 and all(len(one.parts) == 1 and not one.dead for one in stretches)


@pytest.fixture
def place() -> Place:
    made = Place()
    answered(made, TURNS)
    return made


def test_what_is_compact_is_not_read_again(place: Place) -> None:
    gets, written, _ = compacted(place)
    assert (gets > 2 * TURNS, written) == (True, TURNS - 1)
    before, seen = place.stored("out/"), picture(place)
    gets, *done = compacted(place)
    assert gets < FEW
    assert (done, place.stored("out/")) == ([0, 0], before)
    answered(place, 3)
    gets, *done = compacted(place)
    assert gets < FEW + 3 * 2
    assert done == [3, 3]
    assert is_compact(place)
    assert picture(place) != seen
    check(place)


def test_turns_of_one_object_are_marked_by_one_write(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    answered(place, WINDOW)
    with monkeypatch.context() as patch:  # as a release that marks nothing leaves a log
        patch.setattr(compacting._Marks, "here", lambda _marks, _stretch: None)
        compacted(place)
    assert not marked(place)
    place.clock.advance(24 * HOURS)
    seen, records = picture(place), out_records(place)
    gets, *done = compacted(place)
    assert (gets > WINDOW, done) == (True, [1, 0])
    assert len(marked(place)) == 1
    gets, *done = compacted(place)
    assert (gets < FEW, done) == (True, [0, 0])
    assert (picture(place), out_records(place)) == (seen, records)
    check(place)


def test_a_short_log_is_not_written_for_a_mark_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place()
    answered(place, 5)
    with monkeypatch.context() as patch:
        patch.setattr(compacting._Marks, "here", lambda _marks, _stretch: None)
        compacted(place)
    place.clock.advance(24 * HOURS)
    assert compacted(place)[1:] == (0, 0)


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_around_any_request_of_a_later_run(when: Literal["before", "after"]) -> None:
    for number in count(1):
        place = Place()
        session_of(place, 3)
        compacted(place)
        answered(place, 2)
        seen, records = picture(place), out_records(place)
        killed = killed_at(place, number, when, lambda db: compact(db, SID))
        if not killed:
            assert number > 12
            break
        place.clock.advance(24 * HOURS)
        compacted(place)
        assert is_compact(place), number
        assert (picture(place), out_records(place)) == (seen, records), number
        check(place)


def test_what_is_too_young_is_not_passed_over(place: Place) -> None:
    """A redaction makes a turn young again, below others that are old."""
    redact(place.db, SID, place.db.history(SID)[5]["id"])
    compacted(place)
    assert not is_compact(place), "the turn's segments are too young"
    assert max(marked(place)) < place.controls("turn-start")[3]["id"]
    place.clock.advance(24 * HOURS)
    compacted(place)
    assert is_compact(place)


def test_what_a_sleeper_leaves_below_a_mark_is_found() -> None:
    place = Place()
    zombie = overtaken(place)
    position = zombie.writer.position
    place.clock.advance(24 * HOURS)
    answered(place, 3)
    compacted(place)
    left = keys.segment("out", SID, position.id + 1)
    assert left not in place.stored("out/")
    place.clock.advance(60)
    words: list[dict[str, Any]] = [
        {"chunk": {"type": "text-start", "id": part}} for part in ("t1", "t2", "t3")
    ]
    with pytest.raises(Fenced, match="slept"):
        zombie.writer.append_batch(words, flush=Flush.NOW)
    die(zombie)
    assert left in place.stored("out/")
    assert compacted(place)[2] == 0, "it is too young"
    place.clock.advance(24 * HOURS)
    assert compacted(place)[2] == 1
    assert left not in place.stored("out/")


def test_a_redaction_below_a_mark_costs_one_reading(place: Place) -> None:
    compacted(place)
    redact(place.db, SID, place.db.history(SID)[5]["id"])
    place.clock.advance(24 * HOURS)
    answered(place, WINDOW)
    assert compacted(place)[0] > TURNS
    assert is_compact(place)
    assert compacted(place)[0] < FEW
    check(place)


def test_a_trimmed_log_keeps_its_mark(place: Place) -> None:
    compacted(place)
    place.clock.advance(24 * HOURS)
    trim(place.db, SID, keep=Keep(turns=5))
    gets, *done = compacted(place)
    assert (gets < FEW, done) == (True, [0, 0])
    check(place)


def test_nothing_is_marked_behind_an_end() -> None:
    """What a turn-start behind it counts for depends on its epoch, so a reading has to know of the end."""
    place = Place()
    bodies: list[list[dict[str, Any]]] = [_turn(1, 1), _turn(2, 1), [{"control": "session-closed"}]]
    bodies += [_turn(number, number) for number in range(3, 7)]
    first = 1
    for number, group in enumerate([body] for bodies_of in bodies for body in bodies_of):
        records = [{"id": first, "ts": 1, **body} for body in group]
        prev = f"n{number - 1}" if number else None
        data = encode_segment("out", records, nonce=f"n{number}", epoch=2, run="r", prev=prev)
        place.bucket.put(keys.segment("out", SID, first), data)
        first += 1
    place.clock.advance(24 * HOURS)
    assert compacted(place)[1] == 5
    assert marked(place) == [1, 4]


def _turn(number: int, epoch: int) -> list[dict[str, Any]]:
    start = {"control": "turn-start", "turn": number, "attempt": 1, "epoch": epoch, "run": "r", "inputs": []}
    chunk = {"type": "start", "messageId": f"m{number}"}
    return [start, {"chunk": chunk}, {"control": "turn-complete", "turn": number, "status": "completed"}]
