"""A client's messages against the server's: whose word counts for what.

A chat client sends its whole transcript back with each request, and its copies may be old: a tool that it
saw waiting has long answered here, an answer bears the id that the client gave it. Three rules:

* **Ids are claimed one to one, exact ids first.** A copy under a foreign id claims the first unclaimed
  answer with the same calls (same id, tool and input), or, without calls, with the same content.
* **Call ids are never unique.** Providers count them from zero in each turn, so a result is taken only
  from the message that was claimed, for the n-th call of that id there, of the same tool.
* **What is settled here stays.** A stale state takes ours, with that state's own fields; a result that
  the client brings for a call that is not settled here is kept.

An *orphan* is an answer rebuilt from a stream whose message may be stored already, in part or with results
that came another way. Merged, it adds only what is new, text included.

Pure: messages go in and come out, nothing changes in place.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .calls import RANK, Message, Part, answer_call, calls_of, is_call, parts_of, with_part
from .given import message_in, messages_in
from .tool_parts import is_interrupted, is_settled, is_tool, tool_name

_PENDING = ("input-available", "approval-requested", "approval-responded")
_OWN_FIELDS = {
    "output-available": ("output", "preliminary", "resultProviderMetadata"),
    "output-error": ("errorText", "resultProviderMetadata"),
    "output-denied": ("approval",),
    "approval-requested": ("approval",),
    "approval-responded": ("approval",),
}
_RESULT_FIELDS = frozenset({"output", "preliminary", "errorText"})
_ABSENT = object()


def reconcile(
    incoming: Sequence[Message],
    stored: Sequence[Message],
    *,
    comparable: Callable[[Message], Message] = lambda message: message,
) -> list[Message]:
    """The client's messages in the server's terms: their ids, and for each stale call the server's state.

    `comparable` turns a client's message into the form in which it would be stored (for example sanitized),
    before contents and inputs are compared. A stale copy of an answer that the client sends under its stored
    id as well is left out. A message that nothing changes keeps its identity. Raises InvalidValue, with its
    path, for what is no list of messages.
    """
    messages_in(incoming, "incoming")
    messages_in(stored, "stored")
    claims = _claims(incoming, stored, comparable)
    resolved = [
        message if row is None else _overlaid(message, stored[row])
        for message, row in zip(incoming, claims, strict=True)
    ]
    settled: dict[str, list[Part]] = {}
    for row in claims:
        for part in _settled_calls(stored[row]) if row is not None else ():
            settled.setdefault(part["toolCallId"], []).append(part)
    last = len(resolved) - 1
    return [
        message
        for at, message in enumerate(resolved)
        if at == last or claims[at] is not None or not _is_stale_copy(comparable(message), settled)
    ]


def upsert_incoming_message(stored: Sequence[Message], message: Message) -> list[Message]:
    """The server's messages with one message of a client in its place: a user message replaces the one of
    its id or is appended; an answer moves the calls of the one it is a copy of forward, and takes nothing
    away from it. Raises InvalidValue, with its path, for what is no message."""
    messages_in(stored, "stored")
    message_in(message)
    row = _claims([message], stored, lambda m: m)[0]
    if row is None:
        return [*stored, message]
    kept = list(stored)
    kept[row] = _moved(kept[row], message) if message.get("role") == "assistant" else message
    return kept


def news(incoming: Sequence[Message], stored: Sequence[Message]) -> list[Message]:
    """What a client's transcript holds that the server's does not: user messages under a new id, and, in the
    order of the transcript, copies of answers whose calls are further on there, under the stored id. Raises
    InvalidValue, with its path, for what is no list of messages."""
    messages_in(incoming, "incoming")
    messages_in(stored, "stored")
    found = []
    for message, row in zip(incoming, _claims(incoming, stored, lambda m: m), strict=True):
        if row is None:
            if message.get("role") == "user":
                found.append(message)
        elif message.get("role") == "assistant" and _moved(stored[row], message) is not stored[row]:
            found.append({**message, "id": stored[row].get("id")})
    return found


def _moved(row: Message, copy: Message) -> Message:
    return answer_call(row, {"kind": "message", "message": copy})


# -- claiming -------------------------------------------------------------------------------------------


def _claims(
    incoming: Sequence[Message], stored: Sequence[Message], comparable: Callable[[Message], Message]
) -> list[int | None]:
    """For each incoming message the stored one that it is a copy of; no stored one twice."""
    free = dict.fromkeys(range(len(stored)))
    rows: dict[str, list[int]] = {}
    for at, message in enumerate(stored):
        rows.setdefault(str(message.get("id")), []).append(at)
    claims: list[int | None] = []
    for message in incoming:
        named = rows.get(str(message.get("id"))) if message.get("id") is not None else None
        claims.append(named.pop(0) if named else None)
        if claims[-1] is not None:
            del free[claims[-1]]
    rest = [at for at, row in enumerate(claims) if row is None and incoming[at].get("role") == "assistant"]
    if rest:
        answers = _Answers(stored, free, comparable)
        for at in rest:
            claims[at] = answers.take(comparable(incoming[at]))
    return claims


class _Answers:
    """The stored answers that nobody has claimed, by their calls, or by their content where they have none. A
    client's transcript may be of any length: no answer of it is compared with all of the stored ones."""

    def __init__(
        self, stored: Sequence[Message], free: Iterable[int], comparable: Callable[[Message], Message]
    ) -> None:
        self._stored = stored
        self._by_call: dict[str, dict[int, None]] = {}
        self._by_content: dict[str, deque[int]] = {}
        for row in free:
            if stored[row].get("role") != "assistant":
                continue
            calls = _first_by_id(stored[row])
            for call in calls:
                self._by_call.setdefault(call, {})[row] = None
            if not calls:
                self._by_content.setdefault(_content(comparable(stored[row])), deque()).append(row)

    def take(self, copy: Message) -> int | None:
        """The first row that may be what the copy was made of, no longer free then: the calls that both have
        are the same calls; or, where neither has any, the content is the same."""
        calls = _first_by_id(copy)
        if not calls:
            alike = self._by_content.get(_content(copy))
            return alike.popleft() if alike else None
        near = sorted({row for call in calls for row in self._by_call.get(call, ())})
        found = next((row for row in near if _same_calls(calls, self._stored[row])), None)
        if found is not None:
            for call in _first_by_id(self._stored[found]):
                del self._by_call[call][found]
        return found


def _same_calls(calls: dict[str, Part], row: Message) -> bool:
    shared = [part for _, part in calls_of(row) if part["toolCallId"] in calls]
    return all(_same_call(part, calls[part["toolCallId"]]) for part in shared)


def _content(message: Message) -> str:
    """The parts as a text that two messages share where `same` holds of their parts."""
    return json.dumps(_whole(parts_of(message)), sort_keys=True)


def _whole(value: Any) -> Any:
    """The JSON value with each number that is whole as an integer: 1 and 1.0 are one number."""
    if isinstance(value, dict):
        return {name: _whole(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _first_by_id(message: Message) -> dict[str, Part]:
    found: dict[str, Part] = {}
    for _, part in calls_of(message):
        found.setdefault(part["toolCallId"], part)
    return found


def _same_call(a: Part, b: Part) -> bool:
    return (
        a.get("type") == b.get("type")
        and tool_name(a) == tool_name(b)
        and same(a.get("input", _ABSENT), b.get("input", _ABSENT))
    )


def same(a: Any, b: Any) -> bool:
    """Whether two values are the same JSON value: key order does not count, 1 and 1.0 are one number, and
    true is not 1."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(value, b[key]) for key, value in a.items())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    return bool(a == b)


# -- states ---------------------------------------------------------------------------------------------


def _overlaid(message: Message, row: Message) -> Message:
    """The client's message under the row's id, its stale calls in the row's state."""
    if message.get("id") != row.get("id"):
        message = {**message, "id": row.get("id")}
    if message.get("role") != "assistant":
        return message
    ours = {key: part for key, _, part in numbered(row)}
    for key, at, part in numbered(message):
        known = ours.get(key)
        if known is not None and tool_name(known) == tool_name(part):
            fresh = _up_to_date(part, known)
            if fresh is not part:
                message = with_part(message, at, fresh)
    return message


def numbered(message: Message) -> list[tuple[tuple[str, int], int, Part]]:
    """Each call as ((call id, how many calls of that id stand before it), index, part)."""
    seen: dict[str, int] = {}
    found = []
    for at, part in calls_of(message):
        call = part["toolCallId"]
        seen[call] = seen.get(call, -1) + 1
        found.append(((call, seen[call]), at, part))
    return found


def _up_to_date(part: Part, known: Part) -> Part:
    """A client's part, in the state of the server's where that is further on, or settled."""
    state, there = part.get("state"), known.get("state")
    if state == there and (not is_settled(known) or _same_result(part, known)):
        return part
    if not is_settled(known) and RANK.get(str(there), -1) <= RANK.get(str(state), -1):
        return part
    if state == "input-streaming":
        return known  # only a piece of its input is there: the client knows nothing that we do not
    fields = _OWN_FIELDS.get(str(there), ())
    kept = {name: value for name, value in part.items() if name not in _RESULT_FIELDS}
    return {**kept, "state": there, **{name: known[name] for name in fields if name in known}}


def _same_result(part: Part, known: Part) -> bool:
    return all(same(part.get(name, _ABSENT), known.get(name, _ABSENT)) for name in ("output", "errorText"))


def _settled_calls(row: Message) -> list[Part]:
    return [part for _, part in calls_of(row) if RANK.get(str(part.get("state")), -1) == RANK["output-error"]]


def _is_stale_copy(message: Message, settled: dict[str, list[Part]]) -> bool:
    """True for an answer of which nothing is left but calls that wait, each of them settled in a message
    that the client sent, too."""
    if message.get("role") != "assistant":
        return False
    parts = [p for p in parts_of(message) if not (isinstance(p, dict) and p.get("type") == "step-start")]
    return bool(parts) and all(
        is_call(part)
        and part.get("state") in (*_PENDING, "input-streaming")
        and any(_same_call(other, part) for other in settled.get(part["toolCallId"], ()))
        for part in parts
    )


# -- orphans --------------------------------------------------------------------------------------------


def merge_orphan(existing: Message, orphan: Message) -> Message:
    """The stored message with what is new in the orphan: parts that it lacks, in the orphan's order; text
    that goes on; a state that is further on. The stored message keeps its id; the orphan's metadata is laid
    over its own. Raises InvalidValue, with its path, for what is no message."""
    message_in(existing, "existing")
    message_in(orphan, "orphan")
    matched = _matches(parts_of(existing), parts_of(orphan))
    before: dict[int, list[Part]] = {}  # new parts, by the stored part that they stand before
    fresh = [dict(part) if isinstance(part, dict) else part for part in parts_of(existing)]
    waiting: list[Part] = []
    for at, part in enumerate(parts_of(orphan)):
        row = matched.get(at)
        if row is None:
            waiting.append(part)
            continue
        if waiting:
            before[row] = [*before.get(row, []), *waiting]
            waiting = []
        fresh[row] = _further(fresh[row], part)
    parts = [p for row, part in enumerate(fresh) for p in (*before.get(row, ()), part)] + waiting
    merged = {**orphan, **existing, "parts": parts}
    theirs, ours = orphan.get("metadata"), existing.get("metadata")
    if isinstance(theirs, dict) and isinstance(ours, dict):
        merged["metadata"] = {**ours, **theirs}
    elif theirs is not None:
        merged["metadata"] = theirs
    return merged


def _matches(existing: list[Any], orphan: list[Any]) -> dict[int, int]:
    """Which part of the orphan is which stored one. Calls first, by id and tool, so that none is doubled;
    the others between the calls that they stand between, the same ones before those that only begin alike."""
    rows = {key: at for key, at, _ in numbered({"parts": existing})}
    found = {}
    for key, at, part in numbered({"parts": orphan}):
        row = rows.get(key)
        if row is not None and tool_name(existing[row]) == tool_name(part):
            found[at] = row
    taken = set(found.values())
    for at, part in enumerate(orphan):
        if at in found or is_tool(part):
            continue
        low = max((row for o, row in found.items() if o < at), default=-1)
        high = min((row for o, row in found.items() if o > at and row > low), default=len(existing))
        room = [row for row in range(low + 1, high) if row not in taken]
        row = next((r for test in (same, _alike) for r in room if test(existing[r], part)), None)
        if row is not None:
            found[at] = row
            taken.add(row)
    return found


def _alike(a: Any, b: Any) -> bool:
    """True when one of two parts is the other, shorter or earlier."""
    if not isinstance(a, dict) or not isinstance(b, dict) or a.get("type") != b.get("type"):
        return False
    kind = str(a.get("type"))
    if kind in ("text", "reasoning"):
        one, other = str(a.get("text", "")), str(b.get("text", ""))
        return one.startswith(other) or other.startswith(one)
    name = next((name for name in ("id", "sourceId", "url") if name in a), None)
    return kind == "step-start" if name is None else a[name] == b.get(name)


def _further(part: Any, other: Any) -> Any:
    """The stored part, or the orphan's where that is further on."""
    if not isinstance(part, dict):
        return part
    if is_tool(part):
        if is_settled(part) or is_interrupted(other):
            return part
        ahead = RANK.get(str(other.get("state")), -1) > RANK.get(str(part.get("state")), -1)
        return other if ahead or (is_interrupted(part) and is_settled(other)) else part
    if part.get("type") in ("text", "reasoning") and len(str(other.get("text", ""))) > len(
        str(part.get("text", ""))
    ):
        return other
    return part
