"""Two stores, the same life: one is maintained at random, and nobody can tell them apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from blocky import LARGE, TINY
from chat_samples import SID, Place, call, die, result, saying, shape, user
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from upkeep import HOURS, check

from snapshotter.core.blocks import DEFAULT
from snapshotter.maintenance import Keep, compact, gc, trim
from snapshotter.session import Session
from streams import keys

LAW = settings(
    max_examples=40,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
SNAPSHOT = keys.snapshot(SID)


def send(place: Place, n: int) -> None:
    place.db.send(SID, user(f"u{n}", LARGE if n % 4 == 0 else f"question {n}"))


def work(place: Place, n: int) -> None:
    """A worker that answers what there is, in many segments."""
    with place.db.boot(SID, takeover=True) as session:
        for turn in session.turns():
            with turn:
                start, step, *rest = saying(f"answer {n}")
                for chunk in (start, step, call(f"c{n}"), result(f"c{n}")):
                    turn.write(chunk)
                    turn.flush()
                for chunk in rest:
                    turn.write(chunk)


def crash(place: Place, n: int) -> None:
    """A worker that dies in the middle."""
    session = place.db.boot(SID, takeover=True)
    turn = next(session.turns(), None)
    if turn is None:
        return
    for chunk in [{"type": "start"}, call(f"d{n}"), *[*saying("cut off")][2:4]]:
        turn.write(chunk)
        turn.flush()
    die(session)


def note(place: Place, n: int) -> None:
    edit(place, lambda session: session.set_state({"n": n}))


def remove(place: Place, n: int) -> None:
    """A worker's edit of the first or the last user message."""

    def act(session: Session) -> None:
        ids = [m["id"] for m in session.fold.chain.messages if m["role"] == "user"]
        if ids:
            session.edit_history("remove", message_id=ids[-(n % 2)])

    if place.db.peek(SID).fold.open is None:
        edit(place, act)


def edit(place: Place, act: Callable[[Session], None]) -> None:
    with place.db.boot(SID, takeover=True) as session:
        act(session)


def nothing(place: Place, n: int) -> None:
    """Time alone."""


LIFE = [send, work, crash, note, remove, nothing]


def spoil(place: Place, old: list[bytes]) -> None:
    """An earlier snapshot slips in, as where a store cannot replace under a condition."""
    if old:
        place.bucket.inner.put(SNAPSHOT, old[len(old) // 2])


UPKEEP: list[Callable[[Place], Any]] = [
    lambda place: compact(place.db, SID),
    lambda place: trim(place.db, SID, keep=Keep(turns=1)),
    lambda place: trim(place.db, SID, keep=Keep(turns=2)),
    lambda place: gc(place.db, SID),
]


def seen(place: Place) -> Any:
    found = place.db.peek(SID)
    return (
        shape(place.db.history(SID)),
        [item.kind for item in found.pending],
        found.resume.kind,
        found.fold.state,
        found.fold.turn,
        found.fold.cursor,
    )


@LAW
@given(st.data())
def test_nobody_can_tell_a_maintained_session_from_one_that_is_not(data: st.DataObject) -> None:
    sizes = data.draw(st.sampled_from([DEFAULT, TINY]))
    tidy, left = Place(sizes=sizes), Place(sizes=sizes)
    send(tidy, 1)
    send(left, 1)
    for n in range(2, data.draw(st.integers(4, 14))):
        step = data.draw(st.sampled_from(LIFE))
        hours = data.draw(st.sampled_from([0, 0, 9]))
        for place in (tidy, left):
            step(place, n)
            place.clock.advance(hours * HOURS)
        for act in data.draw(st.lists(st.sampled_from(UPKEEP), max_size=3)):
            act(tidy)
        assert seen(tidy) == seen(left)
        check(tidy)
    tidy.clock.advance(24 * HOURS)
    for act in UPKEEP * 2:
        act(tidy)
        assert seen(tidy) == seen(left)
        check(tidy)


@LAW
@given(st.data())
def test_an_old_snapshot_that_slips_in_changes_nothing(data: st.DataObject) -> None:
    tidy, left = Place(), Place()
    old: list[bytes] = []
    for n in range(1, data.draw(st.integers(3, 8))):
        for place in (tidy, left):
            send(place, n)
            work(place, n)
            place.clock.advance(9 * HOURS)
        old.append(tidy.stored(SNAPSHOT)[SNAPSHOT])
        for act in data.draw(st.lists(st.sampled_from(UPKEEP[:3]), max_size=3)):
            act(tidy)
        if data.draw(st.booleans()):
            spoil(tidy, old)
        assert seen(tidy) == seen(left)


def test_the_life_reaches_what_the_law_is_about() -> None:
    """Upkeep that never had anything to do would let the law pass."""
    place = Place(sizes=TINY)
    for n in range(1, 9):
        send(place, n)
        (crash if n % 3 == 0 else work)(place, n)
    place.clock.advance(24 * HOURS)
    assert compact(place.db, SID).written > 2
    place.clock.advance(24 * HOURS)
    assert trim(place.db, SID, keep=Keep(turns=1)).deleted > 2
    assert gc(place.db, SID).deleted > 2
    assert any("cut off" in json for json in map(str, place.db.history(SID)))
