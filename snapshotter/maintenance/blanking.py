"""What is left of a message that is redacted, wherever it stands: pure, records in and records out.

The message itself keeps its id and its role, so that everything that names it still finds it. Its text,
calls, files and metadata are one part that says `[redacted]`. In the logs the chunks that made it keep their
types and their ids, so that every other message comes out as before; a `history put` behind them, which
`redact` writes first, says what the message is now.

A fold tells which chunks made it: the very reducer that boots use, over what there is of the log.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from snapshotter.core.calls import Message, calls_of
from snapshotter.core.fold import Fold

Record = dict[str, Any]

REDACTED = "[redacted]"

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


def blank(message: Message) -> Message:
    """What stands in the message's place."""
    parts = [{"type": "text", "text": REDACTED, "state": "done"}]
    return {"id": message.get("id"), "role": message.get("role"), "parts": parts}


class Blanker:
    """Blanks one message in the records of a session, which have their large values put back in: all inputs
    are fed first, oldest first, then the out log is blanked, then the inputs. What is not the message's own
    comes back as the very same object. A chunk of no turn, whose beginning a trim that was broken off has
    deleted, may be anybody's, and is read by nobody any more: it is blanked, too."""

    def __init__(self, message_id: str, calls: Iterable[str], fold: Fold) -> None:
        self.message_id = message_id
        self.calls = set(calls)
        self.inputs: set[int] = set()
        self._fold = fold
        self._turn: Any = None

    def feed(self, record: Record) -> None:
        """Take notice of a record of the in log."""
        self._fold.feed(record)
        if isinstance(record.get("message"), dict) and self._is_it(record["message"], record["id"]):
            self.inputs.add(record["id"])

    def input(self, record: Record) -> Record:
        """A record of the in log, once the out log has told which calls are the message's."""
        message, named = record.get("message"), record.get("messageId")
        if isinstance(message, dict) and record["id"] in self.inputs:
            dropped = ("ref", "metadata", "body")
            return {**_without(record, *dropped), "message": blank(message)}
        if isinstance(message, dict):
            return record  # also an edit of it, which is another message, unless it kept the id
        if record.get("toolCallId") in self.calls or ("kind" in record and named == self.message_id):
            kept = _without(record, "reason", "metadata", "body")
            return {**kept, **{n: _BLANK[n] for n in ("output", "errorText") if n in record}}
        return record

    def out(self, record: Record) -> Record:
        """A record of the out log."""
        late = self._is_late_output(record)
        self._fold.apply(record)
        turn = self._fold.open
        chunk = record.get("chunk")
        if chunk is None:
            return self._control(record)
        if not isinstance(chunk, dict):
            return record
        if turn is not None:
            if not late and turn.message_id != self.message_id:
                return record
            if isinstance(chunk.get("toolCallId"), str):
                self.calls.add(chunk["toolCallId"])
        kept = {name: _BLANK.get(name, value) for name, value in chunk.items() if name in {*_KEPT, *_BLANK}}
        cuts = {"cuts": [0] * len(record["cuts"])} if "cuts" in record else {}
        return {**_without(record, "ref"), "chunk": kept, **cuts}

    def _control(self, record: Record) -> Record:
        name = record.get("control")
        if name == "turn-start":
            named = record.get("inputs")
            took = isinstance(named, list) and any(n in self.inputs for n in named if type(n) is int)
            self._turn = record.get("turn") if took or record.get("messageId") == self.message_id else None
            return _without(record, "body") if self._turn is not None else record
        if name == "stash" and self._turn is not None:
            return {**record, "data": None}
        if name not in ("history", "context"):
            return record
        found = dict(record)
        if isinstance(record.get("message"), dict) and record["message"].get("id") == self.message_id:
            found = {**_without(record, "ref"), "message": blank(record["message"])}
        if isinstance(record.get("messages"), list):
            found["messages"] = [self._listed(message) for message in record["messages"]]
        return record if found == record else found

    def _listed(self, message: Any) -> Any:
        its = isinstance(message, dict) and message.get("id") == self.message_id
        return blank(message) if its else message

    def _is_it(self, message: Message, number: int) -> bool:
        return self.message_id in (message.get("id"), f"msg-in{number}")

    def _is_late_output(self, record: Record) -> bool:
        """A result that came in a later turn, for a call of this message."""
        chunk, turn = record.get("chunk"), self._fold.open
        if not isinstance(chunk, dict) or turn is None or chunk.get("type") not in _OUTPUTS:
            return False
        call = chunk.get("toolCallId")
        return call in self.calls and turn.acc.find_call(str(call)) is None


def calls_in(message: Message) -> set[str]:
    """The ids of a message's tool calls."""
    return {part["toolCallId"] for _, part in calls_of(message)}


def _without(record: Record, *names: str) -> Record:
    return {name: value for name, value in record.items() if name not in names}
