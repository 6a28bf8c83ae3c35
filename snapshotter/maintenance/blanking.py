"""What is left of a message that is redacted, wherever it stands: pure, records in and records out.

Of the message itself stays what `core.redacted` says. In the logs the chunks that made it keep their types
and their ids, so that every other message comes out as before; a `history` record behind them, which `redact`
writes first, says what the message is now.

A fold tells which chunks made it: the very reducer that boots use, over what there is of the log. It also
tells whose call an answer was laid over, since ids of calls are not unique (many models count them from 0 in
each answer). What of this a trim has taken away, or is not told yet, as of inputs that are owed, the history
says (`Own`).

An id may have been used several times. An input that is owed brings the message if it is to bear this id; one
that is applied, if it was sent under the id, or the id is derived from its number, and no other message that
may have come of it says what it says: none is written anew whose words still stand elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from snapshotter.core.calls import Message, answer_call, calls_of, locate
from snapshotter.core.chain import id_of
from snapshotter.core.controls import control_of
from snapshotter.core.edits import named_inputs, newest_for, owed_ids
from snapshotter.core.fold import Fold
from snapshotter.core.inputs import ANSWERS, Input, InputLog
from snapshotter.core.openturn import OpenTurn
from snapshotter.core.redacted import REDACTED, blank, blank_input, marked, without
from snapshotter.core.tool_parts import is_settled

Record = dict[str, Any]
Name = tuple[str, str]
"""A call as an answer names it: `toolCallId` or `approvalId`, and the id."""

_KEPT = frozenset(
    (
        *("type", "id", "toolCallId", "toolName", "messageId", "finishReason", "approvalId", "approved"),
        *("dynamic", "preliminary", "providerExecuted", "transient", "mediaType", "sourceId"),
    )
)
_BLANK: dict[str, Any] = {
    "delta": "",
    "inputTextDelta": "",
    "input": {},
    "output": REDACTED,
    "errorText": REDACTED,
    "data": None,
    "url": "data:,",
    "title": "",
    "messageMetadata": {"redacted": True},
}
_OUTPUTS = ("tool-output-available", "tool-output-error")
_SAID = ("error", "detail")  # of a turn that ended badly: what an error chunk, or its worker, said


def blank_turn(said: dict[str, Any]) -> dict[str, Any]:
    """The same record, or a fold's `last_turn`, of a turn without the text of its error."""
    return {**said, **{name: REDACTED for name in _SAID if said.get(name) is not None}}


@dataclass(frozen=True, slots=True)
class Own:
    """What a session's history, read whole, tells of a message: its calls; which other messages have calls
    that are named alike; which message each owed answer is for; which id the message of each owed input is to
    bear; and the parts of each user message. `last`: the newest input then; what came later is another
    message, unless it is a copy."""

    calls: frozenset[Name]
    others: dict[Name, set[str]]
    owners: dict[int, str]
    bears: dict[int, str]
    parts: dict[str, Any]
    last: int


def own_of(fold: Fold, message_id: str) -> Own:
    """What the fold of a whole session, in which no turn is open, tells of the message."""
    calls: set[Name] = set()
    others: dict[Name, set[str]] = {}
    for message in fold.chain.messages:
        for name in _names_in(message):
            if message.get("id") == message_id:
                calls.add(name)
            else:
                others.setdefault(name, set()).add(id_of(message))
    owners = dict(_laid(fold, fold.inputs.owed()))
    parts = {id_of(m): m.get("parts") for m in fold.chain.messages if m.get("role") == "user"}
    return Own(frozenset(calls), others, owners, owed_ids(fold), parts, fold.inputs.last)


class Blanker:
    """Blanks one message in the records of a session, which have their large values put back in: all inputs
    are fed first, oldest first, then the out log is blanked, then the inputs. What is not the message's own
    comes back as the very same object. A chunk of no turn, whose beginning a trim that was broken off has
    deleted, may be anybody's, and is read by nobody any more: it is blanked, too.

    `inputs`: the ids of those in which it was sent. `firsts`: whose duplicate each input is, or its own id.
    `turns`: those that ended with it. `known`: the inputs as a boot knows them that goes on from a
    checkpoint, of a log without a beginning."""

    def __init__(self, message_id: str, own: Own, fold: Fold, known: InputLog | None) -> None:
        self.message_id = message_id
        self.calls = set(own.calls)
        self.inputs: set[int] = set()
        self.firsts: dict[int, int] = {}
        self.turns: set[int] = set()
        self._own = own
        self._fold = fold
        self._known = known
        self._said: set[int] = set()
        self._owners = dict(own.owners)
        self._is_its_turn = False

    def feed(self, record: Record) -> None:
        """Take notice of a record of the in log."""
        self._fold.feed(record)
        number = record["id"]
        entry = self._known.feed(record) if self._known is not None else None
        entry = entry or self._fold.inputs.get(number)
        self.firsts[number] = (entry.duplicate_of if entry is not None else None) or number
        if isinstance(record.get("message"), dict) and self._is_it(record["message"], number):
            self.inputs.add(number)

    def input(self, record: Record) -> Record:
        """A record of the in log, once the out log has told whose it is."""
        number = record["id"]
        if isinstance(record.get("message"), dict):  # an edit of it is another message, unless it kept the id
            its = number in self.inputs or number in self._said
            return marked(blank_input(record), self.firsts[number]) if its else record
        if self._answers_it(record):
            kept = without(record, "reason", "metadata", "body")
            kept |= {n: _BLANK[n] for n in ("output", "errorText") if n in record}
            return marked(kept, self.firsts[number])
        return record

    def out(self, record: Record) -> Record:
        """A record of the out log."""
        chunk = record.get("chunk")
        if chunk is None:
            return self._control(record)
        late = self._is_late(chunk)
        self._fold.apply(record)
        turn = self._fold.open
        if not isinstance(chunk, dict):
            return record
        if turn is not None:
            if not (turn.message_id == self.message_id if late is None else late):
                return record
            self.calls |= {
                (n, chunk[n]) for n in ("toolCallId", "approvalId") if isinstance(chunk.get(n), str)
            }
        kept = {name: _BLANK.get(name, value) for name, value in chunk.items() if name in {*_KEPT, *_BLANK}}
        cuts = {"cuts": [0] * len(record["cuts"])} if "cuts" in record else {}
        return {**without(record, "ref"), "chunk": kept, **cuts}

    def _control(self, record: Record) -> Record:
        told, before = control_of(record), self._fold.open
        name = told.get("control")
        if name in ("turn-start", "input-applied"):
            taken = [e for e in named_inputs(self._fold, told) if e.id not in self._fold.placed]
            self._owners |= dict(_laid(self._fold, taken))
        self._fold.apply(record)
        if name == "turn-start":
            took = any(n in self.inputs for n in told.get("inputs", ()) if type(n) is int)
            self._is_its_turn = took or told.get("messageId") == self.message_id
            return without(record, "body") if self._is_its_turn else record
        if name in ("turn-complete", "turn-release"):
            if before is None or before.turn != told.get("turn") or self.message_id not in _made(before):
                return record
            self.turns.add(before.turn)
            return blank_turn(record)
        if name == "stash" and self._is_its_turn:
            return {**record, "data": None}
        if name not in ("history", "context"):
            return record
        if told.get("op") == "redact":  # by another redaction, which may have died
            self._said.update(n for n in told.get("inputs", ()) if type(n) is int)
        found = dict(record)
        if isinstance(record.get("message"), dict) and record["message"].get("id") == self.message_id:
            found = {**without(record, "ref"), "message": blank(record["message"])}
        if isinstance(record.get("messages"), list):
            found["messages"] = [self._listed(message) for message in record["messages"]]
        return record if found == record else found

    def _listed(self, message: Any) -> Any:
        its = isinstance(message, dict) and message.get("id") == self.message_id
        return blank(message) if its else message

    def _is_it(self, message: Message, number: int) -> bool:
        """Whether this input brings the message."""
        first = self.firsts[number]
        if first in self.firsts and first != number:
            return first in self.inputs
        bears = self._own.bears.get(number)
        if bears is not None or number > self._own.last:
            return bears == self.message_id
        wanted = message.get("id")
        if not _may_bear(self.message_id, wanted, number):
            return False
        parts = self._own.parts.items()
        same = {name for name, stands in parts if name != self.message_id and stands == message.get("parts")}
        return not any(_may_bear(name, wanted, number) for name in same)

    def _answers_it(self, record: Record) -> bool:
        """Whether a record of the in log that brings no message answers one of the message's calls."""
        number, named = self.firsts[record["id"]], record.get("messageId")
        if named is not None or record.get("kind") not in ANSWERS:
            return named == self.message_id and "kind" in record
        if number in self._owners:
            return self._owners[number] == self.message_id
        name = _name_of(record)
        others = self._own.others.get(name, set())
        if self._fold.inputs.is_applied(number):  # by then none of those that the log tells of had it
            others = others.difference(map(id_of, self._fold.chain.messages))
        return name in self.calls and not others

    def _is_late(self, chunk: Any) -> bool | None:
        """Whether a result for a call of an earlier message is for this one's; None for anything else."""
        turn = self._fold.open
        if not isinstance(chunk, dict) or turn is None or chunk.get("type") not in _OUTPUTS:
            return None
        name = ("toolCallId", str(chunk.get("toolCallId")))
        if turn.acc.find_call(name[1]) is not None:
            return None
        chain = self._fold.chain
        settled = [chain.messages[at] for at in chain.unsettled() if at != turn.slot]
        for message in (*reversed(turn.done), *settled):
            index = locate(message, {name[0]: name[1]})
            if index is not None and not is_settled(message["parts"][index]):
                return message.get("id") == self.message_id
        return True if name in self.calls and name not in self._own.others else None


def _laid(fold: Fold, entries: Iterable[Input]) -> Iterator[tuple[int, str]]:
    """Which message each of these inputs answers a call of, by its id, where they are taken now, in order."""
    answers = [entry for entry in entries if entry.role == "answer"]
    if not answers:
        return
    messages, unsettled = list(fold.chain.messages), fold.chain.unsettled()
    for entry in answers:
        named = entry.message_id
        at = newest_for(messages, unsettled, entry) if named is None else fold.chain.find(named)
        if at is not None:
            yield entry.id, id_of(messages[at])
            messages[at] = answer_call(messages[at], entry.record)


def _may_bear(name: str, wanted: Any, number: int) -> bool:
    """Whether the message of an input may stand under this name, when it was sent under the wanted id."""
    return name == wanted or re.fullmatch(rf"msg-in{number}(-\d+)?", name) is not None


def _made(turn: OpenTurn) -> set[str]:
    """The ids of the messages that a turn has made."""
    return {turn.message_id, *map(id_of, turn.done)}


def _names_in(message: Message) -> Iterator[Name]:
    """A message's calls, as answers name them."""
    for _, part in calls_of(message):
        yield "toolCallId", part["toolCallId"]
        approval = part.get("approval")
        if isinstance(approval, dict) and isinstance(approval.get("id"), str):
            yield "approvalId", approval["id"]


def _name_of(record: Record) -> Name:
    """The call that an answer names."""
    kind = "toolCallId" if record.get("approvalId") is None else "approvalId"
    return kind, str(record.get(kind))
