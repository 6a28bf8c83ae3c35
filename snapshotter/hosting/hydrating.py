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


def seed(fold: Fold, given: Sequence[Message], inputs: Iterable[Record], tail: Iterable[Record]) -> None:
    """Begin with the hook's messages, without those that the inputs and the tail will bring."""
    coming = _made(tail)
    for record in inputs:
        if record.get("kind") in ("message", "edit") and not fold.inputs.is_applied(record["id"]):
            message = record.get("message")
            if isinstance(message, dict) and message.get("role") == "user":
                coming.add(id_of(message))
    fold.chain = Chain(message for message in given if id_of(message) not in coming)


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


def overlay(fold: Fold, given: Sequence[Message]) -> bool:
    """Let the hook's messages win by id. True when the hook holds every settled message."""
    known = {id_of(message): message for message in given}
    slot = fold.open.slot if fold.open is not None else None
    held = True
    for position, message in enumerate(fold.chain.messages):
        own = known.get(id_of(message))
        held = held and own is not None
        if own is not None and own != message and position != slot:
            fold.chain.set(position, own)
    if fold.open is not None:
        fold.open.asked = [known.get(id_of(message), message) for message in fold.open.asked]
    return held
