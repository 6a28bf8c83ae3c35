"""An import that is broken off, or beside a deletion: nothing is lost, and somebody always gets out."""

from __future__ import annotations

import io
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from blocky import LARGE, TINY, tiny
from chat_samples import AT_ONCE, SID, Place, saying, user, write_all
from upkeep import HOURS, check, fresh, killed_at

from snapshotter import Database
from snapshotter.maintenance import Keep, delete, export, fork, gc, import_, trim
from streams import keys
from streams.buckets.memory import MemoryBucket
from streams.errors import Refused
from streams.testing.faults import Call, Fault, FaultyBucket

FIRST = keys.segment("in", SID, 1)


def work(db: Database, text: str = "answered") -> None:
    with db.boot(SID, takeover=True) as booted:
        for turn in booted.turns():
            with turn:
                write_all(turn, saying(text))


def _worked(place: Place) -> None:
    for number in range(1, 4):
        place.db.send(SID, user(f"u{number}", f"secret {LARGE}" if number == 1 else "secret"))
        work(place.db, f"a secret answer {number}")
    place.clock.advance(24 * HOURS)


def _trimmed(place: Place) -> None:
    _worked(place)
    trim(place.db, SID, keep=Keep(turns=1))


def _created(place: Place) -> None:
    place.db.create(SID, messages=[user("u1", "secret")])


def _sent(place: Place) -> None:
    place.db.send(SID, user("u1", "secret"))


def _file(made: Callable[[Place], None]) -> tuple[bytes, list[Any]]:
    place, file = tiny(), io.BytesIO()
    made(place)
    export(place.db, SID, file)
    return file.getvalue(), fresh(place).history(SID)


MADE = {"whole": _worked, "trimmed": _trimmed, "created": _created, "sent": _sent}
FILES = {name: _file(made) for name, made in MADE.items()}


def bring(db: Database, which: str) -> Any:
    return import_(db, io.BytesIO(FILES[which][0]))


def door(place: Place, *plan: Fault, hook: Any = None) -> tuple[Database, FaultyBucket]:
    bucket = FaultyBucket(MemoryBucket(place.clock, space=place.space), plan, clock=place.clock, hook=hook)
    return Database(bucket, place.clock, recovery=AT_ONCE, sizes=TINY), bucket


def holds(place: Place) -> list[str]:
    """The objects that hold some of the imported session."""
    blocks = list(place.stored("blocks/")) if any(place.stored("blocks/").values()) else []
    return [*blocks, *(key for key, data in place.stored("").items() if b"secret" in data)]


def broken_off(which: str) -> Any:
    """A place with an import that was broken off, for each request at which that may be."""
    for number in count(1):
        place = tiny()
        if not killed_at(place, number, "after", lambda db: bring(db, which)):
            assert number > 8
            return
        if place.stored("in/"):
            yield place


@pytest.mark.parametrize("which", FILES)
def test_an_import_deletes_no_object_and_what_is_sent_next_is_owed(which: str) -> None:
    place = tiny()
    db, bucket = door(place)
    bring(db, which)
    assert "delete" not in bucket.verbs()
    assert fresh(place).history(SID) == FILES[which][1]
    check(place)
    receipt = place.db.send(SID, user("next", "and now?"))
    assert fresh(place).peek(SID, receipt=receipt).pending[-1].ids == (receipt.id,)
    work(fresh(place), "this")
    assert fresh(place).history(SID)[-1]["parts"][-1]["text"] == "this"
    check(place)


def test_who_loses_against_another_session_leaves_its_inputs_alone() -> None:
    place, other = tiny(), tiny()
    other.db.create(SID, messages=[user("mine")])

    def create(asked: Call, at: str) -> None:
        """One that was under way lands between the two claims."""
        if asked.verb == "put" and asked.key.startswith("out/") and at == "before":
            for key, data in other.stored("").items():
                place.bucket.inner.put(key, data)

    db, bucket = door(place, hook=create)
    with pytest.raises(Refused, match="exists"):
        bring(db, "whole")
    assert "delete" not in bucket.verbs()
    assert place.db.send(SID, user("u2")).id == 2
    work(fresh(place))
    assert [m["id"] for m in fresh(place).history(SID)][:2] == ["mine", "u2"]
    check(place)


def test_a_claim_before_anothers_session_goes_when_the_import_is_run_again() -> None:
    half, place = next(broken_off("whole")), tiny()
    place.db.create(SID, messages=[user("mine")])
    place.bucket.inner.put(FIRST, half.stored("in/")[FIRST])
    with pytest.raises(Refused, match="import"):
        place.db.send(SID, user("u2"))
    with pytest.raises(Refused, match="exists"):
        bring(fresh(place), "whole")
    place.db.send(SID, user("u2"))
    work(fresh(place))
    assert [m["id"] for m in fresh(place).history(SID)][:2] == ["mine", "u2"]
    check(place)


@pytest.mark.parametrize("which", FILES)
def test_half_an_import_can_be_deleted_and_the_id_be_used(which: str) -> None:
    for place in broken_off(which):
        assert gc(fresh(place), SID).deleted == 0
        delete(fresh(place), SID)
        assert fresh(place).history(SID) == []
        assert holds(place) == []
        with pytest.raises(Refused, match="was deleted"):
            bring(fresh(place), which)
        check(place)
        place.clock.advance(24 * HOURS)
        gc(fresh(place), SID)
        place.db.create(SID, messages=[user("mine")])
        place.db.send(SID, user("u2"))
        work(fresh(place))
        assert [m["id"] for m in fresh(place).history(SID)][:2] == ["mine", "u2"]
        check(place)


@pytest.mark.parametrize("which", FILES)
def test_half_an_import_goes_on_when_gc_has_been_there_and_somebody_has_sent(which: str) -> None:
    for place in broken_off(which):
        place.clock.advance(24 * HOURS)
        gc(fresh(place), SID)
        sent = False
        try:
            fresh(place).send(SID, user("new"))
            sent = True
        except Refused:
            pass  # nobody sends here yet
        try:
            bring(fresh(place), which)
        except Refused:
            assert place.stored("sessions/") or which == "sent"
        ids = [m["id"] for m in fresh(place).history(SID) if m["role"] == "user"]
        assert ids == [m["id"] for m in FILES[which][1] if m["role"] == "user"] + ["new"] * sent
        work(fresh(place))
        check(place)


@pytest.mark.parametrize("which", FILES)
def test_a_deletion_beside_an_import_wins(which: str) -> None:
    met = set()
    for number in count(1):
        place = tiny()
        done: list[bool] = []

        def between(asked: Call, at: str, number: int = number, done: Any = done, place: Any = place) -> None:
            if asked.number == number and at == "before":
                try:
                    delete(fresh(place), SID)
                    done.append(True)
                except Refused:
                    done.append(False)  # nothing stands there yet

        db, _ = door(place, hook=between)
        try:
            bring(db, which)
            done.append(True)
        except Refused:
            done.append(False)
        if len(done) < 2:
            break
        met.add(tuple(done))
        if done[0]:
            assert holds(place) == []
            assert fresh(place).history(SID) == []
            place.db.create(SID, messages=[user("mine")])
            assert place.db.send(SID, user("u2"))
            work(fresh(place))
            assert [m["id"] for m in fresh(place).history(SID)][:2] == ["mine", "u2"]
        check(place)
    assert met >= {(False, True), (True, False)}


@pytest.mark.parametrize("log", ["in", "out"])
@pytest.mark.parametrize("which", FILES)
def test_what_replaces_a_claim_late_brings_nothing_back(which: str, log: str) -> None:
    place = tiny()
    first = keys.segment("in" if log == "in" else "out", SID, 1)
    db, bucket = door(place, Fault("put", nth=2, when="late", key=first, seconds=5))
    bring(db, which)
    delete(fresh(place), SID)
    bucket.land()
    assert holds(place) == []
    check(place)


def test_half_a_fork_can_be_deleted_and_the_id_be_used() -> None:
    for number in count(1):
        place = tiny()
        _worked(place)
        if not killed_at(place, number, "after", lambda db: fork(db, SID, "copy")):
            break
        if place.stored("out/copy/"):
            delete(fresh(place), "copy")
            assert fresh(place).history("copy") == []
            place.db.create("copy", messages=[user("mine")])
            place.db.send("copy", user("u2"))
            assert [m["id"] for m in fresh(place).history("copy")] == ["mine", "u2"]
            check(place, "copy")
