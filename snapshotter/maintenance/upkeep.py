"""Maintenance of a whole root: what is due, session by session.

    trim      only where it is said what to keep: nobody's log is shortened unasked
    compact   what the trim left
    gc        what nobody names

Each session stands by itself: what goes wrong in one is reported and the next one is begun. A run that was
broken off is started again; what was done is not due any more. Only what concerns the whole store (a bucket
that is not there, credentials) ends the run. A key that is not at hand is a session's own problem, unless it
is that of every one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from snapshotter.catalogue import all_ids, checked
from snapshotter.sidebyside import side_by_side
from streams.errors import Misconfigured, Unsupported, WrongKey

from .bench import Absent, Done
from .compacting import compact
from .rules import Keep, Rules
from .sweeping import gc
from .trimming import trim

if TYPE_CHECKING:
    from snapshotter.database import Database

Step = Callable[..., Done]
"""`step(db, session_id, rules=, dry_run=)`: one kind of maintenance of one session."""


@dataclass(slots=True)
class Kept:
    """What was done to one session, step by step, and the error that ended it, if one did."""

    session: str
    done: list[Done] = field(default_factory=list)
    error: Exception | None = None

    def to_json(self) -> dict[str, Any]:
        failed = (
            {} if self.error is None else {"error": type(self.error).__name__, "message": str(self.error)}
        )
        return {"session": self.session, "done": [done.to_json() for done in self.done], **failed}


def maintain(
    db: Database,
    sessions: Iterable[str] | None = None,
    *,
    keep: Keep | None = None,
    rules: Rules | None = None,
    dry_run: bool = False,
    progress: Callable[[Kept], None] | None = None,
    jobs: int = 1,
) -> list[Kept]:
    """Do what is due to the sessions, given by their ids (by default all of the root), with `keep` also trim
    them. `progress` is told of each session when it is done, in their order, in the caller's thread. `jobs`:
    sessions at once, each in a thread of its own.

    Raises InvalidValue for a `keep` or `jobs` that is none, and for `sessions` that are no list of ids;
    Misconfigured for what concerns the whole store, WrongKey where no session's key is at hand, and what the
    listing of sessions raises.
    """
    steps: list[Step] = [compact_where_possible, gc]
    if keep is not None:
        steps.insert(0, partial(trim, keep=Keep.checked(keep)))
    return each(db, sessions, steps, rules=rules, dry_run=dry_run, progress=progress, jobs=jobs)


def each(
    db: Database,
    sessions: Iterable[str] | None,
    steps: Sequence[Step],
    *,
    rules: Rules | None = None,
    dry_run: bool = False,
    progress: Callable[[Kept], None] | None = None,
    named: bool = True,
    jobs: int = 1,
) -> list[Kept]:
    """As `maintain`, with these steps. `named`: somebody named the sessions, so one may not be there; of
    others one that is gone by now is no error."""
    ids = all_ids(db) if sessions is None else checked(sessions)
    run = [partial(step, rules=rules, dry_run=dry_run) for step in steps]
    found = []
    upkeep = partial(_kept, db, run, named and sessions is not None)
    with closing(side_by_side(upkeep, ids, jobs)) as coming:
        for kept in coming:
            found.append(kept)
            if progress is not None:
                progress(kept)
    if found and all(isinstance(kept.error, WrongKey) for kept in found):
        raise WrongKey(str(found[0].error)) from found[0].error
    return found


def _kept(db: Database, steps: Iterable[Step], named: bool, session: str) -> Kept:
    """One session, step by step. Raises Misconfigured for what concerns the whole store."""
    kept = Kept(session)
    try:
        for step in steps:
            kept.done.append(step(db, session))
    except WrongKey as error:
        kept.error = error
    except Misconfigured:
        raise
    except Exception as error:  # noqa: BLE001 - one session must not keep the others from their upkeep
        if named or not isinstance(error, Absent):
            kept.error = error
    return kept


def compact_where_possible(
    db: Database, session_id: str, *, rules: Rules | None = None, dry_run: bool = False
) -> Done:
    """As `compact`; a store that cannot do it is said so in `why`, and no reason to leave the rest undone."""
    try:
        return compact(db, session_id, rules=rules, dry_run=dry_run)
    except Unsupported as error:
        return Done(session_id, "compact", dry_run, why=str(error))
