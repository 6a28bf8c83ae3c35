"""One session at a time, in memory: cut-offs, races, trimmed, merged and deleted logs, blocks, values."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from chat_samples import SID, Place, die, first_turn, saying, user, write_all
from roots import TESTS, documents, forget, loaded, one, turns

from snapshotter import maintenance, windows
from snapshotter.core.blocks import Sizes
from snapshotter.database import Database
from snapshotter.maintenance import Keep
from snapshotter.rebuilding import Options, source
from snapshotter.rebuilding.working import rebuild_in
from snapshotter.verify import verify
from streams import keys
from streams.buckets.memory import MemoryBucket
from streams.codec import encode_segment
from streams.errors import Unreachable
from streams.testing.faults import Call, Fault, FaultyBucket

TINY = Sizes(inline=700, tail=900, turns=3, small=2_500, large=9_000, value=400)
DAY = 24 * 3600.0

upkeep: Any = loaded(TESTS / "maintenance" / "upkeep.py")


@pytest.fixture
def place() -> Place:
    return Place()


def test_a_turn_that_is_open_is_left_out_of_what_is_written(place: Place) -> None:
    turns(place.db, SID, 2)
    before = documents(place.db)
    forget(place.db, SID)
    place.send("u3")
    session = place.db.boot(SID)
    turn = first_turn(session)
    write_all(turn, list(saying("half an answer"))[:4])
    turn.flush()
    die(session)
    assert one(place.db).status == "unsaved"
    result = one(place.db, Options("write"))
    assert (result.status, result.turns, result.messages) == ("written", 2, 4)
    assert documents(place.db) == before
    assert one(place.db).status == "same"
    assert place.db.peek(SID).resume.kind == "retry_response"


def test_before_the_first_turn_has_ended_there_is_nothing_to_write(place: Place) -> None:
    place.send("u1")
    assert one(place.db, Options("write")).status == "unsaved"
    session = place.db.boot(SID)
    first_turn(session)
    die(session)
    assert one(place.db, Options("write")).status == "unsaved"
    assert place.stored("sessions/") == {}


def test_only_what_was_durable_at_the_cut_off_counts(place: Place) -> None:
    turns(place.db, SID, 2)
    until = place.clock.now_ms()
    (old,) = place.stored("sessions/").values()
    place.clock.advance(60)
    turns(place.db, SID, 1, start=3)
    cut = Options("write", until_ms=until)
    assert one(place.db, cut).status == "newer"  # the stored one is of the third turn
    forget(place.db, SID)
    result = one(place.db, cut)
    assert (result.status, result.turns) == ("written", 2)
    (written,) = place.stored("sessions/").values()
    assert json.loads(written)["lastOutEventId"] == json.loads(old)["lastOutEventId"]
    assert place.db.peek(SID).fold.turn == 3  # the tail is folded, as ever
    assert one(place.db, Options("export", until, dest="memory://out")).turns == 2


def test_comparing_goes_as_far_as_a_snapshot_that_is_newer_than_the_cut_off(place: Place) -> None:
    turns(place.db, SID, 1)
    until = place.clock.now_ms()
    place.clock.advance(60)
    turns(place.db, SID, 1, start=2)
    result = one(place.db, Options(until_ms=until))
    assert (result.status, result.turns) == ("same", 2)


def test_a_newer_snapshot_that_comes_meanwhile_is_never_written_over(place: Place) -> None:
    turns(place.db, SID, 1)
    forget(place.db, SID)
    worked = False

    def hook(asked: Call, when: str) -> None:
        """A worker answers another turn between the reading and the writing."""
        nonlocal worked
        if asked.verb == "put" and when == "before" and not worked:
            worked = True
            turns(place.db, SID, 1, start=2)

    other = FaultyBucket(MemoryBucket(place.clock, space=place.space), clock=place.clock, hook=hook)
    result = one(Database(other, place.clock), Options("write"))
    assert (worked, result.status) == (True, "newer")
    (stored,) = place.stored("sessions/").values()
    assert json.loads(stored)["turn"] == 2


def test_an_older_snapshot_that_comes_meanwhile_is_replaced(place: Place) -> None:
    turns(place.db, SID, 1)
    (old,) = place.stored("sessions/").values()
    turns(place.db, SID, 1, start=2)
    forget(place.db, SID)
    key = keys.snapshot(SID)

    def hook(asked: Call, when: str) -> None:
        if asked.verb == "put" and when == "before" and key not in place.space.objects:
            place.db.store.put(key, old)

    other = FaultyBucket(MemoryBucket(place.clock, space=place.space), clock=place.clock, hook=hook)
    assert one(Database(other, place.clock), Options("write")).status == "written"
    (stored,) = place.stored("sessions/").values()
    assert json.loads(stored)["turn"] == 2


def test_a_worker_that_answers_at_each_request_spoils_nothing(place: Place) -> None:
    turns(place.db, SID, 1)
    answered = 1

    def hook(_: Call, when: str) -> None:
        nonlocal answered
        if when == "before" and answered < 12:
            answered += 1
            turns(place.db, SID, 1, start=answered)

    for mode in ("compare", "write"):
        answered = min(answered, 6)
        other = FaultyBucket(MemoryBucket(place.clock, space=place.space), clock=place.clock, hook=hook)
        assert one(Database(other, place.clock), Options(mode)).status in ("same", "newer")
    assert verify(place.db, SID).ok


def test_objects_that_are_tidied_away_meanwhile_make_it_read_again(place: Place) -> None:
    upkeep.session_of(place, turns=4)
    tidied = False

    def hook(asked: Call, when: str) -> None:
        nonlocal tidied
        if asked.verb == "get" and "/out/" in f"/{asked.key}" and when == "before" and not tidied:
            tidied = True
            maintenance.compact(place.db, SID)

    other = FaultyBucket(MemoryBucket(place.clock, space=place.space), clock=place.clock, hook=hook)
    result = one(Database(other, place.clock))
    assert (tidied, result.status, result.base) == (True, "same", "first")


def test_a_merged_log_is_rebuilt(place: Place) -> None:
    upkeep.session_of(place, turns=4)
    before = one(place.db)
    maintenance.compact(place.db, SID)
    after = one(place.db)
    assert (after.status, after.records) == ("same", before.records)
    assert after.segments < before.segments


def test_a_snapshot_that_stands_inside_a_merged_segment_is_compared_there(place: Place) -> None:
    place.send("u1")
    with place.db.boot(SID) as session:
        session.set_state({"n": 1})
        (inside,) = place.stored("sessions/").values()
        for turn in session.turns():
            with turn:
                write_all(turn, saying("hello"))
    turns(place.db, SID, 2, start=2)
    place.clock.advance(DAY)
    maintenance.compact(place.db, SID)
    place.db.store.put(keys.snapshot(SID), inside)
    result = one(place.db)
    assert (result.status, result.stored) == ("same", 2)


def test_a_trimmed_log_is_rebuilt_from_its_checkpoint(place: Place) -> None:
    upkeep.session_of(place, turns=4)
    maintenance.trim(place.db, SID, keep=Keep(turns=1))
    (old,) = place.stored("sessions/").values()
    turns(place.db, SID, 1, start=5)
    result = one(place.db)
    assert (result.status, result.base, result.turns) == ("same", "checkpoint", 5)
    before = documents(place.db)
    forget(place.db, SID)
    assert one(place.db, Options("write")).status == "written"
    assert documents(place.db) == before
    place.db.store.put(keys.snapshot(SID), old)
    assert one(place.db).status == "same"  # it stands where the checkpoint does


def test_a_snapshot_older_than_the_checkpoint_cannot_be_compared(place: Place) -> None:
    upkeep.session_of(place, turns=2)
    (old,) = place.stored("sessions/").values()
    turns(place.db, SID, 2, start=3)
    place.clock.advance(DAY)
    maintenance.trim(place.db, SID, keep=Keep(turns=1))
    place.db.store.put(keys.snapshot(SID), old)
    result = one(place.db)
    assert (result.status, result.ok, result.base) == ("unchecked", True, "checkpoint")
    assert one(place.db, Options("write")).status == "written"
    assert one(place.db).status == "same"


def test_a_trimmed_log_without_its_checkpoint_is_a_gap(place: Place) -> None:
    upkeep.session_of(place, turns=4)
    maintenance.trim(place.db, SID, keep=Keep(turns=1))
    for key in place.stored("checkpoints/"):
        place.db.store.delete(key)
    result = one(place.db, Options("write"))
    assert (result.status, result.error) == ("failed", "Gap")


def test_a_deleted_session_is_left(place: Place) -> None:
    turns(place.db, SID, 2)
    maintenance.delete(place.db, SID)
    before = dict(place.space.objects)
    for mode in ("compare", "write", "export"):
        assert one(place.db, Options(mode, dest="memory://out")).status == "deleted"
    assert place.space.objects == before


def test_a_history_of_somebody_else_is_left() -> None:
    history = [user("old")]
    place = Place(hydrate=lambda _session: json.loads(json.dumps(history)))
    history.append(user("u1"))
    place.send("u1")
    with place.db.boot(SID) as session:
        for turn in session.turns():
            with turn:
                write_all(turn, saying("hello"))
            history.append(session.fold.chain.messages[-1])
    with place.db.boot(SID) as session:
        assert list(session.turns()) == []
    (before,) = place.stored("sessions/").values()
    plain = Database(MemoryBucket(place.clock, space=place.space), place.clock)
    for mode in ("compare", "write"):
        assert one(plain, Options(mode)).status == "hydrated"
    assert list(place.stored("sessions/").values()) == [before]


def test_blocks_and_values_are_compared_and_written() -> None:
    place = Place(sizes=TINY)
    turns(place.db, SID, 12, text="a long answer " * 20)
    assert place.stored("blocks/")
    assert place.stored("values/")
    assert one(place.db, Options(sizes=TINY)).status == "same"
    before = place.db.history(SID)
    forget(place.db, SID)
    written = one(place.db, Options("write", sizes=TINY))
    assert written.status == "written"
    (document,) = place.stored("sessions/").values()
    assert json.loads(document)["blocks"]
    assert place.db.history(SID) == before
    assert verify(place.db, SID).ok


def test_a_lost_block_is_told_and_written_anew() -> None:
    place = Place(sizes=TINY)
    turns(place.db, SID, 12, text="a long answer " * 20)
    place.db.store.delete(next(iter(place.stored("blocks/"))))
    for mode in ("compare", "write"):
        result = one(place.db, Options(mode, sizes=TINY))
        assert (result.status, result.error) == ("failed", "Missing")
    options = Options("write", sizes=TINY, replace_unreadable=True)
    assert one(place.db, options).status == "written"
    assert one(place.db, Options(sizes=TINY)).status == "same"


def test_a_lost_value_is_told() -> None:
    place = Place(sizes=TINY)
    turns(place.db, SID, 3, text="a long answer " * 60)
    for key in place.stored("values/"):
        place.db.store.delete(key)
    result = one(place.db, Options(sizes=TINY))
    assert (result.status, result.error) == ("failed", "Missing")


def test_a_store_that_does_not_answer_is_told_for_the_session_alone(place: Place) -> None:
    turns(place.db, SID, 1)
    turns(place.db, "other", 1)
    place.bucket.plan.append(Fault("get", key=f"out/{SID}", times=0, error=lambda: Unreachable("cut")))
    found = rebuild_in(place.db, Options(), [SID, "other"])
    assert [(r.session, r.status, r.error) for r in found] == [
        (SID, "failed", "Unreachable"),
        ("other", "same", ""),
    ]


def test_a_log_is_read_in_windows(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read ahead of the fold is one window, and the inputs that it names."""
    monkeypatch.setattr(windows, "WINDOW", 3)
    turns(place.db, SID, 9)
    found = source.opened(place.db.store, SID)
    parcels = source.parcels(place.db.store, SID, found, None, found.places[-1].first)
    before = place.db.store.stats.snapshot()
    parcel = next(parcels)
    read = (place.db.store.stats.snapshot() - before).gets
    assert len(parcel.segments) == 3
    assert read == 3 + len(parcel.inputs) < len(found.places)
    rest = list(parcels)
    assert max(len(parcel.segments) for parcel in rest) == 3
    fed = [record["id"] for parcel in (parcel, *rest) for record in parcel.inputs]
    assert fed == list(range(1, 10))
    assert sum(len(parcel.segments) for parcel in (parcel, *rest)) == len(found.places)


def test_windows_are_bounded_by_bytes_as_well(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    turns(place.db, SID, 4)
    found = source.opened(place.db.store, SID)
    monkeypatch.setattr(windows, "BYTES", max(found.places[0].size, 1))
    parcels = list(source.parcels(place.db.store, SID, found, None, found.places[-1].first))
    assert [len(parcel.segments) for parcel in parcels] == [1] * len(found.places)


def test_owed_inputs_are_compared_too(place: Place) -> None:
    turns(place.db, SID, 2)
    place.send("u3")
    place.db.stop(SID, "u3")
    assert one(place.db).status == "same"
    key = keys.snapshot(SID)
    document = json.loads(place.space.objects[key].data)
    document.pop("crc")
    document["inApplied"] = [3]
    place.db.store.put(key, json.dumps(document).encode())
    result = one(place.db)
    assert result.status == "different"
    assert any(row["path"].startswith(("pending", "spent", "cursor")) for row in result.differences)


@pytest.mark.parametrize("then", ["", "stop", "send"])
def test_copies_that_no_record_names_are_compared_too(place: Place, then: str) -> None:
    """The snapshot counts them as applied, since their first is."""
    turns(place.db, SID, 1)
    place.clock.advance(DAY)
    place.send("u1")
    if then:
        place.db.stop(SID) if then == "stop" else place.send("u2")
    with place.db.boot(SID) as session:
        session.edit_history("put", message=user("u1", "other words"))
    (document,) = documents(place.db).values()
    assert int(document["lastInEventId"]) >= 2
    result = one(place.db)
    assert (result.status, result.error) == ("same", "")
    assert one(place.db, Options("write")).status == "same"


def test_an_input_far_above_the_others_is_a_gap_and_costs_one_window(place: Place) -> None:
    turns(place.db, SID, 2)
    far = 10**15
    data = encode_segment("in", [{"id": far, "ts": 1, "kind": "stop"}], nonce="stray")
    place.bucket.inner.put(keys.segment("in", SID, far), data)
    result = one(place.db)
    assert (result.status, result.error) == ("failed", "Gap")
    assert result.requests < 2_000


def test_many_differences_are_counted_and_some_listed(place: Place) -> None:
    turns(place.db, SID, 1)
    key = keys.snapshot(SID)
    document = json.loads(place.space.objects[key].data)
    document.pop("crc")
    document["state"] = {f"n{number}": number for number in range(500)}
    place.db.store.put(key, json.dumps(document).encode())
    result = one(place.db)
    assert (result.different, len(result.differences)) == (500, 200)


def test_results_travel_as_json(place: Place) -> None:
    turns(place.db, SID, 1)
    result = one(place.db)
    assert type(result).of(json.loads(json.dumps(result.to_json()))) == result
    failed = replace(result, status="failed", error="Gap", detail="gone", stored=None)
    assert type(result).of(failed.to_json()) == failed
