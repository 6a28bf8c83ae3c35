"""Copies of JSON values, for what leaves the engine and what comes in.

Messages, records and state are values in here: nothing is ever changed in place, so copies of the history
share what did not change. Outside they are dicts like any other, and a host that shortens an output or pops
an id for its model's sake does so in place. What it gets is therefore its own, and so is what the fold keeps
of a chunk or record that somebody handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import is_
from typing import Any, TypeVar, cast

from .queue import Item

T = TypeVar("T")

_BOXES: frozenset[type[Any]] = frozenset({dict, list})


def own(value: T) -> T:
    """A copy of a JSON value that shares no dict and no list with it; texts are shared, so its cost goes with
    the number of nodes and not with their length: about 15 µs for a message with a tool call and two texts, 8
    to 20 ms for a MB of small values. Of any depth: nothing recurses."""
    kind: type[Any] = type(value)
    if kind not in _BOXES:
        return value
    copy = cast(Any, value).copy()
    boxes = [copy]
    for box in boxes:  # which grows meanwhile
        for key, item in box.items() if type(box) is dict else enumerate(box):
            if type(item) in _BOXES:
                box[key] = inner = item.copy()
                boxes.append(inner)
    return cast(T, copy)


def own_item(item: Item) -> Item:
    """An item whose messages and inputs are the caller's."""
    messages, inputs = own(list(item.messages)), own(list(item.inputs))
    return replace(item, messages=tuple(messages), inputs=tuple(inputs))


class Copies:
    """What was handed out, made when somebody first asks for it and kept while its sources are the same
    objects."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[list[Any], Any]] = {}

    def get(self, name: str, sources: Sequence[Any], make: Callable[[], T]) -> T:
        """The copy of this name. `make` returns what is copied; it is called again where a source changed."""
        kept = self._kept.get(name)
        if kept is not None and len(kept[0]) == len(sources) and all(map(is_, kept[0], sources)):
            return cast(T, kept[1])
        made = own(make())
        self._kept[name] = (list(sources), made)
        return made
