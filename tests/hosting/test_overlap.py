"""Messages that are owed together: answered each, together, or only the newest."""

from __future__ import annotations

import pytest
from chat_samples import SID, Place, die, first_turn, saying, shape, text, write_all

from snapshotter import Refused
from snapshotter.verify import verify


@pytest.fixture
def place() -> Place:
    place = Place()
    for name in ("u1", "u2", "u3"):
        place.send(name)
    return place


def work(place: Place, overlap: str) -> list[list[int]]:
    """Answer everything; the inputs of each turn."""
    found = []
    with place.db.boot(SID, overlap=overlap) as session:
        for turn in session.turns():
            with turn:
                found.append([record["id"] for record in turn.inputs])
                write_all(turn, saying(f"answer {len(found)}"))
    assert verify(place.db, SID).ok
    return found


def roles(place: Place) -> list[str]:
    return [m["id"] if m["role"] == "user" else m["parts"][-1]["text"] for m in place.db.history(SID)]


def test_queue_answers_each(place: Place) -> None:
    assert work(place, "queue") == [[1], [2], [3]]
    assert roles(place) == ["u1", "answer 1", "u2", "answer 2", "u3", "answer 3"]


def test_merge_answers_all_at_once(place: Place) -> None:
    assert work(place, "merge") == [[1, 2, 3]]
    assert roles(place) == ["u1", "u2", "u3", "answer 1"]


def test_latest_answers_the_newest_and_keeps_the_others(place: Place) -> None:
    assert work(place, "latest") == [[3]]
    assert roles(place) == ["u1", "u2", "u3", "answer 1"]
    assert place.db.peek(SID).pending == []
    # One segment: what is passed over and what is answered instead are durable together.
    first = place.segments()[0]
    assert [r["control"] for r in first if "control" in r][:2] == ["input-applied", "turn-start"]


@pytest.mark.parametrize("overlap", ["merge", "latest"])
def test_what_stands_between_is_not_passed_over(overlap: str) -> None:
    place = Place()
    place.send("u1")
    place.db.action(SID, "tidy")
    place.send("u2")
    place.send("u3")
    with place.db.boot(SID, overlap=overlap) as session:
        seen = []
        for turn in session.turns():
            with turn:
                seen.append((turn.kind, [record["id"] for record in turn.inputs]))
                if turn.kind == "message":
                    write_all(turn, saying("ok"))
    assert seen == [
        ("message", [1]),
        ("action", [2]),
        ("message", [3, 4] if overlap == "merge" else [4]),
    ]


def test_what_is_passed_over_stands_behind_an_interrupted_turn() -> None:
    place = Place()
    place.send("u1")
    session = place.db.boot(SID)
    write_all(first_turn(session), [{"type": "start"}, *text("half")])
    session.current.flush()  # type: ignore[union-attr]
    die(session)
    place.send("u2")
    place.send("u3")
    place.clock.advance(3600)
    assert work(place, "latest") == [[3]]
    assert shape(place.db.history(SID)) == [
        ("user", ["hi"]),
        ("assistant", ["half"]),
        ("user", ["hi"]),
        ("user", ["hi"]),
        ("assistant", ["step-start:", "answer 1"]),
    ]


def test_an_unknown_overlap_is_refused(place: Place) -> None:
    with pytest.raises(Refused, match="unknown overlap 'newest'"):
        place.db.boot(SID, overlap="newest")
