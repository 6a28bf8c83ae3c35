"""Reading the in log by name: each segment holds one input, and its id tells its key."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from itertools import islice

from streams import keys
from streams.buckets.base import Blob
from streams.codec import decode_segment
from streams.errors import Missing
from streams.records import Record
from streams.store import Store

from . import values
from .agreeing import InputGone, Stored, newest_inputs
from .values import Leave

JUST_NOW_MS = 1000
_WINDOW = 1000  # inputs that are fetched together


def newest_named(records: Sequence[Record]) -> int:
    """The newest input that any of these records of the out log speaks of; 0 where none does."""
    newest = 0
    for record in records:
        if "control" in record:
            lists = record.get("inputs")
            for number in (record.get("seen"), record.get("for"), *(lists if type(lists) is list else ())):
                if type(number) is int and number > newest:
                    newest = number
    return newest


def newest_input(store: Store, sid: str) -> int:
    """The newest id of the in log, 0 where it is empty."""
    return newest_inputs(store, sid)[0]


def named_input(store: Store, sid: str, number: int) -> tuple[list[Record], bool]:
    """The input of a receipt, in a list that is empty where it is not there, and whether it came just now. It
    was acknowledged, so a large message of it that is not there was lost: raises Missing."""
    found = _dated(_read(store, sid, number, ()))
    return ([], False) if found is None else ([found[0]], found[1])


def read_wanted(
    store: Store, sid: str, snapshot: Stored, newest: int, have: list[Record], leave: Leave = ()
) -> list[Record]:
    """The inputs that a fold from this snapshot needs, without those that there are."""
    applied = (snapshot.document or {}).get("inApplied") or ()
    return read_inputs(store, sid, snapshot.wants(newest, (record["id"] for record in have)), applied, leave)


def read_inputs(
    store: Store, sid: str, numbers: Iterable[int], applied: Collection[int] = (), leave: Leave = ()
) -> list[Record]:
    """The in records with these ids, fetched by name. Raises InputGone at the first that is not there, so a
    wrong newest id costs no more than one window of requests; Missing, Corrupt where a large message is not
    there, unless that is one of the errors to `leave`, or its input one of the `applied`, of which nothing is
    taken any more."""

    def one(number: int) -> Record | None:
        found = _read(store, sid, number, values.UNREADABLE if number in applied else leave)
        return None if found is None else found[0]

    records: list[Record] = []
    rest = iter(numbers)
    while window := list(islice(rest, _WINDOW)):
        found = store.gather([partial(one, n) for n in window])
        for number, record in zip(window, found, strict=True):
            if record is None:
                raise InputGone(sid, number)
            records.append(record)
    return records


def next_input(store: Store, sid: str, number: int) -> Record | None:
    """The in record with this id, as `dated_input` reads it; None while it is not there."""
    found = dated_input(store, sid, number)
    return None if found is None else found[0]


def dated_input(store: Store, sid: str, number: int) -> tuple[Record, bool] | None:
    """The in record with this id, and whether it came just now, by the store's dates (which have whole
    seconds): behind such a message nobody has thought better of it yet, so what may stand there can wait
    until its turn. A large message that is not there is looked for twice, since somebody may have redacted it
    in between; then the record comes without it."""
    try:
        return _dated(_read(store, sid, number, ()))
    except Missing:
        return _dated(_read(store, sid, number, values.ABSENT))


def _dated(found: tuple[Record, Blob] | None) -> tuple[Record, bool] | None:
    if found is None:
        return None
    record, blob = found
    if blob.modified_ms is None or blob.date_ms is None:
        return record, False
    return record, 0 <= blob.date_ms - blob.modified_ms <= JUST_NOW_MS


def _read(store: Store, sid: str, number: int, leave: Leave) -> tuple[Record, Blob] | None:
    if number > keys.MAX:
        return None  # behind the last place, which a stray key took
    key = keys.segment("in", sid, number)
    blob = store.get(key)
    segment = decode_segment(blob.data, key=key, modified_ms=blob.modified_ms) if blob is not None else None
    if blob is None or segment is None:
        return None
    return values.fill(store, sid, segment.records, leave=leave)[0], blob
