"""A history that the host owns.

An application may keep its conversations in a database of its own. Its hook, `hydrate(session_id)`, returns
them as UIMessages; beside it the logs, and a snapshot that holds a cursor and no messages, keep what the
hook cannot: which inputs are owed, which turn is open, and what it has written so far.

* The hook is asked before the fold, and its answer is where the fold begins. What the log above the cursor
  is about to make anew is left out of it first, or it would stand there twice.
* By id its messages win over the log's. Of four things the log knows more: the message that an open turn is
  writing, an answer that went on after the host stored it, an answer with a settled call that the hook's copy
  lacks (the host stored text that a later attempt took back), and an edit that bears its target's own id.
* An answer that the tail goes on with, the hook may have at either length. The turn-start says how many parts
  stood there, so the hook's copy is cut to them, and the tail adds the rest once.
* The cursor moves only past what the hook has been seen to hold, every settled call with it; what it lacks is
  reported (`hydrate-behind`). A worker that
  dies between the end of a turn and the host's own write loses nothing: the turn is still in the tail.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from snapshotter.core.calls import MARK, RANK, Message, Part, calls_of, parts_of, with_part
from snapshotter.core.chain import Chain, id_of
from snapshotter.core.copies import own
from snapshotter.core.fold import Fold
from snapshotter.core.reconcile import numbered
from snapshotter.core.tool_parts import is_settled, tool_name
from snapshotter.core.values import clean
from snapshotter.hooks import answer_of
from streams.errors import InvalidValue

Hydrate = Callable[[str], Sequence[Message]]
Record = dict[str, Any]

_UNFINISHED = ("streaming", "input-streaming")

# What removes messages behind the one that it names, and that one's role.
_CUTS = {"edit": "user", "regenerate": "assistant", "truncate-after": "user"}
_NAMED = 20  # ids that a line of the report names


class NotDurable(UserWarning):
    """Something that a host may expect to survive will not."""


def asked(hydrate: Hydrate, session_id: str) -> list[Message]:
    """The hook's messages. Raises InvalidValue for what is none, and whatever the hook raises: without its
    history the session must not be shown."""
    found = answer_of(hydrate(session_id), "hydrate")
    told = f"hydrate({session_id!r})"
    if not isinstance(found, Iterable) or isinstance(found, str | bytes | Mapping):
        problem = f"{told} returned {found!r:.80}: a list of messages is needed, [] where there are none"
        raise InvalidValue(problem, path="hydrate")
    messages: list[Message] = own(clean(list(found), "hydrate"))
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not id_of(message) or not isinstance(message.get("parts"), list):
            problem = f"{told}[{index}] is {message!r:.80}: a message needs an id and a list of parts"
            raise InvalidValue(problem, path=f"hydrate[{index}]")
    return messages


class Hydration:
    """The hook's history laid under, and over, one reading of a session."""

    def __init__(self, given: Sequence[Message], document: Record | None) -> None:
        self._known = {id_of(message): message for message in given}
        self._given = list(given)
        self._stored = (document or {}).get("messages") or ()
        self._stand_ins: list[Message] = []
        self._edited: set[str] = set()
        self.behind: list[str] = []

    def seed(self, fold: Fold, inputs: Iterable[Record], tail: Sequence[Record]) -> None:
        """Begin with the hook's messages, without those that the inputs and the tail will bring."""
        known = {record["id"]: record for record in inputs}
        coming = {named for record in tail for named in _made(record, known)}
        for number, record in known.items():
            own = _brought(record)
            if own is not None and not fold.inputs.is_applied(number):
                coming.add(own)
        taken = [entry for record in tail for entry in _inputs_of(record, known)]
        self._edited = {str(e["messageId"]) for e in taken if e.get("kind") == "edit" and _brought(e) is None}
        continued = _continued(tail)
        coming -= continued.keys()
        given = (message for message in self._given if id_of(message) not in coming)
        kept = [_shortened(message, continued.get(id_of(message))) for message in given]
        self._stand_ins = self._missing({id_of(message) for message in kept}, known, tail)
        fold.chain = Chain([*kept, *self._stand_ins])

    def _missing(self, there: set[str], inputs: dict[int, Record], tail: Sequence[Record]) -> list[Message]:
        """The hook may have seen an edit or a regenerate that the tail is about to repeat: its target is gone
        then, and what the tail made after it has to go again. Something stands in for the target, where it
        stood: before all that the tail makes, and before the targets of what was done earlier. Where the hook
        still has something that the tail made before, the target was gone already and nothing was cut."""
        found: dict[Any, Message] = {}
        made: set[str] = set()
        for record in tail:
            for operation in (record, *_inputs_of(record, inputs)):
                target, kind = operation.get("messageId"), operation.get("kind", operation.get("op"))
                there_now = target in there or target in made or not isinstance(target, str)
                if kind in _CUTS and not there_now and made.isdisjoint(self._known):
                    found.setdefault(target, {"id": target, "role": _CUTS[kind], "parts": []})
                made.update({_brought(operation) or ""} - {""})
            made.update(_made(record, inputs))
        return list(reversed(found.values()))

    def finish(self, fold: Fold) -> bool:
        """Let the hook's messages win by id. True when the hook holds every settled message with its settled
        calls, and all that a snapshot from before there was a hook holds: then the cursor may move."""
        self._without_stand_ins(fold)
        turn = fold.open
        self.behind = [str(id_of(m)) for m in self._stored if id_of(m) not in self._known]
        for position, message in enumerate(fold.chain.messages):
            won = self._winner(message)
            own = self._known.get(id_of(message))
            if own is None or self._winner(message, superseding=False) != own:
                self.behind.append(str(id_of(message)))
            if won != message and (turn is None or position != turn.slot):
                fold.chain.set(position, won)
        if turn is not None:
            turn.asked = [self._winner(message) for message in turn.asked]
            turn.after = [(entry, None if m is None else self._winner(m)) for entry, m in turn.after]
        return not self.behind

    def note(self) -> Record:
        """The line of the report that says what the hook's history lacks, and what to do."""
        ids = list(dict.fromkeys(self.behind))
        more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
        detail = (
            f"the hook's history lacks {', '.join(ids[:_NAMED])}{more}, or a settled call of it:"
            " until it is there, each boot reads the log from where the cursor stands. Write db.history()"
            " back, in its order"
        )
        return {"code": "hydrate-behind", "id": 0, "detail": detail}

    def _winner(self, message: Message, *, superseding: bool = True) -> Message:
        """The hook's message, where it has one; the log's where that is an edit, goes on where the hook's
        ends, or has a settled call that the hook's lacks. A call that both have, and that is further on in
        the log, is so in the hook's, too: `superseding` says whether one counts that was closed because
        nobody answered it."""
        own = self._known.get(id_of(message))
        if own is None or own == message:
            return message if own is None else own
        if id_of(message) in self._edited or _goes_on(own, message):
            return message
        merged = _moved_on(own, message, superseding=superseding)
        return message if _lacks(merged, message) else merged

    def _without_stand_ins(self, fold: Fold) -> None:
        gone = {id(message) for message in self._stand_ins}
        turn = fold.open
        for position in range(len(fold.chain) - 1, -1, -1):
            if id(fold.chain.messages[position]) in gone:
                fold.chain.splice(position, position + 1)
                if turn is not None and turn.slot is not None and turn.slot > position:
                    turn.slot -= 1


def _goes_on(old: Message, new: Message) -> bool:
    """True when a message is what an older one became: the same kinds of parts, and more of them; or when the
    older one was stored while it was written, and the newer one is whole."""
    kinds = [[part.get("type") for part in parts_of(message)] for message in (old, new)]
    if any(part.get("state") in _UNFINISHED for part in parts_of(old)):
        return not any(part.get("state") in _UNFINISHED for part in parts_of(new))
    return len(kinds[0]) < len(kinds[1]) and kinds[1][: len(kinds[0])] == kinds[0]


def _moved_on(own: Message, message: Message, *, superseding: bool) -> Message:
    """A message whose calls are as far on as in another copy: the n-th call of an id is the same one."""
    known = {key: part for key, _, part in numbered(message)}
    for key, at, part in numbered(own):
        other = known.get(key)
        if other is None or tool_name(other) != tool_name(part) or not _is_further(other, part):
            continue
        if superseding or not _superseded(other):
            own = with_part(own, at, other)
    return own


def _is_further(part: Part, than: Part) -> bool:
    """True when a call has come further than a copy of it; a settled one goes nowhere from there."""
    if is_settled(than):
        return False
    return is_settled(part) or RANK.get(str(part.get("state")), -1) > RANK.get(str(than.get("state")), -1)


def _lacks(own: Message, message: Message) -> bool:
    """True when a message has a settled call that a copy of it has not, or has not settled. Ids of calls are
    not unique: as many have to be settled in the copy."""
    return bool(
        _settled(message) - Counter(part["toolCallId"] for _, part in calls_of(own) if is_settled(part))
    )


def _settled(message: Message) -> Counter[str]:
    """How often each call id is settled by an output or a denial. A superseded call has neither: it is closed
    in the log after the host stored its message, and no turn hands that change to the host."""
    return Counter(
        part["toolCallId"] for _, part in calls_of(message) if is_settled(part) and not _superseded(part)
    )


def _superseded(part: Part) -> bool:
    marks = part.get("resultProviderMetadata")
    own = marks.get(MARK) if isinstance(marks, dict) else None
    return isinstance(own, dict) and own.get("superseded") is True


def _continued(tail: Sequence[Record]) -> dict[str, int | None]:
    """The messages that the tail goes on with and did not begin, with how many parts they had then."""
    first: dict[str, Record] = {}
    for record in tail:
        for named in _made(record, {}):
            first.setdefault(named, record)
    return {
        named: parts if type(parts := record.get("parts")) is int else None
        for named, record in first.items()
        if record.get("mode") == "continue"
    }


def _shortened(message: Message, parts: int | None) -> Message:
    """A message without what the tail is about to add to it: the hook may have stored that already."""
    if parts is None or not 0 <= parts < len(message["parts"]):
        return message
    return {**message, "parts": message["parts"][:parts]}


def _inputs_of(record: Record, inputs: dict[int, Record]) -> list[Record]:
    """The inputs that a record names."""
    named = record.get("inputs")
    return [inputs[n] for n in named if type(n) is int and n in inputs] if isinstance(named, list) else []


def _brought(record: Record) -> str | None:
    """Id of the message that an input adds; None where it adds none. An edit under its target's own id keeps
    that message's place, so the hook's copy of it may stay where it is."""
    message = record.get("message")
    if record.get("kind") not in ("message", "edit") or not isinstance(message, dict):
        return None
    own = id_of(message)
    return None if message.get("role") != "user" or record.get("messageId") == own else own


def _made(record: Record, inputs: dict[int, Record]) -> set[str]:
    """Ids of the messages that a record of the tail makes, or goes on with."""
    chunk = record.get("chunk")
    if isinstance(chunk, dict):
        named = chunk.get("messageId") if chunk.get("type") == "start" else None
    else:
        named = record.get("messageId") if record.get("control") == "turn-start" else None
    found = {own for entry in _inputs_of(record, inputs) if (own := _brought(entry)) is not None}
    return found | ({named} if isinstance(named, str) else set())
