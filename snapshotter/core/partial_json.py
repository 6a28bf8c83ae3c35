"""JSON that is still arriving, as the AI SDK's client reads it (`parsePartialJson`, npm `ai` 7.0.173).

Strict parse first. Failing that, the text is scanned with a small pushdown automaton that remembers the
last place at which it could be cut and closed; what is open there is closed, and the result is parsed
strictly. Failing that too, there is no value: `ABSENT`, which is not the same as JSON null.

    {"a":tr      → {"a": true}
    "\\u00        → ""
    1.5e         → 1.5
    {"a":-       → {}
    {"a":1} x    → {"a": 1}
    nope, ""     → ABSENT

The table below is that automaton. It copies its quirks, such as what it takes for the end of a literal:
the reference decides, and a differential test asks it.

Numbers are those that JavaScript would show, since this is only the preview of an input whose exact
text stands beside it: an integer beyond 64 bits is a double, one beyond a double is null.
"""

from __future__ import annotations

import json
import math
import re
from enum import Enum
from typing import Any, Final, Literal

from streams.errors import InvalidValue

from .values import INT_MAX, INT_MIN, clean


class _Absent(Enum):
    ABSENT = "absent"


ABSENT: Final = _Absent.ABSENT
"""No value can be read from the text yet."""

Absent = Literal[_Absent.ABSENT]


def parse_partial(text: str) -> Any | Absent:
    """The value of `text` as far as it has arrived, or ABSENT. Never raises for any string."""
    value = _parse(text)
    return _parse(fix_json(text)) if value is ABSENT else value


def _parse(text: str) -> Any | Absent:
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_double, parse_int=_integer)
        # One walk mends surrogates and keeps the depth limit; a deeper preview could not be stored.
        value = clean(value)
    except (ValueError, RecursionError, InvalidValue):
        return ABSENT
    return ABSENT if _forbidden(value) else value


def _refuse(token: str) -> Any:
    raise ValueError(token)


def _double(token: str) -> float | None:
    number = float(token)
    return number if math.isfinite(number) else None


def _integer(token: str) -> int | float | None:
    if len(token) > 20:
        return _double(token)
    number = int(token)
    return number if INT_MIN <= number <= INT_MAX else float(number)


def _forbidden(value: Any) -> bool:
    """Keys by which a JavaScript prototype could be polluted: the SDK refuses the whole text."""
    if isinstance(value, dict):
        maker = value.get("constructor")
        if "__proto__" in value or (isinstance(maker, dict) and "prototype" in maker):
            return True
        return any(_forbidden(item) for item in value.values())
    return isinstance(value, list) and any(_forbidden(item) for item in value)


class _S(Enum):
    ROOT = 0
    FINISH = 1
    STRING = 2
    ESCAPE = 3
    UNICODE = 4
    LITERAL = 5
    NUMBER = 6
    OBJECT_START = 7
    KEY = 8
    AFTER_KEY = 9
    BEFORE_VALUE = 10
    AFTER_VALUE = 11
    AFTER_COMMA = 12
    ARRAY_START = 13
    ARRAY_AFTER_VALUE = 14
    ARRAY_AFTER_COMMA = 15


_LITERALS: Final = ("true", "false", "null")
_DIGITS: Final = frozenset("0123456789")
_HEX: Final = frozenset("0123456789abcdefABCDEF")
_STRING_RUN: Final = re.compile(r'[^"\\]+')
_KEY_RUN: Final = re.compile(r'[^"]+')
_OPENERS: Final = {'"': _S.STRING, "{": _S.OBJECT_START, "[": _S.ARRAY_START} | dict.fromkeys(
    "ftn", _S.LITERAL
)
_CLOSERS: Final = (
    {_S.STRING: '"'}
    | dict.fromkeys(
        (_S.KEY, _S.AFTER_KEY, _S.AFTER_COMMA, _S.OBJECT_START, _S.BEFORE_VALUE, _S.AFTER_VALUE), "}"
    )
    | dict.fromkeys((_S.ARRAY_START, _S.ARRAY_AFTER_COMMA, _S.ARRAY_AFTER_VALUE), "]")
)
# In these states one expected character leads on and every other is passed over.
_EXPECT: Final = {
    _S.AFTER_COMMA: ('"', _S.KEY),
    _S.KEY: ('"', _S.AFTER_KEY),
    _S.AFTER_KEY: (":", _S.BEFORE_VALUE),
}
_VALUE_THEN: Final = {
    _S.ROOT: _S.FINISH,
    _S.BEFORE_VALUE: _S.AFTER_VALUE,
    _S.ARRAY_AFTER_COMMA: _S.ARRAY_AFTER_VALUE,
}


def fix_json(text: str) -> str:
    """`text` cut at the last place where it can be closed, and closed there."""
    scan = _Scan(text)
    at, end = 0, len(text)
    while at < end:
        at = scan.step(text[at], at)
    return scan.closed()


class _Scan:
    """The automaton's stack; `cut` is the length of the text that is kept."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.stack = [_S.ROOT]
        self.cut = 0
        self.literal = 0
        self.digits = 0

    def step(self, char: str, at: int) -> int:
        """Take the character at `at`; the place of the next one to look at."""
        state = self.stack[-1]
        if state is _S.STRING:
            return self._string(char, at)
        if state in _EXPECT:
            wanted, then = _EXPECT[state]
            if char == wanted:
                self.stack[-1] = then
            elif state is _S.KEY:
                return _end(_KEY_RUN, self.text, at)
        elif state in _VALUE_THEN:
            self._value(char, at, _VALUE_THEN[state])
        elif state is _S.NUMBER or state is _S.LITERAL:
            (self._number if state is _S.NUMBER else self._in_literal)(char, at)
            if char > "\uffff":  # JavaScript sees two characters: one ends the value, one stands behind it
                return self.step(char, at)
        elif state in (_S.ESCAPE, _S.UNICODE):
            self._escape(state, char, at)
        else:
            self._container(state, char, at)
        return at + 1

    def _string(self, char: str, at: int) -> int:
        if char == '"':
            self.stack.pop()
        elif char == "\\":
            self.stack.append(_S.ESCAPE)
            return at + 1
        else:
            at = _end(_STRING_RUN, self.text, at) - 1
        self.cut = at + 1
        return at + 1

    def _escape(self, state: _S, char: str, at: int) -> None:
        if state is _S.ESCAPE:
            if char == "u":
                self.digits = 0
                self.stack[-1] = _S.UNICODE
                return
        elif char not in _HEX:
            return
        else:
            self.digits += 1
            if self.digits < 4:
                return
        self.stack.pop()
        self.cut = at + 1

    def _value(self, char: str, at: int, then: _S) -> None:
        inner = _OPENERS.get(char, _S.NUMBER if char == "-" or char in _DIGITS else None)
        if inner is None:
            return
        if char != "-":  # a lone minus is no number yet
            self.cut = at + 1
        if inner is _S.LITERAL:
            self.literal = at
        self.stack[-1] = then
        self.stack.append(inner)

    def _container(self, state: _S, char: str, at: int) -> None:
        if state is _S.OBJECT_START and char == '"':
            self.stack[-1] = _S.KEY
        elif state is _S.OBJECT_START and char == "}":
            self._close(at)
        elif state is _S.ARRAY_START:
            if char == "]":
                self._close(at)
            else:
                self._value(char, at, _S.ARRAY_AFTER_VALUE)
        elif state is _S.ARRAY_AFTER_VALUE and char not in ",]":
            self.cut = at + 1
        else:
            self._after_value(char, at)

    def _after_value(self, char: str, at: int) -> None:
        """What a comma or a bracket means behind a value of the container on top, if one is."""
        state = self.stack[-1]
        if state is _S.AFTER_VALUE and char == ",":
            self.stack[-1] = _S.AFTER_COMMA
        elif state is _S.ARRAY_AFTER_VALUE and char == ",":
            self.stack[-1] = _S.ARRAY_AFTER_COMMA
        elif (state is _S.AFTER_VALUE and char == "}") or (state is _S.ARRAY_AFTER_VALUE and char == "]"):
            self._close(at)

    def _close(self, at: int) -> None:
        self.stack.pop()
        self.cut = at + 1

    def _number(self, char: str, at: int) -> None:
        if char in _DIGITS:
            self.cut = at + 1
        elif char not in "eE-.":
            self.stack.pop()
            self._after_value(char, at)

    def _in_literal(self, char: str, at: int) -> None:
        word = self.text[self.literal : at + 1]
        if any(literal.startswith(word) for literal in _LITERALS):
            self.cut = at + 1
            return
        self.stack.pop()
        self._after_value(char, at)

    def closed(self) -> str:
        out = [self.text[: self.cut]]
        for state in reversed(self.stack):
            if state is _S.LITERAL:
                word = self.text[self.literal :]
                out.append(next((full[len(word) :] for full in _LITERALS if full.startswith(word)), ""))
            else:
                out.append(_CLOSERS.get(state, ""))
        return "".join(out)


def _end(run: re.Pattern[str], text: str, at: int) -> int:
    """Where the run of characters that begins at `at` ends; at least one further on."""
    found = run.match(text, at)
    return found.end() if found else at + 1
