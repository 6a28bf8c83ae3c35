"""A host's own plan for an interrupted turn.

Before a worker takes an interrupted turn up, `on_recovery_boot(context)` may replace what the log suggests.
It is asked once for each reading of the session, never for a turn that only has to be sealed or that waits
for a person. It returns None (the default), or a RecoveryPlan:

    chain               the history from now on: a `history replace` between the interrupted turn's end and
                        the start of the next, in one segment
    dispatch            which items to answer, in this order. The interrupted turn's own (`in_flight`) is
                        answered anew where it is named, first; left out, it is not answered again. Owed
                        items that are left out follow after the others: what was acknowledged is not lost
    before_first_turn   called before anything is written; again if another worker was faster

A hook that raises is reported, and the default is used. So is one whose plan cannot be carried out: a chain
is one record of the log and takes 1 MiB at most, and `dispatch` takes items of the context.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from snapshotter.core import moves
from snapshotter.core.calls import Message
from snapshotter.core.copies import own, own_item
from snapshotter.core.fold import Fold
from snapshotter.core.moves import Body
from snapshotter.core.openturn import OpenTurn
from snapshotter.core.overlap import OVERLAPS, next_item
from snapshotter.core.queue import Item
from snapshotter.core.revive import Plan
from snapshotter.editing import history_record
from snapshotter.hooks import answer_of
from streams import keys
from streams.errors import InvalidValue, Refused
from streams.packing import encode_record

if TYPE_CHECKING:
    from snapshotter.session import Session

_KINDS = {"regenerate": "regenerate", "action": "action", "continue": "tool-answers"}


@dataclass(frozen=True, slots=True)
class RecoveryBoot:
    """What is known of an interrupted turn. `messages` is the settled history, without what the turn took
    (`in_flight`) and without its cleaned answer so far (`partial`); `pending` the owed items; `stash` the
    worker's own checkpoint; `attempt` the number of the attempt that was interrupted; `kind` how it would be
    taken up by default; `cause` what this boot was told of the worker's death."""

    session: str
    messages: list[Message]
    in_flight: Item
    partial: Message | None
    pending_tool_calls: list[dict[str, Any]]
    pending: list[Item]
    stash: Any
    previous_run: str
    attempt: int
    kind: str
    cause: str | None = None


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """What to do instead. All fields are optional; see the module's docstring."""

    chain: Sequence[Message] | None = None
    dispatch: Sequence[Item] | None = None
    before_first_turn: Callable[[], object] | None = None


RecoveryHook = Callable[[RecoveryBoot], RecoveryPlan | None]


def asked_of(fold: Fold, plan: Plan) -> bool:
    """True when the plan is about an interrupted turn that the hook may decide about."""
    turn = fold.open
    if turn is None or plan.resume.kind == "waiting" or plan.resume.kind.startswith("seal"):
        return False
    first = plan.pending[0] if plan.pending else None
    return not (first is not None and first.kind == "tool-answers" and first.message_id == turn.message_id)


def context_of(session_id: str, fold: Fold, plan: Plan, cause: str | None) -> RecoveryBoot:
    """What the hook is told; all of it its own copy."""
    turn = fold.open
    assert turn is not None
    return RecoveryBoot(
        session=session_id,
        messages=own(fold.chain.messages),
        in_flight=own_item(in_flight(fold, turn)),
        partial=own(plan.partial),
        pending_tool_calls=own(plan.pending_calls),
        pending=[own_item(item) for item in plan.pending],
        stash=own(turn.stash),
        previous_run=turn.run,
        attempt=turn.attempt,
        kind=plan.resume.kind,
        cause=cause,
    )


def in_flight(fold: Fold, turn: OpenTurn) -> Item:
    """The interrupted turn's inputs as an item that can be taken anew."""
    records = tuple(entry.record for n in turn.inputs if (entry := fold.inputs.get(n)) is not None)
    kind = "message" if turn.asked else _KINDS.get(turn.mode, "message")
    named = turn.message_id if kind == "tool-answers" else None
    return Item(tuple(turn.inputs), kind, tuple(turn.asked), named, records)


def _checked(found: Any) -> RecoveryPlan | None:
    """What the hook returned. Raises InvalidValue for what is no plan."""
    if found is None:
        return None
    if not isinstance(found, RecoveryPlan):
        raise InvalidValue(
            f"a {type(found).__name__} is no plan: return RecoveryPlan(chain=…, dispatch=…), of"
            " snapshotter.hosting, or None"
        )
    chain = None if found.chain is None else list(found.chain)
    dispatch = None if found.dispatch is None else list(found.dispatch)
    for item in dispatch or ():
        if not isinstance(item, Item) or not isinstance(item.ids, tuple):
            raise InvalidValue(f"dispatch takes items of the context (in_flight, pending), not {item!r:.80}")
    return RecoveryPlan(chain, dispatch, found.before_first_turn)


@dataclass(frozen=True, slots=True)
class Choice:
    """What a worker opens next: an item's turn, or (None) the next attempt of the open turn. `between` is
    written before it; with `ends` the open turn is closed and none is opened."""

    item: Item | None
    between: list[Body] = field(default_factory=list)
    ends: bool = False


class Choosing:
    """Chooses for one session: what its host says of an interrupted turn, and which messages overlap."""

    def __init__(self, session: Session, hook: RecoveryHook | None, overlap: str, cause: str | None) -> None:
        if overlap not in OVERLAPS:
            raise Refused(f"unknown overlap {overlap!r}: {', '.join(OVERLAPS)}")
        self._session = session
        self._hook = hook
        self._overlap = overlap
        self.one_by_one = overlap == "queue"  # what is owed behind the first message does not matter yet
        self._cause = cause
        self._order: list[tuple[int, ...]] = []
        self._asked = False

    def read_again(self) -> None:
        """The session was read again: what was decided was about an older state."""
        self._asked, self._order = False, []

    def choose(self, step: str) -> Choice:
        """The choice for a plan whose first step is `resume` or `item`."""
        session = self._session
        replaced = self._ask()
        if replaced is not None:
            return replaced
        if step == "resume":
            return Choice(None)
        pending = session.plan.pending
        known = {item.ids: item for item in pending}
        while self._order:
            item = known.get(self._order.pop(0))
            if item is not None:
                return Choice(item)
        item, passed = next_item(pending, self._overlap)
        return Choice(item, [moves.applied(passed)] if passed else [])

    def _ask(self) -> Choice | None:
        """What the host's plan, all of it checked, says to do; None for the default."""
        session = self._session
        if self._hook is None or self._asked or not asked_of(session.fold, session.plan):
            return None
        self._asked = True
        try:
            context = context_of(session.id, session.fold, session.plan, self._cause)
            found = _checked(answer_of(self._hook(context), "on_recovery_boot"))
            choice = None if found is None else self._replace(found)
            if found is not None and found.before_first_turn is not None:
                answer_of(found.before_first_turn(), "before_first_turn")
        except Exception as error:  # noqa: BLE001 - a hook's fault must not end a recovery
            session.note("hook-failed", f"on_recovery_boot: {error!r}; the default is used")
            self._order = []
            return None
        return choice

    def _replace(self, plan: RecoveryPlan) -> Choice | None:
        """The plan as a choice; None where it replaces nothing. Raises InvalidValue and TooLarge for one that
        cannot be written: nobody would find out later whose fault that is."""
        if plan.chain is None and plan.dispatch is None:
            return None
        session = self._session
        turn = session.fold.open
        assert turn is not None
        between = []
        if plan.chain is not None:
            record = history_record(session.id, session.fold, "replace", messages=list(plan.chain))
            encode_record(keys.MAX, session.clock.now_ms(), record)
            between.append(record)
        mine = in_flight(session.fold, turn)
        wanted = [mine] if plan.dispatch is None else list(plan.dispatch)
        # Its inputs are spent once its turn is closed, so it comes first or a death in between loses it.
        items = sorted(wanted, key=lambda item: item.ids != mine.ids)
        known = {item.ids: item for item in (mine, *session.plan.pending)}
        items = [known[item.ids] for item in items if item.ids in known]
        if not items:
            return Choice(
                None, [*moves.spending(session.plan), *moves.interrupting(session.fold), *between], True
            )
        self._order = [item.ids for item in items[1:]]
        return Choice(items[0], between)
