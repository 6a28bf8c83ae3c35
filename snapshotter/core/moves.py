"""What a worker writes, as pure functions from a fold and its plan to record bodies.

Each function returns the records of one segment, so that what belongs together is durable together:

    opening   [input-applied spent] [turn-complete interrupted] [what stands between] turn-start
    sealing   [input-applied spent] turn-complete
    giving up [opening] turn-complete exhausted
    letting go turn-release
    closing   [input-applied stops] turn-complete
    spending  input-applied
    clearing  [input-applied owed] [turn-complete aborted] history clear
    ending    [input-applied …] [turn-complete interrupted] session-closed

Record bodies have no `id` and no `ts`; the writer gives them.
"""

from __future__ import annotations

from typing import Any

from .budget import Incident
from .calls import parts_of
from .fold import Fold
from .queue import Item
from .resume import MODES
from .revive import Plan
from .values import reason_text

Body = dict[str, Any]

SEALS = {"seal_completed": "completed", "seal_aborted": "aborted", "seal_error": "error"}
_ITEM_MODES = {
    "message": "fresh",
    "edit": "fresh",
    "regenerate": "regenerate",
    "action": "action",
    "tool-answers": "continue",
}

SAID = 1_000
"""Characters of an error's text that a turn-release keeps."""
_CONVERSATION = ("message", "edit", "regenerate", "answer", "stop")


def next_step(plan: Plan) -> str:
    """What a worker does first: `seal`, `resume`, `item`, `spend` or `idle`."""
    kind = plan.resume.kind
    if kind in SEALS:
        return "seal"
    if kind in MODES:
        return "resume"
    if plan.pending:
        return "item"
    return "spend" if plan.spent else "idle"


def spending(plan: Plan) -> list[Body]:
    return [applied(plan.spent)] if plan.spent else []


def applied(numbers: list[int]) -> Body:
    return {"control": "input-applied", "inputs": numbers}


def interrupting(fold: Fold) -> list[Body]:
    """Close a turn that is not resumed."""
    turn = fold.open
    if turn is None:
        return []
    return [{"control": "turn-complete", "turn": turn.turn, "status": "interrupted"}]


def opening(
    fold: Fold,
    plan: Plan,
    item: Item | None,
    *,
    run: str,
    message_id: str,
    cause: str | None = None,
    client_tools: list[str] | None = None,
    keep: bool = True,
    between: list[Body] | None = None,
) -> list[Body]:
    """Claim the log with the next attempt of the open turn (`item` None), or a new turn for an item.

    `message_id` is the fresh id for a new assistant message; a continued or retried one keeps its own.
    `keep=False`: the next attempt drops what is unfinished. `between`: what has to stand after the turn that
    was interrupted and before the new one.
    """
    start: Body = {"control": "turn-start"}
    if item is None:
        turn = fold.open
        assert turn is not None
        start |= {"turn": turn.turn, "attempt": turn.attempt + 1, "inputs": list(turn.inputs)}
        mode, named = MODES[plan.resume.kind] if keep else "retry", turn.message_id
        head = spending(plan)
    else:
        start |= {"turn": fold.turn + 1, "attempt": 1, "inputs": _taken(fold, plan, item)}
        mode = _ITEM_MODES[item.kind]
        named = str(item.message_id) if mode == "continue" else message_id
        head = [*spending(plan), *interrupting(fold), *(between or ())]
        start |= _request(item)
    start |= {"epoch": fold.epoch + 1, "run": run, "seen": fold.inputs.last, "mode": mode, "messageId": named}
    if item is not None and mode == "continue" and (at := fold.chain.find(named)) is not None:
        start["parts"] = len(parts_of(fold.chain.messages[at]))
    if client_tools is not None:
        start.setdefault("clientTools", client_tools)
    if cause is not None:
        start["cause"] = reason_text(cause)
    return [*head, start]


def _taken(fold: Fold, plan: Plan, item: Item) -> list[int]:
    """The inputs that a turn names. One that takes a user message or an edit takes every owed answer."""
    taken = set(item.ids)
    if item.kind in ("message", "edit"):
        held = fold.open.inputs if fold.open is not None else ()
        taken |= {e.id for e in fold.inputs.owed(held) if e.role == "answer"} - set(plan.spent)
    return sorted(taken)


def _request(item: Item) -> Body:
    """The request's body and client tools, of the newest input that brings them."""
    found: Body = {}
    for record in item.inputs:
        found |= {name: record[name] for name in ("body", "clientTools") if name in record}
    return found


def sealing(fold: Fold, plan: Plan) -> list[Body]:
    """Close the open turn without a model call."""
    status = SEALS[plan.resume.kind]
    return [*spending(plan), complete(fold, status, reason=plan.resume.reason)]


def given_up(found: Incident, told: str) -> Body:
    """How a turn-complete says that its turn was given up: `told` is for a person (the last attempt's own
    error where that is empty), `detail` what the last attempt said."""
    error = told or found.error or str(found.reason)
    end = {"status": "exhausted", "error": reason_text(error), "reason": reason_text(str(found.reason))}
    return end if found.error is None else {**end, "detail": reason_text(found.error)}


def letting_go(turn: int, why: str, error: BaseException | str | None) -> Body:
    """Release the open turn. What its error says is kept where it ended by one: `type: message`."""
    body: Body = {"control": "turn-release", "turn": turn, "why": reason_text(why)}
    return {**body, "error": said(error)} if error is not None and why in ("error", "stall") else body


def said(error: BaseException | str) -> str:
    """An error in at most `SAID` characters. Whatever it is, a turn must be able to end."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an error of some library that cannot even be printed
        text = ""
    name = "" if isinstance(error, str) else type(error).__name__
    return reason_text(": ".join(filter(None, (name, text)))[:SAID])


def exhausting(fold: Fold, plan: Plan, opened: list[Body], found: Incident, told: str) -> list[Body]:
    """Give a turn up: the open one, or one that is `opened` for it. What it has so far is kept."""
    end = given_up(found, told)
    if opened:
        return [*opened, {"control": "turn-complete", "turn": opened[-1]["turn"], **end}]
    assert fold.open is not None
    return [*spending(plan), {"control": "turn-complete", "turn": fold.open.turn, **end}]


def declining(fold: Fold, plan: Plan, *, keep: bool) -> list[Body]:
    """Close the open turn because its host does not want another attempt."""
    fields: Body = {"reason": "recovery_declined"} if keep else {"reason": "recovery_declined", "keep": False}
    return [*spending(plan), complete(fold, "aborted", **fields)]


def closing(fold: Fold, status: str, stops: list[int], **fields: Any) -> list[Body]:
    """Close the worker's own turn; the stops that ended it are applied in the same segment."""
    return [*([applied(stops)] if stops else []), complete(fold, status, **fields)]


def complete(fold: Fold, status: str, **fields: Any) -> Body:
    turn = fold.open
    assert turn is not None
    body: Body = {"control": "turn-complete", "turn": turn.turn, "status": status}
    if turn.finish_reason is not None:
        body["finishReason"] = turn.finish_reason
    if status == "error" and turn.error is not None:
        body["error"] = turn.error
    body |= {name: value for name, value in fields.items() if value is not None}
    return body | {name: reason_text(body[name]) for name in ("error", "reason") if name in body}


def clearing(fold: Fold) -> list[Body]:
    """Empty the history: what is owed to the conversation is spent, an open turn is sealed as aborted."""
    held = fold.open.inputs if fold.open is not None else ()
    owed = [entry.id for entry in fold.inputs.owed(held) if entry.role in _CONVERSATION]
    end = [complete(fold, "aborted", reason="cleared")] if fold.open is not None else []
    return [*([applied(owed)] if owed else []), *end, {"control": "history", "op": "clear"}]


def ending(fold: Fold, plan: Plan, item: Item) -> list[Body]:
    """Close the session, as a `close` input asks."""
    return [applied(sorted({*plan.spent, *item.ids})), *interrupting(fold), {"control": "session-closed"}]
