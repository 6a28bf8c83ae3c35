"""An import beside others who begin the same session: one of them has it whole, the others are refused."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from itertools import count
from typing import Any, Literal

import pytest
from blocky import LARGE, session, tiny
from chat_samples import AT_ONCE, SID, Place, saying, user, write_all
from upkeep import HOURS, Killed, check, fresh, picture

from snapshotter import Database
from snapshotter.maintenance import Keep, delete, export, fork, gc, import_, trim
from streams import keys
from streams.buckets.memory import MemoryBucket
from streams.errors import Gap, Refused, StreamError
from streams.testing.faults import Call, FaultyBucket

OTHER = "other"


def work(db: Database, text: str) -> None:
    with db.boot(SID, takeover=True) as booted:
        for turn in booted.turns():
            with turn:
                write_all(turn, saying(text))


def file_of(turns: int = 3, text: str = "question", *, trimmed: bool = False) -> bytes:
    place = tiny()
    for number in range(1, turns + 1):
        place.db.send(SID, user(f"u{number}", f"{text} {number}"))
        work(place.db, f"answer to {text} {number}")
    place.clock.advance(24 * HOURS)
    if trimmed:
        trim(place.db, SID, keep=Keep(turns=1))
    file = io.BytesIO()
    export(place.db, SID, file)
    return file.getvalue()


FILES = {"whole": file_of(), "trimmed": file_of(trimmed=True), "one input": file_of(1)}


def run(place: Place, act: Callable[[Database], Any]) -> str:
    try:
        act(fresh(place))
    except StreamError as error:
        return type(error).__name__
    return "done"


def beside(
    place: Place, number: int, when: Literal["before", "after"], act: Callable[[Database], Any], file: bytes
) -> tuple[str, str] | None:
    """What became of an import, and of what happened around its number-th request; None past the last."""
    seen: list[str] = []

    def hook(asked: Call, at: str) -> None:
        if asked.number == number and at == when:
            seen.append(run(place, act))

    bucket = FaultyBucket(MemoryBucket(place.clock, space=place.space), clock=place.clock, hook=hook)
    db = Database(bucket, place.clock, recovery=AT_ONCE, sizes=place.db._sizes)
    try:
        import_(db, io.BytesIO(file))
        done = "done"
    except StreamError as error:
        done = type(error).__name__
    return (done, seen[0]) if seen else None


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("which", FILES)
def test_what_is_sent_meanwhile_is_owed_or_refused(which: str, when: Literal["before", "after"]) -> None:
    met = set()
    for number in count(1):
        place = tiny()
        found = beside(place, number, when, lambda db: db.send(SID, user("new", LARGE)), FILES[which])
        if found is None:
            break
        met.add(found)
        imported, sent = found
        texts = [m["id"] for m in fresh(place).history(SID) if m["role"] == "user"]
        assert ("u1" in texts) == (imported == "done")
        assert len(fresh(place).peek(SID).pending) == (sent == "done")
        work(fresh(place), "to the new one")
        history = fresh(place).history(SID)
        if sent == "done":
            at = [m["id"] for m in history].index("new")
            assert history[at + 1]["parts"][-1]["text"] == "to the new one"
        check(place)
    assert met == {("Refused", "done"), ("done", "Refused"), ("done", "done")}


def _create(db: Database) -> None:
    db.create(SID, messages=[user("made", LARGE)])


def _work(db: Database) -> None:
    db.send(SID, user("made"))
    work(db, "an answer")


def _fork(db: Database) -> None:
    fork(db, OTHER, SID)


def _import(db: Database) -> None:
    import_(db, io.BytesIO(ELSE))


ELSE = file_of(2, "made")
BEGIN: dict[str, Callable[[Database], None]] = {
    "create": _create,
    "work": _work,
    "fork": _fork,
    "import": _import,
}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("how", BEGIN)
@pytest.mark.parametrize("which", FILES)
def test_of_two_that_begin_a_session_one_has_it(
    which: str, how: str, when: Literal["before", "after"]
) -> None:
    for number in count(1):
        place = tiny()
        place.db.create(OTHER, messages=[user("made", LARGE)])
        found = beside(place, number, when, BEGIN[how], FILES[which])
        if found is None:
            assert number > 12
            break
        imported, _ = found
        history = fresh(place).history(SID)
        assert ("answer to question 1" in json.dumps(history)) == (imported == "done"), (number, found)
        assert history
        work(fresh(place), "on")
        check(place)


@pytest.mark.parametrize("which", FILES)
def test_an_import_that_was_broken_off_is_gone_on_with_by_the_same_file_alone(which: str) -> None:
    for number in count(1):
        place = tiny()
        place.db.create(OTHER, messages=[user("made")])

        def hook(asked: Call, at: str, number: int = number) -> None:
            if asked.number == number and at == "after":
                raise Killed

        bucket = FaultyBucket(MemoryBucket(place.clock, space=place.space), clock=place.clock, hook=hook)
        db = Database(bucket, place.clock, recovery=AT_ONCE, sizes=place.db._sizes)
        try:
            import_(db, io.BytesIO(FILES[which]))
            assert number > 12
            break
        except Killed:
            begun = bool(place.stored("in/"))
        if begun:
            assert run(place, _import) == "Refused"
            assert run(place, lambda db: fork(db, OTHER, SID)) == "Refused"
        again = run(place, lambda db: import_(db, io.BytesIO(FILES[which])))
        assert again == "done" or place.stored("sessions/")
        check(place)
        assert "answer to question 1" in json.dumps(fresh(place).history(SID))
        with pytest.raises(Refused, match="exists"):
            import_(fresh(place), io.BytesIO(FILES[which]))


def test_a_trimmed_session_goes_on_after_its_import() -> None:
    place = tiny()
    import_(place.db, io.BytesIO(FILES["trimmed"]))
    place.db.send(SID, user("u4"))
    work(fresh(place), "answer 4")
    place.clock.advance(24 * HOURS)
    before = picture(place)
    assert gc(place.db, SID).deleted >= 2, "the claims too"
    assert picture(place) == before
    check(place)
    place.db.send(SID, user("u5"))
    delete(place.db, SID)
    assert fresh(place).history(SID) == []


def test_who_sends_where_an_import_was_broken_off_is_told_so() -> None:
    place = tiny()

    def hook(asked: Call, at: str) -> None:
        if asked.verb == "put" and asked.key.startswith("out/") and at == "after":
            raise Killed

    bucket = FaultyBucket(MemoryBucket(place.clock, space=place.space), clock=place.clock, hook=hook)
    with pytest.raises(Killed):
        import_(Database(bucket, place.clock), io.BytesIO(FILES["whole"]))
    with pytest.raises(Refused, match="run again with the same file"):
        place.db.send(SID, user("u9"))
    with pytest.raises(Gap):
        fresh(place).boot(SID)
    with pytest.raises(StreamError):
        place.db.create(SID)


@pytest.mark.parametrize("how", ["send", "create"])
def test_a_session_that_has_one_log_alone(how: str) -> None:
    source, target = tiny(), tiny()
    if how == "send":
        source.db.send(SID, user("u1"))
    else:
        source.db.create(SID, messages=[user("u1")])
    file = io.BytesIO()
    export(source.db, SID, file)
    import_(target.db, file)
    added = set(target.stored("")) - set(source.stored(""))
    assert added == {keys.segment("out" if how == "send" else "in", SID, 1)}, "the place that was claimed"
    assert source.stored("").items() <= target.stored("").items()
    with pytest.raises(Refused, match="exists"):
        import_(target.db, file)
    target.db.send(SID, user("u2"))
    check(target)


def test_blocks_come_whole() -> None:
    source, target = tiny(), tiny()
    session(source, 4)
    file = io.BytesIO()
    export(source.db, SID, file)
    import_(target.db, file)
    assert picture(target) == picture(source)
