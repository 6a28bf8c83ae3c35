"""A history that the host owns.

An application may keep its conversations in a database of its own. Its hook, `hydrate(session_id)`, returns
them as UIMessages; beside it the logs, and a snapshot that holds a cursor and no messages, keep what the
hook cannot: which inputs are owed, which turn is open, and what it has written so far.

* The hook is asked before the fold, and its answer is where the fold begins. What the log above the cursor
  is about to make anew is left out of it first, or it would stand there twice.
* By id its messages win over the log's, but for the message that an open turn is writing: of that the log
  knows more.
* The cursor moves only past what the hook has been seen to hold. A worker that dies between the end of a turn
  and the host's own write loses nothing: the turn is still in the tail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from snapshotter.core.calls import Message
from snapshotter.core.chain import Chain, id_of
from snapshotter.core.fold import Fold
from snapshotter.core.values import clean
from streams.errors import InvalidValue

Hydrate = Callable[[str], Sequence[Message]]
Record = dict[str, Any]

# What removes messages behind the one that it names, and that one's role.
_CUTS = {"edit": "user", "regenerate": "assistant", "truncate-after": "user"}


class NotDurable(UserWarning):
    """Something that a host may expect to survive will not."""


def asked(hydrate: Hydrate, session_id: str) -> list[Message]:
    """The hook's messages. Raises InvalidValue for what is none, and whatever the hook raises: without its
    history the session must not be shown."""
    messages: list[Message] = clean(list(hydrate(session_id)), "hydrate")
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not id_of(message) or not isinstance(message.get("parts"), list):
            raise InvalidValue("a message needs an id and a list of parts", path=f"hydrate[{index}]")
    return messages


class Hydration:
    """The hook's history laid under, and over, one reading of a session."""

    def __init__(self, given: Sequence[Message], document: Record | None) -> None:
        self._known = {id_of(message): message for message in given}
        self._given = list(given)
        self._stored = (document or {}).get("messages") or ()
        self._stand_ins: list[Message] = []

    def seed(self, fold: Fold, inputs: Iterable[Record], tail: Sequence[Record]) -> None:
        """Begin with the hook's messages, without those that the inputs and the tail will bring."""
        coming = _made(tail)
        known = {record["id"]: record for record in inputs}
        for number, record in known.items():
            if record.get("kind") in ("message", "edit") and not fold.inputs.is_applied(number):
                message = record.get("message")
                if isinstance(message, dict) and message.get("role") == "user":
                    coming.add(id_of(message))
        kept = [message for message in self._given if id_of(message) not in coming]
        self._stand_ins = _stand_ins(coming | set(self._known), known, tail)
        fold.chain = Chain([*kept, *self._stand_ins])

    def finish(self, fold: Fold) -> bool:
        """Let the hook's messages win by id. True when the hook holds every settled message, and all that a
        snapshot from before there was a hook holds: then the cursor may move."""
        self._without_stand_ins(fold)
        turn = fold.open
        for position, message in enumerate(fold.chain.messages):
            own = self._known.get(id_of(message))
            if own is not None and own != message and (turn is None or position != turn.slot):
                fold.chain.set(position, own)
        if turn is not None:
            turn.asked = [self._known.get(id_of(message), message) for message in turn.asked]
        return all(id_of(message) in self._known for message in (*fold.chain.messages, *self._stored))

    def _without_stand_ins(self, fold: Fold) -> None:
        gone = {id(message) for message in self._stand_ins}
        turn = fold.open
        for position in range(len(fold.chain) - 1, -1, -1):
            if id(fold.chain.messages[position]) in gone:
                fold.chain.splice(position, position + 1)
                if turn is not None and turn.slot is not None and turn.slot > position:
                    turn.slot -= 1


def _stand_ins(there: set[str], inputs: dict[int, Record], tail: Sequence[Record]) -> list[Message]:
    """The hook may have seen an edit or a regenerate that the tail is about to repeat: its target is gone
    then, and what the tail made after it has to go again. Something stands in for the target, where it stood:
    before all that the tail makes, and before the targets of what was done earlier."""
    found: dict[str, Message] = {}
    for record in tail:
        named = record.get("inputs")
        numbers = named if isinstance(named, list) else []
        for operation in (record, *(inputs[n] for n in numbers if type(n) is int and n in inputs)):
            target, kind = operation.get("messageId"), operation.get("kind", operation.get("op"))
            if kind in _CUTS and isinstance(target, str) and target not in there:
                found.setdefault(target, {"id": target, "role": _CUTS[kind], "parts": []})
    return list(reversed(found.values()))


def _made(tail: Iterable[Record]) -> set[str]:
    """Ids of the answers that these records make; not of those that they only continue."""
    made: set[str] = set()
    continued: set[str] = set()
    for record in tail:
        chunk = record.get("chunk")
        if record.get("control") == "turn-start":
            named = record.get("messageId")
            if record.get("mode") == "continue" and named not in made:
                continued.add(str(named))
        elif isinstance(chunk, dict) and chunk.get("type") == "start":
            named = chunk.get("messageId")
        else:
            continue
        if isinstance(named, str) and named not in continued:
            made.add(named)
    return made
