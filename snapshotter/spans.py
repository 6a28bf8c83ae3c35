"""What the engine tells at its seams: boots, turns, saves, what stands between turns, maintenance, rebuilds.

Boots and turns are logged as they end, too, with what they cost; that needs no OpenTelemetry.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

from streams.clock import Clock
from streams.store import Store

from .core.snapshot import VERSION
from .telemetry import ERROR_TYPE, OTHER, Attributes, Span, Telemetry, Trace, conversation, type_of
from .watched import of

if TYPE_CHECKING:
    from .database import Database
    from .maintenance import Done
    from .rebuilding.results import Summary
    from .session import Session

P = ParamSpec("P")
D = TypeVar("D", bound="Done")

log = logging.getLogger("snapshotter")

_WORK: ContextVar[Span | None] = ContextVar("work", default=None)


class BootSpan(Span):
    """A boot, from its first request until the session is handed out."""

    def __init__(self, store: Store, session_id: str) -> None:
        trace = of(store)
        known: Attributes = {
            **conversation(trace.telemetry, session_id),
            "snapshotter.format.version": VERSION,
        }
        super().__init__(trace, "snapshotter.boot", known)
        self._session_id = session_id
        self._resume = ""

    def found(self, session: Session) -> Session:
        """What it came to. The session's turns will point here."""
        session.boot_span = self
        self._resume = session.resume.kind
        self.tell(lambda span: span.set_attributes(_found(session)))
        return session

    def end(self, error_type: str | None = None, attributes: Attributes | None = None) -> None:
        if self.ended:
            return
        super().end(error_type, {**(attributes or {}), "snapshotter.segments": self.trace.segments})
        said = {"snapshotter.resume": self._resume} if error_type is None else {ERROR_TYPE: error_type}
        self.trace.count(lambda meters: meters.boot_seconds.record(self.seconds, said))
        log.info(
            "session %s: %s in %.3f s: %d requests, %d bytes read",
            self._session_id,
            f"not booted ({error_type})" if error_type else "booted",
            self.seconds,
            self.cost.requests,
            self.cost.bytes_read,
            extra=_fields("boot", self, session=self._session_id, resume=self._resume, error=error_type),
        )


def _found(session: Session) -> dict[str, Any]:
    found: dict[str, Any] = {
        "snapshotter.resume": session.resume.kind,
        "snapshotter.pending": len(session.plan.pending),
        "snapshotter.epoch": session.fold.epoch,
        "snapshotter.cursor": session.fold.cursor,
    }
    if session.fold.open is not None or session.fold.budget.claims:
        incident = session.incident
        found["snapshotter.turn.attempt"] = incident.attempt
        found["snapshotter.recovery.decision"] = incident.decision
    codes = sorted({line["code"] for line in session.report})
    return {**found, "snapshotter.report": codes} if codes else found


class TurnSpan(Span):
    """A turn, from its claim until its end is durable and saved, or until it is let go. Whoever writes it
    enters it, so that the spans of a model are its children. `number` and `attempt`: 0 before its claim."""

    def __init__(self, session: Session, kind: str) -> None:
        trace = of(session.store)
        known = {
            **conversation(trace.telemetry, session.id),
            "snapshotter.turn.kind": kind,
            "snapshotter.durability": session.durability,
            "snapshotter.run": session.run,
        }
        super().__init__(trace, "snapshotter.turn", known, after=session.boot_span)
        self._session = session
        self._kind = kind
        self.number = self.attempt = 0

    @contextmanager
    def claiming(self) -> Iterator[None]:
        """Around what claims the turn: where that fails there is no turn."""
        try:
            yield
        except BaseException as error:
            self.failed(error)
            raise

    def claimed(self) -> None:
        """It stands in the log by now."""
        turn = self._session.fold.open
        assert turn is not None
        self.number, self.attempt = turn.turn, turn.attempt
        known = {"snapshotter.turn": turn.turn, "snapshotter.turn.attempt": turn.attempt}
        self.set({**known, "snapshotter.epoch": self._session.fold.epoch})

    @contextmanager
    def closing(
        self, status: str, chunks: int, why: str | None = None, error: BaseException | str | None = None
    ) -> Iterator[None]:
        """Around what writes its end: its status and how many chunks it was given; for one that is let go,
        why, and for which error. Where that fails the turn stays open."""
        began = self.trace.clock.monotonic()
        failed = status == "error" or why in ("error", "stall")
        try:
            yield
        except BaseException as raised:
            self._closed("open", chunks, why, type_of(raised), began)
            self.count_fence(raised)
            raise
        known = type_of(error) if isinstance(error, BaseException) else OTHER
        self._closed(status, chunks, why, known if failed else None, began)
        self.count_fence(error)

    def _closed(
        self, status: str, chunks: int, why: str | None, error_type: str | None, began: float
    ) -> None:
        if self.ended:
            return
        seconds = self.trace.clock.monotonic() - began
        said: dict[str, Any] = {"snapshotter.turn.status": status, "snapshotter.turn.chunks": chunks}
        self.end(error_type, said if why is None else {**said, "snapshotter.release.why": why})
        told = {"snapshotter.turn.status": status}
        self.trace.count(lambda meters: meters.turns.add(1, {**told, "snapshotter.turn.kind": self._kind}))
        self.trace.count(lambda meters: meters.close_seconds.record(seconds, told))
        log.info(
            "session %s: turn %d %s%s after %.3f s: %d chunks, %d requests, %d bytes written",
            self._session.id,
            self.number,
            status,
            f" ({error_type})" if error_type else "",
            self.seconds,
            chunks,
            self.cost.requests,
            self.cost.bytes_written,
            extra=_fields(
                "turn",
                self,
                session=self._session.id,
                turn=self.number,
                attempt=self.attempt,
                epoch=self._session.fold.epoch,
                kind=self._kind,
                status=status,
                why=why,
                error=error_type,
                chunks=chunks,
            ),
        )


def _fields(event: str, span: Span, **fields: Any) -> dict[str, Any]:
    """The fields of a log record that tells of a span."""
    cost = {
        "seconds": round(span.seconds, 6),
        "requests": span.cost.requests,
        "bytes_read": span.cost.bytes_read,
        "bytes_written": span.cost.bytes_written,
    }
    return {"event": event, **fields, **cost}


def saving(store: Store) -> Span:
    """`with` what saves a snapshot."""
    return Span(of(store), "snapshotter.save")


def settling(store: Store, bodies: list[dict[str, Any]]) -> Span:
    """`with` what is written between two turns: ends without a model, inputs that are spent."""
    controls = [str(body.get("control")) for body in bodies]
    return Span(of(store), "snapshotter.settle", {"snapshotter.controls": controls})


def editing(store: Store) -> Span:
    """`with` an edit outside of a turn."""
    return Span(of(store), "snapshotter.edit")


def overtaken(store: Store) -> None:
    """A claim before the boot lost its place."""
    of(store).count(lambda meters: meters.fenced.add(1))


def maintained(
    operation: str, *, named: bool = True
) -> Callable[[Callable[Concatenate[Database, P], D]], Callable[Concatenate[Database, P], D]]:
    """A span around one kind of maintenance. `named`: its first argument is the session's id."""

    def decorate(function: Callable[Concatenate[Database, P], D]) -> Callable[Concatenate[Database, P], D]:
        @wraps(function)
        def run(db: Database, *args: P.args, **kwargs: P.kwargs) -> D:
            known = conversation(db.telemetry, str(args[0])) if named and args else {}
            with Span(Trace(db.telemetry, db.clock), f"snapshotter.{operation}", known) as span:
                before = _WORK.set(span)
                try:
                    done = function(db, *args, **kwargs)
                finally:
                    _WORK.reset(before)
                span.set(
                    {
                        **conversation(db.telemetry, done.session),
                        "snapshotter.objects.written": done.written,
                        "snapshotter.objects.deleted": done.deleted,
                        "snapshotter.bytes.freed": done.freed,
                        "snapshotter.dry_run": done.dry_run,
                    }
                )
            return done

        return cast(Callable[Concatenate["Database", P], D], run)

    return decorate


def at_work(store: Store) -> Store:
    """The same store, whose requests belong to the maintenance that asks for it, in all of its threads."""
    span = _WORK.get()
    if span is not None:
        of(store).open(span)
    return store


class RebuildSpan(Span):
    """A run over a whole root. Its tasks may be anywhere, so their requests are summed and not told one by
    one."""

    def __init__(self, telemetry: Telemetry | None, clock: Clock, mode: str) -> None:
        super().__init__(Trace(telemetry, clock), "snapshotter.rebuild", {"snapshotter.rebuild.mode": mode})

    def summed(self, summary: Summary) -> None:
        """What it came to."""
        statuses = {f"snapshotter.sessions.{name}": number for name, number in summary.statuses.items()}
        names = ("turns", "messages", "segments", "records", "bytes", "requests")
        sums = {f"snapshotter.rebuild.{name}": summary.sums[name] for name in names}
        self.set({"snapshotter.sessions": summary.sessions, **statuses, **sums})
