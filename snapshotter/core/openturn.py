"""The open turn: what a turn-start began and no turn-complete has closed.

It holds the messages that the turn takes from its inputs (`asked`), those it produces (`done` and the
one under way), those that were spent meanwhile and stand behind it once it closes (`after`), and what
decides later how the turn can be picked up: whether a stop or an error passed, which chunk last began or
ended something, how its worker let go.

Two lengths matter. `seed` counts the parts of the current message that stood there when the *turn*
opened; a retry never reaches below it. The accumulator's frozen parts are those that stood there when
the *attempt* began; what is settled among them never changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .accumulator import Accumulator
from .calls import Message, calls_of, granted, parts_of
from .chunks import BOUNDARIES
from .cleanup import Cleaned, cleanup, drop_trailing_steps, is_empty, kept_for_retry
from .inputs import Input

Report = Callable[[str, str], None]


_STEPS = {"start": False, "start-step": True, "finish-step": False, "finish": False}
_GROWING = ("streaming", "input-streaming")


def _names(value: Any) -> tuple[str, ...]:
    return tuple(name for name in value if isinstance(name, str)) if isinstance(value, list) else ()


@dataclass(slots=True)
class OpenTurn:
    """A turn between its turn-start and its turn-complete. `acc` is there once its message opens. `slot` is
    the chain position of the message that a continue turn extends in its place; None when the turn's
    message stands at the end. `progress` has, by the place of its part, each call of earlier attempts that
    was cut off after it had shown some. `after` has what was spent while the turn was open: user messages
    under their ids, and edits."""

    turn: int
    inputs: list[int]
    acc: Accumulator = field(init=False)
    attempt: int = 1
    mode: str = "fresh"
    seen: int = 0
    epoch: int = 0
    run: str = ""
    cause: str | None = None
    body: Any = None
    client_tools: tuple[str, ...] = ()
    slot: int | None = None
    seed: int = 0
    took_grant: bool = False
    asked: list[Message] = field(default_factory=list)
    placed: dict[int, str] = field(default_factory=dict)
    done: list[Message] = field(default_factory=list)
    after: list[tuple[Input, Message | None]] = field(default_factory=list)
    progress: dict[int, dict[str, Any]] = field(default_factory=dict)
    alias: dict[str, str] = field(default_factory=dict)
    started: bool = False
    aborted: bool = False
    in_step: bool = False
    error: str | None = None
    boundary: str | None = None
    finish_reason: str | None = None
    released: str | None = None
    stash: Any = None

    @property
    def message_id(self) -> str:
        return self.acc.message_id

    @property
    def may_rename(self) -> bool:
        """In the first attempt of a turn that makes a new message, the first `start` names it."""
        return self.attempt == 1 and self.mode != "continue"

    def current(self) -> Message:
        """The message under way, as a client shows it."""
        return self.acc.view() or {"id": self.message_id, "role": "assistant", "parts": []}

    def ids(self) -> set[str]:
        """Ids of the turn's own messages, and of those that wait for its close."""
        own = {message.get("id", "") for message in (*self.asked, *self.done, *self.waiting())}
        return own | {self.message_id}

    def waiting(self) -> list[Message]:
        """The user messages that will stand behind the turn's own. An edit shows once it is made."""
        return [message for _, message in self.after if message is not None]

    def cleaned(self) -> Cleaned:
        """The message under way as cleanup would leave it now."""
        return cleanup(self.current(), self.client_tools, self.seed)

    def take(self, record: dict[str, Any]) -> None:
        """Take over what a turn-start says of its attempt, and forget the attempt before."""
        self.attempt = record.get("attempt", self.attempt)
        self.mode = record.get("mode", "fresh")
        self.seen = record.get("seen", 0)
        self.epoch = record.get("epoch", 0)
        self.run = record.get("run", "")
        self.cause = record.get("cause")
        if "body" in record:
            self.body = record["body"]
        if "clientTools" in record:
            self.client_tools = _names(record["clientTools"])
        self.started = self.aborted = self.in_step = False
        self.error = self.boundary = self.finish_reason = self.released = None
        self.alias.clear()

    def begin_attempt(self, record: dict[str, Any], make: Callable[[Message, int], Accumulator]) -> None:
        """Start the next attempt: from the cleaned message, or what a retry keeps of it."""
        cleaned = self.cleaned()
        self.progress |= {c["partIndex"]: c for c in cleaned.pending if "progress" in c}
        self.took_grant = self.took_grant or any(granted(p) for _, p in calls_of(self.current()))
        self.done = [cleanup(message, self.client_tools).message for message in self.done]
        self.take(record)
        message = cleaned.message
        if self.mode == "retry":
            message = kept_for_retry(message, cleaned.seed)
        self.seed = min(cleaned.seed, len(parts_of(message)))
        self.acc = make(message, len(parts_of(message)))

    def next_message(self, message_id: str, make: Callable[[Message, int], Accumulator]) -> None:
        """A later `start` with another id: the current message is settled, the next one opens."""
        current = drop_trailing_steps(self.current())
        if not is_empty(current) or (self.slot is not None and not self.done):
            self.done.append(current)
        self.seed = 0
        self.progress = {}
        self.acc = make({"id": message_id, "role": "assistant", "parts": []}, 0)

    def note(self, kind: str, chunk: dict[str, Any]) -> None:
        """Remember what a chunk that was kept says of how the turn stands."""
        if kind in BOUNDARIES:
            self.boundary = kind
            self.finish_reason = chunk.get("finishReason") if kind == "finish" else None
            if kind in _STEPS:
                self.in_step = _STEPS[kind]
        elif kind == "abort":
            self.aborted = True
        elif kind == "error":
            self.error = str(chunk.get("errorText", ""))

    def left_open(self) -> str:
        """What this attempt's chunks began and did not end, in words; "" where they are whole. A call without
        its result is: it may be a client's to answer."""
        new = parts_of(self.current())[self.acc.frozen_parts :]
        open_parts = [part for part in new if isinstance(part, dict) and part.get("state") in _GROWING]
        if open_parts:
            kind = str(open_parts[-1]["type"])
            return kind if kind in ("text", "reasoning") else "tool input"
        return "step" if self.in_step else ""

    def finals(self, *, clean: bool) -> list[Message]:
        """The produced messages as they would stand if the turn closed now."""
        if not clean:
            return [drop_trailing_steps(message) for message in (*self.done, self.current())]
        head = [cleanup(message, self.client_tools).message for message in self.done]
        return [*head, self.cleaned().message]

    def added(self) -> bool:
        """True when this turn added more than step-starts, or took a granted approval."""
        if self.took_grant or self.done:
            return True
        cleaned = self.cleaned()
        new = parts_of(cleaned.message)[cleaned.seed :]
        return any(not isinstance(part, dict) or part.get("type") != "step-start" for part in new)
