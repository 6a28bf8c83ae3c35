"""Bounded recovery as a host configures it, and what it is told.

`ChatRecovery` holds the limits (the arithmetic is in `core.budget`) and the hooks:

    should_keep_recovering(context) -> bool     before the third attempt and later ones; None, a raise: go on
    on_chat_recovery(context) -> RecoveryChoice before each further attempt; or {"persist", "continue"}. None,
                                                a raise, an answer of another form: the default
    on_exhausted(context)                       the turn is about to be sealed as exhausted; told at least
                                                once (a store that fails then has it told again by the next
                                                boot), so use `context.incident.id` to do things once
    observer(event)                             every `RecoveryEvent`; they go to the log `snapshotter` too

No hook can block a recovery: what one raises, or answers wrongly, is reported (`hook-failed`), logged and
told to the observer (`failed`), and the default is used. Hooks are plain functions; async ones are refused
when they are given. All that is durable is in the log of the session; nothing here remembers anything.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from streams.errors import InvalidValue, Refused

from .core.budget import LONGEST_BACKOFF_S, OUT_OF_MEMORY, Incident, Limits
from .core.calls import Message
from .hooks import answer_of, checked
from .telemetry import Trace

log = logging.getLogger("snapshotter")

TERMINAL_MESSAGE = "The answer was interrupted too often and was given up. Send your message again to retry."
_LEVELS = {"exhausted": logging.ERROR, "failed": logging.WARNING}
_HOOKS = ("on_chat_recovery", "on_exhausted", "should_keep_recovering", "observer")
_CHOICES = ("persist", "continue")


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
    before the first), `error` what the last attempt that was released for an error or a stall said (`type:
    message`, at most 1,000 characters; None where none did)."""

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

    @property
    def error(self) -> str | None:
        return self.incident.error


@dataclass(frozen=True, slots=True)
class RecoveryEvent:
    """`kind`: detected, attempt, scheduled, completed, skipped, failed, exhausted, repaired.
    `detail["error"]` is what the last attempt said, where it said something (see `RecoveryContext.error`);
    `scheduled` has `retry_after` (seconds) there, `exhausted` the `interruptions` and `work` of it all."""

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
    further attempt; 0 for none. `terminal_message`: what a person is told of a turn that was given up; "" for
    the last attempt's own error. Raises Refused for a limit that makes no sense and, as InvalidValue, for a
    hook that is no plain function.
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
        for name in _HOOKS:
            checked(getattr(self, name), name)
        if not isinstance(self.terminal_message, str):
            raise Refused(f"terminal_message is {self.terminal_message!r}: a text is needed")
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


def cause_text(cause: Any) -> str:
    """What a caller knows of a worker's death. A long one is cut when it is written: no boot fails over it.
    Raises InvalidValue for what is no text."""
    if isinstance(cause, str):
        return cause
    raise InvalidValue(f"cause is {cause!r:.80}: a text is needed, like {OUT_OF_MEMORY!r}", path="cause")


class Hooks:
    """The hooks of one session, made safe. `note(code, detail)` gets what they raise, `trace` every event."""

    def __init__(
        self, config: ChatRecovery, session: str, note: Callable[[str, str], None], trace: Trace
    ) -> None:
        self.config = config
        self._session = session
        self._note = note
        self._trace = trace

    def emit(self, kind: str, incident: Incident, reason: str | None = None, **detail: Any) -> None:
        """One event, to the log and to the observer."""
        told = detail if incident.error is None else {"error": incident.error, **detail}
        event = RecoveryEvent(kind, self._session, incident.id, incident.attempt, reason, told)
        log.log(
            _LEVELS.get(kind, logging.INFO),
            "session %s: recovery %s: incident %s, attempt %d%s%s",
            self._session,
            kind,
            incident.id,
            incident.attempt,
            f", {reason}" if reason else "",
            f"; it said: {incident.error}" if incident.error else "",
            extra={
                "event": f"recovery-{kind}",
                "session": self._session,
                "incident": incident.id,
                "attempt": incident.attempt,
                "reason": reason,
                "recovery": event,
            },
        )
        # A failure's reason quotes what a hook said.
        self._trace.recovered(kind, incident.attempt, None if kind == "failed" else reason)
        if self.config.observer is not None:
            try:
                answer_of(self.config.observer(event), "observer")
            except Exception as error:  # noqa: BLE001 - an observer must not disturb what it observes
                self._note("hook-failed", f"observer: {error!r}")

    def keep(self, context: RecoveryContext) -> bool:
        """The answer of `should_keep_recovering`."""
        found = self._ask("should_keep_recovering", self.config.should_keep_recovering, context)
        return True if found is None else bool(found)

    def choose(self, context: RecoveryContext) -> RecoveryChoice:
        """The answer of `on_chat_recovery`."""
        found = self._ask("on_chat_recovery", self.config.on_chat_recovery, context)
        try:
            return _choice_of(found)
        except InvalidValue as error:
            self._failed("on_chat_recovery", error, context)
            return RecoveryChoice()

    def exhausted(self, context: RecoveryContext) -> None:
        """Tell that the turn is given up, and what it has cost: with it the ledger ends."""
        found = context.incident
        self._ask("on_exhausted", self.config.on_exhausted, context)
        self.emit("exhausted", found, found.reason, interruptions=found.interruptions, work=found.work)

    def _ask(self, name: str, hook: Callable[[Any], Any] | None, context: RecoveryContext) -> Any:
        """The hook's answer; None where there is no hook, and where it failed."""
        if hook is None:
            return None
        try:
            return answer_of(hook(context), name)
        except Exception as error:  # noqa: BLE001 - a hook's fault must not end or block a recovery
            self._failed(name, error, context)
            return None

    def _failed(self, name: str, error: Exception, context: RecoveryContext) -> None:
        self._note("hook-failed", f"{name}: {error!r}; the default is used")
        self.emit("failed", context.incident, f"{name}: {error!r}")


def _choice_of(found: Any) -> RecoveryChoice:
    """The answer of `on_chat_recovery` as a choice. Raises InvalidValue for what is none."""
    if found is None:
        return RecoveryChoice()
    if isinstance(found, RecoveryChoice):
        given: dict[str, Any] = {"persist": found.persist, "continue": found.go_on}
    elif isinstance(found, Mapping):
        given = dict(found)
    else:
        raise InvalidValue(f"a RecoveryChoice, a dict or None is needed, not {found!r:.80}")
    unknown = [name for name in given if name not in _CHOICES]
    if unknown:
        raise InvalidValue(f"{unknown[0]!r} is not known: an answer has {' and '.join(_CHOICES)}")
    wrong = [name for name, value in given.items() if type(value) is not bool]
    if wrong:
        raise InvalidValue(f"{wrong[0]} is {given[wrong[0]]!r:.80}: true or false is needed")
    return RecoveryChoice(given.get("persist", True), given.get("continue", True))
