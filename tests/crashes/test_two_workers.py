"""Two workers on one session, interleaved at every storage call of the first."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from crash_agent import SESSION, Ledger, begin, say, script_step, text_of, until_done, whole_script, work
from crash_checker import check_all, check_out, plain, records_of, snapshot_cursors
from crash_world import Process, When, World

from snapshotter import Deadline
from snapshotter.database import Database
from streams.errors import Busy, Fenced, Retryable

CALLS = 50


def outs(world: World) -> list[dict[str, Any]]:
    return records_of(plain(world.space), "out")[1]


def puts(process: Process) -> int:
    """Writes that this process asked for."""
    return sum(call.verb == "put" for call in process.bucket.calls)


def quietly(db: Database, ledger: Ledger) -> None:
    """The whole script, by a worker that may be fenced, or told to come back."""
    try:
        whole_script(db, ledger)
    except (Fenced, Busy) as error:
        ledger.told.append(type(error).__name__)


@pytest.mark.parametrize("takeover", [True, False], ids=["takeover", "stale"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_zombie_that_slept_at_any_call_writes_nothing_more(when: When, takeover: bool) -> None:
    fenced = 0
    for number in count(1):
        world, ledger = World(), Ledger()
        zombie = world.process()
        zombie.at(number, when, zombie.freeze)
        begin(zombie, quietly, ledger)
        world.run()
        if len(zombie.bucket.calls) < number:
            assert number > CALLS
            break
        heir = world.process()
        begin(heir, until_done, ledger, takeover=takeover)
        world.run()
        assert heir.error is None, f"call {number}: {heir.error!r}"
        before, cursors, asked = outs(world), snapshot_cursors(plain(world.space)), puts(zombie)
        zombie.thaw()
        world.run()
        assert zombie.error is None, f"call {number}: {zombie.error!r}"
        assert snapshot_cursors(plain(world.space)) >= cursors, f"call {number}: the snapshot went back"
        assert outs(world) == before, f"call {number}: the zombie wrote"
        # What was on its way, its lost race, a snapshot that is refused; and what the users send again.
        assert puts(zombie) - asked <= 4, f"call {number}"
        check_all(plain(world.space), ledger)
        fenced += "Fenced" in ledger.told
    assert fenced > 5  # most places in the middle of a turn


@pytest.mark.parametrize("nap", [0.0, 1.5, 4.0])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_message_delivered_twice_calls_the_model_once(when: When, nap: float) -> None:
    """Both workers boot by default; one of them naps at any of its calls."""
    for number in count(1):
        world, ledger = World(), Ledger()
        sender = world.process()
        Database(plain(world.space), sender).send(SESSION, {"id": "u2", "role": "user", "parts": []})
        first, second = world.process(), world.process()
        first.at(number, when, lambda: first.sleep(nap))  # noqa: B023 - runs before the next round
        for process in (first, second):
            begin(process, work, ledger)
        world.run()
        assert (first.error, second.error) == (None, None), f"call {number}"
        assert len(ledger.model_calls) == 1, f"call {number}: {ledger.model_calls}"
        headers, records = records_of(plain(world.space), "out")
        assert check_out(records, headers) == ({1: [1]}, {})
        if len(first.bucket.calls) < number:
            assert number > 4  # it may have found the session done
            break


def test_an_input_that_arrives_at_any_call_is_not_left_to_nobody() -> None:
    """A second message lands at each call of the first one's worker; its own worker finds a busy session
    and goes. Nobody else comes."""
    for number in count(1):
        world, ledger = World(), Ledger()
        sender, process = world.process(), world.process()
        other = Database(plain(world.space), sender)
        script_step(other, ledger, "u1")

        def arrive() -> None:
            script_step(other, ledger, "u2")  # noqa: B023 - runs before the next round

        process.at(number, "before", arrive)
        begin(process, work, ledger)
        world.run()
        assert process.error is None
        if len(process.bucket.calls) < number:
            assert number > 15
            break
        late = [call for call in process.bucket.calls if call.number >= number and call.key.startswith("in/")]
        owed = other.peek(SESSION).pending
        if late:  # it looked at the in log afterwards
            assert not owed, f"call {number}: u2 is left to nobody"
            assert [turn for turn, _ in ledger.model_calls] == [1, 2]


def test_a_stop_that_arrives_at_any_call_ends_the_turn_in_its_segment() -> None:
    statuses = set()
    for number in count(1):
        world, ledger = World(), Ledger()
        sender, process = world.process(), world.process()
        other = Database(plain(world.space), sender)
        script_step(other, ledger, "u2")
        process.at(number, "before", lambda: other.stop(SESSION, "u2"))  # noqa: B023
        begin(process, work, ledger)
        world.run()
        assert process.error is None
        if len(process.bucket.calls) < number:
            assert number > 8
            break
        headers, records = records_of(plain(world.space), "out")
        ends = [r for r in records if r.get("control") == "turn-complete"]
        spent = [r for r in records if r.get("control") == "input-applied"]
        if not ends:  # it came before the claim: the message stands unanswered
            assert [r["inputs"] for r in spent] == [[1, 2]]
            statuses.add("spent")
            continue
        statuses.add(ends[0]["status"])
        assert len(ends) == 1
        if ends[0]["status"] == "aborted":
            assert [r["inputs"] for r in spent] == [[2]]
            segment = [h for h in headers if h["first"] <= ends[0]["id"] <= h["last"]]
            assert segment[0]["first"] <= spent[0]["id"] < ends[0]["id"]
            assert ends[0]["id"] == segment[0]["last"]
    assert statuses == {"spent", "aborted", "completed"}


def test_an_approval_a_day_later_continues_the_same_message() -> None:
    world, ledger = World(), Ledger()
    process = world.process()

    def a_day_apart(db: Database, ledger: Ledger) -> None:
        for step in ("u1", "approval"):
            script_step(db, ledger, step)
            work(db, ledger)
            db.clock.sleep(24 * 3600.0)

    begin(process, a_day_apart, ledger)
    world.run()
    assert process.error is None
    history = Database(plain(world.space)).history(SESSION)
    assert [m["role"] for m in history] == ["user", "assistant"]
    assert ledger.ran == {"lookup": 1, "charge": 1}
    assert [turn for turn, _ in ledger.model_calls] == [1, 2]


def test_an_approval_a_day_after_a_kill_continues_the_same_message() -> None:
    """The question is durable before the write returns; the worker dies there, before any `finish`."""
    world, ledger = World(), Ledger()
    victim = world.process()
    victim.at(17, "after", victim.kill)  # the segment of the approval request
    begin(victim, whole_script, ledger)
    world.run()
    assert [r["chunk"]["type"] for r in outs(world)[-1:]] == ["tool-approval-request"]
    process = world.process()

    def a_day_later(db: Database, ledger: Ledger) -> None:
        db.clock.sleep(24 * 3600.0)
        work(db, ledger)
        assert db.peek(SESSION).resume.kind == "waiting"
        until_done(db, ledger)

    begin(process, a_day_later, ledger)
    world.run()
    if process.error is not None:
        raise process.error
    check_all(plain(world.space), ledger)
    assert ledger.ran == {"lookup": 1, "charge": 1}


# -- leases -----------------------------------------------------------------------------------------------


def sleepy(db: Database, ledger: Ledger, *, tool: float, silence: float) -> None:
    """A turn whose tool takes `tool` seconds, and whose model is silent for `silence` seconds."""
    with db.boot(SESSION) as session:
        for turn in session.turns():
            with turn:
                ledger.model_calls.append((turn.number, turn.attempt))
                turn.write({"type": "start"})
                turn.write({"type": "tool-input-available", "toolCallId": "c", "toolName": "t", "input": {}})
                db.clock.sleep(tool)
                turn.write({"type": "tool-output-available", "toolCallId": "c", "output": 1})
                db.clock.sleep(silence)
                turn.write({"type": "finish", "finishReason": "stop"})


@pytest.mark.parametrize(("tool", "silence"), [(1500.0, 0.0), (0.0, 600.0)], ids=["in a tool", "silent"])
def test_heartbeats_keep_the_session_while_nothing_is_written(tool: float, silence: float) -> None:
    world, ledger = World(), Ledger()
    holder, other = world.process(), world.process()
    script_step(Database(plain(world.space), world.process()), ledger, "u2")
    seen: list[float] = []

    def look(db: Database, ledger: Ledger) -> None:
        for _ in range(20):
            db.clock.sleep(max(tool, silence) / 22)
            with pytest.raises(Busy) as caught:
                db.boot(SESSION, stable_timeout=0.0)
            seen.append(caught.value.retry_after)

    begin(holder, sleepy, ledger, tool=tool, silence=silence)
    begin(other, look, ledger)
    world.run()
    assert (holder.error, other.error) == (None, None)
    assert len(seen) == 20
    assert all(0 < seconds <= 52 for seconds in seen)
    assert ledger.model_calls == [(1, 1)]
    beats = [r for r in outs(world) if r.get("control") == "heartbeat"]
    assert abs(len(beats) - max(tool, silence) / 30) <= 1  # two thirds of the lease of 45 s


def test_a_silent_worker_without_a_deadline_is_given_up_after_a_quarter_of_an_hour() -> None:
    world, ledger = World(), Ledger()
    holder, other = world.process(), world.process()
    script_step(Database(plain(world.space), world.process()), ledger, "u2")

    def come_back(db: Database, ledger: Ledger) -> None:
        db.clock.sleep(1.0)
        while True:
            try:
                work(db, ledger)
            except Busy as busy:
                db.clock.sleep(busy.retry_after)
            else:
                ledger.told.append(f"{db.clock.monotonic():.0f}")
                return

    def hang(db: Database, ledger: Ledger) -> None:
        with pytest.raises(Retryable):
            sleepy(db, ledger, tool=0.0, silence=3000.0)

    begin(holder, hang, ledger)
    begin(other, come_back, ledger)
    world.run()
    assert (holder.error, other.error) == (None, None)
    assert 15 * 60 < float(ledger.told[0]) < 17 * 60
    assert ledger.model_calls == [(1, 1), (1, 2)]


def test_a_killed_worker_frees_the_session_when_its_lease_and_the_slack_are_over() -> None:
    world, ledger = World(), Ledger()
    victim, other = world.process(), world.process()
    script_step(Database(plain(world.space), world.process()), ledger, "u2")
    victim.at(5, "after", victim.kill)  # its turn-start stands, with a lease of 45 s
    begin(victim, work, ledger)
    world.run()
    died = world.now

    def wait(db: Database, ledger: Ledger) -> None:
        with pytest.raises(Busy) as caught:
            db.boot(SESSION)
        ledger.told.append(f"{db.clock.monotonic() - died:.0f}")
        db.clock.sleep(caught.value.retry_after - 0.5)
        with pytest.raises(Busy):
            db.boot(SESSION, stable_timeout=0.0)
        db.clock.sleep(0.6)
        work(db, ledger)

    begin(other, wait, ledger)
    world.run()
    if other.error is not None:
        raise other.error
    assert ledger.told == ["25"]  # it waited as long as the default says
    assert len(ledger.model_calls) == 1


def test_a_deadline_releases_a_turn_whose_model_hangs() -> None:
    """Nobody writes a chunk: the watcher lets go, in time, and the next worker need not wait."""
    world, ledger = World(), Ledger()
    process, other = world.process(), world.process()
    script_step(Database(plain(world.space), world.process()), ledger, "u2")

    def hang(db: Database, ledger: Ledger) -> None:
        with db.boot(SESSION, deadline=60.0) as session:
            for turn in session.turns():
                with turn:
                    turn.write({"type": "start"})
                    for chunk in say("as far as this"):
                        turn.write(chunk)
                    db.clock.sleep(100.0)
                    turn.write({"type": "finish"})

    def come(db: Database, ledger: Ledger) -> None:
        db.clock.sleep(61.0)
        with db.boot(SESSION, stable_timeout=0.0) as session:
            ledger.told.append(session.resume.kind)
            assert text_of(session.messages[-1]) == "as far as this "
            for turn in session.turns():
                with turn:
                    turn.write({"type": "finish", "finishReason": "stop"})

    begin(process, hang, ledger)
    begin(other, come, ledger)
    world.run()
    assert other.error is None
    assert isinstance(process.error, Deadline)
    assert ledger.told == ["continue_response"]
    assert [r["why"] for r in outs(world) if r.get("control") == "turn-release"] == ["deadline"]
    history = Database(plain(world.space)).history(SESSION)
    assert text_of(history[-1]) == "as far as this "
