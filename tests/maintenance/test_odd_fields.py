"""One field of another type, checksums and all: every door opens, or says in a typed error why not.

A log holds what some release of this or another writer left there, and the reducer takes fields of a wrong
type for fields that are not given. Whoever looks at records, headers and documents beside it has to do the
same: else a session that everybody can read raises the same error at its upkeep for ever.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import astuple
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import orjson
import pytest
from blocky import LARGE, TINY
from chat_samples import SID, Place, call, die, first_turn, result, saying, user, write_all
from hypothesis import given, settings
from hypothesis import strategies as st
from upkeep import HOURS, check, fresh

from snapshotter import Database
from snapshotter.core.queue import concerns
from snapshotter.errors import StreamError
from snapshotter.hosting.status import outcome_of
from snapshotter.maintenance import Keep, compact, delete, export, fork, gc, maintain, redact, trim
from snapshotter.rebuilding.results import Mode, Options
from snapshotter.rebuilding.working import rebuild_in
from snapshotter.verify import verify
from streams import keys
from streams.buckets.base import Blob

ODD: tuple[Any, ...] = (None, 5, "x", [], [[]], {}, True, -1, 10**17, 10**20)
STRAY = (
    *("control", "kind", "chunk", "ref", "message", "messages", "messageId", "inputs", "turn", "attempt"),
    *("ts", "why", "for", "seen", "epoch", "run", "cause", "status", "error", "mode", "cuts", "body", "data"),
    *("set", "unset", "op", "upto", "clientTools", "parts", "key", "toolCallId", "approvalId", "output"),
)
"""Fields that a record may have, put into any."""

DOCUMENT = (
    *("turn", "lastTurn", "epoch", "run", "inApplied", "keys", "unfinished", "state", "context", "blocks"),
    *("messages", "lastOutEventId", "lastOutNonce", "lastOutFirst", "lastInEventId", "lastOutTimestamp"),
    *("closed", "deleted", "hydrated", "session", "savedAt", "version"),
)
SNAPSHOT = keys.snapshot(SID)


# -- a session, and the doors to it --------------------------------------------------------------------------


@cache
def life(*, trimmed: bool = True) -> Place:
    """A session with something of everything: blocks, values, a claim, edits, an interrupted turn, inputs
    that are owed; trimmed twice, so that there are checkpoints, or whole."""
    place = Place(sizes=TINY)
    for number in range(1, 6):
        place.db.send(SID, user(f"u{number}", LARGE if number == 3 else f"question {number}"))
        with place.db.boot(SID, takeover=True, claim=number == 4) as booted, first_turn(booted) as turn:
            write_all(turn, [{"type": "start"}, call(f"c{number}"), result(f"c{number}")])
            turn.flush()
            write_all(turn, [*saying(f"answer {number}")][1:])
        place.clock.advance(24 * HOURS)
        if number == 2 and trimmed:
            trim(place.db, SID, keep=Keep(turns=1))
    with place.db.boot(SID, takeover=True) as booted:
        booted.edit_history("put", message=user("u4", "said anew"))
        booted.set_state({"a": 1})
    place.db.send(SID, user("u6"))
    dying = place.db.boot(SID, takeover=True)
    write_all(first_turn(dying), [{"type": "start"}, call("c6")])
    die(dying)
    place.db.send(SID, user("u7"))
    place.answer(takeover=True)
    place.clock.advance(24 * HOURS)
    if trimmed:
        trim(place.db, SID, keep=Keep(turns=4))
    place.db.stop(SID)
    place.db.send(SID, user("u8"))
    place.clock.advance(24 * HOURS)
    check(place)
    return place


def copy_of(place: Place) -> Place:
    """The same objects at a later time, with nothing shared."""
    other = Place(sizes=TINY)
    other.space.objects, other.space.order = dict(place.space.objects), list(place.space.order)
    other.clock.advance(place.clock.monotonic() + 1)
    other.clock._seed = place.clock._seed + 1  # no token is used twice
    return other


def boot(db: Database, **options: Any) -> None:
    db.boot(SID, takeover=True, **options).close()


def work(db: Database) -> None:
    with db.boot(SID, takeover=True) as session:
        for turn in session.turns():
            with turn:
                write_all(turn, saying("an answer"))


def rebuild(db: Database, mode: Mode) -> None:
    (found,) = rebuild_in(db, Options(mode, sizes=TINY), [SID])
    assert found.error in ("", *typed()), (found.error, found.detail)


def upkeep(db: Database) -> None:
    (kept,) = maintain(db, [SID], keep=Keep(turns=2))
    if kept.error is not None:
        raise kept.error


def typed(tree: type[StreamError] = StreamError) -> Iterator[str]:
    """The names of the package's errors."""
    yield tree.__name__
    for one in tree.__subclasses__():
        yield from typed(one)


DOORS: dict[str, Callable[[Database], Any]] = {
    "history": lambda db: db.history(SID),
    "page": lambda db: db.history(SID, limit=2),
    "follow": lambda db: list(db.records(SID, "out", after=beginning() - 1)),
    "verify": lambda db: verify(db, SID),
    "compare": lambda db: rebuild(db, "compare"),
    "export": lambda db: export(db, SID, io.BytesIO()),
    "redact, dry": lambda db: redact(db, SID, "u5", takeover=True, dry_run=True),
    "fork": lambda db: fork(db, SID, "forked"),
    "fork at a turn": lambda db: fork(db, SID, "forked too", turn=3),
    "boot": boot,
    "boot, claiming": lambda db: boot(db, claim=True),
    "boot, again": lambda db: boot(db, delivery=2),
    "work": work,
    "write": lambda db: rebuild(db, "write"),
    "compact": lambda db: compact(db, SID),
    "trim": lambda db: trim(db, SID, keep=Keep(turns=2)),
    "gc": lambda db: gc(db, SID),
    "maintain": upkeep,
    "redact": lambda db: redact(db, SID, "u5", takeover=True),
    "redact, owed": lambda db: redact(db, SID, "u8", takeover=True),
    "redact a value": lambda db: redact(db, SID, value=a_value(), takeover=True),
    "delete": lambda db: delete(db, SID),
}


def beginning() -> int:
    """The id at which the trimmed log begins."""
    return int(life().segments()[0][0]["id"])


def a_value() -> str:
    """The name of one of its large values."""
    return next(iter(life().stored("values/"))).rpartition("/")[2].removesuffix(".json")


def try_all(odd: Place) -> None:
    """Every door, each on a session of its own."""
    for name, door in DOORS.items():
        try:
            with suppress(StreamError):
                door(fresh(copy_of(odd)))
        except Exception as error:
            raise AssertionError(f"{name}: {error!r}") from error


# -- one field of another type -------------------------------------------------------------------------------


def put(place: Place, key: str, data: bytes) -> None:
    old = place.space.objects[key]
    etag = f'"{hashlib.md5(data).hexdigest()}"'
    place.space.objects[key] = Blob(data, etag, old.nonce, old.modified_ms, None)


def drop(place: Place, key: str) -> None:
    del place.space.objects[key]
    place.space.order.remove(key)


def rewrite(place: Place, key: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the lines of a segment, the header among them; its checksum fits again."""
    lines = [json.loads(line) for line in place.space.objects[key].data.splitlines()]
    for line in lines:
        change(line)
    body = b"".join(dumped(line) + b"\n" for line in lines[1:])
    header = {name: value for name, value in lines[0].items() if name != "hcrc"} | {"crc": crc32(body)}
    put(place, key, dumped(header) + b"\n" + body)


def redo(place: Place, key: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a snapshot document, which has no checksum then."""
    document = orjson.loads(place.space.objects[key].data)
    document.pop("crc", None)
    change(document)
    put(place, key, dumped(document))


def dumped(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def sort_of(line: dict[str, Any]) -> str:
    """What kind of line this is."""
    return str(line.get("control") or line.get("kind") or ("header" if "crc" in line else "chunk"))


def set_in(place: Place, sort: str, name: str, value: Any, *, newest: bool = False) -> None:
    """Set a field in all lines of one sort, or in those of the newest segment that has one."""
    for key in [key for log in ("in/", "out/") for key in place.stored(log)]:
        lines = [json.loads(line) for line in place.space.objects[key].data.splitlines()]
        if any(sort_of(line) == sort for line in lines):
            rewrite(place, key, lambda line: line.update({name: value} if sort_of(line) == sort else {}))
            if newest:
                return


def sorts() -> dict[str, list[str]]:
    """What sorts of lines there are, and the fields that they have."""
    found: dict[str, set[str]] = {}
    for log in ("in/", "out/"):
        for data in life(trimmed=False).stored(log).values():
            for line in map(json.loads, data.splitlines()):
                found.setdefault(sort_of(line), set()).update(line)
    return {sort: sorted(names - {"id", "crc", "hcrc"}) for sort, names in sorted(found.items())}


@st.composite
def odd_records(draw: st.DrawFn) -> Place:
    """The session with a field or two of its records, or headers, of another type."""
    place = copy_of(life(trimmed=draw(st.booleans())))
    for _ in range(draw(st.integers(1, 2))):
        sort = draw(st.sampled_from(list(sorts())))
        name = draw(st.sampled_from(sorts()[sort]) | st.sampled_from(STRAY))
        set_in(place, sort, name, draw(st.sampled_from(ODD)), newest=draw(st.booleans()))
    if draw(st.booleans()):
        drop(place, SNAPSHOT)
    return place


@st.composite
def odd_documents(draw: st.DrawFn) -> Place:
    """The session with one field of its snapshot, or its checkpoint, of another type, or gone."""
    place = copy_of(life())

    def change(document: dict[str, Any]) -> None:
        name = draw(st.sampled_from(DOCUMENT))
        found = document.get(name)
        inner = found[-1] if isinstance(found, list) and found else found
        if isinstance(inner, dict) and inner and draw(st.booleans()):
            document, name = inner, draw(st.sampled_from([*inner, "turn", "messageId"]))
        document[name] = draw(st.sampled_from(ODD))
        if draw(st.booleans()):
            del document[name]

    redo(place, draw(st.sampled_from([SNAPSHOT, *life().stored("checkpoints/")])), change)
    return place


MANY = settings(max_examples=45, deadline=None, database=None)


@MANY
@given(odd_records())
def test_an_odd_record_makes_no_door_fail_untyped(odd: Place) -> None:
    try_all(odd)


@MANY
@given(odd_documents())
def test_an_odd_document_makes_no_door_fail_untyped(odd: Place) -> None:
    try_all(odd)


@pytest.mark.parametrize(
    ("sort", "name", "value", "bare"),
    [
        ("turn-start", "inputs", None, True),
        ("turn-start", "inputs", 5, True),
        ("chunk", "inputs", 5, False),
        ("message", "ref", {}, True),
        ("message", "ref", [[]], True),
        ("message", "messageId", {}, False),
        ("history", "ref", {}, True),
        ("turn-complete", "control", [[]], True),
        ("turn-complete", "status", 5, True),
        ("fence", "why", [], True),
    ],
)
def test_no_door_takes_a_field_for_granted(sort: str, name: str, value: Any, bare: bool) -> None:
    odd = copy_of(life(trimmed=False))
    set_in(odd, sort, name, value, newest=name == "ref")  # one of the others is stored apart
    if bare:
        drop(odd, SNAPSHOT)
    try_all(odd)


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document.update(turn=None),
        lambda document: document.update(turn=-1),
        lambda document: document.pop("turn"),
        lambda document: document["lastTurn"].update(turn=[]),
        lambda document: document["lastTurn"].update(messageId={}),
        lambda document: document["lastTurn"].update(status=5),
    ],
)
@pytest.mark.parametrize("where", ["sessions/", "checkpoints/"])
def test_no_door_takes_the_turn_of_a_document_for_granted(
    where: str, change: Callable[[dict[str, Any]], None]
) -> None:
    odd = copy_of(life())
    key = next(iter(odd.stored(where)))  # the newest
    redo(odd, key, change)
    try_all(odd)


# -- what comes of it ----------------------------------------------------------------------------------------


def test_a_stray_reference_does_not_take_the_place_of_its_message() -> None:
    odd = Place(sizes=TINY)
    odd.send("u1")
    set_in(odd, "message", "ref", {})
    odd.answer("seen")
    assert odd.db.history(SID)[0]["id"] == "u1"
    assert orjson.loads(odd.stored(SNAPSHOT)[SNAPSHOT])["lastInEventId"] == "1"
    check(odd)


@pytest.mark.parametrize("name", ["turn", "epoch", "ts"])
def test_a_number_that_no_snapshot_could_hold_does_not_get_into_one(name: str) -> None:
    odd = Place()
    odd.send("u1")
    odd.answer()
    drop(odd, SNAPSHOT)
    set_in(odd, "turn-start", name, 10**17)
    odd.send("u2")
    odd.answer(takeover=True)
    check(odd)
    assert [m["role"] for m in fresh(odd).history(SID)] == ["user", "assistant"] * 2


def test_a_redaction_finds_the_turn_whose_number_is_odd() -> None:
    """What the turn was started with, and what it told of its error, go with its message."""
    odd = Place()
    odd.send("u1")
    with odd.db.boot(SID) as session, first_turn(session) as turn:
        write_all(turn, saying("an answer"))
        turn.stash({"secret": "stashed"})
    set_in(odd, "turn-start", "turn", None)
    set_in(odd, "turn-start", "body", {"secret": "sent"})
    answer = odd.db.history(SID)[-1]["id"]
    redact(fresh(odd), SID, answer, takeover=True)
    assert not [data for data in odd.stored("out/").values() if b"stashed" in data or b"sent" in data]


@pytest.mark.parametrize("bare", [False, True])
def test_how_a_turn_ended_is_told_in_texts(bare: bool, tmp_path: Path) -> None:
    """Of a turn-complete, and of a snapshot that repeats it; a table of all sessions has columns of text."""
    odd = Place()
    odd.send("u1")
    odd.answer()
    texts = dict.fromkeys(("status", "finishReason", "error", "reason", "detail"), 5)
    for name, value in texts.items():
        set_in(odd, "turn-complete", name, value)
    redo(odd, SNAPSHOT, lambda document: document["lastTurn"].update(texts))
    if bare:
        drop(odd, SNAPSHOT)
    outcome = outcome_of(fresh(odd).peek(SID).fold)
    assert outcome is not None
    assert [type(told) for told in astuple(outcome)[3:]] == [type(None)] * 4
    assert outcome.status == ("completed" if bare else "")
    options = Options("export", dest=tmp_path.as_uri(), format="parquet")
    assert [found.status for found in rebuild_in(fresh(odd), options, [SID])] == ["exported"]


def test_a_stop_that_names_something_odd_stops_nothing() -> None:
    assert not concerns({"u1"}, {"id": 3, "kind": "stop", "messageId": {}}, 2)
    assert concerns({"u1"}, {"id": 3, "kind": "stop", "messageId": "u1"}, 2)
