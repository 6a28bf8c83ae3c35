"""An object that a deletion emptied counts as absent: who writes or copies beside a deletion succeeds whole,
or is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from blocky import LARGE, session, tiny
from chat_samples import AT_ONCE, SID, Place, user
from upkeep import check, fresh

from snapshotter import Corrupt, Database, Refused, values
from snapshotter.maintenance import delete, fork, redact
from streams import keys, log
from streams.buckets.memory import MemoryBucket
from streams.errors import Unreachable
from streams.store import Store
from streams.testing.faults import Call, FaultyBucket


def before(place: Place, prefix: str, run: Callable[[], Any], *, when: str = "before") -> Database:
    """A database before (after) whose first put or copy below this prefix something else happens."""
    ran: list[Any] = []

    def hook(asked: Call, at: str) -> None:
        if asked.verb in ("put", "copy") and asked.key.startswith(prefix) and at == when and not ran:
            ran.append(asked.key)
            run()

    bucket = FaultyBucket(MemoryBucket(place.clock, space=place.space), clock=place.clock, hook=hook)
    return Database(bucket, place.clock, recovery=AT_ONCE, sizes=place.db._sizes)


@pytest.fixture
def place() -> Place:
    made = tiny()
    session(made, 4)
    return made


def test_a_large_message_sent_beside_a_deletion_leaves_no_hole(place: Place) -> None:
    db = before(place, "in/", lambda: delete(fresh(place), SID))
    db.send(SID, user("u5", LARGE))
    assert fresh(place).history(SID) == []
    fresh(place).create(SID)
    fresh(place).send(SID, user("u6", "again"))
    assert [item.ids for item in fresh(place).peek(SID).pending] == [(6,)]
    check(place)


def test_an_input_that_comes_while_its_value_is_emptied_goes_with_it(place: Place) -> None:
    data = values.encoded(user("u5", LARGE))
    store = Store(MemoryBucket(place.clock, space=place.space), place.clock)
    ref = values.put(store, SID, data)
    sent: list[int] = []

    def send() -> None:
        sent.append(log.append_input(store, SID, lambda _: {"kind": "message", "ref": ref}))
        values.confirm(store, SID, "in", ref, data)

    delete(before(place, "values/", send), SID)
    assert sent == [5]
    assert not any(place.stored("values/").values())
    assert fresh(place).history(SID) == []
    fresh(place).create(SID)
    assert fresh(place).peek(SID).pending == []
    check(place)


def test_what_a_deletion_is_taking_is_not_stored_again(place: Place) -> None:
    data = values.encoded(user("u5", LARGE))
    store = Store(MemoryBucket(place.clock, space=place.space), place.clock)
    ref = values.put(store, SID, data)
    log.append_input(store, SID, lambda _: {"kind": "message", "ref": ref})

    def hook(asked: Call, at: str) -> None:
        if asked.verb == "put" and at == "after":
            values.confirm(store, SID, "in", ref, data)

    bucket = FaultyBucket(MemoryBucket(place.clock, space=place.space), clock=place.clock, hook=hook)
    delete(Database(bucket, place.clock, recovery=AT_ONCE), SID)
    assert not any(place.stored("values/").values())


def test_what_a_deletion_took_with_its_input_does_not_come_back(place: Place) -> None:
    db = before(place, "in/", lambda: delete(fresh(place), SID), when="after")
    db.send(SID, user("u5", f"SECRET {LARGE}"))
    assert not [key for key, data in place.stored("").items() if b"SECRET" in data]
    check(place)


def test_a_create_beside_a_deletion_that_goes_on_is_whole(place: Place) -> None:
    delete(place.db, SID)
    db = before(place, "out/", lambda: delete(fresh(place), SID))
    db.create(SID, messages=[user("new", LARGE)])
    assert [m["id"] for m in fresh(place).history(SID)] == ["new"]
    check(place)


@pytest.mark.parametrize("prefix", ["blocks/copy/", "values/copy/"])
def test_a_fork_beside_a_deletion_of_its_source_is_whole_or_refused(place: Place, prefix: str) -> None:
    try:
        fork(before(place, prefix, lambda: delete(fresh(place), SID)), SID, "copy")
    except Refused:
        with pytest.raises(Corrupt, match="empty"):
            fresh(place).history("copy")
    else:
        assert len(fresh(place).history("copy")) == 8
        check(place, "copy")


@pytest.mark.parametrize("prefix", ["blocks/copy/", "values/copy/"])
def test_a_fork_beside_a_redaction_of_its_source_is_whole(place: Place, prefix: str) -> None:
    def other() -> None:
        redact(fresh(place), SID, "u3", takeover=True)

    fork(before(place, prefix, other), SID, "copy")
    assert len(fresh(place).history("copy")) == 8
    check(place, "copy")


@pytest.mark.parametrize("inside", [True, False])
def test_a_copy_of_an_emptied_object_is_none(place: Place, inside: bool) -> None:
    store = Store(MemoryBucket(place.clock, space=place.space), place.clock)
    store.put("values/a", b"")
    assert not store.copy("values/a", "values/b", inside=inside)
    assert store.head("values/b") is None
    store.put("values/a", b"full", nonce="n")
    assert store.copy("values/a", "values/b", inside=inside)
    assert store.copy("values/a", "values/b", inside=inside), "it is there already"
    store.put("values/b", b"")
    assert not store.copy("values/a", "values/b", inside=inside)


def test_a_value_whose_reply_was_lost_and_that_was_emptied_is_written_again(place: Place) -> None:
    lost: list[str] = []

    def hook(asked: Call, at: str) -> None:
        if asked.verb == "put" and at == "after" and not lost:
            lost.append(asked.key)
            MemoryBucket(place.clock, space=place.space).put(asked.key, b"")
            raise Unreachable("the reply is lost")

    store = Store(
        FaultyBucket(MemoryBucket(place.clock, space=place.space), clock=place.clock, hook=hook), place.clock
    )
    ref = values.put(store, SID, b'"value"')
    assert lost == [keys.value(SID, ref["key"])]
    assert values.read(store, SID, ref) == "value"
