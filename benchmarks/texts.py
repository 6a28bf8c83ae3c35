"""The contents of the turn that is compared everywhere: hex digits that no other turn has.

They follow from a seed, so every run has the same ones, and they compress to 57 % and no further. Peers run
in environments that have nothing of this project's installed, so this module needs the standard library
alone.
"""

from __future__ import annotations

import hashlib

QUESTION, RESULT, ANSWER = 1000, 4000, 1000
"""Bytes of a user's message, a tool's result, an answer."""
TURN = 6_100
"""Bytes of a turn: these, and the tool call."""
SHORT = QUESTION + ANSWER
"""Bytes of a turn without a tool."""


def digits(seed: str, length: int) -> str:
    """So many hex digits, which follow from the seed."""
    found = ""
    while len(found) < length:
        found += hashlib.sha512(f"{seed}/{len(found)}".encode()).hexdigest()
    return found[:length]


def question(number: int) -> str:
    return digits(f"question {number}", QUESTION)


def result(number: int) -> str:
    return digits(f"result {number}", RESULT)


def answer(number: int) -> str:
    return digits(f"text {number}", ANSWER)
