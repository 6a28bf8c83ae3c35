"""The in log as the fold sees it: which inputs are owed, applied, duplicates.

An input is *owed*, *taken* (named by the open turn) or *applied*. What was applied is told by two
things, since one number cannot say "9 is done, 8 is still owed": `applied_upto`, up to which every
input is applied, and the set of those applied above it.

Idempotency. A user message has two keys, its id and the `key` given with it; other inputs have the
`key` given. An input that bears the key of a *first* among the 31 inputs before it, with the same body,
is a duplicate and is applied together with its first. With another body it is a conflict: it was
acknowledged, so it stands on its own. Every input that is no duplicate is a first. The window is what
lets a snapshot stay small: it carries the keys of the last 32 inputs and nothing older matters.

Redacted inputs. An in record of kind `redaction` says which inputs are redacted, and whose duplicate each
is: no input behind it is compared with them. An input that was written anew says whose duplicate it was, too.
So what an input is follows from what stands before it, whether that was written anew by then or not. Of one
that the out log says is redacted only what is left counts.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from .apart import is_unread
from .calls import Message
from .redacted import blank_input

WINDOW = 31  # an input's key is looked for among this many inputs before it
KEY_LIMIT = 64  # a longer key is stored as its SHA-256
_KEEP = 64  # applied inputs this far back may still be taken anew by a turn that follows a dead one

_NOT_BODY = {"id", "ts", "key", "metadata", "body", "clientTools"}
ANSWERS = ("tool-result", "tool-approval")
GONE = "deleted"
"""The kind of the in record that a deletion leaves, and an import puts in a place that it has claimed and has
nothing for: applied from the beginning."""
REDACTION = "redaction"
"""The kind of the in record by which a redaction says which inputs it writes anew; applied from the
beginning, too. `inputs`: pairs of an in id and of the id of the input whose duplicate it is, or its own."""

# The kinds that this release understands, and their own fields.
KINDS: dict[str, tuple[str, ...]] = {
    "message": ("message",),
    "edit": ("messageId", "message"),
    "tool-result": ("toolCallId", "messageId", "output", "errorText"),
    "tool-approval": ("approvalId", "toolCallId", "messageId", "approved", "reason"),
    "stop": ("messageId",),
    "action": ("name", "input"),
    "regenerate": ("messageId",),
    "close": (),
}


@dataclass(slots=True)
class Input:
    """One in record. `role` is what it is for the queue: a kind, `answer`, or `unknown`."""

    id: int
    record: dict[str, Any]
    role: str
    duplicate_of: int | None = None
    conflict_with: int | None = None

    @property
    def is_unread(self) -> bool:
        """Whether its message is stored apart, and was not there to be put back."""
        return self.role == "unknown" and is_unread(self.record)

    @property
    def message(self) -> Message:
        message: Message = self.record["message"]
        return message

    @property
    def message_id(self) -> str | None:
        """The message that the input names, or brings."""
        named = self.record.get("messageId")
        if named is None and self.record.get("kind") == "message":
            named = self.message.get("id")
        return named if isinstance(named, str) else None


def role_of(record: dict[str, Any]) -> str:
    """What an in record is for the queue; `unknown` for what this release does not understand."""
    kind = record.get("kind")
    if kind in ("message", "edit"):
        message = record.get("message")
        if not isinstance(message, dict) or not isinstance(message.get("parts", []), list):
            return "unknown"
        if not isinstance(message.get("id"), str | None):
            return "unknown"
        if kind == "edit":
            return "edit" if isinstance(record.get("messageId"), str) else "unknown"
        return {"user": "message", "assistant": "answer"}.get(str(message.get("role")), "unknown")
    if not isinstance(kind, str) or kind not in KINDS:
        return "unknown"
    if not isinstance(record.get("messageId", ""), str | None):
        return "unknown"
    return "answer" if kind in ANSWERS else kind


def body_hash(record: dict[str, Any]) -> str:
    """First 16 hex digits of the SHA-256 of the kind and the kind's own fields, keys sorted. Of a kind
    that is not known every field is its own, but those that any input may carry. "" for a record that
    nests too deeply: it counts as an unknown kind, and is nobody's duplicate."""
    kind = record.get("kind")
    own = KINDS.get(kind) if isinstance(kind, str) else None
    names = [name for name in record if name not in _NOT_BODY] if own is None else ("kind", *own)
    body = {name: record[name] for name in names if name in record}
    try:
        data = orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        return ""
    return hashlib.sha256(data).hexdigest()[:16]


def keys_of(record: dict[str, Any]) -> list[str]:
    """The idempotency keys of an in record, as they are stored."""
    message = record.get("message")
    said = None
    if record.get("kind") == "message" and isinstance(message, dict) and message.get("role") == "user":
        said = message.get("id")
    keys: list[str] = []
    for key in (said, record.get("key")):
        if not isinstance(key, str) or not key:
            continue
        short = key
        if len(key) > KEY_LIMIT:
            short = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
        if short not in keys:
            keys.append(short)
    return keys


def needed(applied_upto: int, applied: Collection[int], newest: int) -> Iterator[int]:
    """Ids of the inputs above a snapshot's `applied_upto` that a boot has to read, oldest first.

    Those that it lists as `applied` have no effect any more. They are read where an input's key may be looked
    for among them: the newest 64, and 31 before each that is not applied.
    """
    for number in range(applied_upto + 1, newest + 1):
        window = range(number, number + WINDOW + 1)
        if number > newest - _KEEP or not all(n in applied for n in window):
            yield number


def is_another(record: dict[str, Any], rows: Iterable[list[Any]]) -> bool:
    """Whether the rows of a snapshot's `keys` tell of another input at this record's place. What a deletion,
    or a redaction, leaves of one is none."""
    if record.get("kind") == GONE or _first_of(record) is not None:
        return False
    told = {(key, digest) for number, key, digest in rows if number == record["id"]}
    return bool(told) and told.isdisjoint((key, body_hash(record)) for key in keys_of(record))


def _first_of(record: dict[str, Any]) -> int | None:
    """Of an input that a redaction wrote anew: whose duplicate it was, or its own id. None for any other."""
    told = record.get("redacted")
    return told if type(told) is int and 0 < told <= record["id"] else None


def _blank(entry: Input) -> None:
    """Leave of an input what a redaction leaves."""
    entry.record = blank_input(entry.record)
    if not is_unread(entry.record):
        entry.role = role_of(entry.record)


def _is_pair(value: Any) -> bool:
    return type(value) is list and len(value) == 2 and all(type(number) is int for number in value)


class InputLog:
    """The inputs read so far, in the order of their ids."""

    def __init__(
        self,
        applied_upto: int = 0,
        applied: Iterable[int] = (),
        rows: Iterable[list[Any]] = (),
        redacted: Iterable[int] = (),
    ) -> None:
        self._redacted = set(redacted)
        self.applied_upto = applied_upto
        self.applied: set[int] = {i for i in applied if i > applied_upto}
        self._advance()
        self.last = self.applied_upto
        self.duplicates = 0
        self._inputs: OrderedDict[int, Input] = OrderedDict()
        self._copies: dict[int, list[int]] = {}
        self._firsts: dict[str, list[tuple[int, str]]] = {}
        self._sweep_at = 8 * _KEEP
        for row in rows:
            self._firsts.setdefault(row[1], []).append((row[0], row[2]))

    def feed(self, record: dict[str, Any]) -> Input | None:
        """Take the next in record. Returns None for one that was read, or covered, before."""
        number = record["id"]
        if number <= self.last:
            return None
        self.last = number
        entry = Input(number, record, "unknown")
        self._inputs[number] = entry
        self._relate(entry)
        return entry

    def _relate(self, entry: Input) -> None:
        """Tell what an input is, and whose duplicate."""
        # What was not put back, or was written anew, is compared with nothing.
        digest = "" if is_unread(entry.record) else body_hash(entry.record)
        entry.role = role_of(entry.record) if digest else "unknown"
        first = _first_of(entry.record)
        if first is None:
            same, entry.conflict_with = self._match(entry, digest)
        else:
            same = first if first < entry.id else None
        if same is not None:
            self._copy(entry, same)
        elif entry.record.get("kind") == REDACTION:
            self._bar(entry.record)
            self.apply([entry.id])
        elif entry.record.get("kind") == GONE:
            self.apply([entry.id])  # nobody ever answers it
        if entry.id in self._redacted:
            _blank(entry)

    def _copy(self, entry: Input, first: int) -> None:
        """An input is a duplicate of this one."""
        self.duplicates += entry.duplicate_of is None
        entry.duplicate_of = first
        self._copies.setdefault(first, []).append(entry.id)
        if self.is_applied(first):
            self.apply([entry.id])

    def _bar(self, record: dict[str, Any]) -> None:
        """Compare nothing any more with the inputs that a redaction names. Whose duplicate each is it says,
        too: who read some of them before they were written anew, and some behind, may have taken a copy for a
        first."""
        told = record.get("inputs")
        pairs = [pair for pair in told if _is_pair(pair)] if type(told) is list else []
        gone = {number for number, _ in pairs}
        kept = {key: [row for row in rows if row[0] not in gone] for key, rows in self._firsts.items()}
        self._firsts = {key: rows for key, rows in kept.items() if rows}
        for number, first in pairs:
            entry = self._inputs.get(number)
            if entry is not None and entry.duplicate_of != first < number < record["id"]:
                self._copy(entry, first)

    def redact(self, numbers: Iterable[int]) -> None:
        """Of these inputs nothing counts from here on but what is left of them."""
        new = set(numbers) - self._redacted
        self._redacted |= new
        for number in new & self._inputs.keys():
            _blank(self._inputs[number])

    def hole_below(self, number: int) -> int | None:
        """The oldest input below this one that was neither read nor is known as applied."""
        below = self.last + 1
        if below >= number:
            return None
        return next((n for n in range(below, number) if not self.is_applied(n)), None)

    def _match(self, entry: Input, digest: str) -> tuple[int | None, int | None]:
        """The first whose duplicate an input is; else the one, if any, whose key it has with another body."""
        keys = keys_of(entry.record) if digest else []
        near = [
            first
            for key in keys
            if key in self._firsts
            for first in self._firsts[key]
            if entry.id - WINDOW <= first[0] < entry.id
        ]
        same = [number for number, body in near if body == digest]
        if same:
            return min(same), None
        for key in keys:
            self._firsts.setdefault(key, []).append((entry.id, digest))
        return None, min((number for number, _ in near), default=None)

    def get(self, number: int) -> Input | None:
        return self._inputs.get(number)

    def bears(self, key: str) -> bool:
        """Whether an input that is known, and may be compared with, has this key."""
        return any(known in self._firsts for known in keys_of({"key": key}))

    def is_applied(self, number: int) -> bool:
        return number <= self.applied_upto or number in self.applied

    def apply(self, numbers: Iterable[int]) -> None:
        """Mark inputs, and the duplicates of them, as applied; for good."""
        fresh = {n for n in numbers if not self.is_applied(n)}
        if not fresh:
            return
        if self._copies:
            for number in list(fresh):
                fresh.update(self._copies.pop(number, ()))
        self.applied |= fresh
        self._advance()
        self._forget()

    def _advance(self) -> None:
        while self.applied_upto + 1 in self.applied:
            self.applied_upto += 1
            self.applied.discard(self.applied_upto)

    def _forget(self) -> None:
        horizon = self.applied_upto - _KEEP
        while horizon > 0 and self._inputs:
            first = next(iter(self._inputs))
            if first > horizon:
                break
            del self._inputs[first]
        if len(self._firsts) > self._sweep_at:
            self._firsts = {
                key: near
                for key, rows in self._firsts.items()
                if (near := [row for row in rows if row[0] > horizon])
            }
            self._sweep_at = 8 * _KEEP + 2 * len(self._firsts)

    def spend(self, upto: int) -> None:
        """Mark everything up to this input as applied, however much that is."""
        if upto <= self.applied_upto:
            return
        copies = [n for first in list(self._copies) if first <= upto for n in self._copies.pop(first)]
        self.applied_upto, self.applied = upto, {n for n in self.applied if n > upto}
        self._advance()
        self.apply(copies)
        self._forget()

    def owed(self, taken: Iterable[int] = ()) -> list[Input]:
        """What nobody has applied or taken, in order, duplicates left out."""
        held = set(taken)
        return [
            entry
            for entry in self._inputs.values()
            if entry.id > self.applied_upto
            and entry.id not in self.applied
            and entry.id not in held
            and entry.duplicate_of is None
        ]

    def rows(self) -> list[list[Any]]:
        """The snapshot's `keys`: firsts among the 32 inputs up to `applied_upto`, one row a key."""
        low = self.applied_upto - WINDOW
        rows = [
            [number, key, digest]
            for key, firsts in self._firsts.items()
            for number, digest in firsts
            if low <= number <= self.applied_upto
        ]
        return sorted(rows)

    def snapshot_applied(self) -> list[int]:
        return sorted(self.applied)

    def snapshot_redacted(self) -> list[int]:
        """The snapshot's `redacted`: inputs that are owed, and of which only what is left counts."""
        return sorted(number for number in self._redacted if not self.is_applied(number))
