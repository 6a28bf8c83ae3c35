"""An agent and its users, as a script, and a ledger of what the engine acknowledged to them.

The script: the user sends `u1`; the agent writes, looks something up with a server tool, asks for an
approval; the user grants it; the agent charges and says so; the user sends `u2`; the agent answers. What
the model does depends on nothing but the messages it is shown, as with a real one.

The ledger is the checker's only source beside the stored bytes. It knows nothing of how the engine works.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from crash_world import Process

from snapshotter.database import Database
from snapshotter.receipt import Receipt
from snapshotter.session import Session
from snapshotter.turn import Turn
from streams.clock import Clock
from streams.errors import Busy, Retryable

SESSION = "chat/1"
Chunk = dict[str, Any]
Message = dict[str, Any]


@dataclass
class Ledger:
    """What was acknowledged, and what the agent did to the outer world."""

    inputs: dict[int, str] = field(default_factory=dict)
    """In id → the message's id, or the key, for each `send` that returned."""
    texts: dict[str, str] = field(default_factory=dict)
    """Message id → the text of it that was acknowledged as durable since the attempt began."""
    results: dict[str, Any] = field(default_factory=dict)
    """Tool call → its output, once the write of it returned."""
    completed: dict[int, str] = field(default_factory=dict)
    """Turn → status, once the block was left."""
    ran: Counter[str] = field(default_factory=Counter)
    """Tool name → how often it was run."""
    model_calls: list[tuple[int, int]] = field(default_factory=list)
    """(turn, attempt) of each call of the model."""
    boots: int = 0
    told: list[str] = field(default_factory=list)
    """What a script notes for its test."""


def parts_of(messages: list[Message], kind: str) -> list[Chunk]:
    return [part for message in messages for part in message["parts"] if part["type"] == kind]


def text_of(message: Message) -> str:
    return "".join(part["text"] for part in message["parts"] if part["type"] == "text")


def say(text: str) -> Iterator[Chunk]:
    yield {"type": "text-start", "id": "t"}
    for word in text.split():
        yield {"type": "text-delta", "id": "t", "delta": f"{word} "}
    yield {"type": "text-end", "id": "t"}


def finish(reason: str) -> Iterator[Chunk]:
    yield {"type": "finish-step"}
    yield {"type": "finish", "finishReason": reason}


def call(tool: str, call_id: str) -> Chunk:
    return {"type": "tool-input-available", "toolCallId": call_id, "toolName": tool, "input": {"n": 1}}


def model(messages: list[Message], attempt: int, run_tool: Callable[[str], Any]) -> Iterator[Chunk]:
    """What the model streams for these messages. `run_tool(name)` does the side effect."""
    yield {"type": "start"}
    yield {"type": "start-step"}
    asked = [m["id"] for m in messages if m["role"] == "user" and m["id"] in ("u1", "u2")][-1]
    if asked == "u2":
        yield from say("the second answer")
        yield from finish("stop")
        return
    done = [p for p in parts_of(messages, "tool-lookup") if p["state"] == "output-available"]
    if not done:
        yield from say("let me look this up")
        yield call("lookup", f"look-{attempt}")
        output = run_tool("lookup")
        yield {"type": "tool-output-available", "toolCallId": f"look-{attempt}", "output": output}
        yield {"type": "finish-step"}
        yield {"type": "start-step"}
    # A call that was cut off before anybody was asked has not run: the model asks again.
    charges = [part for part in parts_of(messages, "tool-charge") if "approval" in part]
    state = charges[-1]["state"] if charges else None
    if state == "approval-responded":
        output = run_tool("charge")
        yield {"type": "tool-output-available", "toolCallId": charges[-1]["toolCallId"], "output": output}
        yield {"type": "finish-step"}
        yield {"type": "start-step"}
        state = "output-available"
    if state in ("output-available", "output-error"):
        yield from say("it is done" if state == "output-available" else "ask your bank whether it is done")
        yield from finish("stop")
        return
    yield from say("this costs five")
    yield call("charge", f"pay-{attempt}")
    yield {"type": "tool-approval-request", "toolCallId": f"pay-{attempt}", "approvalId": f"ap-{attempt}"}
    yield from finish("tool-calls")


def stream(turn: Turn, ledger: Ledger, clock: Clock) -> None:
    """Call the model and write what it streams; one word takes 0.3 s, a tool 2 s."""

    def run_tool(name: str) -> Any:
        ledger.ran[name] += 1
        clock.sleep(2.0)
        return {"run": ledger.ran[name]}

    ledger.model_calls.append((turn.number, turn.attempt))
    ledger.texts.pop(turn.message_id, None)  # an attempt may begin its text anew
    for chunk in model(turn.messages, turn.attempt, run_tool):
        clock.sleep(0.3)
        turn.write(chunk)
        durable = chunk["type"].startswith("tool-")
        if chunk["type"] == "text-end":
            turn.flush()
            durable = True
        if durable and turn.message is not None:
            ledger.texts[turn.message_id] = text_of(turn.message)
        if chunk["type"] == "tool-output-available":
            ledger.results[chunk["toolCallId"]] = chunk["output"]


def work(db: Database, ledger: Ledger, receipt: Receipt | None = None, *, takeover: bool = False) -> None:
    """One worker's life: boot, and answer all that is owed."""
    texts, results = dict(ledger.texts), dict(ledger.results)  # a boot shows what was there when it began
    with db.boot(SESSION, receipt=receipt, takeover=takeover) as session:
        ledger.boots += 1
        check_shown(session, texts)
        check_results(session.messages, results)
        for turn in session.turns():
            number = turn.number
            with turn:
                stream(turn, ledger, db.clock)
            ledger.completed[number] = turn.status or ""


def check_shown(session: Session, texts: dict[str, str]) -> None:
    """Acknowledged is durable: a boot shows it."""
    shown = {message["id"]: message for message in session.messages}
    for message_id, text in texts.items():
        assert message_id in shown, f"{message_id} is gone, of which {text!r} was acknowledged"
        assert text_of(shown[message_id]).startswith(text), f"{message_id}: {text!r} was acknowledged"


def check_results(messages: list[Message], results: dict[str, Any]) -> None:
    """A finished tool call is never lost, and never there twice."""
    calls = [part for message in messages for part in message["parts"] if "toolCallId" in part]
    for call_id, output in results.items():
        found = [part for part in calls if part["toolCallId"] == call_id]
        assert [p.get("output") for p in found] == [output], f"{call_id}: {found}, acknowledged {output}"


def approval_id(db: Database) -> str:
    """The approval that a client sees."""
    charges = [part for part in parts_of(db.history(SESSION), "tool-charge") if "approval" in part]
    return str(charges[-1]["approval"]["id"])


def whole_script(db: Database, ledger: Ledger, *, takeover: bool = False) -> None:
    """The users and their workers. May be run again from the start: users send again what was not
    acknowledged, a queue delivers again."""
    for step in ("u1", "approval", "u2"):
        work(db, ledger, script_step(db, ledger, step), takeover=takeover)
        takeover = False


def script_step(db: Database, ledger: Ledger, step: str) -> Receipt:
    """What a user does: sends `u1` or `u2`, or grants the approval."""
    if step == "approval":
        receipt = db.approve(SESSION, approval_id(db), key=step)
    else:
        parts = [{"type": "text", "text": step}]
        receipt = db.send(SESSION, {"id": step, "role": "user", "parts": parts})
    ledger.inputs[receipt.id] = step
    return receipt


def until_done(db: Database, ledger: Ledger, *, takeover: bool = False, patience: int = 20) -> None:
    """The whole script, delivered again for as long as it is told to come back."""
    for _ in range(patience):
        try:
            whole_script(db, ledger, takeover=takeover)
        except Busy as busy:
            db.clock.sleep(busy.retry_after)
        except Retryable:
            db.clock.sleep(1.0)
        else:
            return
    raise AssertionError("it is never done")


def once(db: Database, ledger: Ledger) -> None:
    """The whole script, by a worker that leaves for others what does not work at once."""
    with suppress(Retryable):
        whole_script(db, ledger)


def begin(process: Process, script: Callable[..., None], ledger: Ledger, **options: Any) -> None:
    """Start a process that runs a script."""
    process.start(lambda: script(Database(process.bucket, process), ledger, **options))
