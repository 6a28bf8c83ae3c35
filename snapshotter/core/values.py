"""JSON values that users hand in: checked, mended, made plain.

What enters the engine must come back from the store as it went in, in any JSON library. So a value is
checked once, at the door, and nothing behind it looks again:

- NaN, infinities and integers beyond 64 bits are refused with the path of the place: one library
  writes them as null, the next as a bare token, a third as a float.
- Nesting has one limit, `MAX_DEPTH` containers, the same for accepting, storing and loading.
- Half of a surrogate pair has no UTF-8 form. Two halves that meet in one string are joined, a lone one
  becomes U+FFFD.

`clean` returns the very object when there was nothing to mend, so that a caller may ask `is` to learn
whether a value had to be changed, and pays for no copy.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from streams.errors import InvalidValue

MAX_DEPTH: Final = 200
"""Nested containers that a value may have; a chunk counts as the first of them."""

REASON_BYTES: Final = 8_192
"""Most bytes (UTF-8) of an error, reason or cause in a control record."""

_NAMES: Final = 4  # of a long path, at each of its ends

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**64 - 1


def mend_text(text: str) -> str:
    """`text` with split surrogate pairs joined and lone halves as U+FFFD; the same object if it had none."""
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        # UTF-16 is where halves are whole: what pairs up decodes as one character, the rest is replaced.
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def reason_text(value: Any) -> str:
    """What somebody said about an error, an end or a cause, as it may stand in a record: mended, and cut to
    `REASON_BYTES`. A message from elsewhere may be of any size, and must never keep a turn from ending."""
    text = mend_text(str(value))
    data = text.encode()
    if len(data) <= REASON_BYTES:
        return text
    return data[: REASON_BYTES - len("…".encode())].decode(errors="ignore") + "…"


def clean(value: Any, path: str = "") -> Any:
    """The JSON value `value`, mended where needed, or the same object where not.

    Tuples become lists, subclasses of the JSON types the plain types. `path` is put before the place
    that an error names, as in `data.x[3]`. Raises InvalidValue.
    """
    try:
        return _clean(value, MAX_DEPTH)
    except _Fault as fault:
        place = path + "".join(reversed(fault.trail))
        place = place.removeprefix(".")
        raise InvalidValue(f"{_abridged(path, fault.trail)}: {fault}", path=place) from None
    except RecursionError:
        raise InvalidValue(f"{path or 'the value'}: nested too deeply for this call", path=path) from None


def _abridged(path: str, trail: list[str]) -> str:
    """The place for a reader: of a path that nests deeply only the first and the last few names."""
    steps = [path, *reversed(trail)] if path else trail[::-1]
    if len(steps) > 2 * _NAMES + 1:
        steps = [*steps[:_NAMES], "…", *steps[-_NAMES:]]
    return "".join(steps).removeprefix(".") or "the value"


class _Fault(Exception):
    """Something `clean` refuses; `trail` is its place, innermost step first."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.trail: list[str] = []


def _clean(value: Any, room: int) -> Any:
    kind = type(value)
    if kind is str:
        return mend_text(value)
    if value is None or kind is bool:
        return value
    if kind is int:
        return _clean_int(value)
    if kind is float:
        if math.isfinite(value):
            return value
        raise _Fault(f"{value!r} is not a JSON number; use null or a string")
    if isinstance(value, dict):
        return _clean_dict(value, room - 1)
    if isinstance(value, (list, tuple)):
        return _clean_list(value, room - 1)
    return _clean_other(value, room)


def _clean_int(value: int) -> int:
    if INT_MIN <= value <= INT_MAX:
        return value
    raise _Fault("an integer beyond 64 bits; use a string")


def _clean_other(value: Any, room: int) -> Any:
    """Subclasses of the scalar types (enums, numpy floats) as their plain values; all else is refused."""
    if isinstance(value, str):
        return _clean(str.__str__(value), room)
    if isinstance(value, int):
        return _clean(int.__int__(value), room)
    if isinstance(value, float):
        return _clean(float.__float__(value), room)
    raise _Fault(f"{type(value).__name__} is not a JSON type")


def _clean_list(value: list[Any] | tuple[Any, ...], room: int) -> list[Any]:
    if room < 0:
        raise _Fault(f"nested more than {MAX_DEPTH} deep")
    out: list[Any] | None = None if type(value) is list else list(value)
    for index, item in enumerate(value):
        try:
            fresh = _clean(item, room)
        except _Fault as fault:
            fault.trail.append(f"[{index}]")
            raise
        if fresh is not item:
            if out is None:
                out = list(value)
            out[index] = fresh
    return value if out is None else out  # type: ignore[return-value]


def _clean_dict(value: dict[Any, Any], room: int) -> dict[str, Any]:
    if room < 0:
        raise _Fault(f"nested more than {MAX_DEPTH} deep")
    changed = type(value) is not dict
    out: dict[str, Any] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise _Fault(f"the key {key!r} is {type(key).__name__}; JSON keys are strings")
        name = mend_text(key if type(key) is str else str.__str__(key))
        try:
            fresh = _clean(item, room)
        except _Fault as fault:
            fault.trail.append(f".{name}")
            raise
        changed = changed or fresh is not item or name is not key
        out[name] = fresh
    if len(out) != len(value):
        raise _Fault("two keys become the same once their broken characters are replaced")
    return out if changed else value


# Fields whose null is a value. Everywhere else in a chunk or part an absent field is meant, and the
# AI SDK rejects null; these it requires, so a tool that returns None must keep `"output": null`.
_NULLABLE: Final = {
    "tool-input-available": frozenset({"input"}),
    "tool-input-error": frozenset({"input"}),
    "tool-output-available": frozenset({"output"}),
}
_PART_NULLABLE: Final = {
    "input-streaming": frozenset[str](),
    "output-available": frozenset({"input", "output"}),
}


def to_plain(value: Any) -> dict[str, Any]:
    """A chunk or message as a dict: a dict as it is, a pydantic model by alias, absent fields left out.

    Models are known by their `model_dump`; pydantic itself is not needed. Fields that are None are left
    out of the chunk, of a message's parts and of their approvals, save those that the AI SDK requires
    (`input`, `output`, `data`). Nulls inside user data stay. Raises InvalidValue for anything else.
    """
    if isinstance(value, dict):
        return value
    dump = getattr(value, "model_dump", None)
    plain = dump(by_alias=True, mode="json") if callable(dump) and not isinstance(value, type) else None
    if not isinstance(plain, dict):
        raise InvalidValue(f"a chunk or message is a dict or a model, not {type(value).__name__}")
    parts = plain.get("parts")
    if isinstance(parts, list):
        plain["parts"] = [_without_nulls(part) if isinstance(part, dict) else part for part in parts]
    return _without_nulls(plain)


def _without_nulls(item: dict[str, Any]) -> dict[str, Any]:
    kept = _nullable(item)
    plain = {key: value for key, value in item.items() if value is not None or key in kept}
    approval = plain.get("approval")
    if isinstance(approval, dict):
        plain["approval"] = {key: value for key, value in approval.items() if value is not None}
    return plain


def _nullable(item: Mapping[str, Any]) -> frozenset[str]:
    kind, state = item.get("type"), item.get("state")
    if not isinstance(kind, str):
        return frozenset()
    if kind.startswith("data-"):
        return frozenset({"data"})
    if "toolCallId" in item and isinstance(state, str):
        return _PART_NULLABLE.get(state, frozenset({"input"}))
    return _NULLABLE.get(kind, frozenset())


def loads(text: str | bytes, *, max_depth: int = MAX_DEPTH) -> Any:
    """Parse JSON from a user exactly: integers of any size, surrogate halves as they are escaped.

    NaN, infinities, numbers that overflow a float, text that is not UTF-8 and nesting beyond `max_depth`
    are refused. Raises InvalidValue, and nothing else, for any text.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        value = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
    except RecursionError:
        raise InvalidValue("JSON nested too deeply") from None
    except ValueError as error:  # JSONDecodeError and UnicodeDecodeError are kinds of it
        raise InvalidValue(f"not JSON: {error}") from None
    if text.count("[") + text.count("{") > max_depth:
        _check_depth(value, max_depth)
    return value


def _no_constant(token: str) -> NoReturn:
    raise ValueError(f"{token} is not a JSON number")


def _finite(token: str) -> float:
    number = float(token)
    if math.isinf(number):
        raise ValueError(f"{token[:32]} is beyond the range of a number")
    return number


def _check_depth(value: Any, max_depth: int) -> None:
    """Walk level by level, so that the check itself needs no depth."""
    level = [value]
    for _ in range(max_depth + 1):
        items = [item for item in level if isinstance(item, (dict, list))]
        if not items:
            return
        level = [child for item in items for child in (item.values() if isinstance(item, dict) else item)]
    raise InvalidValue(f"JSON nested more than {max_depth} deep")
