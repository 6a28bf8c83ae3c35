"""A worker killed around every storage call of a session with blocks and values: whatever is left of a
checkpoint (blocks that nothing names, a snapshot of before), the next worker goes on, and all is there."""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from typing import Literal

import pytest
from chat_samples import AT_ONCE, call, result, saying, user
from crash_world import Killed, Process, When, World

from snapshotter import Conflict, Database
from snapshotter.core.blocks import Sizes
from snapshotter.verify import verify
from streams.buckets.memory import MemoryBucket
from streams.testing.clocks import FakeClock
from streams.testing.faults import Fault

SIZES = Sizes(inline=900, tail=1_200, turns=3, small=2_500, large=9_000, value=700)
SESSION = "chat"
TURNS = 9


def door(process: Process) -> Database:
    return Database(process.bucket, process, recovery=AT_ONCE, sizes=SIZES)


def work(db: Database, window: int | None) -> None:
    """Send and answer what is not there yet; the second turn has a large result, the fifth is an edit."""
    for number in range(1, TURNS + 1):
        with suppress(Conflict):
            db.send(SESSION, user(f"u{number}", "?" * (1_000 if number == 7 else 20)))
        answer(db, window)
        if number == 5:
            db.edit(SESSION, "u4", user("e4", "better"), key="edit")
            answer(db, window)


def answer(db: Database, window: int | None) -> None:
    with db.boot(SESSION, window=window, takeover=True) as session:
        for turn in session.turns():
            with turn:
                turn.write({"type": "start", "messageId": f"a-{turn.inputs[0]['id']}"})
                if turn.inputs[0]["id"] == 2:
                    turn.write(call())
                    turn.write(result(output="r" * 900))
                for chunk in list(saying("answer " * 40))[1:]:
                    turn.write(chunk)


def finished(world: World, note: str) -> None:
    """Another worker does the rest. Then the history is whole, with the snapshot and without it."""
    process = world.process()
    process.start(lambda: work(door(process), None))
    world.run()
    assert process.error is None, note
    db = Database(MemoryBucket(FakeClock(), space=world.space), FakeClock(), sizes=SIZES)
    ids = [m["id"] for m in db.history(SESSION)]
    asked = [i for i in ids if i[0] in "ue"]
    # Who is killed sends again later than the two minutes for which a repeated send is looked for.
    rest = [f"u{n}" for n in range(6, TURNS + 1)]
    assert list(dict.fromkeys(asked)) == ["u1", "u2", "u3", "e4", *rest], note
    assert verify(db, SESSION).problems == [], note
    assert len(db.peek(SESSION).fold.chain.spans) > 1
    assert "values/" in "".join(world.space.order)


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_worker_killed_at_any_call(when: When, window: int | None) -> None:
    for number in count(1):
        world = World()
        process = world.process()
        process.at(number, when, process.kill)
        process.start(lambda process=process: work(door(process), window))
        world.run()
        if len(process.bucket.calls) < number:
            break
        assert isinstance(process.error, Killed)
        finished(world, f"call {number}")
    assert number > 100


@pytest.mark.parametrize("when", ["before", "after", "late"])
@pytest.mark.parametrize("key", ["blocks/", "values/", "sessions/"])
def test_a_store_that_falters_once_in_a_checkpoint_is_not_noticed(
    key: str, when: Literal["before", "after", "late"]
) -> None:
    for number in count(1):
        world = World()
        process = world.process([Fault("put", key=key, nth=number, when=when, seconds=5.0)])
        process.start(lambda process=process: work(door(process), None))
        world.run()
        process.bucket.land()
        assert process.error is None
        finished(world, f"{key} {number}")
        if sum(asked.verb == "put" and key in asked.key for asked in process.bucket.calls) < number:
            break
    assert number > 2
