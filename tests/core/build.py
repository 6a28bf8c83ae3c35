"""Builders for hand-written logs: short calls that make records, and one that folds them.

    seen = boot([say("u1")], [start(1, [1]), *answer("Hello."), done(1)])

Records get their ids and times from their places. A lone `text` is a user's message or a whole answer.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from snapshotter.core.contract import describe, fold_records
from snapshotter.core.fold import Fold
from snapshotter.core.revive import Plan, revive

Record = dict[str, Any]

INTERRUPTED = {
    "state": "output-error",
    "errorText": "interrupted; may or may not have run",
    "resultProviderMetadata": {"snapshotter": {"interrupted": True}},
}
SUPERSEDED = {
    "state": "output-error",
    "errorText": "superseded",
    "resultProviderMetadata": {"snapshotter": {"superseded": True}},
}


# -- the in log -----------------------------------------------------------------------------------------


def user(message_id: str, text: str | None = None) -> Record:
    return {"id": message_id, "role": "user", "parts": [{"type": "text", "text": text or message_id}]}


def say(message_id: str, text: str | None = None, **more: Any) -> Record:
    return {"kind": "message", "message": user(message_id, text), **more}


def edit(target: str, message_id: str, text: str | None = None, **more: Any) -> Record:
    return {"kind": "edit", "messageId": target, "message": user(message_id, text), **more}


def stop(message_id: str | None = None) -> Record:
    return {"kind": "stop"} | ({} if message_id is None else {"messageId": message_id})


def result(call: str, output: Any = "done", **more: Any) -> Record:
    return {"kind": "tool-result", "toolCallId": call, "output": output, **more}


def approve(approval: str, approved: bool = True, **more: Any) -> Record:
    return {"kind": "tool-approval", "approvalId": approval, "approved": approved, **more}


def copy_of(message: Record) -> Record:
    return {"kind": "message", "message": message}


# -- the out log ----------------------------------------------------------------------------------------


def start(turn: int, inputs: list[int], *, mode: str = "fresh", attempt: int = 1, **more: Any) -> Record:
    """A turn-start; it names message `a<turn>` and has seen what it takes, if nothing else is said."""
    record = {"control": "turn-start", "turn": turn, "attempt": attempt, "inputs": inputs, "mode": mode}
    record |= {"epoch": turn, "run": "r", "seen": max(inputs, default=0), "messageId": f"a{turn}"}
    return record | more


def done(turn: int, status: str = "completed", **more: Any) -> Record:
    return {"control": "turn-complete", "turn": turn, "status": status, **more}


def release(turn: int, why: str) -> Record:
    return {"control": "turn-release", "turn": turn, "why": why}


def applied(*inputs: int) -> Record:
    return {"control": "input-applied", "inputs": list(inputs)}


def history(op: str, **more: Any) -> Record:
    return {"control": "history", "op": op, **more}


def chunk(kind: str, **fields: Any) -> Record:
    return {"chunk": {"type": kind, **fields}}


def begin(message_id: str | None = None) -> Record:
    return chunk("start") if message_id is None else chunk("start", messageId=message_id)


def step() -> Record:
    return chunk("start-step")


def words(text: str, part: str = "t") -> list[Record]:
    """A text part that is whole."""
    return [*cut_off(text, part), chunk("text-end", id=part)]


def cut_off(text: str, part: str = "t") -> list[Record]:
    """A text part that does not end."""
    return [chunk("text-start", id=part), chunk("text-delta", id=part, delta=text)]


def call(call_id: str, tool: str = "run") -> Record:
    return chunk("tool-input-available", toolCallId=call_id, toolName=tool, input={})


def output(call_id: str, value: Any = "ok", **more: Any) -> Record:
    return chunk("tool-output-available", toolCallId=call_id, output=value, **more)


def ask(call_id: str, approval: str) -> Record:
    return chunk("tool-approval-request", toolCallId=call_id, approvalId=approval)


def finish(reason: str | None = "stop") -> Record:
    return chunk("finish") if reason is None else chunk("finish", finishReason=reason)


def answer(text: str) -> list[Record]:
    """A whole answer: a step with a text."""
    return [begin(), step(), *words(text), chunk("finish-step"), finish()]


# -- what is expected -----------------------------------------------------------------------------------


def bot(message_id: str, *parts: Record | str, **more: Any) -> Record:
    """An assistant message of one step; a string stands for a text that is done."""
    said = [{"type": "text", "text": p, "state": "done"} if isinstance(p, str) else p for p in parts]
    return {"id": message_id, "role": "assistant", "parts": [{"type": "step-start"}, *said], **more}


def tool(call_id: str, state: str | Record = "input-available", name: str = "run", **more: Any) -> Record:
    """A tool part; `state` is its state, or all that a mark brings."""
    fields = {"state": state} if isinstance(state, str) else state
    return {"toolCallId": call_id, "type": f"tool-{name}", "input": {}, **fields, **more}


def asked(call_id: str, approval: str, **more: Any) -> Record:
    return tool(call_id, "approval-requested", approval={"id": approval}, **more)


# -- folding --------------------------------------------------------------------------------------------


def numbered(bodies: list[Record], first: int = 1) -> list[Record]:
    return [{"id": n, "ts": 1_000 * n, **deepcopy(body)} for n, body in enumerate(bodies, first)]


def fold(inputs: list[Record], outs: list[Record]) -> Fold:
    return fold_records(numbered(inputs), numbered(outs))


def plan(inputs: list[Record], outs: list[Record]) -> Plan:
    return revive(fold(inputs, outs))


def boot(inputs: list[Record], outs: list[Record]) -> Record:
    """What a boot of these two logs returns, as JSON; `codes` are those of the report."""
    whole = fold(inputs, outs)
    seen = describe(whole, revive(whole))
    return {**seen, "codes": [line["code"] for line in seen["report"]]}


def chain(inputs: list[Record], outs: list[Record]) -> list[Record]:
    """The messages that a boot returns."""
    messages: list[Record] = boot(inputs, outs)["messages"]
    return messages


def owed(seen: Record) -> list[tuple[list[int], str]]:
    """The pending items of a boot: their ids and kinds."""
    return [(item["ids"], item["kind"]) for item in seen["pending"]]
