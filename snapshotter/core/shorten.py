"""Messages cut to a size that a model's context, or a row of a database, can take.

The bound is a guarantee: a message that `shorten` returns is, as compact JSON in UTF-8, no larger than the
limit, whatever made it large. What is lost is what matters least: tool outputs go first, then inputs and
error texts, data and files, reasoning, text, other fields; within a stage the largest give first, each no
more than is needed. Shape is kept: an object stays an object with its keys, a list keeps its first items,
a text its beginning, and where something is missing a marker says how much. Only when a message is nothing
but small parts do the oldest of them go. `metadata.snapshotter.shortened` tells that it happened.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

import orjson

from streams.errors import InvalidValue, TooLarge

from .calls import Message, Part, is_call, parts_of
from .given import messages_in

LEAST: Final = 48
"""Bytes below which a value is not cut: a marker needs as much."""
_MARK_ROOM: Final = 96
_DEPTH: Final = 16
_ITEM: Final = 400
_STAGES: Final = (
    ("output", "result"),
    ("input", "rawInput", "errorText"),
    ("data", "url"),
    ("reasoning",),
    ("text",),
)
_FIXED: Final = ("type", "state", "toolCallId", "toolName", "id", "role", "parts", "mediaType")


def shorten(messages: Sequence[Message], limit_bytes: int) -> list[Message]:
    """The messages, each of at most `limit_bytes` bytes; one that fits is the same object.

    Raises InvalidValue for a limit below 512 and, with its path, for what is no list of messages; TooLarge
    for a message whose id and role alone are larger.
    """
    if type(limit_bytes) is not int or limit_bytes < 512:
        raise InvalidValue(f"limit_bytes is {limit_bytes!r}; at least 512 are needed", path="limit_bytes")
    given = messages_in(messages)
    return [m if size_of(m) <= limit_bytes else _shortened(m, limit_bytes) for m in given]


def size_of(value: Any) -> int:
    """Bytes of the value as compact JSON in UTF-8."""
    try:
        return len(orjson.dumps(value))
    except (orjson.JSONEncodeError, RecursionError):
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return len(text.encode("utf-8", "surrogatepass"))


def _shortened(message: Message, limit: int) -> Message:
    original = size_of(message)
    parts = [dict(part) if isinstance(part, dict) else part for part in parts_of(message)]
    work: Message = {**message, "parts": parts} if "parts" in message else dict(message)
    owners = [part for part in parts if isinstance(part, dict)]
    room, cut = limit - _MARK_ROOM, set[int]()
    for names in _STAGES:
        fields = [(part, name) for part in owners for name in _fields(part, names)]
        cut |= _cut(fields, size_of(work) - room)
    rest = [(owner, name) for owner in (*owners, work) for name in owner if name not in _FIXED]
    cut |= _cut(rest, size_of(work) - room)
    count = len(cut - {id(work)})
    if size_of(work) > room and parts:
        count = max(count, _drop_oldest(work, room))
    return _marked(work, message, original, count, limit)


def _cut(fields: list[tuple[Part, str]], excess: int) -> set[int]:
    """Cut these fields by `excess` bytes in all, or as far as they go; identities of the parts that gave."""
    if excess <= 0 or not fields:
        return set()
    sizes = [size_of(part[name]) for part, name in fields]
    cap = max(LEAST, _level(sizes, sum(sizes) - excess))
    cut = [field for field, size in zip(fields, sizes, strict=True) if size > cap]
    for part, name in cut:
        value = part[name]
        keep_object = name == "input" and isinstance(value, dict)
        part[name] = _fit_object(value, cap, 0) if keep_object else fit(value, cap)
    return {id(part) for part, _ in cut}


def _fields(part: Part, names: tuple[str, ...]) -> list[str]:
    """The fields of a part that belong to a stage."""
    if names in (("reasoning",), ("text",)):
        reasoning = part.get("type") == "reasoning"
        return ["text"] if "text" in part and reasoning == (names == ("reasoning",)) else []
    return [name for name in names if name in part and (is_call(part) or name in ("data", "url"))]


def _level(sizes: Iterable[int], room: int) -> int:
    """The largest cap under which these sizes add up to at most `room` (0 where none does)."""
    ordered = sorted(sizes)
    for done, size in enumerate(ordered):
        share = room // (len(ordered) - done)
        if size > share:
            return max(0, share)
        room -= size
    return ordered[-1] if ordered else 0


def _drop_oldest(message: Message, room: int) -> int:
    """Leave out parts from the front until the message fits; how many went."""
    parts = message["parts"]
    sizes = [size_of(part) + 1 for part in parts]
    excess, gone = size_of(message) - room + LEAST + 40, 0
    while gone < len(parts) and excess > 0:
        excess -= sizes[gone]
        gone += 1
    note = {"type": "text", "text": f"[{gone} earlier parts left out]"}
    message["parts"] = [note, *parts[gone:]]
    return gone


def _marked(work: Message, message: Message, original: int, parts: int, limit: int) -> Message:
    """The message with the mark in its metadata; bare, where other fields left no room."""
    mark = {"shortened": {"bytes": original, "parts": parts}}
    metadata = work.get("metadata")
    kept = metadata if isinstance(metadata, dict) else {}
    own = kept.get("snapshotter")
    out = {**work, "metadata": {**kept, "snapshotter": {**own, **mark} if isinstance(own, dict) else mark}}
    if size_of(out) <= limit:
        return out
    bare: Message = {name: message[name] for name in ("id", "role") if name in message}
    if "parts" in message:
        bare["parts"] = [{"type": "text", "text": f"[message of {original} bytes left out]"}]
    bare["metadata"] = {"snapshotter": mark}
    size = size_of(bare)
    if size > limit:
        raise TooLarge(f"a message needs {size} bytes without its content", size=size, limit=limit)
    return bare


# -- values -----------------------------------------------------------------------------------------------


def fit(value: Any, cap: int, depth: int = 0) -> Any:
    """The value, cut to at most `cap` bytes (from 48 on) with its shape kept; itself where it fits."""
    size = size_of(value)
    if size <= cap:
        return value
    out: Any = _marker(size)
    if isinstance(value, str):
        out = _fit_text(value, cap)
    elif isinstance(value, dict) and depth < _DEPTH:
        out = _fit_object(value, cap, depth)
    elif isinstance(value, list) and depth < _DEPTH:
        out = _fit_list(value, cap, depth)
    return out if size_of(out) <= cap else _marker(size)


def _marker(size: int) -> str:
    return f"[{size} bytes left out]"


def _fit_text(text: str, cap: int) -> str:
    """The longest beginning that fits with a note of how many characters are missing."""
    low, high = 0, min(len(text), cap)
    while low < high:
        middle = (low + high + 1) // 2
        if size_of(_beginning(text, middle)) <= cap:
            low = middle
        else:
            high = middle - 1
    return _beginning(text, low)


def _beginning(text: str, length: int) -> str:
    return f"{text[:length]}… [{len(text) - length} characters left out]"


def _fit_list(items: list[Any], cap: int, depth: int) -> list[Any]:
    """The first items, each cut to its share, and a note of how many are missing."""
    sizes = [size_of(item) for item in items]
    share = _level(sizes, cap - 2 - len(items))
    least = max(LEAST, min(_ITEM, cap // 4))  # few items that say something are worth more than many stumps
    if share >= least:
        return [fit(item, share, depth + 1) for item in items]
    kept, left = [], cap - 2 - LEAST
    for item, size in zip(items, sizes, strict=True):
        if min(size, least) + 1 > left:
            break
        kept.append(fit(item, least, depth + 1))
        left -= min(size, least) + 1
    return [*kept, f"[{len(items) - len(kept)} items left out]"]


def _fit_object(value: dict[str, Any], cap: int, depth: int) -> dict[str, Any]:
    """The keys with their values cut to their shares; the last keys go where they do not fit."""
    sizes = [size_of(item) for item in value.values()]
    keys = [size_of(key) + 2 for key in value]
    share = _level(sizes, cap - 2 - sum(keys))
    if share >= LEAST:
        return {key: fit(item, share, depth + 1) for key, item in value.items()}
    kept: dict[str, Any] = {}
    left = cap - 2 - LEAST
    for (key, item), size, own in zip(value.items(), sizes, keys, strict=True):
        if own + min(size, LEAST) > left:
            break
        kept[key] = fit(item, LEAST, depth + 1)
        left -= own + min(size, LEAST)
    return {**kept, "…": f"{len(value) - len(kept)} left out"}
