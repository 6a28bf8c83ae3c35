"""Do two folds of one session stand for the same state, and where do they differ?

What `verify` and a rebuild ask. Compared is all that must not depend on how the state was come by: the
history, the plan, the session's own state, its cursors, how it ended. Reports are left out: a fold that began
at a snapshot has not seen what an older one reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from .core.contract import describe
from .core.fold import Fold
from .core.revive import revive

_NOT_COMPARED = ("report",)


class _Absent:
    """Stands for what one of the two has not."""

    def __repr__(self) -> str:
        return "absent"


ABSENT: Final = _Absent()


@dataclass(frozen=True, slots=True)
class Difference:
    """One place at which two JSON values differ: `path` as in `messages[3].parts[0].text`, and what each has
    there, ABSENT where it has nothing."""

    path: str
    one: Any
    other: Any


def facts(fold: Fold) -> dict[str, Any]:
    """All of a fold's state that must not depend on how it was come by, as JSON."""
    plan = describe(fold, revive(fold))
    kept = {name: value for name, value in plan.items() if name not in _NOT_COMPARED}
    return {**kept, "turn": fold.turn, "closed": fold.closed, "deleted": fold.deleted}


def is_as_stored(fold: Fold, document: dict[str, Any]) -> bool:
    """Whether a snapshot's document, whole in itself, says just what the fold is, so that `facts` of both are
    the same, once both know the same inputs. False says nothing: looked at is the most common case alone."""
    try:
        return (
            fold.open is None
            and not fold.chain.partial
            and document.get("messages") == fold.chain.messages
            and not (document.get("blocks") or document.get("inApplied") or document.get("context"))
            and fold.context is None
            and int(document.get("lastOutEventId") or 0) == fold.cursor
            and int(document.get("lastInEventId") or 0) == fold.inputs.applied_upto
            and (document.get("state") or {}) == fold.state
            and document.get("lastTurn") == fold.last_turn
            and document.get("turn") == fold.turn
            and (document.get("closed") is True) == fold.closed
            and (document.get("deleted") is True) == fold.deleted
            and not fold.inputs.applied
            and (not fold.inputs.owed() or document.get("keys") == fold.inputs.rows())
            and (document.get("redacted") or []) == fold.inputs.snapshot_redacted()
        )
    except RecursionError:  # nests more deeply than Python compares by itself
        return False


def differences(one: Any, other: Any, path: str = "") -> Iterator[Difference]:
    """Every place at which two JSON values differ, in the order of the first one's fields; also where they
    nest more deeply than Python compares by itself."""
    try:
        if one == other:
            return
    except RecursionError:
        pass  # looked at level by level, below
    work: list[tuple[str, Any, Any]] = [(path, one, other)]
    while work:
        where, a, b = work.pop()
        below = _below(where, a, b)
        if below is not None:
            work += reversed(below)
        elif isinstance(a, dict | list) or a != b:
            yield Difference(where, a, b)


def _below(path: str, a: Any, b: Any) -> list[tuple[str, Any, Any]] | None:
    """What stands in two containers of one kind, pair by pair; None where they are none."""
    if type(a) is dict and type(b) is dict:
        names = [*a, *(name for name in b if name not in a)]
        return [
            (f"{path}.{name}" if path else str(name), a.get(name, ABSENT), b.get(name, ABSENT))
            for name in names
        ]
    if type(a) is list and type(b) is list:
        longest = max(len(a), len(b))
        return [
            (f"{path}[{n}]", a[n] if n < len(a) else ABSENT, b[n] if n < len(b) else ABSENT)
            for n in range(longest)
        ]
    return None
