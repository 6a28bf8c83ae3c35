"""What a worker writes: which step comes first, and the records of each segment."""

from __future__ import annotations

from typing import Any

import pytest
from build import (
    answer,
    approve,
    ask,
    begin,
    call,
    chunk,
    cut_off,
    done,
    edit,
    finish,
    fold,
    result,
    say,
    start,
    step,
    stop,
    words,
)

from snapshotter.core import moves
from snapshotter.core.revive import revive

OPEN = [start(1, [1]), begin(), step()]
HEL = [*OPEN, *cut_off("Hel")]
ONE = [start(1, [1]), *answer("One."), done(1)]
ACTION = {"kind": "action", "name": "x", "input": {}}


def opened(inputs: list[Any], outs: list[Any], **more: Any) -> list[dict[str, Any]]:
    """The segment of the turn that a worker opens: the resumed one, else the first item's."""
    whole = fold(inputs, outs)
    plan = revive(whole)
    item = None if moves.next_step(plan) == "resume" else plan.pending[0]
    return moves.opening(whole, plan, item, run="r2", message_id="new", **more)


@pytest.mark.parametrize(
    ("inputs", "outs", "expected"),
    [
        ([], [], "idle"),
        ([say("u1")], ONE, "idle"),
        ([say("u1")], [], "item"),
        ([say("u1"), stop()], ONE, "spend"),
        ([say("u1"), stop(), say("u3")], ONE, "item"),
        ([say("u1")], HEL, "resume"),
        ([say("u1")], OPEN, "resume"),
        ([say("u1"), stop()], HEL, "seal"),
        ([say("u1")], [*OPEN, *words("Hi"), finish()], "seal"),
        ([say("u1")], [*OPEN, *words("Hi"), finish("content-filter")], "seal"),
        ([say("u1"), say("u2")], HEL, "item"),
        ([say("u1")], [*OPEN, call("c1"), ask("c1", "p1")], "idle"),
        ([say("u1"), ACTION], [*OPEN, call("c1"), ask("c1", "p1")], "item"),
    ],
)
def test_what_comes_first(inputs: list[Any], outs: list[Any], expected: str) -> None:
    assert moves.next_step(revive(fold(inputs, outs))) == expected


def test_a_new_turn_names_its_inputs_and_what_it_has_seen() -> None:
    inputs = [say("u1"), say("u2", body={"model": "m"}, clientTools=["where"]), stop()]
    assert opened(inputs, ONE, cause="oom") == [
        {"control": "input-applied", "inputs": [3]},
        {
            "control": "turn-start",
            "turn": 2,
            "attempt": 1,
            "inputs": [2],
            "body": {"model": "m"},
            "clientTools": ["where"],
            "epoch": 2,
            "run": "r2",
            "seen": 3,
            "mode": "fresh",
            "messageId": "new",
            "cause": "oom",
        },
    ]


def test_the_workers_client_tools_count_where_the_request_brings_none() -> None:
    assert opened([say("u1")], [], client_tools=["a"])[-1]["clientTools"] == ["a"]
    assert opened([say("u1", clientTools=["b"])], [], client_tools=["a"])[-1]["clientTools"] == ["b"]
    assert "clientTools" not in opened([say("u1")], [])[-1]


def test_the_next_attempt_takes_the_same_inputs_and_keeps_the_message() -> None:
    assert opened([say("u1"), say("u2")], [start(1, [1], seen=2), *HEL[1:]]) == [
        {
            "control": "turn-start",
            "turn": 1,
            "attempt": 2,
            "inputs": [1],
            "epoch": 2,
            "run": "r2",
            "seen": 2,
            "mode": "retry",
            "messageId": "a1",
        },
    ]


@pytest.mark.parametrize(
    ("outs", "mode"),
    [
        (OPEN, "retry"),
        (HEL, "retry"),
        ([*OPEN, call("c1")], "continue"),
        ([*OPEN, *words("Hi"), finish("length")], "continue"),
    ],
)
def test_the_mode_of_the_next_attempt(outs: list[Any], mode: str) -> None:
    assert opened([say("u1")], outs)[-1]["mode"] == mode


@pytest.mark.parametrize(
    ("what", "mode"),
    [
        (say("u2"), "fresh"),
        (edit("u1", "u2"), "fresh"),
        ({"kind": "regenerate"}, "regenerate"),
        (ACTION, "action"),
    ],
)
def test_the_mode_of_a_new_turn(what: dict[str, Any], mode: str) -> None:
    assert opened([say("u1"), what], ONE)[-1]["mode"] == mode


def test_a_turn_that_is_not_resumed_is_closed_in_the_same_segment_after_what_is_spent() -> None:
    bodies = opened([say("u1"), stop("u0"), say("u3")], HEL)
    assert [body["control"] for body in bodies] == ["input-applied", "turn-complete", "turn-start"]
    assert bodies[1] == {"control": "turn-complete", "turn": 1, "status": "interrupted"}


def test_answers_continue_their_message() -> None:
    outs = [*OPEN, call("c1"), finish(), done(1)]
    assert opened([say("u1"), result("c1")], outs)[-1] | {"seen": 0} == {
        "control": "turn-start",
        "turn": 2,
        "attempt": 1,
        "inputs": [2],
        "epoch": 2,
        "run": "r2",
        "seen": 0,
        "mode": "continue",
        "messageId": "a1",
        "parts": 2,
    }


def test_a_turn_that_takes_a_message_names_every_owed_answer_too() -> None:
    outs = [*OPEN, call("c1"), call("c2"), finish(), done(1)]
    inputs = [say("u1"), result("c1"), say("u3"), result("none"), result("c1", 2, messageId="a1")]
    bodies = opened(inputs, outs)
    assert bodies[0] == {"control": "input-applied", "inputs": [4]}
    assert bodies[1]["inputs"] == [2, 3, 5]
    assert opened([say("u1"), result("c1"), ACTION], outs)[-1]["inputs"] == [3]


@pytest.mark.parametrize(
    ("inputs", "outs", "expected"),
    [
        (
            [say("u1"), stop()],
            HEL,
            [
                {"control": "input-applied", "inputs": [2]},
                {"control": "turn-complete", "turn": 1, "status": "aborted"},
            ],
        ),
        (
            [say("u1")],
            [*OPEN, *words("Hi"), finish()],
            [{"control": "turn-complete", "turn": 1, "status": "completed", "finishReason": "stop"}],
        ),
        (
            [say("u1")],
            [*OPEN, *words("Hi"), chunk("error", errorText="boom"), finish()],
            [
                {
                    "control": "turn-complete",
                    "turn": 1,
                    "status": "error",
                    "finishReason": "stop",
                    "error": "boom",
                }
            ],
        ),
        (
            [say("u1")],
            [*OPEN, *words("Hi"), finish("content-filter")],
            [
                {
                    "control": "turn-complete",
                    "turn": 1,
                    "status": "error",
                    "finishReason": "content-filter",
                    "reason": "refused",
                }
            ],
        ),
    ],
)
def test_a_seal_closes_the_turn_without_a_model_call(
    inputs: list[Any], outs: list[Any], expected: list[dict[str, Any]]
) -> None:
    whole = fold(inputs, outs)
    assert moves.sealing(whole, revive(whole)) == expected


def test_a_close_applies_the_stops_that_ended_the_turn_first() -> None:
    whole = fold([say("u1"), stop()], HEL)
    assert moves.closing(whole, "aborted", [2], keep=False, reason=None) == [
        {"control": "input-applied", "inputs": [2]},
        {"control": "turn-complete", "turn": 1, "status": "aborted", "keep": False},
    ]


def test_the_end_of_a_session_closes_what_is_open() -> None:
    outs = [*OPEN, call("c1"), ask("c1", "p1")]
    whole = fold([say("u1"), {"kind": "close"}, approve("none")], outs)
    plan = revive(whole)
    assert moves.ending(whole, plan, plan.pending[0]) == [
        {"control": "input-applied", "inputs": [2, 3]},
        {"control": "turn-complete", "turn": 1, "status": "interrupted"},
        {"control": "session-closed"},
    ]
