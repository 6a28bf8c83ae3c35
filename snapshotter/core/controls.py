"""Records before they are folded: control records of a wrong shape mended, packed runs cut.

What stands in a log was written by some release of this or another writer, and a fold must come through
all of it. So the reducer reads the fields of a control by their names and takes their types for granted;
here a field of another type is left out, as if it had not been given, and so is a number that no snapshot
could hold. Null is a way to say "not given".
"""

from __future__ import annotations

from typing import Any, Final

from streams.keys import MAX

Record = dict[str, Any]

ANEW: Final = ("create", "delete")
"""Fences (their `why`) with which a session begins anew: what was owed up to `for` is spent."""

_TYPES: Final[dict[str, type]] = {
    **dict.fromkeys(("ts", "turn", "attempt", "epoch", "seen", "for", "parts"), int),
    **dict.fromkeys(("run", "mode", "status", "why", "cause", "control", "upto", "messageId", "op"), str),
    **dict.fromkeys(("finishReason", "error", "reason", "detail"), str),
    **dict.fromkeys(("inputs", "clientTools", "messages", "unset"), list),
    **dict.fromkeys(("set", "message"), dict),
}


def mended(record: Record) -> tuple[Record, list[str]]:
    """The control record without fields of a wrong type, and the names of those (nulls not counted)."""
    for name, value in record.items():
        kind = _TYPES.get(name)
        if kind is not None and not _fits(value, kind):
            break
    else:
        return record, []
    wrong = [name for name, kind in _TYPES.items() if name in record and not _fits(record[name], kind)]
    kept = {name: value for name, value in record.items() if name not in wrong}
    return kept, [name for name in wrong if record[name] is not None]


def _fits(value: Any, kind: type) -> bool:
    if kind is int:
        return type(value) is int and -MAX <= value <= MAX
    return type(value) is kind


def control_of(record: Record) -> Record:
    """A record of the out log as the reducer reads it, for those who look at it by themselves: a control as
    `mended`, and of a record that holds a chunk nothing, whatever else stands in it."""
    return {} if record.get("chunk") is not None else mended(record)[0]


def from_middle(record: Record, skip: int) -> Record:
    """A packed run without its first `skip` deltas."""
    cuts: list[int] = record["cuts"]
    chunk = dict(record["chunk"])
    name = "inputTextDelta" if "inputTextDelta" in chunk else "delta"
    chunk[name] = chunk[name][cuts[skip - 1] :]
    return {**record, "id": record["id"] + skip, "chunk": chunk, "cuts": cuts[skip:]}
