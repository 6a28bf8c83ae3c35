"""What is owed, as a queue of items for a worker, and what is spent without a turn.

The queue is judged over the messages as they would stand once the open turn, if there is one, is closed
(`View`): an answer to a call of the open turn waits for that close, an edit of its user message finds
its target, a regenerate its message.

    message        an item each, where it stands
    edit           first, if its target is in the history; in the place of a message still owed (by its own
                   id, or the one it is to bear), or of an owed edit of the same message (one item, all
                   ids); else where it stands
    tool answers   all to one message's calls are one item, once no call of that message waits
    regenerate     an item, unless its target is unknown: then spent
    action, close  an item each
    stop           ends the turn that answers its message, or spends that message while it is owed (an
                   edit with what it replaces in its item); any other is spent alone, and reported where
                   there is no message that it names
    unknown kinds  stay owed, are reported, are not pending; so do inputs whose message is not there

What a stop spends stands in the history like any other message, so it waits for the items before it: an edit
of it would take them away, too.
"""

from __future__ import annotations

import reprlib
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from .calls import Message, answer_call, any_waits, calls_of, locate
from .edits import newest_for, owed_ids
from .fold import Fold
from .inputs import Input
from .tool_parts import is_interrupted, is_settled

_TALK = ("message", "edit", "regenerate")


@dataclass(frozen=True, slots=True)
class Item:
    """One owed item. `messages` are the inputs' own; for tool-answers the message with them laid over."""

    ids: tuple[int, ...]
    kind: str
    messages: tuple[Message, ...] = ()
    message_id: str | None = None
    inputs: tuple[dict[str, Any], ...] = ()

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {"ids": list(self.ids), "kind": self.kind, "messages": list(self.messages)}
        if self.message_id is not None:
            out["messageId"] = self.message_id
        return out


@dataclass(slots=True)
class View:
    """The history with the open turn's messages in their places. `own` are their positions; while the
    turn is `live`, its calls wait as `client_tools` say and answers to them are held back."""

    messages: list[Message]
    own: Collection[int] = ()
    live: bool = False
    client_tools: Collection[str] = ()

    def find(self, fold: Fold, message_id: str) -> int | None:
        turn = fold.open
        if turn is not None:
            end = len(self.messages)
            behind = end - len(turn.waiting())
            first = len(fold.chain) if turn.slot is None else behind - len(turn.asked)
            own: set[int] = {*self.own, *range(first, first + len(turn.asked)), *range(behind, end)}
            for position in sorted(own, reverse=True):
                if self.messages[position].get("id") == message_id:
                    return position
        found = fold.chain.find(message_id)
        if found is None or (turn is not None and found == turn.slot):
            return None
        return self.shifted(fold, found)

    def shifted(self, fold: Fold, position: int) -> int:
        """A chain position as a position here."""
        turn = fold.open
        if turn is None or turn.slot is None or position <= turn.slot:
            return position
        return position + len(self.messages) - len(fold.chain) - len(turn.asked) - len(turn.waiting())

    def unsettled(self, fold: Fold) -> list[int]:
        slot = fold.open.slot if fold.open is not None else None
        chain = [self.shifted(fold, p) for p in fold.chain.unsettled() if p != slot]
        return sorted({*chain, *self.own}, reverse=True)

    def waits(self, position: int) -> bool:
        tools = self.client_tools if self.live and position in self.own else None
        return any_waits(self.messages[position], tools)


@dataclass(slots=True)
class Queue:
    """The owed inputs, sorted out. `ids`: under which id each message and edit will stand."""

    ids: dict[int, str] = field(default_factory=dict)
    items: list[Item] = field(default_factory=list)
    spent: set[int] = field(default_factory=set)
    stop: int | None = None
    waiting: str | None = None
    answered: bool = False
    above: list[Input] = field(default_factory=list)
    report: list[dict[str, Any]] = field(default_factory=list)

    def note(self, code: str, number: int, detail: str) -> None:
        self.report.append({"code": code, "id": number, "detail": detail})


def sort_out(fold: Fold, view: View) -> Queue:
    """Build the queue. Pure: neither the fold nor its messages change."""
    queue = Queue(owed_ids(fold))
    owed = fold.inputs.owed(fold.open.inputs if fold.open is not None else ())
    for entry in owed:
        if entry.is_unread:
            detail = "its message is stored apart, and is not there; stays owed until it is sent again"
            queue.note("message-missing", entry.id, detail)
        elif entry.role == "unknown":
            kind = reprlib.repr(entry.record.get("kind"))  # which may be anything, of any depth
            queue.note("unknown-input-kind", entry.id, f"kind {kind}; stays owed")
    if fold.closed:
        detail = f"came after the session was {'deleted' if fold.deleted else 'closed'}; is never answered"
        for entry in owed:
            queue.note("input-after-close", entry.id, detail)
        return queue
    owed = [entry for entry in owed if entry.role != "unknown"]
    for entry in owed:
        if entry.role == "stop":
            _stop(fold, view, queue, entry, owed)
    owed = [entry for entry in owed if entry.id not in queue.spent and entry.role != "stop"]
    placed: list[tuple[tuple[int, int], Item]] = []
    _answers(fold, view, queue, [e for e in owed if e.role == "answer"], placed)
    _talk(fold, view, queue, [e for e in owed if e.role != "answer"], placed)
    queue.items = [item for _, item in sorted(placed, key=lambda pair: pair[0])]
    if fold.open is not None:
        seen = fold.open.seen
        live = [e for e in owed if e.id > seen and e.id not in queue.spent]
        queue.above = [e for e in live if e.role in _TALK]
    taken = [key for key, item in placed if item.kind in _TALK]
    if taken:
        _hold_back(fold, view, queue, min(taken))
    return queue


def _hold_back(fold: Fold, view: View, queue: Queue, first: tuple[int, int]) -> None:
    """Leave owed what is spent behind the `first` item that is to be taken, and the stops from there on."""
    spent = [e for n in queue.spent if (e := fold.inputs.get(n)) is not None]
    later = [e.id for e in spent if e.role in _TALK and _place(fold, view, e) > first]
    if later:
        held = {e.id for e in spent if e.id in later or (e.role == "stop" and e.id > min(later))}
        queue.spent -= held - {queue.stop}


def answered(fold: Fold) -> set[str]:
    """The ids by which a stop may name what the open turn answers: its user messages, those that an edit of
    it replaced, and where it goes on with an answer, or gives another, the user messages before that. Raises
    Unloaded."""
    turn = fold.open
    if turn is None:
        return set()
    found = [message.get("id") for message in turn.asked]
    taken = [entry for number in turn.inputs if (entry := fold.inputs.get(number)) is not None]
    for entry in taken:
        if entry.role in ("message", "edit"):
            found += [entry.message.get("id"), entry.record.get("messageId")]
    if turn.slot is not None:
        found += fold.chain.asked_before(turn.slot)
    elif any(entry.role == "regenerate" for entry in taken):
        found += fold.chain.asked_before(len(fold.chain))
    return {name for name in found if isinstance(name, str)}


def concerns(names: set[str], stop: dict[str, Any], seen: int) -> bool:
    """True when a stop ends the attempt that answers what these ids name and has seen inputs up to `seen`."""
    named = stop.get("messageId")
    return stop["id"] > seen and (named is None or (isinstance(named, str) and named in names))


def _stop(fold: Fold, view: View, queue: Queue, entry: Input, owed: list[Input]) -> None:
    queue.spent.add(entry.id)
    turn, named = fold.open, entry.message_id
    if turn is not None and concerns(answered(fold), entry.record, turn.seen):
        queue.stop = entry.id
        return
    if named is None:
        return
    talk = [entry for entry in owed if entry.role in ("message", "edit")]
    bearers = [e for e in talk if named in (e.message.get("id"), queue.ids[e.id])]
    for other in bearers:
        queue.spent.update([other.id] if other.role == "message" else _with_edited(fold, view, other, owed))
    if not bearers and named not in answered(fold) and view.find(fold, named) is None:
        queue.note("unknown-target", entry.id, f"no message {named!r} to stop the answer to; spent")


def _with_edited(fold: Fold, view: View, edit: Input, owed: list[Input]) -> set[int]:
    """An owed edit and the owed messages and edits that it replaces; none where a later edit replaces it."""
    names, found = {edit.message.get("id"), edit.record["messageId"]}, {edit.id}
    if any(e.role == "edit" and e.id > edit.id and e.record["messageId"] in names for e in owed):
        return set()
    for other in reversed([e for e in owed if e.id < edit.id]):
        own = other.message.get("id") if other.role in ("message", "edit") else None
        if other.role == "edit" and not names.isdisjoint((own, other.record["messageId"])):
            names |= {own, other.record["messageId"]}
            found.add(other.id)
        elif other.role == "message" and own in names and view.find(fold, str(own)) is None:
            found.add(other.id)
    return found


# -- answers ------------------------------------------------------------------------------------------


def _answers(
    fold: Fold,
    view: View,
    queue: Queue,
    answers: list[Input],
    placed: list[tuple[tuple[int, int], Item]],
) -> None:
    groups: dict[int, list[Input]] = {}
    for entry in answers:
        position = _answer_target(fold, view, entry)
        if position is None:
            queue.spent.add(entry.id)
            queue.note(
                "unknown-call", entry.id, "answers no waiting call: unknown, or closed meanwhile; spent"
            )
        else:
            groups.setdefault(position, []).append(entry)
    done: set[int] = set()
    for position, group in groups.items():
        item = _group(view, queue, position, group)
        if item is not None:
            first = view.live and position in view.own  # they continue the open turn: before all else
            placed.append(((-1 if first else 1, item.ids[0]), item))
            done.add(position)
    for position in view.unsettled(fold):
        if view.waits(position) and position not in done:
            queue.waiting = view.messages[position].get("id")
            break
    queue.answered = any(position in view.own for position in done)


def _answer_target(fold: Fold, view: View, entry: Input) -> int | None:
    if entry.message_id is None:
        return newest_for(view.messages, view.unsettled(fold), entry) if _known(entry) else None
    position = view.find(fold, entry.message_id)
    if position is None or entry.record.get("kind") == "message":
        return position
    return position if locate(view.messages[position], entry.record) is not None else None


def _known(entry: Input) -> bool:
    return any(isinstance(entry.record.get(name), str) for name in ("toolCallId", "approvalId"))


def _group(view: View, queue: Queue, position: int, group: list[Input]) -> Item | None:
    """The answers to one message: an item, spent, or (half answered, or held back) neither."""
    message = view.messages[position]
    held = view.live and position in view.own
    over, effective = message, False
    for entry in group:
        moved = answer_call(over, entry.record)
        effective = effective or moved is not over
        over = moved
    if not effective and not held:
        for entry in group:
            queue.spent.add(entry.id)
            queue.note("late-answer", entry.id, "answers a call that is closed; spent")
        return None
    waited = view.waits(position)
    if held and not waited:
        return None
    last = position == len(view.messages) - 1
    if not waited and not last and _only_late(message):
        if position not in view.own:  # an answer to an open turn's message waits for its close
            queue.spent.update(entry.id for entry in group)
        return None
    tools = view.client_tools if held else None
    if not effective or any_waits(over, tools):
        return None
    ids = tuple(entry.id for entry in group)
    return Item(ids, "tool-answers", (over,), message.get("id"), tuple(e.record for e in group))


def _only_late(message: Message) -> bool:
    """True when what is unsettled in the message are calls that cleanup closed: nobody waits for them."""
    return all(is_settled(part) or is_interrupted(part) for _, part in calls_of(message))


# -- everything else ------------------------------------------------------------------------------------


def _talk(
    fold: Fold, view: View, queue: Queue, entries: list[Input], placed: list[tuple[tuple[int, int], Item]]
) -> None:
    heads: dict[str, list[Input]] = {}
    order: list[tuple[tuple[int, int], list[Input]]] = []
    edited = any(entry.role == "edit" for entry in entries)
    for entry in entries:
        if entry.role == "edit":
            target = entry.record["messageId"]
            group = heads.get(target)
            if group is None:
                group = heads[target] = []
                order.append((_place(fold, view, entry), group))
            group.append(entry)
            heads.setdefault(str(entry.message.get("id")), group)
        elif entry.role == "regenerate" and not _regenerable(fold, view, entry):
            queue.spent.add(entry.id)
            queue.note("unknown-target", entry.id, f"no message {entry.message_id!r} to regenerate; spent")
        else:
            group = [entry]
            order.append(((1, entry.id), group))
            own = str(entry.message.get("id")) if entry.role == "message" else ""
            # Where it is held, an edit means the one in the history.
            if edited and own and view.find(fold, own) is None:
                heads.setdefault(own, group)
            if edited and own:
                heads.setdefault(queue.ids[entry.id], group)
    placed += [(key, _item(group)) for key, group in order]


def _place(fold: Fold, view: View, entry: Input) -> tuple[int, int]:
    """Where it stands in the queue: first what edits the history, then the others in order."""
    position = view.find(fold, entry.record["messageId"]) if entry.role == "edit" else None
    in_history = position is not None and view.messages[position].get("role") == "user"
    return (0 if in_history else 1, entry.id)


def _regenerable(fold: Fold, view: View, entry: Input) -> bool:
    named = entry.record.get("messageId")
    if named is None or view.find(fold, named) is not None:
        return True
    if fold.open is not None:
        return bool(fold.open.message_id == named)
    return fold.last_turn is not None and fold.last_turn.get("messageId") == named


def _item(group: list[Input]) -> Item:
    last = group[-1]
    messages = tuple(e.message for e in group if e.role in ("message", "edit"))
    named = last.record.get("messageId") if last.role in ("edit", "regenerate") else None
    return Item(tuple(e.id for e in group), last.role, messages, named, tuple(e.record for e in group))
