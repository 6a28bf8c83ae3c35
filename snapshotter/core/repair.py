"""The history as a provider takes it: every tool call with a result, every input an object.

A call whose result never came makes a provider refuse the whole conversation, for ever. Before each model
call `repair` gives every such call a result that says so. What is settled (a result, an error, a denial)
never changes. The log is untouched: this is for the model's eyes.

    no settled result     an error; the text says whether the tool may have run
    answered, not yet run stays; a refused one becomes output-denied
    a client can answer   stays: an approval that is asked, a call of a tool in `client_tools`
    malformed input       also of settled calls: a string that holds an object is parsed, else {}
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from streams.errors import InvalidValue

from .calls import INTERRUPTED, Message, Part, failed, is_call, parts_of, waits
from .given import messages_in, names_in
from .sanitize import SPACE
from .values import loads

NOT_RUN: Final = "interrupted before its input was complete; it has not run"
_FINAL: Final = ("output-available", "output-error", "output-denied")


@dataclass(frozen=True, slots=True)
class Repaired:
    """The repaired messages (those that needed nothing are the same objects), how many calls without a
    result were replaced by one that has an error in its place, how many inputs normalized, and the ids of
    the calls that were replaced. No call is taken away."""

    messages: list[Message]
    replaced: int = 0
    normalized: int = 0
    ids: tuple[str, ...] = ()


def repair(
    messages: Sequence[Message],
    *,
    client_tools: Collection[str] = (),
    repair_part: Callable[[Part], Part] | None = None,
    should_repair: Callable[[Part], bool] | None = None,
) -> Repaired:
    """Repair UIMessages; messages without parts stay as they are. Idempotent.

    `repair_part` makes the part that stands in the place of a call without a result (default: an errored
    one); `should_repair` may spare one, or a refused one, which then stays as it is. Raises InvalidValue,
    with its path, for what is no list of messages, and for `client_tools` that are no list of names.
    """
    messages, client_tools = messages_in(messages), names_in(client_tools)
    work = _Repair(client_tools, repair_part or interrupted, should_repair or (lambda _: True))
    return Repaired([work.message(m) for m in messages], len(work.ids), work.normalized, tuple(work.ids))


def interrupted(part: Part) -> Part:
    """The call as an error of the engine's own making, marked as such."""
    text = NOT_RUN if part.get("state") == "input-streaming" else INTERRUPTED
    return failed(part, text, "interrupted")


def normalize_input(value: Any) -> tuple[dict[str, Any], bool]:
    """A tool's input as an object, and whether it had to be changed: an object stays, a string that holds
    one is parsed, anything else becomes {}."""
    if isinstance(value, dict):
        return value, False
    if isinstance(value, str) and value.strip(SPACE).startswith("{"):
        try:
            parsed = loads(value)
        except InvalidValue:
            return {}, True
        if isinstance(parsed, dict):
            return parsed, True
    return {}, True


def has_result(part: Part) -> bool:
    """True for a call that a provider takes as answered. Progress is no result."""
    if part.get("preliminary") is True and part.get("state") == "output-available":
        return False
    return part.get("state") in _FINAL or "output" in part or "result" in part


@dataclass(slots=True)
class _Repair:
    """One pass over a history."""

    client_tools: Collection[str]
    repair_part: Callable[[Part], Part]
    should_repair: Callable[[Part], bool]
    normalized: int = 0
    ids: list[str] = field(default_factory=list)

    def message(self, message: Message) -> Message:
        old = parts_of(message)
        parts = [self.part(part) if is_call(part) and part["toolCallId"] else part for part in old]
        same = all(a is b for a, b in zip(parts, old, strict=True))
        return message if same else {**message, "parts": parts}

    def part(self, part: Part) -> Part:
        if has_result(part):
            return self.normal(part)
        if part.get("state") == "approval-responded":
            return self.answered(part)
        if waits(part, self.client_tools) or not self.should_repair(part):
            return part
        self.ids.append(part["toolCallId"])
        return self.repair_part(self.normal(part))

    def answered(self, part: Part) -> Part:
        approval = part.get("approval")
        denied = isinstance(approval, dict) and approval.get("approved") is False
        if not denied or not self.should_repair(part):
            return part
        self.ids.append(part["toolCallId"])
        return {**self.normal(part), "state": "output-denied"}

    def normal(self, part: Part) -> Part:
        value, changed = normalize_input(part.get("input"))
        if not changed:
            return part
        self.normalized += 1
        return {**part, "input": value}
