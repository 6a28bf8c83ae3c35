"""A place whose sessions have blocks and values from the first turns on."""

from __future__ import annotations

from chat_samples import SID, Place, first_turn, saying, write_all
from upkeep import HOURS

from snapshotter.core.blocks import Sizes

TINY = Sizes(inline=1, tail=1, turns=1, small=2_000, large=8_000, value=600)
LARGE = "a large value " * 80


def tiny() -> Place:
    return Place(sizes=TINY)


def session(place: Place, turns: int, *, name: str = "u") -> None:
    """So many turns, every third of which brings a large message; then a day passes."""
    for number in range(1, turns + 1):
        text = f"{LARGE} {number}" if number % 3 == 0 else f"question {number}"
        message = {"id": f"{name}{number}", "role": "user", "parts": [{"type": "text", "text": text}]}
        place.db.send(SID, message)
        with place.db.boot(SID) as booted, first_turn(booted) as turn:
            write_all(turn, saying(f"answer {number} " * 20))
    place.clock.advance(24 * HOURS)
