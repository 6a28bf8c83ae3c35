"""Bounded recovery as a host configures it, and what it is told.

`ChatRecovery` holds the limits (the arithmetic is in `core.budget`) and the hooks:

    should_keep_recovering(context) -> bool     before the third attempt and later ones; a raise: go on
    on_chat_recovery(context) -> RecoveryChoice before each further attempt; None or a raise: the default
    on_exhausted(context)                       the turn is about to be sealed as exhausted; told at least
                                                once (a store that fails then has it told again by the next
                                                boot), so use `context.incident.id` to do things once
    observer(event)                             every `RecoveryEvent`; they go to the log `snapshotter` too

No hook can block a recovery: what one raises is reported and logged, and the default is used. All that is
durable is in the log of the session; nothing here remembers anything.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from streams.errors import Refused

from .core.budget import LONGEST_BACKOFF_S, Incident, Limits
from .core.calls import Message

log = logging.getLogger("snapshotter")

TERMINAL_MESSAGE = "The answer was interrupted too often and was given up. Send your message again to retry."
_LEVELS = {"exhausted": logging.ERROR, "failed": logging.WARNING}


@dataclass(frozen=True, slots=True)
class RecoveryChoice:
    """What `on_chat_recovery` wants. `persist=False` drops what the interrupted attempt left unfinished;
    settled tool results are kept all the same. `go_on=False` seals the turn as aborted, without a model
    call."""

    persist: bool = True
    go_on: bool = True


@dataclass(frozen=True, slots=True)
class RecoveryContext:
    """What is known of an interrupted turn. `attempt` is the next one's number, `kind` how it would be taken
    up (`call_model`, `recover_tools`, `continue_response`, `retry_response`; an item's kind where no turn
    is open), `partial` the cleaned answer so far, `created_at` when the first attempt began (epoch ms, 0
    before the first)."""

    session: str
    incident: Incident
    kind: str
    partial: Message | None = None
    recovery_data: Any = None
    body: Any = None
    client_tools: tuple[str, ...] = ()
    cause: str | None = None
    inputs: tuple[dict[str, Any], ...] = ()

    @property
    def attempt(self) -> int:
        return self.incident.attempt

    @property
    def created_at(self) -> int:
        return self.incident.created_at


@dataclass(frozen=True, slots=True)
class RecoveryEvent:
    """`kind`: detected, attempt, scheduled, completed, skipped, failed, exhausted, repaired."""

    kind: str
    session: str
    incident: str = ""
    attempt: int = 0
    reason: str | None = None
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChatRecovery:
    """Limits and hooks of bounded recovery. Times in seconds.

    `stable_timeout`: how long a boot waits for a busy session. `stall_timeout`: the longest gap between two
    chunks while no call is open; 0 switches the watchdog off. `max_backoff`: the longest pause before a
    further attempt; 0 for none. Raises Refused for a limit that makes no sense.
    """

    max_attempts: int = 10
    stable_timeout: float = 25.0
    stall_timeout: float = 300.0
    no_progress_timeout: float = 300.0
    max_recovery_work: int = 10_000
    max_interrupted_attempts: int = 5
    max_backoff: float = LONGEST_BACKOFF_S
    terminal_message: str = TERMINAL_MESSAGE
    on_chat_recovery: Callable[[RecoveryContext], RecoveryChoice | Mapping[str, Any] | None] | None = None
    on_exhausted: Callable[[RecoveryContext], object] | None = None
    should_keep_recovering: Callable[[RecoveryContext], bool] | None = None
    observer: Callable[[RecoveryEvent], object] | None = None

    def __post_init__(self) -> None:
        for name in ("max_attempts", "max_interrupted_attempts"):
            if not _is_number(getattr(self, name)) or getattr(self, name) < 1:
                raise Refused(f"{name} is {getattr(self, name)!r}: a number from 1 on is needed")
        for name in (
            "stable_timeout",
            "stall_timeout",
            "no_progress_timeout",
            "max_recovery_work",
            "max_backoff",
        ):
            if not _is_number(getattr(self, name)) or getattr(self, name) < 0:
                raise Refused(f"{name} is {getattr(self, name)!r}: a number from 0 on is needed")

    @property
    def limits(self) -> Limits:
        return Limits(
            max_attempts=self.max_attempts,
            no_progress_timeout=self.no_progress_timeout,
            max_recovery_work=self.max_recovery_work,
            max_interrupted_attempts=self.max_interrupted_attempts,
            max_backoff=self.max_backoff,
        )


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and value == value


class Hooks:
    """The hooks of one session, made safe. `note(code, detail)` gets what they raise."""

    def __init__(self, config: ChatRecovery, session: str, note: Callable[[str, str], None]) -> None:
        self.config = config
        self._session = session
        self._note = note

    def emit(self, kind: str, incident: Incident, reason: str | None = None, **detail: Any) -> None:
        """One event, to the log and to the observer."""
        event = RecoveryEvent(kind, self._session, incident.id, incident.attempt, reason, detail)
        log.log(
            _LEVELS.get(kind, logging.INFO),
            "session %s: recovery %s: incident %s, attempt %d%s",
            self._session,
            kind,
            incident.id,
            incident.attempt,
            f", {reason}" if reason else "",
            extra={"recovery": event},
        )
        if self.config.observer is not None:
            try:
                self.config.observer(event)
            except Exception as error:  # noqa: BLE001 - an observer must not disturb what it observes
                self._note("hook-failed", f"observer: {error!r}")

    def keep(self, context: RecoveryContext) -> bool:
        """The answer of `should_keep_recovering`."""
        hook = self.config.should_keep_recovering
        return bool(self._ask("should_keep_recovering", hook, context, True))

    def choose(self, context: RecoveryContext) -> RecoveryChoice:
        """The answer of `on_chat_recovery`."""
        found = self._ask("on_chat_recovery", self.config.on_chat_recovery, context, None)
        if isinstance(found, RecoveryChoice):
            return found
        if isinstance(found, Mapping):
            return RecoveryChoice(found.get("persist") is not False, found.get("continue") is not False)
        return RecoveryChoice()

    def exhausted(self, context: RecoveryContext) -> None:
        """Tell that the turn is given up."""
        self._ask("on_exhausted", self.config.on_exhausted, context, None)
        self.emit("exhausted", context.incident, context.incident.reason)

    def _ask(self, name: str, hook: Callable[[Any], Any] | None, context: RecoveryContext, other: Any) -> Any:
        if hook is None:
            return other
        try:
            return hook(context)
        except Exception as error:  # noqa: BLE001 - a hook's fault must not end or block a recovery
            self._note("hook-failed", f"{name}: {error!r}; the default is used")
            self.emit("failed", context.incident, f"{name}: {error!r}")
            return other
