"""Large values: a chunk or a message above a threshold, stored once, beside the logs.

The record that would hold it holds `"ref":{"key","bytes"}` in its place; in a list of messages `{"ref":…}`
stands for the message. A value is written before whatever names it. Readers put it back before anything else
sees the record, which costs them one further round trip, for all values of a reading together.

    put     the encoded value → its reference
    fill    records as read → records that hold what their references stand for
    Shelved messages as read → messages, remembering which of them are stored apart

A value that is not there is Missing, one that is not what its name and its reference say is Corrupt.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import orjson

from streams import keys, log
from streams.buckets.base import Written
from streams.errors import AccessDenied, Corrupt, Damaged, InvalidValue, Missing
from streams.keys import Log
from streams.packing import encode_line
from streams.records import Record
from streams.store import Store

from .core.apart import Apart, Ref, Unread, held_apart, ref_in
from .core.calls import Message
from .core.shapes import is_ref

_LISTS = ("history", "context")  # the controls that have a list of messages
_HELD = ("chunk", "message")

Leave = tuple[type[Exception], ...]
ABSENT: Leave = (Missing,)
UNREADABLE: Leave = (Damaged, AccessDenied)


def name_of(data: bytes, nonce: str) -> str:
    """The name of an object with these bytes."""
    return keys.content_name(hashlib.sha256(data).hexdigest(), nonce)


def put(store: Store, sid: str, data: bytes) -> Ref:
    """Store an encoded value; returns its reference. Raises what requests raise."""
    ref = {"key": name_of(data, store.clock.token()), "bytes": len(data)}
    put_named(store, sid, ref, data)
    return ref


def put_named(store: Store, sid: str, ref: Ref, data: bytes) -> Written:
    """As `put`, under a name that was made before."""
    nonce = ref["key"].partition("-")[2]
    return store.put_once(keys.value(sid, ref["key"]), data, if_absent=True, nonce=nonce, sole=True)


def confirm(store: Store, sid: str, which: Log, ref: Ref, data: bytes) -> None:
    """What names the value is durable now, in this log: see that it is still there. A process that slept
    between the two for so long that the value, which nothing named yet, was tidied away, stores it again. So
    does a sender who may write values and not read them: where it stands nothing changes. One that a deletion
    emptied is stored again only if the deletion left what names it: what it deleted does not come back."""
    try:
        head = store.head(keys.value(sid, ref["key"]))
    except AccessDenied:
        head = None
    if head is None or (not head.size and _is_named_in(store, sid, which, ref["key"])):
        put_named(store, sid, ref, data)


def _is_named_in(store: Store, sid: str, which: Log, name: str) -> bool:
    """Whether one of the log's newest segments names the value."""
    places = log.newest(store, which, sid, log.RECENT_INPUTS).entries
    blobs = store.gather([partial(store.get, place.key) for place in places if place.size])
    return any(blob is not None and name.encode() in blob.data for blob in blobs)


def encoded(value: Any) -> bytes:
    """The value as it is stored. Raises InvalidValue for what JSON cannot hold."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        raise InvalidValue(f"this cannot be stored as JSON: {error}") from error


def moved(store: Store, sid: str, record: Record, limit: int) -> tuple[Record, list[tuple[Ref, bytes]]]:
    """The record as it goes into a log, with its large chunk and messages stored apart, and what was stored.

    Raises TooLarge before anything is written, where the record as a whole is above the log's limit.
    """
    large: list[tuple[Ref, bytes]] = []
    if not any(name in record for name in (*_HELD, "messages")) or len(encode_line(record)) <= limit:
        return record, large

    def ref_of(value: Any) -> Ref | None:
        data = encoded(value)
        if len(data) <= limit:
            return None
        large.append((put(store, sid, data), data))
        return large[-1][0]

    found: Record = {}
    for name, value in record.items():
        ref = ref_of(value) if name in _HELD else None
        if ref is not None:
            found["ref"] = ref
        elif name == "messages":
            found[name] = [m if (own := ref_of(m)) is None else {"ref": own} for m in value]
        else:
            found[name] = value
    return found, large


def read(store: Store, sid: str, ref: Ref) -> Any:
    """The value that a reference stands for. Raises Missing, Corrupt, and what requests raise."""
    if not is_ref(ref):
        raise Corrupt(f"{ref!r} refers to no value")
    key = keys.value(sid, ref["key"])
    blob = store.get(key)
    if blob is None or not blob.data:
        raise _missing(key)
    if len(blob.data) != ref["bytes"] or not is_named(blob.data, ref["key"]):
        raise Corrupt(f"the value {key} is not what its name says", key=key, offset=0)
    try:
        return orjson.loads(blob.data)
    except orjson.JSONDecodeError as error:
        raise Corrupt(f"the value {key} is not JSON ({error})", key=key, offset=error.pos) from error


def _missing(key: str) -> Missing:
    return Missing(f"the value {key} is not there, and something refers to it", key=key)


def is_named(data: bytes, name: str) -> bool:
    """True when a name is of these bytes."""
    return name.startswith(hashlib.sha256(data).hexdigest())


def fill(store: Store, sid: str, records: Sequence[Record], *, leave: Leave = ()) -> list[Record]:
    """The records with what their references stand for put in its place; `ref` stays beside it. A record
    whose value cannot be read is left as it is where that is one of the errors to `leave`."""
    calls = [partial(_filled, store, sid, record, leave) for record in records if refers(record)]
    if not calls:
        return list(records)
    found = {record["id"]: record for record in store.gather(calls)}
    return [found.get(record["id"], record) for record in records]


def known(records: Sequence[Record], own: Record) -> list[Record]:
    """The records (of the in log). One that stands for the very message of `own` has it, and need not be
    read."""
    message = own.get("message")
    if message is None or not any(held_apart(record) == "message" for record in records):
        return list(records)
    same = hashlib.sha256(encoded(message)).hexdigest()

    def with_own(record: Record) -> Record:
        ref: Any = record.get("ref")
        is_same = held_apart(record) == "message" and is_ref(ref) and ref["key"].startswith(same)
        return {**record, "message": message} if is_same else record

    return [with_own(record) for record in records]


def is_apart(record: Record) -> bool:
    """Whether a record's message is stored apart, and was put back."""
    return held_apart(record) == "message" and "message" in record and is_ref(record["ref"])


def without_refs(record: Record) -> Record:
    """A filled record as a reader shows it: as if nothing were stored apart."""
    if held_apart(record) not in record:
        return record
    return {name: value for name, value in record.items() if name != "ref"}


def size_of(record: Record) -> int:
    """Bytes that a record has apart."""
    refs = [record["ref"]] if is_ref(record.get("ref")) else []
    refs += [ref for message in _listed(record) if is_ref(ref := ref_in(message))]
    return sum(ref["bytes"] for ref in refs)


def refers(record: Record) -> bool:
    """Whether something of it is stored apart and not put back in its place."""
    if "ref" not in record and "messages" not in record:
        return False  # nearly all of a log
    held = held_apart(record)
    return held not in record if held is not None else any(map(ref_in, _listed(record)))


def _listed(record: Record) -> list[Any]:
    """The list of messages in a record."""
    messages = record.get("messages") if record.get("control") in _LISTS else None
    return messages if isinstance(messages, list) else []


def _filled(store: Store, sid: str, record: Record, leave: Leave) -> Record:
    try:
        held = held_apart(record)
        if held is not None:
            return {**record, held: read(store, sid, record["ref"])}
        return {**record, "messages": Shelved(store, sid).messages(record["messages"])}
    except leave:
        return record


@contextmanager
def folding(sid: str) -> Iterator[None]:
    """What the fold needs, and was not put back, is Missing here."""
    try:
        yield
    except Unread as error:
        raise _missing(keys.value(sid, error.key)) from error


class Shelved:
    """Messages of a snapshot as they are put back in their places."""

    def __init__(self, store: Store, sid: str, apart: Apart | None = None) -> None:
        self._store = store
        self._sid = sid
        self.apart = apart or Apart()

    def messages(self, stored: Iterable[Message]) -> list[Message]:
        """The messages that these stand for. Raises Missing, Corrupt."""
        return self.lists([list(stored)])[0]

    def lists(self, stored: Sequence[Sequence[Message]]) -> list[list[Message]]:
        """As `messages`, for several lists in one round trip."""
        refs = [ref for messages in stored for message in messages if (ref := ref_in(message)) is not None]
        calls: list[Callable[[], Any]] = [partial(read, self._store, self._sid, ref) for ref in refs]
        found = iter(self._store.gather(calls) if calls else [])
        return [[self._back(message, found) for message in messages] for messages in stored]

    def _back(self, stored: Message, found: Any) -> Message:
        ref = ref_in(stored)
        if ref is None:
            return stored
        message: Message = next(found)
        if type(message) is not dict:
            key = keys.value(self._sid, ref["key"])
            raise Corrupt(f"the value {key} is no message", key=key, offset=0)
        self.apart.note(message, ref)
        return message
