"""Reconciliation, turn queue, submit policies, aborts and tool batches against Cloudflare's chat module.

Generated calls, the same to both. What is deliberately different is kept out of them, listed in
docs/hosts.md, and has tests of its own.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

from asking import HOME, need, run_oracle

from snapshotter.core.calls import answer_call, any_waits, calls_of
from snapshotter.core.reconcile import merge_orphan, reconcile
from snapshotter.hosting.aborts import Aborts, Signal
from snapshotter.hosting.continuation import COALESCE, Barrier
from snapshotter.hosting.submit import Debounce, Submits
from snapshotter.hosting.turnqueue import Line

SCRIPT = Path(__file__).with_name("agents_hosting.mjs")
Json = dict[str, Any]


def ask(calls: list[tuple[str, list[Any]]]) -> list[Any]:
    """What the module answers to each call, from one process. Without it the test is skipped, or fails where
    oracles are required."""
    need(HOME / "agents" / "node_modules" / "agents" / "package.json", "npm agents")
    answers = run_oracle(["node", str(SCRIPT)], [{"fn": fn, "args": args} for fn, args in calls])
    found = [answer["result"] for answer in answers]
    assert len(found) == len(calls)
    return found


# -- reconciliation -------------------------------------------------------------------------------------

PENDING = ("input-available", "approval-requested", "approval-responded")
SETTLED: tuple[Json, ...] = (
    {"state": "output-available", "output": {"n": 1}},
    {"state": "output-available", "output": "ok"},
    {"state": "output-error", "errorText": "no"},
    {"state": "output-denied", "approval": {"id": "p", "approved": False}},
)


def a_call(rng: random.Random, call: str) -> Json:
    name, given = rng.choice("xy"), {"q": rng.randrange(2)}
    state = rng.choice(SETTLED) if rng.random() < 0.5 else {"state": rng.choice(PENDING)}
    return {"type": f"tool-{name}", "toolCallId": call, "input": given, **state}


def an_answer(rng: random.Random, message_id: str) -> Json:
    parts: list[Json] = []
    for call in rng.sample(["f:0", "f:1", "f:2"], rng.randrange(3)):
        parts += [{"type": "step-start"}] * rng.randrange(2) + [a_call(rng, call)]
    if rng.random() < 0.5 or not parts:
        parts.insert(rng.randrange(len(parts) + 1), {"type": "text", "text": rng.choice(["ok", "yes"])})
    return {"id": message_id, "role": "assistant", "parts": parts}


def a_copy(rng: random.Random, row: Json, message_id: str) -> Json:
    """A client's copy of a stored message: its calls as they are, or as they were before."""
    copy = json.loads(json.dumps(row))
    for _, part in calls_of(copy):
        if rng.random() < 0.6:
            for name in ("output", "errorText", "approval"):
                part.pop(name, None)
            part["state"] = rng.choice(PENDING) if part["state"] not in PENDING else part["state"]
        elif part["state"] in PENDING and rng.random() < 0.3:
            part.update(SETTLED[0])
    return copy | {"id": message_id}


def a_transcript(rng: random.Random) -> tuple[list[Json], list[Json]]:
    stored, sent = [], []
    for number in range(rng.randrange(1, 6)):
        row = an_answer(rng, f"s{number}")
        if rng.random() < 0.3:
            row = {"id": f"u{number}", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
        stored.append(row)
        if rng.random() < 0.85:
            own = row["role"] == "user" or rng.random() < 0.5
            sent.append(a_copy(rng, row, row["id"] if own else f"c{number}"))
        if rng.random() < 0.2:
            sent.append(an_answer(rng, f"n{number}"))
    if rng.random() < 0.3:
        rng.shuffle(sent)
    return sent, stored


def test_reconciliation_agrees() -> None:
    rng = random.Random(1)
    pairs = [a_transcript(rng) for _ in range(4000)]
    claimed = dropped = 0
    for (sent, stored), theirs in zip(pairs, ask([("reconcile", list(p)) for p in pairs]), strict=True):
        ours = reconcile(sent, stored)
        assert with_rows(ours, stored) == with_rows(theirs, stored), (sent, stored)
        claimed += sum(m["id"].startswith("s") for m in ours) - sum(m["id"].startswith("s") for m in sent)
        dropped += len(sent) - len(ours)
    assert claimed > 500
    assert dropped > 10


def with_rows(messages: list[Json], stored: list[Json]) -> list[Json]:
    """For comparing. Two things are otherwise here: a state that is not final moves forward, too; of two
    results the stored one stays."""
    rows = {m["id"]: {p["toolCallId"]: p for _, p in calls_of(m)} for m in stored}
    out = json.loads(json.dumps(messages))
    for message in out:
        for _, part in calls_of(message):
            row = rows.get(message["id"], {}).get(part["toolCallId"])
            if row is not None and row["state"] in PENDING and part["state"] in PENDING:
                part["state"] = "pending"
            elif row is not None and row["state"] not in PENDING and part["state"] not in PENDING:
                part.update(state="settled", output=None, errorText=None, approval=None)
    return out


def test_orphans_merge_alike_where_only_calls_are_new() -> None:
    rng, pairs = random.Random(2), []
    for _ in range(2000):
        calls = [a_call(rng, f"f:{n}") for n in range(rng.randrange(1, 6))]
        cut = rng.randrange(len(calls) + 1)
        old = {"id": "s1", "role": "assistant", "parts": calls[:cut], "metadata": {"a": 1, "b": 1}}
        new = {"id": "s1", "role": "assistant", "parts": calls, "metadata": {"b": 2}}
        if rng.random() < 0.3:
            del rng.choice([old, new])["metadata"]
        pairs.append((old, new))
    for (old, new), theirs in zip(pairs, ask([("orphan", list(p)) for p in pairs]), strict=True):
        assert merge_orphan(old, new) == theirs


def test_an_orphans_text_is_doubled_there_and_not_here() -> None:
    row: Json = {"id": "s1", "role": "assistant", "parts": [{"type": "text", "text": "A"}, call_done("k")]}
    replay = {**row, "parts": [*row["parts"], {"type": "text", "text": "B"}]}
    (theirs,) = ask([("orphan", [row, replay])])
    assert [p.get("text") for p in theirs["parts"]] == ["A", None, "A", "B"]
    assert merge_orphan(row, replay)["parts"] == replay["parts"]


def call_done(call: str, **more: Any) -> Json:
    return {"type": "tool-x", "toolCallId": call, "input": {}, **SETTLED[0], **more}


def test_progress_becomes_a_result_there_and_not_here() -> None:
    row: Json = {"id": "s1", "role": "assistant", "parts": [call_done("k", preliminary=True)]}
    copy: Json = {"id": "s1", "role": "assistant", "parts": [call_done("k", state="input-available")]}
    del copy["parts"][0]["output"]
    (theirs,) = ask([("reconcile", [[copy], [row]])])
    assert "preliminary" not in theirs[0]["parts"][0]
    assert reconcile([copy], [row])[0]["parts"] == row["parts"]


def test_a_clients_other_result_wins_there_and_not_here() -> None:
    row: Json = {"id": "s1", "role": "assistant", "parts": [call_done("k")]}
    copy: Json = {"id": "s1", "role": "assistant", "parts": [call_done("k", output="another")]}
    (theirs,) = ask([("reconcile", [[copy], [row]])])
    assert theirs == [copy]
    assert reconcile([copy], [row]) == [row]


# -- tool batches ---------------------------------------------------------------------------------------


def test_a_batch_is_complete_when_nothing_waits() -> None:
    rng = random.Random(3)
    answers = [an_answer(rng, "s") for _ in range(2000)]
    seen: Counter[bool] = Counter()
    for message, incomplete in zip(answers, ask([("batch", [[m]]) for m in answers]), strict=True):
        states = [part["state"] for _, part in calls_of(message)]
        settled = any(state not in ("input-available", "approval-requested") for state in states)
        assert incomplete == (any_waits(message) and settled)
        seen[incomplete] += 1
    assert min(seen.values()) > 100


def test_tool_updates_agree() -> None:
    rng, calls, ours = random.Random(4), [], []
    for _ in range(2000):
        part = a_call(rng, "k")
        waits = part["state"] == "approval-requested"
        if part["state"] == "approval-responded" or (waits and rng.random() < 0.5):
            part["approval"] = {"id": "p"}
        message = {"id": "s", "role": "assistant", "parts": [part]}
        if waits and rng.random() < 0.5:
            part["approval"] = {"id": "p"}
            calls.append(("approve", [[part], "k", True]))
            answer = {"kind": "tool-approval", "toolCallId": "k", "approved": True}
        else:
            calls.append(("result", [[part], "k", 7]))
            answer = {"kind": "tool-result", "toolCallId": "k", "output": 7}
        ours.append(answer_call(message, answer)["parts"])
    for mine, theirs in zip(ours, ask(calls), strict=True):
        # They say that a result is final, here it is when nothing says otherwise.
        assert mine == [{k: v for k, v in p.items() if k != "preliminary"} for p in theirs]


# -- the turn queue -------------------------------------------------------------------------------------


class Simulated:
    """The line, driven by the steps that the real queue gets, and what it shows after each."""

    def __init__(self) -> None:
        self.line, self.tickets = Line(), {}  # type: ignore[var-annotated]
        self.started: list[str] = []
        self.done: list[list[str]] = []

    def step(self, op: str, key: str = "", generation: int | None = None) -> list[Any]:
        if op == "enqueue":
            self.tickets[key] = self.line.join(key, generation)
        elif op == "release":
            if self.line.active == key:
                self.done.append([key, "completed"])
                self.line.leave(self.tickets[key])
        else:
            self.line.reset()
        for name, ticket in self.tickets.items():
            if ticket.state == "stale":
                ticket.state = "left"
                self.done.append([name, "stale"])
            elif ticket.state == "running" and name not in self.started:
                self.started.append(name)
        line = self.line
        return [line.active, line.generation, line.count(), list(self.started), list(self.done)]


def test_the_turn_queue_agrees() -> None:
    rng, scripts = random.Random(5), []
    for _ in range(400):
        steps: list[list[Any]] = []
        waiting: list[str] = []
        for number in range(rng.randrange(4, 16)):
            roll = rng.random()
            if roll < 0.45:
                waiting.append(f"t{number}")
                steps.append(["enqueue", waiting[-1], *([rng.randrange(3)] if rng.random() < 0.15 else [])])
            elif roll < 0.85 and waiting:
                steps.append(["release", waiting.pop(0)])
            else:
                steps.append(["reset"])
        scripts.append(steps)
    stale = 0
    for steps, theirs in zip(scripts, ask([("queue", [steps]) for steps in scripts]), strict=True):
        queue = Simulated()
        gates: set[str] = set()  # a turn that is let go before it runs ends as soon as it does
        for step, state in zip(steps, theirs, strict=True):
            ours = queue.step(*step)
            if step[0] == "release":
                gates.add(step[1])
            while (active := queue.line.active) in gates:
                ours = queue.step("release", str(active))
            assert ours == state, (steps, step)
        stale += sum(status == "stale" for _, status in queue.done)
    assert stale > 100


# -- submit policies ------------------------------------------------------------------------------------


def test_submit_policies_agree() -> None:
    rng, scripts = random.Random(6), []
    policies: list[Any] = ["queue", "latest", "merge", "drop", {"strategy": "debounce"}]
    policies += [{"strategy": "debounce", "debounceMs": ms} for ms in (0, 100, -5)]
    for _ in range(600):
        steps: list[list[Any]] = []
        for number in range(rng.randrange(3, 20)):
            roll = rng.random()
            if roll < 0.5:
                steps.append(["decide", rng.choice(policies), rng.random() < 0.9, rng.randrange(3)])
            elif roll < 0.6:
                steps.append(["begin", f"b{number}"])
            elif roll < 0.7:
                steps.append(["release", f"b{rng.randrange(number + 1)}"])
            elif roll < 0.8:
                steps.append(["superseded", rng.choice([None, *range(6)])])
            elif roll < 0.9:
                steps.append(["pending"])
            else:
                steps.append(rng.choice([["now", number * 10], ["reset"]]))
        scripts.append(steps)
    for steps, theirs in zip(scripts, ask([("submits", [750, s]) for s in scripts]), strict=True):
        submits, releases, now = Submits(750), {}, 0
        for step, state in zip(steps, theirs, strict=True):
            op, given = step[0], step[1] if len(step) > 1 else None
            if op == "decide":
                debounce = isinstance(given, dict)
                found = submits.decide(
                    Debounce(given.get("debounceMs")) if debounce else given, step[3], now, submit=step[2]
                )
                strategy = (
                    state["strategy"]["strategy"] if debounce and state["strategy"] else state["strategy"]
                )
                assert (found.action, found.policy) == (state["action"], strategy)
                assert (found.sequence, found.until_ms) == (state["submitSequence"], state["debounceUntilMs"])
                submits.stored(found.sequence or 0)
            elif op == "begin":
                releases[given] = submits.begin()
            elif op == "release":
                releases.get(given, lambda: None)()
            elif op == "superseded":
                assert submits.superseded(given) is state
            elif op == "pending":
                assert submits.pending == state
            elif op == "now":
                now = given
            else:
                submits.reset()


# -- continuations --------------------------------------------------------------------------------------


def test_continuations_fire_at_the_same_moments() -> None:
    rng, scripts = random.Random(8), []
    for _ in range(600):
        steps: list[list[Any]] = []
        for _ in range(rng.randrange(4, 14)):
            roll = rng.random()
            if roll < 0.4:
                steps.append(["answer", rng.random() < 0.7])
            elif roll < 0.6:
                steps.append(["set", rng.choice(["streaming", "incomplete"]), rng.random() < 0.4])
            elif roll < 0.8:
                steps.append(["finish"])
            else:
                steps.append(["look"])
            if rng.random() < 0.3:
                steps.append(["wait"])
        scripts.append(steps)
    fired = 0
    for steps, theirs in zip(scripts, ask([("barrier", [steps]) for steps in scripts]), strict=True):
        barrier, now, state = Barrier(), 0.0, {"streaming": False, "incomplete": False}
        count = 0
        for (op, *rest), expected in zip(steps, theirs, strict=True):
            look = op == "look"
            if op == "answer":
                barrier.answered(now, go_on=rest[0])
            elif op == "set":
                state[rest[0]] = rest[1]
            elif op == "wait":
                now += COALESCE
                look = barrier.timer(now)
            elif op == "finish" and barrier.running:
                look = barrier.finished()
            if look:
                count += barrier.fire(streaming=state["streaming"], complete=not state["incomplete"])
            assert [count, barrier.pending, barrier.deferred] == expected, (steps, op)
        fired += count
    assert fired > 100


# -- aborts ---------------------------------------------------------------------------------------------


def test_the_abort_registry_agrees() -> None:
    rng, scripts = random.Random(7), []
    for _ in range(600):
        steps = [["signal", name] for name in "abc"]
        for _ in range(rng.randrange(1, 12)):
            name, outside = rng.choice("abc"), rng.choice("xy")
            steps.append(
                rng.choice(
                    [
                        ["cancel", name, "why"],
                        ["link", name, outside],
                        ["detach", name, outside],
                        ["outside", outside, f"by {outside}"],
                    ]
                )
            )
        steps.append(["all", "", "end"])
        scripts.append(steps)
    for steps, theirs in zip(scripts, ask([("aborts", [s]) for s in scripts]), strict=True):
        registry, outsides = Aborts(), {"x": Signal(), "y": Signal()}
        detach: dict[tuple[str, str], Any] = {}
        for (op, name, *rest), state in zip(steps, theirs, strict=True):
            if op == "signal":
                registry.signal(name)
            elif op == "cancel":
                registry.cancel(name, rest[0])
            elif op == "link":
                detach[name, rest[0]] = registry.link(name, outsides[rest[0]])
            elif op == "detach":
                detach.get((name, rest[0]), lambda: None)()
            elif op == "outside":
                outsides[name].abort(rest[0])
            else:
                registry.cancel_all(rest[0])
            assert {n: shown(registry.existing(n)) for n in "abc"} == state, steps


def shown(signal: Signal | None) -> list[Any] | None:
    if signal is None:
        return None
    return ["aborted", str(signal.reason)] if signal.aborted else ["open", None]
