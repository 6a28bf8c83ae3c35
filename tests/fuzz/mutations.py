"""What happens to good bytes: flipped, cut, spliced, said twice, of another type, too deep, too large.

One function over a source of choices, so that Hypothesis (which shrinks) and the coverage-guided fuzzer
(which is led by what it reaches) break bytes in the same ways. `choose(n)` gives a number from 0 to n - 1.

A change inside a JSON line keeps it JSON, up to the very place: the value there becomes one of `ODD`,
written as it stands. So what lies behind the parser is reached; and with `sealed` and `reframed`, which make
the checksums fit again, what lies behind those.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from zlib import crc32

import orjson

Choose = Callable[[int], int]

ODD = (
    "null",
    "true",
    "0",
    "-1",
    "1",
    "0.5",
    "1e400",
    "NaN",
    "-Infinity",
    "9007199254740993",
    "9999999999999999",
    "18446744073709551616",
    "9" * 5000,
    '""',
    '"x"',
    '"\\ud800"',
    '"\\udc00\\ud800"',
    '"\\u0000"',
    '"\u2028\x85"',
    '"' + "x" * 70 + '"',
    '"__proto__"',
    "[]",
    "[null]",
    "[[1,2],[3]]",
    "{}",
    '{"type":5}',
    '{"":{}}',
    '{"__proto__":{"a":1}}',
    "[" * 180 + "]" * 180,
    "[" * 600 + "]" * 600,
    '{"a":' * 600 + "1" + "}" * 600,
    "[" * 990 + "]" * 990,
    "[" * 2000 + "]" * 2000,
    '1,"id":2,"type":"start"',
    "[0,0,1,1]",
)
"""JSON, nearly JSON, and what only some parsers take, as it stands in the text."""

_BYTES = (
    b"\x00",
    b"\xef\xbb\xbf",
    b"\r\n",
    b"\n\n",
    b"\xff\xfe",
    b"\xc3\x28",
    b"\xed\xa0\x80",
    b"\xe2\x80\xa8",
    b"\x1e",
    b"{",
    b"}",
    b'"',
    b"\\",
    b"data: ",
    b"9" * 40,
)
_PLACE = "\x00place\x00"


def mutated(data: bytes, choose: Choose) -> bytes:
    """The bytes with one to three changes."""
    for _ in range(1 + choose(3)):
        data = _KINDS[choose(len(_KINDS))](data, choose)
    return data


def _flip(data: bytes, choose: Choose) -> bytes:
    at = choose(len(data) or 1)
    return data[:at] + bytes(byte ^ 1 << choose(8) for byte in data[at : at + 1]) + data[at + 1 :]


def _cut(data: bytes, choose: Choose) -> bytes:
    at = choose(len(data) + 1)
    return data[:at] if choose(2) else data[:at] + data[at + 1 + choose(40) :]


def _insert(data: bytes, choose: Choose) -> bytes:
    at = choose(len(data) + 1)
    return data[:at] + _BYTES[choose(len(_BYTES))] + data[at:]


def _splice(data: bytes, choose: Choose) -> bytes:
    start, at = choose(len(data) + 1), choose(len(data) + 1)
    return data[:at] + data[start : start + 1 + choose(200)] + data[at:]


def _line(data: bytes, choose: Choose) -> bytes:
    """A line that is gone, said twice, or in the place of another."""
    lines = data.split(b"\n")
    one, other = choose(len(lines)), choose(len(lines))
    kind = choose(3)
    if kind == 0:
        del lines[one]
    elif kind == 1:
        lines.insert(other, lines[one])
    else:
        lines[one], lines[other] = lines[other], lines[one]
    return b"\n".join(lines)


def _value(data: bytes, choose: Choose) -> bytes:
    """A place inside a JSON line takes another value, another name, or goes."""
    lines = data.split(b"\n")
    at = choose(len(lines))
    prefix, brace, rest = lines[at].partition(b"{")
    try:
        found = json.loads(brace + rest) if not prefix or prefix == b"data: " else json.loads(lines[at])
    except (ValueError, RecursionError):
        return data
    prefix = prefix if prefix == b"data: " else b""
    odd = ODD[choose(len(ODD))]
    try:
        text = json.dumps(_changed(found, choose)).replace(json.dumps(_PLACE), odd)
    except RecursionError:
        return data
    lines[at] = prefix + text.encode("utf-8", "surrogatepass")
    return b"\n".join(lines)


def _changed(value: Any, choose: Choose) -> Any:
    """The value with `_PLACE` at some place in it, or with something gone, or under another name."""
    if not isinstance(value, (dict, list)) or not value or choose(6) == 0:
        return _PLACE
    if isinstance(value, list):
        at = choose(len(value))
        return [*value[:at], *([_changed(value[at], choose)] if choose(5) else []), *value[at + 1 :]]
    names = list(value)
    name, other = names[choose(len(names))], names[choose(len(names))]
    kind = choose(12)
    if kind == 0:
        return {key: item for key, item in value.items() if key != name}
    if kind == 1:
        return {**value, name: value[other]}
    return {**value, name: _changed(value[name], choose)}


# What stands twice is done twice as often: most of what lies deep is reached through a value.
_KINDS = (_flip, _cut, _insert, _splice, _line, _line, _value, _value, _value, _value)


def sealed(data: bytes) -> bytes:
    """The snapshot with a checksum that fits."""
    head = data.rpartition(b',"crc":')[0] or data.rstrip(b"}\n ")
    return b'%b,"crc":%d}' % (head, crc32(head))


def reframed(data: bytes) -> bytes:
    """The segment with checksums that fit."""
    line, _, body = data.partition(b"\n")
    fields = fields_of(line)
    fields.pop("hcrc", None)
    try:
        head = orjson.dumps({**fields, "crc": crc32(body)})[:-1]
    except orjson.JSONEncodeError:  # it nests, or counts, beyond what is written
        return data
    return b'%b,"hcrc":%d}\n%b' % (head, crc32(head), body)


def fields_of(line: bytes) -> dict[str, Any]:
    """The object of a line, {} where it holds none."""
    with suppress(ValueError):
        found = orjson.loads(line)
        return found if isinstance(found, dict) else {}
    return {}
