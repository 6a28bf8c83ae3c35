"""The fold as plain JSON in, plain JSON out: what `snapshotter fold` prints for records from files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from streams.errors import Gap

from .apart import Unread, is_unread
from .fold import Fold
from .revive import Plan, revive
from .snapshot import restore

Record = dict[str, Any]


def fold_records(
    inputs: Iterable[Record], outputs: Iterable[Record], snapshot: dict[str, Any] | None = None
) -> Fold:
    """A fold over records in any order; those at or below the snapshot's cursors are ignored. Raises Gap, and
    Unread for what is stored apart, since nothing is read here."""
    fold = restore(snapshot) if snapshot is not None else Fold()
    for record in sorted(inputs, key=lambda r: r["id"]):
        fold.feed(record)
        if is_unread(record) and not fold.inputs.is_applied(record["id"]):
            raise Unread(record)
    fold.replay(sorted(outputs, key=lambda r: r["id"]))
    return fold


def describe(fold: Fold, plan: Plan) -> dict[str, Any]:
    """A plan, and the cursors, as JSON."""
    return {
        "messages": plan.messages,
        "partial": plan.partial,
        "pending": [item.to_json() for item in plan.pending],
        "spent": plan.spent,
        "pendingToolCalls": plan.pending_calls,
        "resume": plan.resume.to_json(),
        "state": fold.state,
        "context": fold.context,
        "cursor": {"in": fold.inputs.applied_upto, "out": fold.cursor},
        "report": plan.report,
    }


def fold_case(
    inputs: Iterable[Record], outputs: Iterable[Record], snapshot: dict[str, Any] | None = None
) -> dict[str, Any]:
    """What a boot of these records returns, or `{"error":"gap","log","missing"}`."""
    try:
        fold = fold_records(inputs, outputs, snapshot)
    except Gap as gap:
        return {"error": "gap", "log": gap.log, "missing": list(gap.missing)}
    return describe(fold, revive(fold))
