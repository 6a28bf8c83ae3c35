"""What a chat host needs around a session.

    ChatHost            requests that overlap, one session's turns one after another     host
    TurnQueue           first in, first out, with generations; also AsyncTurnQueue       turnqueue
    Submits             queue, latest, merge, debounce, drop                             submit
    Aborts, Signal      aborting by name and from outside                                aborts
    Continuations       going on once, when every answer is there; also Async…           continuation
    receive             what is new in a client's transcript                             transcripts
    RecoveryBoot        a plan of one's own for an interrupted turn                      recovering
    Hydrate             a history of one's own                                           hydrating
    Child               a session that works for another's turn                          subagents

Reconciliation of a client's messages is pure and stands in `snapshotter.core.reconcile`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from snapshotter.core.reconcile import merge_orphan, news, reconcile, upsert_incoming_message

    from .aborts import Aborts, Signal, until_aborted, until_aborted_async
    from .continuation import AsyncContinuations, Barrier, Continuations
    from .host import ChatHost, Submitted
    from .hydrating import NotDurable
    from .recovering import RecoveryBoot, RecoveryPlan
    from .status import Outcome
    from .subagents import Child, ChildState, state_of
    from .submit import Debounce, Decision, Submits
    from .transcripts import receive
    from .turnqueue import AsyncTurnQueue, Line, TurnQueue

_HOMES = {
    "snapshotter.core.reconcile": ("merge_orphan", "news", "reconcile", "upsert_incoming_message"),
    "snapshotter.hosting.aborts": ("Aborts", "Signal", "until_aborted", "until_aborted_async"),
    "snapshotter.hosting.continuation": ("AsyncContinuations", "Barrier", "Continuations"),
    "snapshotter.hosting.host": ("ChatHost", "Submitted"),
    "snapshotter.hosting.hydrating": ("NotDurable",),
    "snapshotter.hosting.recovering": ("RecoveryBoot", "RecoveryPlan"),
    "snapshotter.hosting.status": ("Outcome",),
    "snapshotter.hosting.subagents": ("Child", "ChildState", "state_of"),
    "snapshotter.hosting.submit": ("Debounce", "Decision", "Submits"),
    "snapshotter.hosting.transcripts": ("receive",),
    "snapshotter.hosting.turnqueue": ("AsyncTurnQueue", "Line", "TurnQueue"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Aborts",
    "AsyncContinuations",
    "AsyncTurnQueue",
    "Barrier",
    "ChatHost",
    "Child",
    "ChildState",
    "Continuations",
    "Debounce",
    "Decision",
    "Line",
    "NotDurable",
    "Outcome",
    "RecoveryBoot",
    "RecoveryPlan",
    "Signal",
    "Submits",
    "Submitted",
    "TurnQueue",
    "merge_orphan",
    "news",
    "receive",
    "reconcile",
    "state_of",
    "until_aborted",
    "until_aborted_async",
    "upsert_incoming_message",
]


def __getattr__(name: str) -> Any:
    """Loaded when first used: a database loads what it needs of this package, a cold start no more."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)
