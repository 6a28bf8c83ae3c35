"""State → plan: what a boot returns, and what a worker does first.

With all turns closed the history stands, and the owed items are the queue. With a turn open (its worker
died, or let go) the first row that holds decides:

    a stop above the newest attempt's `seen`, or an abort chunk       seal_aborted
    an edit of its input above `seen`                                 none: the edit comes first
    the attempt's last boundary is `finish` and nothing is unanswered seal_completed, seal_error
    it added something, and the person went on above `seen`           none: what came after is answered
    it waits for a person, and all is answered                        none: the answers continue it
    it waits for a person                                             waiting; other items come first
    it added nothing                                                  call_model, the next attempt
    else                                                              as `resume.classify` says

Pure, and the same with the snapshot, with an older one, or with none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .calls import Message, calls_of, granted, waits
from .cleanup import drop_trailing_steps, is_unfinished, pending_call, stands
from .fold import Fold
from .openturn import OpenTurn
from .queue import Item, Queue, View, sort_out
from .resume import MODES, classify_turn, describe, ids_of, names_of, stop_of, unanswered_calls

_SEALING = ("done", "tools", None)


@dataclass(frozen=True, slots=True)
class Resume:
    """What to do first. `turn` and `attempt` are the newest in the log, None with no turn open.
    `unanswered` are the ids of the calls that have no result, or wait for one; `tools` their tools."""

    kind: str = "none"
    turn: int | None = None
    attempt: int | None = None
    message_id: str | None = None
    reason: str | None = None
    unanswered: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()

    @property
    def description(self) -> str:
        """One sentence for a person, as on a Resume button."""
        return describe(self.reason or self.kind, self.tools)

    def to_json(self) -> dict[str, Any]:
        named = {"turn": self.turn, "attempt": self.attempt, "messageId": self.message_id}
        out = {"kind": self.kind, **named, "reason": self.reason}
        return {key: value for key, value in out.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Plan:
    """What a boot returns. `partial` is the open turn's message, cleaned unless it only needs sealing.
    `missed`: what the report says of inputs to spend whose message is not there. Once they are spent, nothing
    tells of them."""

    messages: list[Message]
    partial: Message | None
    pending: list[Item]
    spent: list[int]
    pending_calls: list[dict[str, Any]]
    resume: Resume
    stop: int | None = None
    report: list[dict[str, Any]] = field(default_factory=list)
    missed: list[dict[str, Any]] = field(default_factory=list)


def revive(fold: Fold) -> Plan:
    """The plan for a fold. Neither the fold nor its messages change."""
    turn = fold.open
    if turn is None:
        queue = sort_out(fold, View(fold.chain.messages))
        calls = _waiting_calls(fold.chain.messages, queue.waiting)
        kind = "waiting" if queue.waiting is not None else "none"
        resume = Resume(kind, None, None, queue.waiting, None, ids_of(calls), names_of(calls))
        return _plan(fold, list(fold.chain.messages), None, queue, resume, [])
    raw = turn.current()
    cleaned = turn.cleaned()
    kind, reason = _row(fold, turn, raw)
    shown = drop_trailing_steps(raw) if kind == "seal_completed" else cleaned.message
    messages, own = _spliced(fold, turn, shown, clean=kind != "seal_completed")
    live = kind in ("waiting", "answered") or kind in MODES
    queue = sort_out(fold, View(messages, own, live, turn.client_tools))
    pending = _raw_pending(raw) if kind == "seal_completed" else cleaned.pending
    shows = kind != "call_model" and stands(shown, clean=kind != "seal_completed")
    partial = shown if shows else None
    calls = _unanswered(turn, raw, kind)
    resume = Resume(
        "none" if kind in ("edited", "overtaken", "answered") else kind,
        turn.turn,
        turn.attempt,
        turn.message_id,
        reason,
        ids_of(calls),
        names_of(calls),
    )
    return _plan(fold, messages, partial, queue, resume, pending)


def _plan(
    fold: Fold,
    messages: list[Message],
    partial: Message | None,
    queue: Queue,
    resume: Resume,
    pending: list[dict[str, Any]],
) -> Plan:
    report = [*fold.report, *queue.report]
    missed = [line for line in queue.report if line["code"] == "unknown-target"]
    spent = sorted(queue.spent)
    return Plan(messages, partial, queue.items, spent, pending, resume, queue.stop, report, missed)


def _row(fold: Fold, turn: OpenTurn, raw: Message) -> tuple[str, str | None]:
    """The first row of the table that holds, and a refusal's reason."""
    messages, own = _spliced(fold, turn, turn.cleaned().message, clean=True)
    queue = sort_out(fold, View(messages, own, live=True, client_tools=turn.client_tools))
    if queue.stop is not None or turn.aborted:
        return "seal_aborted", None
    asked = {message.get("id") for message in turn.asked}
    if any(e.role == "edit" and e.record["messageId"] in asked for e in queue.above):
        return "edited", None
    if _finished(turn, raw):
        return ("seal_completed" if turn.error is None else "seal_error"), None
    added = turn.added()
    if added and queue.above:
        return "overtaken", None
    if any(waits(part, turn.client_tools) for _, part in calls_of(raw)):
        return ("answered" if queue.answered else "waiting"), None
    if not added:
        return "call_model", None
    return classify_turn(raw, turn.boundary, turn.finish_reason, turn.released)


def _waiting_calls(messages: list[Message], message_id: str | None) -> list[dict[str, Any]]:
    """The calls that wait in the newest message of that id; none where no message waits."""
    for message in reversed(messages if message_id is not None else []):
        if message.get("id") == message_id:
            return [part for _, part in calls_of(message) if waits(part)]
    return []


def _unanswered(turn: OpenTurn, raw: Message, kind: str) -> list[dict[str, Any]]:
    """The calls that a person, a client or the next attempt has to see to."""
    if kind == "waiting":
        return [part for _, part in calls_of(raw) if waits(part, turn.client_tools)]
    return unanswered_calls(raw) if kind == "recover_tools" else []


def _finished(turn: OpenTurn, raw: Message) -> bool:
    """True when `finish` ended the stream and no call is unanswered but what waits for a person."""
    if turn.boundary != "finish" or stop_of(turn.finish_reason) not in _SEALING:
        return False
    for message in (*turn.done, raw):
        for _, part in calls_of(message):
            if is_unfinished(part) and not waits(part, turn.client_tools) and not _refused(part):
                return False
    return True


def _refused(part: dict[str, Any]) -> bool:
    return part.get("state") == "approval-responded" and not granted(part)


def _spliced(fold: Fold, turn: OpenTurn, current: Message, *, clean: bool) -> tuple[list[Message], set[int]]:
    """The history with the open turn's messages in their places, and the positions of those."""
    produced = [m for m in (*turn.finals(clean=clean)[:-1], current) if stands(m, clean=clean)]
    chain = fold.chain.messages
    if turn.slot is None:
        start = len(chain) + len(turn.asked)
        return [*chain, *turn.asked, *produced, *turn.waiting()], set(range(start, start + len(produced)))
    start = turn.slot
    messages = [*chain[:start], *produced, *chain[start + 1 :], *turn.asked, *turn.waiting()]
    return messages, set(range(start, start + len(produced)))


def _raw_pending(message: Message) -> list[dict[str, Any]]:
    return [pending_call(part, i) for i, part in calls_of(message) if is_unfinished(part)]
