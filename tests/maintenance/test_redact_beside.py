"""A redaction that is broken off anywhere, or has others beside it, and is run once more: nothing is left."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal

import pytest
from blocky import LARGE, TINY
from chat_samples import AT_ONCE, SID, Place, ask, call, first_turn, result, saying, user, write_all
from upkeep import HOURS, check, fresh, interrupted, killed_at, names, session_of

from snapshotter import Refused, Session, Turn
from snapshotter.core.blocks import DEFAULT, Sizes
from snapshotter.database import Database
from snapshotter.maintenance import Keep, compact, gc, redact, trim
from snapshotter.maintenance.rules import Rules
from snapshotter.rebuilding import Options
from snapshotter.rebuilding.folding import Work
from streams import keys
from streams.buckets.base import Blob
from streams.buckets.memory import MemoryBucket
from streams.codec import encode_segment
from streams.errors import StreamError

HOUR = Rules(minimum_age=HOURS)
ASKED, ANSWERED = "what was asked", "what was answered"
SMALL = "question 3"  # small enough to stand in a block
MERGING = Sizes(inline=1, tail=1, turns=1, small=1_000, large=8_000, value=600)
SIZES = {"plain": DEFAULT, "blocks": TINY}


def life(sizes: Sizes) -> Place:
    """Three turns, just now. The second one's question, and its answer with all that belongs to it, bear
    marks of their own, large ones too."""
    place = Place(sizes=sizes)
    for number in (1, 2, 3):
        asked = f"{ASKED} {LARGE}" if number == 2 else f"question {number}"
        answered = f"{ANSWERED} {LARGE}" if number == 2 else f"answer {number}"
        place.db.send(SID, user(f"u{number}", asked))
        with place.db.boot(SID) as booted, first_turn(booted) as turn:
            turn.write({"type": "start", "messageId": f"a{number}"})
            write_all(turn, [call(f"c{number}"), result(f"c{number}", answered)])
            write_all(turn, [call(f"d{number}"), call(f"e{number}"), ask(f"e{number}")])
        place.db.tool_result(SID, f"d{number}", {"told": answered})
        place.db.approve(SID, tool_call_id=f"e{number}", reason=answered)
        with place.db.boot(SID) as booted, first_turn(booted) as turn:
            write_all(turn, list(saying(answered))[2:])
    return place


def left(place: Place, mark: str) -> list[str]:
    """The objects that hold it."""
    stored = place.stored("").items()
    plain = {key: gzip.decompress(data) if key.endswith(".gz") and data else data for key, data in stored}
    return [key for key, data in plain.items() if mark.encode() in data]


def again_and_again(made: Callable[[], Place], act: Callable[[Place], bool]) -> int:
    """`act` to a copy of what was made, for as long as it says that there is more; how often."""
    for number in range(1, 400):
        if not act(made()):
            return number
    raise AssertionError("it never ends")


def copies(place: Place) -> Callable[[], Place]:
    def made() -> Place:
        copy = Place(sizes=place.db._sizes)
        copy.clock.advance(place.clock.monotonic())
        copy.space.objects, copy.space.order = dict(place.space.objects), sorted(place.space.objects)
        return copy

    return made


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize(("target", "mark"), [("u2", ASKED), ("a2", ANSWERED)])
def test_killed_at_any_request_it_leaves_nothing_when_it_is_run_once_more(
    sizes: str, target: str, mark: str, when: Literal["before", "after"]
) -> None:
    made = copies(life(SIZES[sizes]))
    assert left(made(), mark)
    for number in range(1, 400):
        place = made()
        if not killed_at(place, number, when, lambda db: redact(db, SID, target)):
            break
        redact(place.db, SID, target)
        assert not left(place, mark), number
        check(place)
    assert 20 < number < 399
    assert not left(place, mark)


@pytest.mark.parametrize("when", ["before", "after"])
def test_so_it_does_by_the_name_of_a_value(when: Literal["before", "after"]) -> None:
    made = copies(life(TINY))
    (name,) = {
        parsed[2]
        for key, data in made().stored("values/").items()
        if ASKED.encode() in data and (parsed := keys.parse_content(key)) is not None
    }
    for number in range(1, 400):
        place = made()
        if not killed_at(place, number, when, lambda db: redact(db, SID, value=name)):
            break
        with suppress(Refused):  # there is nothing of it any more
            redact(place.db, SID, value=name)
        assert not left(place, ASKED), number
    assert 20 < number < 399


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("sizes", SIZES)
def test_killed_while_the_message_is_owed(sizes: str, when: Literal["before", "after"]) -> None:
    before = Place(sizes=SIZES[sizes])
    before.db.send(SID, user("u1", f"{ASKED} {LARGE}"))
    made = copies(before)
    for number in range(1, 400):
        place = made()
        if not killed_at(place, number, when, lambda db: redact(db, SID, "u1")):
            break
        redact(place.db, SID, "u1")
        assert not left(place, ASKED), number
        place.answer()
        check(place)
    assert 10 < number < 399


def test_a_trim_that_was_killed_leaves_nothing_that_is_not_found() -> None:
    before = life(TINY)
    before.clock.advance(24 * HOURS)
    made = copies(before)
    for number in range(1, 400):
        place = made()
        if not killed_at(place, number, "after", lambda db: trim(db, SID, rules=HOUR, keep=Keep(turns=1))):
            break
        redact(place.db, SID, "u2")
        redact(place.db, SID, "a2")
        assert not left(place, ASKED) + left(place, ANSWERED), number
        trim(place.db, SID, rules=HOUR, keep=Keep(turns=1))
        check(place)
    assert 20 < number < 399


# -- others beside it -----------------------------------------------------------------------------------


def interleaved(made: Callable[[], Place], outer: Callable[[Database], Any], inner: Any, mark: str) -> int:
    """`inner` happens before each request of `outer` in turn; then nothing is left."""

    def act(place: Place) -> bool:
        happened: list[int] = []

        def now() -> None:
            happened.append(1)
            inner(fresh(place))

        number.append(1)
        with suppress(StreamError):  # it lost, and says so
            outer(interrupted(place, "", "", len(number), now))
        assert not happened or not left(place, mark), f"before request {len(number)}"
        check(place)
        return bool(happened)

    number: list[int] = []
    return again_and_again(made, act)


def streamed() -> Place:
    """Closed turns of many segments, one of which the mark stands in, in the middle of its turn."""
    place = Place()
    for number in (1, 2, 3):
        place.db.send(SID, user(f"u{number}"))
        with place.db.boot(SID) as booted, first_turn(booted) as turn:
            start, *rest = saying(f"{ANSWERED if number == 2 else 'answer'} {number}")
            for chunk in ({**start, "messageId": f"a{number}"}, *rest):
                turn.write(chunk)
                turn.flush()
    place.clock.advance(24 * HOURS)
    return place


def redacts(db: Database) -> None:
    redact(db, SID, "a2", takeover=True)


def test_beside_a_compaction() -> None:
    made = copies(streamed())
    compacts = lambda db: compact(db, SID, rules=HOUR)  # noqa: E731
    assert interleaved(made, compacts, redacts, ANSWERED) > 10
    assert interleaved(made, redacts, compacts, ANSWERED) > 10


def test_a_compaction_whose_reply_is_long_under_way_brings_nothing_back() -> None:
    """It has read the turn before the redaction, and puts it merged into the place of the first segment when
    the redaction is through: the first one is another by then, though nothing of the message was in it."""
    place = streamed()
    turn = [key for key, data in sorted(place.stored("out/").items()) if b'"turn":2' in data]
    before = place.stored("out/")
    db = interrupted(place, "put", "out/", 2, lambda: redacts(fresh(place)))
    compact(db, SID, rules=HOUR)
    assert not left(place, ANSWERED)
    assert turn
    first = next(key for key in reversed(turn) if b"turn-start" in before[key])
    assert place.stored(first)[first] != before[first]
    check(place)


def test_the_dead_segments_that_a_compaction_left_hold_nothing_either() -> None:
    made = copies(streamed())
    dead = 0
    for number in range(1, 400):
        place = made()
        if not killed_at(place, number, "after", lambda db: compact(db, SID, rules=HOUR)):
            break
        redacts(place.db)
        assert not left(place, ANSWERED), number
        dead += any(b"heartbeat" in data for data in place.stored("out/").values())
        check(place)
        place.clock.advance(24 * HOURS)
        compact(place.db, SID, rules=HOUR)
        check(place)
    assert dead


def test_what_a_sleeper_left_below_the_log_holds_nothing_either() -> None:
    place = Place()
    session_of(place, 5)
    trim(place.db, SID, keep=Keep(turns=1))
    record = {"id": 1, "ts": 1, "chunk": {"type": "text-delta", "id": "t", "delta": ANSWERED}}
    late = encode_segment("out", [record], nonce="late", epoch=1, run="r-late", prev="gone", lease=0)
    place.bucket.inner.put(keys.segment("out", SID, 1), late)
    redact(place.db, SID, "u5")
    assert not left(place, ANSWERED)
    assert names(place.stored("out/"))[0] == 1
    check(place)


def test_of_a_turn_that_is_read_while_it_is_rewritten_nothing_is_merged() -> None:
    """A compaction asks for all of a turn at once: the middle of it as it was, the first as it is now."""
    place = streamed()
    stored = place.stored("out/")
    (marked,) = stored.keys() & left(place, ANSWERED)
    first = max(key for key, data in stored.items() if b'"turn":2' in data)  # keys count down
    inner = place.bucket.inner
    early = {marked: inner.get(marked)}
    happened: list[str] = []

    class Reordered(MemoryBucket):
        """What is asked for together comes in any order."""

        def get(self, key: str) -> Blob | None:
            if key == first and not happened:
                happened.append(key)
                redacts(fresh(place))
            return early.pop(key, None) or super().get(key)

    compact(Database(Reordered(place.clock, space=place.space), place.clock), SID, rules=HOUR)
    assert happened
    assert not early
    assert not left(place, ANSWERED)
    check(place)


def test_a_rebuild_beside_it_compares_with_the_snapshot_of_the_same_log() -> None:
    made = copies(streamed())
    for number in range(1, 200):
        place = made()
        happened: list[int] = []

        def now(place: Place = place, happened: list[int] = happened) -> None:
            happened.append(1)
            redacts(fresh(place))

        db = interrupted(place, "", "", number, now)
        result = Work(db, SID, Options(mode="compare")).start().finish(lambda parcels: parcels, _nowhere)
        if not happened:
            break
        assert result.status == "same", number
    assert 10 < number < 199


def _nowhere(*_: object) -> None:
    """Nothing is exported."""


# -- a worker that seals what it holds in memory --------------------------------------------------------


def merges(db: Database) -> None:
    """One more turn, at whose end the old blocks are merged."""
    db.send(SID, user("u9", "as long as a block " * 14))
    with db.boot(SID, takeover=True) as session:
        for turn in session.turns():
            with turn:
                write_all(turn, [{"type": "start"}, {"type": "finish"}])


def test_what_a_worker_sealed_for_a_snapshot_that_was_not_stored_goes_with_gc() -> None:
    """Its turn is complete when the redaction comes, and its block, with all that it holds in memory, not yet
    sealed: another snapshot stands there then, and nothing ever names the block."""
    made = copies(life(MERGING))
    redacted = 0
    for number in range(1, 200):
        place = made()
        happened: list[bool] = []

        def now(place: Place = place, happened: list[bool] = happened) -> None:
            happened.append(False)
            with suppress(Refused):  # its turn is open
                redact(fresh(place), SID, "u3", takeover=True)
                happened.append(True)

        with suppress(StreamError):
            merges(interrupted(place, "", "", number, now))
        if not happened:
            break
        if any(happened):
            place.clock.advance(24 * HOURS)
            gc(fresh(place), SID)
            assert not left(place, SMALL), number
        redacted += any(happened)
        check(place)
    assert number < 199
    assert redacted > 5


def test_what_a_worker_sealed_and_saved_while_the_log_was_read_is_found() -> None:
    """Its snapshot is older than the redaction's, and is replaced by it; then nobody names its block."""
    before = life(TINY)
    made = copies(before)
    whole = made()
    merges(whole.db)
    new = {key: data for key, data in whole.stored("").items() if key not in before.stored("")}
    sealed = [key for key in left(whole, "as long as a block") if key in new and key.startswith("blocks/")]
    assert sealed
    snapshot = keys.snapshot(SID)
    through = 0
    for number in range(1, 200):
        place = made()
        inner = place.bucket.inner
        for key, data in new.items():
            if key.startswith(("in/", "out/")):
                inner.put(key, data)  # it stands behind its turn
        stood = place.stored(snapshot)[snapshot]
        happened: list[bool] = []

        def now(place: Place = place, stood: bytes = stood, happened: list[bool] = happened) -> None:
            happened.append(place.stored(snapshot)[snapshot] == stood)
            for key in (*new, snapshot) if happened[0] else ():
                place.bucket.inner.put(key, whole.stored(key)[key])

        with suppress(StreamError):
            redact(interrupted(place, "", "", number, now), SID, "u9")
            assert not left(place, "as long as a block"), number
            through += 1
        if not happened:
            break
        check(place)
    assert through > 20


# -- a message that is owed -----------------------------------------------------------------------------


def owed() -> Place:
    place = Place(sizes=TINY)
    place.send("u0")
    place.answer()
    place.db.send(SID, user("u1", ASKED))
    return place


def beside_a_worker(read_early: bool, leave: Callable[[Place, Session], None]) -> int:
    """A worker comes before each request of a redaction in turn, has the message answered, and ends where
    `leave` says; how often the redaction was through. `read_early`: it comes with a receipt, and what it
    asked for together with the log is as it was before all this; it comes before each write then."""
    made = copies(owed())
    through = 0
    for number in range(1, 200):
        place = made()
        sessions: list[Session] = []
        early = {keys.segment("in", SID, 2): place.bucket.inner.get(keys.segment("in", SID, 2))}

        class Early(MemoryBucket):
            def get(self, key: str, early: dict[str, Blob | None] = early) -> Blob | None:
                return early.pop(key, None) or super().get(key)

        def comes(place: Place = place, sessions: list[Session] = sessions, kind: type = Early) -> None:
            bucket = (kind if read_early else MemoryBucket)(place.clock, space=place.space)
            db = Database(bucket, place.clock, recovery=AT_ONCE, sizes=TINY)
            with suppress(StreamError):
                session = db.boot(SID, receipt={"session": SID, "id": 2}, takeover=True)
                sessions.append(session)
                leave(place, session)

        with suppress(StreamError):
            verb = "put" if read_early else ""
            redact(interrupted(place, verb, "", number, comes), SID, "u1", takeover=True)
            for session in sessions:
                finish(session)
            assert not left(place, ASKED), number
            check(place)
            through += 1
        if not sessions:
            break
    assert number < 199
    return through


def finish(session: Session) -> None:
    """The worker goes on to its end."""
    with suppress(StreamError):
        for turn in session.turns():
            with turn:
                turn.write({"type": "start"})


def test_an_owed_message_beside_a_worker_that_has_read_it() -> None:
    """It claims the turn when the redaction is through, and reads it again for that."""
    assert beside_a_worker(False, lambda place, session: None) > 20


def test_an_owed_message_beside_a_worker_that_answers_it() -> None:
    """Seen in a world: it had read the input before that was rewritten, and saved what it said."""
    assert beside_a_worker(False, lambda place, session: finish(session)) > 5


def test_an_owed_message_that_a_worker_brings_back_is_redacted_again() -> None:
    """The receipt's input is read beside the log: it may be older than that."""
    assert beside_a_worker(True, lambda place, session: finish(session)) > 2


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_law_holds_wherever_it_is_killed_beside_a_worker_that_has_read_the_message(
    when: Literal["before", "after"],
) -> None:
    made, number, killed = copies(owed()), 0, True
    while killed:
        number += 1
        place = made()
        session = place.db.boot(SID)
        killed = killed_at(place, number, when, lambda db: redact(db, SID, "u1", takeover=True))
        check(place)
        with session:
            finish(session)
        check(place)
        redact(place.db, SID, "u1", takeover=True)
        assert not left(place, ASKED), number
        check(place)
    assert 20 < number < 200


def test_an_id_that_was_used_again_with_other_words_does_not_make_one_message_of_two() -> None:
    """The first one was replaced by an edit, so the second one bears the id, too; both are redacted."""
    place = Place()
    place.db.send(SID, user("u1", "FIRST"))
    place.answer("one")
    place.db.edit(SID, "u1", user("e2", "edited"))
    place.answer("two", takeover=True)
    place.clock.advance(HOURS)
    place.db.send(SID, user("u1", "SECOND"))
    place.answer("three", takeover=True)
    assert [m["id"] for m in place.db.history(SID) if m["role"] == "user"] == ["e2", "u1"]
    redact(place.db, SID, "u1", takeover=True)
    check(place)
    assert [m["id"] for m in place.db.history(SID) if m["role"] == "user"] == ["e2", "u1"]
    assert not left(place, "SECOND")


def test_copies_stay_copies_when_both_are_redacted() -> None:
    place = Place()
    place.db.send(SID, user("u1", ASKED))
    place.answer("one")
    place.clock.advance(HOURS)
    place.db.send(SID, user("u1", ASKED))
    redact(place.db, SID, "u1", takeover=True)
    check(place)
    assert not left(place, ASKED)
    assert fresh(place).peek(SID).pending == []


def test_a_redaction_that_loses_its_place_has_rewritten_nothing() -> None:
    """A worker has read the owed input, and opens its turn just before the log is taken over."""
    place = owed()
    session = place.db.boot(SID)
    opened: list[Turn] = []
    db = interrupted(place, "put", "out/", 1, lambda: opened.append(first_turn(session)))
    inputs = place.stored("in/")
    with pytest.raises(Refused, match="is open"):
        redact(db, SID, "u1", takeover=True)
    assert inputs.items() <= place.stored("in/").items()
    (turn,) = opened
    with session, turn:
        turn.write({"type": "start"})
    assert left(place, ASKED)
    redact(place.db, SID, "u1")
    assert not left(place, ASKED)
    check(place)


# -- dry runs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["u2", "a2", "u3"])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("done", ["as it was", "trimmed", "compacted", "redacted"])
def test_a_dry_run_counts_what_a_run_does(sizes: str, done: str, target: str) -> None:
    place = life(SIZES[sizes])
    place.clock.advance(24 * HOURS)
    if done == "trimmed":
        trim(place.db, SID, keep=Keep(turns=1))
    if done == "compacted":
        compact(place.db, SID)
    if done == "redacted":
        redact(place.db, SID, target)
    before = place.stored("")
    told = redact(place.db, SID, target, dry_run=True)
    assert place.stored("") == before
    real = redact(place.db, SID, target)
    assert (told.dry_run, real.dry_run) == (True, False)
    assert told.to_json() | {"dry_run": False} == real.to_json()
    assert bool(real.written) == (done in ("as it was", "compacted"))


def test_a_dry_run_finds_what_is_not_there() -> None:
    place = life(TINY)
    with pytest.raises(Refused, match="no message"):
        redact(place.db, SID, "nobody", dry_run=True)
