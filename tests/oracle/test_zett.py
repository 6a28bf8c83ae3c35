"""Where a plain history can be resumed, against zett-agent: the same verdict for every history.

What is deliberately different is listed in docs/differences.md and tested below.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from asking import HOME, need, run_oracle

from snapshotter.core.classify import NotResumable, classify_resume
from snapshotter.errors import InvalidValue

SCRIPT = Path(__file__).with_name("zett.py")
PYTHON = HOME / "zett" / "bin" / "python"
Message = dict[str, Any]

STOPS = (
    "end_turn stop stop_sequence completed tool_use tool_calls function_call max_output length max_tokens"
    " max_output_tokens context_full model_context_window_exceeded model_length context_length_exceeded"
    " refusal content_filter sensitive safety recitation blocklist prohibited_content spii image_safety"
    " image_prohibited_content image_recitation jailbreak model_armor paused pause_turn interrupted error"
    " network_error insufficient_system_resource aborted other weird Content_Filter LENGTH"
).split()
REASONS = "end_turn tool_use max_output context_full refusal paused interrupted other".split()


def zett(histories: list[Any]) -> list[dict[str, Any]]:
    need(PYTHON, "zett-agent")
    return run_oracle([str(PYTHON), str(SCRIPT)], histories)


def ours(history: Any) -> dict[str, Any]:
    try:
        found = classify_resume(history).to_json()
    except NotResumable as refusal:
        return {"error": refusal.reason}
    except InvalidValue:
        return {"error": "bad_input"}
    assert found.pop("description")
    return found


def histories(seed: int, count: int) -> list[list[Message]]:
    """Histories as they come, and as they do not: tails of every kind, orphans, ids that meet again."""
    r = random.Random(seed)
    return [[_message(r) for _ in range(r.choice([0, 1, 2, 3, 3, 4, 5, 6]))] for _ in range(count)]


def _message(r: random.Random) -> Message:
    role = r.choice(
        ["system", "user", "agent", "assistant", "assistant", "assistant", "tool", "tool", "tool"]
    )
    if r.random() < 0.01:
        return r.choice([{"role": "robot"}, {"content": "x"}, {"role": "tool"}])
    message: Message = {"role": role, "content": "x"}
    if role == "tool":
        message["tool_call_id"] = r.choice("abcd")
    if role == "assistant":
        if r.random() < 0.5:
            ids = [r.choice("abcd") for _ in range(r.choice([0, 1, 1, 2, 3]))]
            message["tool_calls"] = [{"id": call, "name": f"t-{call}"} for call in ids]
        if r.random() < 0.7:
            stop = r.choice([None, *STOPS, {"reason": r.choice(REASONS)}])
            message[r.choice(["stop", "stop", "stop_reason", "finish_reason"])] = stop
    return message


HI = {"role": "user", "content": "hello"}


def said(**more: Any) -> Message:
    return {"role": "assistant", "content": "so far", **more}


def asked(*calls: str, **more: Any) -> Message:
    return said(tool_calls=[{"id": call, "name": f"tool-{n}"} for n, call in enumerate(calls)], **more)


def gave(call: str) -> Message:
    return {"role": "tool", "tool_call_id": call, "content": "done"}


# Each place at which a conversation can break off, and what follows from it.
EXAMPLES: dict[str, tuple[list[Message], dict[str, Any]]] = {
    "nothing at all": ([], {"error": "empty"}),
    "only instructions": ([{"role": "system", "content": "be kind"}], {"error": "empty"}),
    "a question": ([HI], {"kind": "call_model", "unanswered": []}),
    "an agent's message": ([HI, said(), {"role": "agent"}], {"kind": "call_model", "unanswered": []}),
    "an answer without a stop": ([HI, said(stop=None)], {"error": "completed"}),
    "an answer that ended": ([HI, said(stop="stop_sequence")], {"error": "completed"}),
    "no call answered": ([HI, asked("a", "b")], {"kind": "recover_tools", "unanswered": ["a", "b"]}),
    "one call answered": ([HI, asked("a", "b"), gave("b")], {"kind": "recover_tools", "unanswered": ["a"]}),
    "all calls answered": (
        [HI, asked("a", "b"), gave("b"), gave("a")],
        {"kind": "call_model", "unanswered": []},
    ),
    "a result that nobody asked for": ([HI, gave("x")], {"error": "malformed"}),
    "a result of another call": (
        [HI, asked("a"), gave("x")],
        {"kind": "recover_tools", "unanswered": ["a"]},
    ),
    "an error": ([HI, said(stop="error")], {"kind": "retry_response", "unanswered": []}),
    "a lost connection": ([HI, said(stop="network_error")], {"kind": "retry_response", "unanswered": []}),
    "a reason as an object": (
        [HI, said(stop={"reason": "interrupted", "raw": "aborted"})],
        {"kind": "retry_response", "unanswered": []},
    ),
    "the output limit": (
        [HI, said(finish_reason="max_tokens")],
        {"kind": "continue_response", "unanswered": []},
    ),
    "a pause": ([HI, said(stop_reason="paused")], {"kind": "call_model", "unanswered": []}),
    "a refusal": ([HI, said(stop="safety")], {"error": "refused"}),
    "a full context": ([HI, said(stop="context_length_exceeded")], {"error": "context_full"}),
    "a stop nobody knows": ([HI, said(stop="tired")], {"error": "unknown_stop"}),
    "a call in an answer that was cut off": (
        [HI, asked("a", stop="interrupted")],
        {"kind": "recover_tools", "unanswered": ["a"]},
    ),
    "an open call before another question": ([HI, asked("a"), HI], {"kind": "call_model", "unanswered": []}),
    "one id for two calls, answered once": (
        [HI, asked("a", "a"), gave("a")],
        {"kind": "call_model", "unanswered": []},
    ),
    "a role nobody knows": ([{"role": "ghost"}], {"error": "bad_input"}),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_example_has_its_verdict(name: str) -> None:
    history, expected = EXAMPLES[name]
    assert ours(history) == expected


def test_every_example_has_the_same_verdict() -> None:
    lines = [history for history, _ in EXAMPLES.values()]
    assert zett(lines) == [expected for _, expected in EXAMPLES.values()]


def test_generated_histories_have_the_same_verdict() -> None:
    lines = histories(seed=1, count=8_000)
    seen: Counter[str] = Counter()
    for line, theirs in zip(lines, zett(lines), strict=True):
        assert ours(line) == theirs, line
        seen[theirs.get("kind") or theirs["error"]] += 1
    assert min(seen.values()) > 20, seen
    assert len(seen) == 11


def test_every_stop_alone_has_the_same_verdict() -> None:
    stops: list[Any] = [None, *STOPS, *({"reason": reason} for reason in REASONS)]
    lines = [[{"role": "user"}, {"role": "assistant", "stop": stop}] for stop in stops]
    assert [ours(line) for line in lines] == zett(lines)


@pytest.mark.parametrize(
    ("stop", "expected"),
    [("content-filter", {"error": "refused"}), ("tool-calls", {"error": "completed"})],
)
def test_the_ai_sdks_spelling_is_understood_too(stop: str, expected: dict[str, Any]) -> None:
    line = [{"role": "user"}, {"role": "assistant", "stop": stop}]
    assert ours(line) == expected
    assert zett([line]) == [{"error": "unknown_stop"}]


def test_a_developers_message_is_a_systems_message() -> None:
    line = [{"role": "user"}, {"role": "developer", "content": "x"}]
    assert ours(line) == {"kind": "call_model", "unanswered": []}
    assert zett([line]) == [{"error": "bad_input"}]
