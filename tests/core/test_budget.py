"""The arithmetic of bounded recovery, sentence by sentence: what counts, what does not, when it ends."""

from __future__ import annotations

from typing import Any

import pytest
from build import answer, applied, ask, begin, call, cut_off, done, output, release, result, say, start, step

from snapshotter.core.budget import Limits
from snapshotter.core.fold import Fold
from snapshotter.core.verdict import incident_case

Record = dict[str, Any]
BEAT: Record = {"control": "heartbeat"}
U1 = [say("u1")]


def log(*rows: tuple[float, Record]) -> list[Record]:
    """Records at these seconds."""
    return [{"id": n, "ts": round(at * 1000), **body} for n, (at, body) in enumerate(rows, 1)]


def judge(outs: list[Record], inputs: list[Record] | None = None, **options: Any) -> Record:
    limits = Limits(**options.pop("limits", {}))
    ins = [{"id": n, "ts": 0, **body} for n, body in enumerate(U1 if inputs is None else inputs, 1)]
    return incident_case(ins, outs, limits, options)


def attempts(count: int, *inside: Record, why: str | None = None, mode: str = "retry") -> list[Record]:
    """So many attempts, a minute apart, each with these records and an end."""
    rows: list[tuple[float, Record]] = []
    for n in range(count):
        begun = start(1, [1], attempt=n + 1, mode="fresh" if n == 0 else mode, run=f"r{n}")
        rows.append((60 * n, begun))
        rows += [(60 * n + 1, body) for body in inside]
        if why is not None:
            rows.append((60 * n + 9, release(1, why)))
    return log(*rows)


def fence(run: str, upto: int, **more: Any) -> Record:
    return {"control": "fence", "epoch": 9, "run": run, "why": "boot", "for": upto, **more}


# -- interruptions ----------------------------------------------------------------------------------------


def test_a_log_with_nothing_to_do_costs_nothing() -> None:
    found = judge(log((0, start(1, [1])), *((1, c) for c in answer("Hi")), (2, done(1))))
    assert found == {
        "decision": "go_on",
        "reason": None,
        "attempt": 1,
        "interruptions": 0,
        "strikes": 0,
        "work": 0,
        "idle_ms": 0,
        "backoff_s": 0,
    }


@pytest.mark.parametrize(("deaths", "decision"), [(1, "go_on"), (4, "go_on"), (5, "give_up"), (9, "give_up")])
def test_the_fifth_death_ends_it(deaths: int, decision: str) -> None:
    found = judge(attempts(deaths))
    assert (found["decision"], found["interruptions"], found["attempt"]) == (decision, deaths, deaths + 1)
    assert found["reason"] == (None if decision == "go_on" else "interrupted_attempts_exceeded")


def test_progress_never_resets_deaths() -> None:
    found = judge(attempts(5, call("c"), output("c")))
    assert (found["interruptions"], found["strikes"]) == (5, 0)
    assert found["reason"] == "interrupted_attempts_exceeded"


@pytest.mark.parametrize("why", ["error", "stall"])
def test_an_error_and_a_stall_count_as_deaths_do(why: str) -> None:
    assert judge(attempts(3, why=why))["interruptions"] == 3


@pytest.mark.parametrize("why", ["signal", "cancelled", "deadline"])
def test_a_worker_that_had_to_leave_does_not(why: str) -> None:
    assert judge(attempts(3, why=why))["interruptions"] == 0


def test_out_of_memory_is_named_by_this_boot_or_by_the_newest_record() -> None:
    assert judge(attempts(5), cause="out_of_memory")["reason"] == "out_of_memory"
    known = attempts(5)
    known[3]["cause"] = "out_of_memory"
    assert judge(known)["reason"] == "out_of_memory"
    assert judge(known, cause="evicted")["reason"] == "interrupted_attempts_exceeded"
    known[4]["cause"] = "evicted"
    assert judge(known)["reason"] == "interrupted_attempts_exceeded"


def test_nothing_before_a_closed_turn_counts() -> None:
    outs = attempts(4)
    outs += [{"id": 5, "ts": 300_000, **done(1)}, {"id": 6, "ts": 301_000, **start(2, [2], run="x")}]
    assert judge(outs, [say("u1"), say("u2")])["interruptions"] == 1


# -- claims -----------------------------------------------------------------------------------------------


def test_claims_that_died_count_for_the_owed_input() -> None:
    outs = log(*((10 * n, fence(f"p{n}", 1)) for n in range(5)))
    assert judge(outs)["reason"] == "interrupted_attempts_exceeded"
    assert judge(outs, run="p4")["interruptions"] == 4
    assert judge(outs, run="p2")["interruptions"] == 4


def test_heartbeats_do_not_make_a_claim_alive() -> None:
    outs = log((0, fence("p", 1)), (10, BEAT), (20, BEAT))
    assert judge(outs)["interruptions"] == 1


def test_a_claim_that_left_in_good_order_or_loaded_counts_nothing() -> None:
    assert judge(log((0, fence("p", 1)), (1, {"control": "turn-release", "why": "signal"})))["work"] == 0
    assert judge(log((0, fence("p", 1)), (1, {"control": "turn-release", "why": "x"})))["interruptions"] == 0
    loaded = log((0, fence("p", 1)), (1, start(1, [1], run="p")))
    assert judge(loaded)["interruptions"] == 1  # the attempt's own death
    assert judge(log((0, fence("p", 1)), (1, start(1, [1], run="q"))))["interruptions"] == 2


def test_a_claim_for_a_later_input_counts_for_what_is_owed_first() -> None:
    two = [say("u1"), say("u2")]
    outs = log(*((n, fence(f"p{n}", 2)) for n in range(5)))
    assert judge(outs, two)["interruptions"] == 5
    outs = log((0, fence("p", 1)), (1, applied(1)), (2, fence("q", 1)))
    assert judge(outs, two)["interruptions"] == 0


def test_claims_count_for_the_open_turn_that_would_be_taken_up() -> None:
    outs = [*attempts(2), *({"id": 3 + n, "ts": 10**6 + n, **fence(f"p{n}", 1)} for n in range(3))]
    assert judge(outs)["reason"] == "interrupted_attempts_exceeded"


# -- strikes ----------------------------------------------------------------------------------------------


def test_the_eleventh_attempt_in_a_row_without_progress_ends_it() -> None:
    assert judge(attempts(10, why="signal"))["decision"] == "go_on"
    found = judge(attempts(11, why="signal"))
    assert (found["reason"], found["strikes"]) == ("max_attempts_exceeded", 11)


def test_progress_begins_the_row_anew() -> None:
    outs = attempts(4, why="signal")
    outs[3:3] = [{"id": 0, "ts": 121_000, **call("c")}, {"id": 0, "ts": 122_000, **output("c")}]
    found = judge([{**record, "id": n} for n, record in enumerate(outs, 1)])
    assert found["strikes"] == 2


def test_what_a_retry_drops_is_no_progress_of_an_attempt_that_let_go() -> None:
    said = [begin(), step(), *cut_off("Hel")]
    assert judge(attempts(3, *said, why="cancelled"))["strikes"] == 3
    assert judge(attempts(3, *said, why="deadline", mode="continue"))["strikes"] == 0
    assert judge(attempts(3, *said, why="error"))["strikes"] == 0


def test_a_step_with_a_result_is_progress_though_a_retry_follows() -> None:
    kept = [begin(), step(), *cut_off("Hel"), call("c"), output("c")]
    assert judge(attempts(3, *kept, why="cancelled"))["strikes"] == 0


def test_an_input_that_streams_is_kept_by_nobody() -> None:
    streamed = [
        {"chunk": {"type": "tool-input-start", "toolCallId": "c", "toolName": "f"}},
        {"chunk": {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": "{"}},
    ]
    assert judge(attempts(2, *streamed, why="deadline", mode="continue"))["strikes"] == 2


# -- work -------------------------------------------------------------------------------------------------


def deltas(*seconds: float) -> Record:
    rows: list[tuple[float, Record]] = [(0, start(1, [1])), (1, {"chunk": {"type": "text-start", "id": "t"}})]
    rows += [(at, {"chunk": {"type": "text-delta", "id": "t", "delta": "x"}}) for at in seconds]
    return judge(log(*rows))


def test_deltas_earn_the_first_and_then_once_in_five_seconds() -> None:
    assert deltas()["work"] == 101
    assert deltas(2)["work"] == 102
    assert deltas(2, 3, 6.999)["work"] == 102
    assert deltas(2, 3, 7)["work"] == 103
    assert deltas(2, 3, 7, 11.9, 12)["work"] == 104


def test_milestones_earn_each_and_progress_reports_nothing() -> None:
    found = judge(
        attempts(1, call("c"), output("c", preliminary=True), output("c", preliminary=True), output("c"))
    )
    assert found["work"] == 102


def test_any_loop_ends_by_its_work() -> None:
    forever = attempts(100, call("c"), output("c"), why="deadline", mode="continue")
    assert judge(forever)["reason"] == "work_budget_exceeded"
    assert judge(forever[: 4 * 98])["decision"] == "go_on"
    assert judge(attempts(2, call("c")), limits={"max_recovery_work": 202})["decision"] == "go_on"
    assert judge(attempts(2, call("c")), limits={"max_recovery_work": 201})["decision"] == "give_up"


# -- idle -------------------------------------------------------------------------------------------------


def silent(seconds: int, deaths: int, *first: Record) -> list[Record]:
    rows: list[tuple[float, Record]] = []
    for n in range(deaths):
        rows.append((1000 * n, start(1, [1], attempt=n + 1, mode="fresh" if n == 0 else "retry")))
        rows += [(1000 * n, body) for body in first]
        rows += [(1000 * n + at, BEAT) for at in range(30, seconds + 1, 30)]
    return log(*rows)


def test_silence_is_summed_and_judged_from_the_second_death() -> None:
    assert judge(silent(600, 1))["decision"] == "go_on"
    assert judge(silent(600, 1))["idle_ms"] == 600_000
    assert judge(silent(150, 2))["decision"] == "go_on"
    assert judge(silent(180, 2))["reason"] == "no_progress_timeout"


def test_a_gap_counts_at_most_45_seconds_and_none_lies_between_two_attempts() -> None:
    assert judge(log((0, start(1, [1])), (900, BEAT)))["idle_ms"] == 45_000
    assert judge(attempts(3))["idle_ms"] == 0


def test_no_silence_while_a_tool_is_at_work() -> None:
    assert judge(silent(600, 2, call("c")))["idle_ms"] == 0
    assert judge(silent(300, 2, call("c"), output("c")))["idle_ms"] == 300_000  # since the last credit


def test_a_granted_call_is_at_work_in_the_turn_that_continues() -> None:
    inputs = [say("u1"), {"kind": "tool-approval", "approvalId": "ok", "approved": True}]
    outs = log(
        (0, start(1, [1])),
        (1, begin()),
        (1, call("c")),
        (1, ask("c", "ok")),
        (2, done(1)),
        (3, start(2, [2], mode="continue", messageId="a1")),
        *((3 + at, BEAT) for at in range(30, 400, 30)),
        (500, start(2, [2], mode="continue", messageId="a1", attempt=2)),
    )
    assert judge(outs, inputs)["idle_ms"] == 0


# -- the hook, precedence, backoff --------------------------------------------------------------------------


def test_the_hook_is_asked_from_the_third_attempt_on() -> None:
    assert judge(attempts(1), keep=False)["decision"] == "go_on"
    assert judge(attempts(2), keep=False)["reason"] == "recovery_aborted"
    assert judge(attempts(2), keep="raise")["decision"] == "go_on"


def test_the_strongest_reason_is_named() -> None:
    tight = {"max_recovery_work": 100, "no_progress_timeout": 1.0, "max_attempts": 1}
    assert judge(silent(60, 5), limits=tight)["reason"] == "interrupted_attempts_exceeded"
    assert judge(silent(60, 2), limits=tight, keep=False)["reason"] == "work_budget_exceeded"
    tight["max_recovery_work"] = 10_000
    assert judge(silent(60, 2), limits=tight, keep=False)["reason"] == "no_progress_timeout"
    tight["no_progress_timeout"] = 300.0
    assert judge(silent(60, 2), limits=tight, keep=False)["reason"] == "recovery_aborted"
    assert judge(silent(60, 2), limits=tight)["reason"] == "max_attempts_exceeded"


@pytest.mark.parametrize(
    ("outs", "seconds"),
    [
        (attempts(1), 4),
        (attempts(2), 16),
        (attempts(4), 256),
        (attempts(1, why="signal"), 2),
        (attempts(3, why="signal"), 8),
        (attempts(10, why="signal"), 256),
        (attempts(3, call("c"), output("c"), why="signal"), 0),
    ],
)
def test_the_pause_doubles_with_each_fault(outs: list[Record], seconds: int) -> None:
    assert judge(outs)["backoff_s"] == seconds


# -- what belongs together ----------------------------------------------------------------------------------


def test_a_turn_that_takes_the_inputs_anew_goes_on_with_the_budget() -> None:
    rows = [(n, start(n + 1, [1], run=f"r{n}")) for n in range(4)]
    assert judge(log(*rows))["interruptions"] == 4


def test_a_new_message_has_a_budget_of_its_own() -> None:
    outs = [*attempts(4, begin(), step(), *cut_off("Hel")), {"id": 99, "ts": 10**6, **start(2, [2])}]
    outs = [{**record, "id": n} for n, record in enumerate(outs, 1)]
    assert judge(outs, [say("u1"), say("u2")])["interruptions"] == 1


def test_an_answer_a_day_later_costs_nothing() -> None:
    day = 86_400
    asked = [begin(), step(), call("c"), ask("c", "ok")]
    rows: list[tuple[float, Record]] = [(0, start(1, [1])), *((1, body) for body in asked)]
    assert judge(log(*rows))["interruptions"] == 0  # it died, but a person is asked: nothing to recover
    inputs = [say("u1"), {"kind": "tool-approval", "approvalId": "ok", "approved": True}]
    found = judge(log(*rows), inputs)
    assert (found["decision"], found["backoff_s"], found["work"]) == ("go_on", 0, 0)
    rows.append((day, start(2, [2], mode="continue", messageId="a1")))
    assert judge(log(*rows), inputs)["interruptions"] == 1  # the second turn's own death


def test_a_client_tools_result_costs_nothing_either() -> None:
    asked = [begin(), step(), call("c", "pick")]
    rows: list[tuple[float, Record]] = [(0, start(1, [1], clientTools=["pick"])), *((1, b) for b in asked)]
    rows.append((90_000, start(2, [2], mode="continue", messageId="a1")))
    assert judge(log(*rows), [say("u1"), result("c")])["interruptions"] == 1


def test_deaths_before_the_question_still_count() -> None:
    rows: list[tuple[float, Record]] = [(n, start(1, [1], attempt=n + 1, mode="retry")) for n in range(4)]
    rows += [(5, body) for body in (begin(), step(), call("c"), ask("c", "ok"))]
    rows.append((60, start(2, [2], mode="continue", messageId="a1")))
    inputs = [say("u1"), {"kind": "tool-approval", "approvalId": "ok", "approved": True}]
    assert judge(log(*rows), inputs)["interruptions"] == 4  # three, and the second turn's own


def test_an_end_of_the_session_forgets() -> None:
    fold = Fold()
    fold.feed({"id": 1, "ts": 0, **say("u1")})
    for record in log((0, start(1, [1])), (1, fence("p", 1)), (2, {"control": "session-deleted"})):
        fold.apply(record)
    assert (fold.budget.attempts, fold.budget.claims) == ([], [])


# -- time of records ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("ts", [None, "soon", -5, 10**15])
def test_a_foolish_time_does_no_harm(ts: Any) -> None:
    outs = attempts(2, call("c"), *cut_off("x"))
    for record in outs[1:3]:
        record["ts"] = ts
    found = judge(outs)
    assert found["interruptions"] == 2
    assert 0 <= found["idle_ms"] <= 90_000


def test_what_was_written_after_the_question_is_not_known() -> None:
    assert judge(attempts(5), now=150_000)["interruptions"] == 3
    assert judge([{"id": 2, "ts": 0, **done(1)}], U1) == {"error": "gap", "log": "out", "missing": [1, 1]}
