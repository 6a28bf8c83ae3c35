"""Repair, inputs and sanitizing against Cloudflare's chat module: the same for every history.

What is deliberately different is kept out of what is generated, is listed in docs/differences.md, and has
tests of its own below.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

from asking import HOME, as_js, need, run_oracle

from snapshotter.core.repair import normalize_input, repair
from snapshotter.core.sanitize import sanitize
from snapshotter.core.shorten import shorten, size_of

SCRIPT = Path(__file__).with_name("agents_chat.mjs")
Json = dict[str, Any]

STATES = (
    "input-streaming input-available approval-requested approval-responded"
    " output-available output-error output-denied"
).split()
INPUTS: list[Any] = [
    {},
    {"a": {"b": [1, None]}},
    '{"a":1}',
    ' \n{"a":{"b":"é"}}\t',
    '\ufeff{"a":1}',
    '\u2003{"a":1}',
    '{"a":',
    '{"a":NaN}',
    '{"a":1e999}x',
    "[1]",
    '"{}"',
    "{",
    "",
    "x",
    None,
    True,
    0,
    1.5,
    [],
    [{"a": 1}],
]


def agents(questions: list[Json]) -> list[Any]:
    need(HOME / "agents" / "node_modules" / "agents" / "package.json", "npm agents")
    return run_oracle(["node", str(SCRIPT)], questions)


def errored(part: Json) -> Json:
    return {**part, "state": "output-error", "errorText": "interrupted"}


def _part(r: random.Random) -> Json:
    if r.random() < 0.2:
        return r.choice(
            [{"type": "text", "text": "x"}, {"type": "step-start"}, {"type": "data-x", "data": 1}]
        )
    dynamic = r.random() < 0.3
    part: Json = {"type": "dynamic-tool" if dynamic else f"tool-{r.choice('ab')}"}
    if dynamic and r.random() < 0.9:
        part["toolName"] = r.choice("ab")
    if r.random() < 0.95:
        part["toolCallId"] = r.choice(["c1", "c2", "c2", ""])
    if r.random() < 0.97:
        part["state"] = r.choice(STATES)
    if r.random() < 0.8:
        part["input"] = r.choice(INPUTS)
    if part.get("state") == "output-available" or r.random() < 0.05:
        part["output"] = r.choice([None, 1, {"x": 1}])
    if part.get("state") == "output-error":
        part["errorText"] = "disk full"
    if str(part.get("state")).startswith("approval"):
        part["approval"] = {"id": "p"}
    if part.get("state") == "approval-responded":
        part["approval"] = {"id": "p", "approved": True}
    return part


def test_generated_histories_are_repaired_alike() -> None:
    r = random.Random(3)
    lines: list[Json] = []
    for _ in range(4_000):
        messages = [
            {
                "id": f"m{i}",
                "role": r.choice(["user", "assistant"]),
                "parts": [_part(r) for _ in range(r.randint(0, 4))],
            }
            for i in range(r.randint(0, 3))
        ]
        lines.append(
            {"fn": "repair", "messages": messages, "clientTools": r.sample(["a", "b"], r.randint(0, 2))}
        )
    seen: Counter[str] = Counter()
    for line, theirs in zip(lines, agents(lines), strict=True):
        done = repair(line["messages"], client_tools=line["clientTools"], repair_part=errored)
        assert as_js(done.messages) == as_js(theirs["messages"]), line
        assert (done.replaced, done.normalized) == (theirs["removedToolCalls"], theirs["normalizedInputs"])
        assert list(done.ids) == theirs["toolCallIds"]
        same = [a is b for a, b in zip(done.messages, line["messages"], strict=True)]
        assert same == theirs["same"]
        seen["repaired"] += done.replaced
        seen["normalized"] += done.normalized
        seen["same"] += sum(same)
    assert min(seen.values()) > 1_000, seen


def test_inputs_are_normalized_alike() -> None:
    r = random.Random(5)
    pieces = [
        '"a"',
        ":",
        "{",
        "}",
        "[",
        "]",
        "1",
        "-",
        "e9",
        ",",
        " ",
        "\n",
        "\u00a0",
        "\ufeff",
        "\x1c",
        "null",
        "é",
    ]
    texts = [
        "{" * (r.random() < 0.7) + "".join(r.choice(pieces) for _ in range(r.randint(0, 8)))
        for _ in range(4_000)
    ]
    texts += ['{"a":' + "".join(r.choice(pieces) for _ in range(r.randint(1, 3))) + "}" for _ in range(4_000)]
    values = [*INPUTS, *texts]
    changed = 0
    for value, theirs in zip(values, agents([{"fn": "normalize", "input": v} for v in values]), strict=True):
        got, altered = normalize_input(value)
        assert (as_js(got), altered) == (as_js(theirs["input"]), theirs["changed"]), repr(value)
        changed += bool(altered and got)
    assert changed > 100


def _noted(r: random.Random) -> Json:
    part: Json = {"type": r.choice(["text", "reasoning", "reasoning", "tool-a"])}
    if r.random() < 0.9:
        part["text"] = r.choice(["", " ", "\n\ufeff\u2003", "\x1c", "x"])
    for name in ("providerMetadata", "callProviderMetadata"):
        if r.random() < 0.6:
            own = {key: 1 for key in ("itemId", "reasoningEncryptedContent", "keep") if r.random() < 0.5}
            part[name] = r.choice(
                [{}, {"openai": own}, {"openai": own, "b": 2}, {"b": {"itemId": 1}}, {"openai": None}]
            )
    return part


def test_messages_are_sanitized_alike() -> None:
    r = random.Random(9)
    messages = [
        {"id": "m", "role": "assistant", "parts": [_noted(r) for _ in range(r.randint(0, 5))]}
        for _ in range(4_000)
    ]
    answers = agents([{"fn": "sanitize", "message": message} for message in messages])
    changed = 0
    for message, theirs in zip(messages, answers, strict=True):
        (got,) = sanitize([message])
        assert as_js(got) == as_js(theirs), message
        changed += got is not message
    assert changed > 1_000


# -- deliberate differences -------------------------------------------------------------------------------


def _both(*parts: Json) -> tuple[list[Json], list[Json]]:
    message = {"id": "m", "role": "assistant", "parts": list(parts)}
    [theirs] = agents([{"fn": "repair", "messages": [message], "clientTools": []}])
    return repair([message], repair_part=errored).messages[0]["parts"], theirs["messages"][0]["parts"]


def test_progress_is_no_result() -> None:
    part = {"type": "tool-a", "toolCallId": "c", "state": "output-available", "input": {}, "output": 1}
    part["preliminary"] = True
    ours, theirs = _both(part)
    assert ours[0]["state"] == "output-error"
    assert theirs == [part]


def test_a_refused_call_is_a_denial() -> None:
    part = {"type": "tool-a", "toolCallId": "c", "state": "approval-responded", "input": {}}
    part["approval"] = {"id": "p", "approved": False}
    ours, theirs = _both(part)
    assert ours == [{**part, "state": "output-denied"}]
    assert theirs == [part]


def test_an_input_beyond_doubles_is_exact() -> None:
    text = '{"n":9007199254740993}'
    assert normalize_input(text) == ({"n": 9007199254740993}, True)
    assert agents([{"fn": "normalize", "input": text}]) == [
        {"input": {"n": 9007199254740992}, "changed": True}
    ]


def test_a_number_beyond_a_double_is_no_input() -> None:
    text = '{"n":1e999}'
    assert normalize_input(text) == ({}, True)
    assert agents([{"fn": "normalize", "input": text}]) == [{"input": {"n": None}, "changed": True}]


def test_a_results_metadata_is_sanitized_too() -> None:
    part = {"type": "tool-a", "resultProviderMetadata": {"openai": {"itemId": "i"}}}
    message = {"id": "m", "role": "assistant", "parts": [part]}
    assert sanitize([message])[0]["parts"] == [{"type": "tool-a"}]
    assert agents([{"fn": "sanitize", "message": message}]) == [message]


def test_a_message_that_needs_nothing_is_the_same_object() -> None:
    message = {"id": "m", "role": "assistant", "parts": [{"type": "text", "text": "x"}]}
    assert sanitize([message])[0] is message


def test_the_bound_holds_for_reasoning() -> None:
    part = {"type": "reasoning", "text": "x" * 1_900_000}
    (after,) = shorten([{"id": "m", "role": "assistant", "parts": [part]}], 1_800_000)
    assert size_of(after) <= 1_800_000
