"""A chat host in one process: requests come in, overlap, are stopped, and are answered one after another.

    host = ChatHost(db, answer, policy="merge")
    host.submit("chat-42", "hi")                          in any number of threads
    host.approve("chat-42", tool_call_id="c1")            goes on by itself, once, when nothing waits any more
    host.clear("chat-42")

Everything that a client sends is an input before it is anything else, so what this host forgets when it
dies is only who was waiting in which thread. Other processes may answer the same sessions: the log keeps
them apart, and `submit` raises Busy where another one is at work.

`answer(turn, signal)` is called inside the turn's block, in the thread that asked. It writes the chunks and
looks at the signal (`until_aborted`); a turn whose signal was aborted is sealed as aborted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from snapshotter.core.calls import Message
from snapshotter.database import Database
from snapshotter.hooks import checked
from snapshotter.receipt import Receipt
from snapshotter.session import Session
from snapshotter.turn import Turn

from .aborts import Aborts, Signal
from .continuation import COALESCE, Continuations
from .status import Outcome, outcome_of
from .submit import DEBOUNCE_MS, Decision, Policy, Submits
from .turnqueue import TurnQueue

Answer = Callable[[Turn, Signal], object]

_OVERLAP = {"merge": "merge", "latest": "latest", "debounce": "latest"}


@dataclass(frozen=True, slots=True)
class Submitted:
    """What became of a submit, with the receipt of its input; `outcome` is how the turn ended, where this
    call answered it (for a person: `outcome.error`).

    answered     its turn has ended, or one that stands for it: see `outcome`
    superseded   a later submit's turn will stand for it; it is in the history, or will be
    owed         durable and not answered: its turn was released; the next worker answers it
    stale        the session was cleared meanwhile
    dropped      refused while another answer was under way; nothing was stored
    """

    status: str
    receipt: Receipt | None = None
    outcome: Outcome | None = None


class _Desk:
    """What this process knows of one session."""

    def __init__(self, host: ChatHost, session_id: str, debounce_ms: float, coalesce: float) -> None:
        clock = host.db.clock
        self.changed = clock.waiter()
        self.running: str | None = None  # the request whose signal aborts what runs
        self.submits = Submits(debounce_ms)
        self.queue = TurnQueue(clock)
        self.continuations = Continuations(
            partial(host.go_on, session_id),
            complete=partial(host.is_complete, session_id),
            streaming=lambda: self.queue.active is not None,
            on_error=host.on_error,
            clock=clock,
            coalesce=coalesce,
        )

    def released(self, release: Callable[[], None]) -> Callable[[], None]:
        """`release`, under the lock that stands before the submits."""

        def locked() -> None:
            with self.changed:
                release()

        return locked


class ChatHost:
    """See the module's docstring. Safe to share between threads.

    `answer(turn: Turn, signal: Signal)`: a plain function that writes the turn's chunks; what it returns is
    not looked at, what it raises releases the turn and is raised by `submit`. `policy`: `queue`, `merge`,
    `latest`, `debounce`, `drop` or `Debounce(ms)`, for requests that overlap in this process (those of others
    queue at the log).
    `debounce_ms` in milliseconds; `coalesce` in seconds: answers to tools that come within it go on together.
    `on_error(error: Exception)` is told what a continuation, in its own thread, raises. `boot`: options of
    `db.boot` for every turn, such as `client_tools` and `tool_policies`.
    Raises InvalidValue for an `answer` or `on_error` that is no plain function.
    """

    def __init__(
        self,
        db: Database,
        answer: Answer,
        *,
        policy: Policy = "queue",
        debounce_ms: float = DEBOUNCE_MS,
        coalesce: float = COALESCE,
        on_error: Callable[[Exception], None] = lambda _: None,
        boot: dict[str, Any] | None = None,
    ) -> None:
        self.db = db
        self.aborts = Aborts()
        self.on_error = checked(on_error, "on_error")
        self._answer = checked(answer, "answer")
        self._policy = policy
        self._times = (debounce_ms, coalesce)
        self._boot = boot or {}
        self._lock = threading.Lock()
        self._desks: dict[str, _Desk] = {}

    def _desk(self, session_id: str) -> _Desk:
        with self._lock:
            if session_id not in self._desks:
                self._desks[session_id] = _Desk(self, session_id, *self._times)
            return self._desks[session_id]

    def submit(
        self,
        session_id: str,
        message: Message | str,
        *,
        policy: Policy | None = None,
        signal: Signal | None = None,
        **options: Any,
    ) -> Submitted:
        """Send a message and return when it is answered, or when it is decided that this call will not.

        `policy` for this one; `signal` aborts its answer from outside; `options` go to `db.send`. Raises as
        `send` and `boot` do, and what `answer` raises.
        """
        desk = self._desk(session_id)
        with desk.changed:
            generation = desk.queue.generation
            now = self.db.clock.now_ms()
            decision = desk.submits.decide(policy or self._policy, desk.queue.count(), now)
            if decision.action == "drop":
                return Submitted("dropped")
            release = desk.released(desk.submits.begin())
            desk.changed.notify_all()
        try:
            receipt = self.db.send(session_id, message, **options)
            place = self._place(desk, receipt, decision)
            if not self._quiet(desk, decision, place):
                return Submitted("superseded", receipt)
            work = partial(self._work, desk, session_id, receipt, decision, place, signal)
            key = f"{session_id}/{receipt.id}"
            ran = desk.queue.run(key, work, generation=generation, joined=release)
        finally:
            release()
        desk.continuations.look()
        if ran.value is None:
            return Submitted("stale", receipt)
        status, ended = ran.value
        return Submitted(status, receipt, ended)

    def _place(self, desk: _Desk, receipt: Receipt, decision: Decision) -> int | None:
        """Where a submit that can be superseded stands, told to those before it; None for any other. One that
        repeats an older one stands for nobody."""
        if decision.sequence is None or receipt.duplicate:
            return None
        with desk.changed:
            desk.submits.stored(receipt.id)
            desk.changed.notify_all()
        return receipt.id

    def _quiet(self, desk: _Desk, decision: Decision, place: int | None) -> bool:
        """Wait as long as a debounced submit has to; False when a later one came."""
        clock = self.db.clock
        with desk.changed:
            while decision.until_ms is not None and not desk.submits.superseded(place):
                left = (decision.until_ms - clock.now_ms()) / 1000
                if left <= 0:
                    break
                desk.changed.wait(left)
            return not desk.submits.superseded(place)

    def _work(
        self,
        desk: _Desk,
        session_id: str,
        receipt: Receipt,
        decision: Decision,
        place: int | None,
        outside: Signal | None,
    ) -> tuple[str, Outcome | None]:
        with desk.changed:
            if desk.submits.superseded(place):
                return "superseded", None
        overlap = _OVERLAP.get(decision.policy or "", "queue")
        with self.db.boot(session_id, receipt=receipt, overlap=overlap, **self._boot) as session:
            before = session.fold.last_turn
            self._run(desk, session, outside, lambda _: session.applied(receipt.id))
            if not session.applied(receipt.id):
                return "owed", None
            return "answered", None if session.fold.last_turn == before else outcome_of(session.fold)

    def _run(
        self, desk: _Desk, session: Session, outside: Signal | None, enough: Callable[[Turn], bool]
    ) -> None:
        """Answer turns until it is enough; what is owed then is somebody else's."""
        desk.running = name = session.run
        signal = self.aborts.signal(name)
        detach = self.aborts.link(name, outside)
        try:
            for turn in session.turns():
                with turn:
                    self._answer(turn, signal)
                    if signal.aborted:
                        turn.abort(None if signal.reason is None else str(signal.reason))
                if enough(turn) or signal.aborted:
                    return
        finally:
            desk.running = None
            detach()
            self.aborts.remove(name)

    def cancel(self, session_id: str, reason: Any = None) -> bool:
        """Abort what this process runs for the session; False when that is nothing. (`db.stop` reaches the
        worker wherever it is.)"""
        running = self._desk(session_id).running
        return running is not None and self.aborts.cancel(running, reason)

    # -- answers to tools ---------------------------------------------------------------------------

    def tool_result(self, session_id: str, *args: Any, go_on: bool = True, **options: Any) -> Receipt:
        """As `db.tool_result`; once nothing waits any more the answer goes on, in a thread of its own."""
        write = partial(self.db.tool_result, session_id, *args, **options)
        return self._desk(session_id).continuations.apply(write, go_on=go_on)

    def approve(self, session_id: str, *args: Any, go_on: bool = True, **options: Any) -> Receipt:
        """As `db.approve`; see `tool_result`."""
        write = partial(self.db.approve, session_id, *args, **options)
        return self._desk(session_id).continuations.apply(write, go_on=go_on)

    def is_complete(self, session_id: str) -> bool:
        """Whether a message has all the answers that it waits for."""
        return any(item.kind == "tool-answers" for item in self.db.peek(session_id).pending)

    def go_on(self, session_id: str) -> None:
        """Continue the message whose answers are all there; what stands before it (a turn that was
        interrupted, messages that are owed) is answered first. So it is also what takes a session up again at
        start-up, or after `retry_after`. Raises as `boot` does, and what `answer` raises."""
        desk = self._desk(session_id)

        def work() -> None:
            with self.db.boot(session_id, **self._boot) as session:
                self._run(desk, session, None, lambda turn: turn.kind == "tool-answers")

        desk.queue.run(f"{session_id}/continuation", work)

    # -- the whole session --------------------------------------------------------------------------

    def clear(self, session_id: str) -> None:
        """Empty the history: what is queued is stale, what runs is aborted, what is owed is spent. Raises
        Busy when something runs on all the same."""
        desk = self._desk(session_id)
        with desk.changed:
            desk.queue.reset()
            desk.submits.reset()
            desk.changed.notify_all()
        desk.continuations.reset()
        self.cancel(session_id, "cleared")
        desk.queue.wait_for_idle(self.db.recovery.stable_timeout)
        self.db.clear(session_id)

    def wait_for_idle(self, session_id: str, timeout: float | None = None) -> bool:
        """Return when this process has nothing to do for the session; False after `timeout` seconds."""
        return self._desk(session_id).queue.wait_for_idle(timeout)
