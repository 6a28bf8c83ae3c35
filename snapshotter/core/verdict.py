"""What the next worker would do about an interrupted turn, or an input that kills: the plan's incident.

The plan says what comes first; the ledger, what it has cost. Only the next attempt of an open turn and a
new turn for owed inputs are judged: to seal, to spend and to wait for a person costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import takewhile
from typing import Any

from streams.errors import Gap, InvalidValue

from .budget import DEFAULTS, Incident, Limits, evaluate
from .contract import Record, fold_records
from .fold import Fold
from .moves import next_step
from .resume import MODES
from .revive import Plan, revive


def incident_of(
    fold: Fold,
    plan: Plan,
    *,
    limits: Limits = DEFAULTS,
    run: str | None = None,
    cause: str | None = None,
    keep: Callable[[Incident], bool] | None = None,
) -> Incident:
    """The verdict on the plan's first step. `run`, `cause` and `keep` as in `budget.evaluate`."""
    step, turn = next_step(plan), fold.open
    if step == "resume" and turn is not None:
        return evaluate(
            fold.budget,
            inputs=turn.inputs,
            attempt=turn.attempt + 1,
            next_mode=MODES[plan.resume.kind],
            limits=limits,
            run=run,
            cause=cause,
            keep=keep,
        )
    inputs = plan.pending[0].ids if step == "item" else ()
    return evaluate(fold.budget, inputs=inputs, limits=limits, run=run, cause=cause)


def incident_case(
    inputs: Iterable[Record], outputs: Iterable[Record], limits: Limits, options: dict[str, Any]
) -> dict[str, Any]:
    """`snapshotter incident`: the verdict for records from files, or `{"error":"gap","log","missing"}`.

    `options`: `run`, `cause`, and `keep`, the hook's answer (true, false, or "raise"); `now` (epoch ms):
    what was written later does not count.
    """
    now = options.get("now")
    outputs = sorted(outputs, key=lambda r: r["id"])
    if now is not None:
        outputs = list(takewhile(lambda r: not (type(r.get("ts")) is int and r["ts"] > now), outputs))
    try:
        fold = fold_records(inputs, outputs)
    except Gap as gap:
        return {"error": "gap", "log": gap.log, "missing": list(gap.missing)}
    answer = options.get("keep", True)

    def keep(_incident: Incident) -> bool:
        if answer == "raise":
            raise InvalidValue("the hook raised")
        return bool(answer)

    found = incident_of(
        fold, revive(fold), limits=limits, run=options.get("run"), cause=options.get("cause"), keep=keep
    )
    return found.to_json()
