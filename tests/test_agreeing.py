"""Snapshot and logs that do not speak of the same session: restored, expired or copied one without the other,
damaged, or changed by somebody else. A boot takes nothing for healthy that is not."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from chat_samples import SID, Place, first_turn, saying, user, write_all
from hypothesis import given, settings
from hypothesis import strategies as st

from snapshotter import Closed, Corrupt, Damaged, Database, Gap, NewerVersion
from snapshotter.core.blocks import Sizes
from snapshotter.core.snapshot import decode
from snapshotter.loading import load
from snapshotter.maintenance import delete, export, import_
from snapshotter.rebuilding.results import MODES, Options
from snapshotter.rebuilding.working import rebuild_in
from snapshotter.verify import verify
from streams import keys, log
from streams.buckets.memory import MemoryBucket
from streams.codec import encode_segment
from streams.records import Cursor
from streams.testing.clocks import FakeClock

SNAPSHOT = keys.snapshot(SID)


@pytest.fixture
def place() -> Place:
    return Place()


def turns(place: Place, count: int, first: int = 1) -> list[dict[str, Any]]:
    for number in range(first, first + count):
        place.send(f"u{number}")
        place.answer(f"to u{number}")
    return place.db.history(SID)


def put(place: Place, key: str, data: bytes) -> None:
    place.bucket.inner.put(key, data)


def remove(place: Place, *names: str) -> None:
    for key in names:
        place.bucket.inner.delete(key)


def change(place: Place, **fields: Any) -> None:
    """Change the stored snapshot's fields, and leave out its checksum."""
    document = {**json.loads(place.stored(SNAPSHOT)[SNAPSHOT]), **fields}
    del document["crc"]
    put(place, SNAPSHOT, json.dumps(document).encode())


def codes(place: Place) -> list[str]:
    return [line["code"] for line in place.db.peek(SID).report]


def in_record(number: int, **more: Any) -> dict[str, Any]:
    return {"id": number, "ts": 1, "kind": "message", "message": user(f"u{number}"), **more}


def put_in(place: Place, *records: dict[str, Any]) -> None:
    first = records[0]["id"]
    put(place, keys.segment("in", SID, first), encode_segment("in", list(records), nonce=f"i{first}"))


# -- whose snapshot, and of which out log ------------------------------------------------------------------


def copy_of_another(place: Place) -> bytes:
    for number in range(6):
        place.db.send("other", {**user(f"b{number}"), "parts": [{"type": "text", "text": "a secret"}]})
        with place.db.boot("other") as session:
            write_all_turns(session)
    key = keys.snapshot("other")
    put(place, SNAPSHOT, place.stored(key)[key])
    return place.stored(key)[key]


def write_all_turns(session: Any) -> None:
    for turn in session.turns():
        with turn:
            write_all(turn, saying("to another"))


@pytest.mark.parametrize("claim", [False, True])
def test_another_sessions_snapshot_is_not_taken_and_not_overwritten(place: Place, claim: bool) -> None:
    history = turns(place, 1)
    data = copy_of_another(place)
    assert place.db.history(SID) == history
    assert codes(place) == ["snapshot-unreadable"]
    receipt = place.send("u2")
    with place.db.boot(receipt=receipt, claim=claim) as session:
        with first_turn(session) as turn:
            write_all(turn, saying("to u2"))
        assert "snapshot-not-saved" in [line["code"] for line in session.report]
    assert place.stored(SNAPSHOT) == {SNAPSHOT: data}
    assert [m["id"] for m in place.db.history(SID) if m["role"] == "user"] == ["u1", "u2"]


def test_another_sessions_snapshot_that_slips_in_is_not_overwritten(place: Place) -> None:
    turns(place, 1)
    place.send("u2")
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            write_all(turn, saying("to u2"))
            data = copy_of_another(place)
        assert [line["code"] for line in session.report] == ["snapshot-not-saved"]
    assert place.stored(SNAPSHOT) == {SNAPSHOT: data}


def test_another_sessions_snapshot_over_a_trimmed_log_is_corrupt(place: Place) -> None:
    turns(place, 3)
    copy_of_another(place)
    oldest = list(place.stored(f"in/{SID}/"))[-1]
    data = place.stored(oldest)[oldest]
    remove(place, oldest)
    with pytest.raises(Corrupt, match="another session") as caught:
        place.db.history(SID)
    assert caught.value.key == SNAPSHOT
    put(place, oldest, data)
    remove(place, list(place.stored(f"out/{SID}/"))[-1])
    with pytest.raises(Corrupt, match="another session"):
        place.db.history(SID)


def test_a_flipped_bit_anywhere_is_corrupt(place: Place) -> None:
    turns(place, 1)
    good = place.stored(SNAPSHOT)[SNAPSHOT]
    truth = {name: value for name, value in json.loads(good).items() if name != "crc"}
    name = range(good.index(b'"crc"') + 1, good.index(b'"crc"') + 4)
    version = good.index(b'"version":') + len(b'"version":')
    for bit in range(len(good) * 8):
        flipped = bytearray(good)
        flipped[bit // 8] ^= 1 << bit % 8
        if bit // 8 in name:  # then it has a field more that nobody knows, and all the rest is right
            try:
                document = decode(bytes(flipped), session=SID)
            except Corrupt:
                continue
            assert {name: document[name] for name in truth} == truth
            continue
        with pytest.raises(Corrupt) as caught:
            decode(bytes(flipped), session=SID)
        # Of a newer version not even the checksum is known: that alone comes first.
        assert not isinstance(caught.value, NewerVersion) or bit // 8 == version


@pytest.mark.parametrize("lost", [1, 2])
def test_a_snapshot_of_segments_that_are_not_there_is_not_taken(place: Place, lost: int) -> None:
    """The log lost its newest; it is the truth, and what it does not hold is owed again."""
    turns(place, 3)
    data = place.stored(SNAPSHOT)[SNAPSHOT]
    remove(place, *list(place.stored("out/"))[:lost])
    found = place.db.peek(SID)
    assert found.report[0]["code"] == "snapshot-unreadable"
    assert "begins at" in found.report[0]["detail"]
    place.answer("again", takeover=True)
    assert place.stored(SNAPSHOT) == {SNAPSHOT: data}
    assert [m["role"] for m in place.db.history(SID)] == ["user", "assistant"] * 3


def test_a_snapshot_whose_segment_is_another_one_is_not_taken(place: Place) -> None:
    history = turns(place, 2)
    first = int(json.loads(place.stored(SNAPSHOT)[SNAPSHOT])["lastOutFirst"])
    assert keys.segment("out", SID, first) == next(iter(place.stored("out/")))
    change(place, lastOutFirst=str(first + 1), messages=[])
    assert codes(place) == ["snapshot-unreadable"]
    assert place.db.history(SID) == history


def test_a_dead_segment_below_the_cursor_is_no_fault_of_the_snapshot(place: Place) -> None:
    history = turns(place, 2)
    cursor = int(json.loads(place.stored(SNAPSHOT)[SNAPSHOT])["lastOutEventId"])
    record = {"id": cursor, "ts": 1, "control": "history", "op": "clear"}
    put(place, keys.segment("out", SID, cursor), encode_segment("out", [record], nonce="dead", epoch=1))
    assert (codes(place), place.db.history(SID)) == ([], history)


def test_an_older_snapshot_with_a_merged_segment_below_it_is_left_to_the_chain(place: Place) -> None:
    """A later release merges the segments of closed turns: the older snapshot's own one may be gone."""
    turns(place, 1)
    older = place.stored(SNAPSHOT)[SNAPSHOT]
    history = turns(place, 1, first=2)
    document = json.loads(older)
    segment = keys.segment("out", SID, int(document["lastOutFirst"]))
    remove(place, segment)
    assert int(document["lastOutFirst"]) > 1
    put(place, SNAPSHOT, older)
    assert (codes(place), place.db.history(SID)) == ([], history)


def test_an_out_log_that_is_gone_is_reported_and_the_snapshot_goes_on(place: Place) -> None:
    history = turns(place, 2)
    remove(place, *place.stored("out/"))
    assert codes(place) == ["out-log-missing"]
    turns(place, 1, first=3)
    assert place.db.history(SID)[:4] == history
    assert len(place.db.history(SID)) == 6


def test_a_newest_segment_that_is_empty_is_corrupt_and_named(place: Place) -> None:
    turns(place, 1)
    place.send("u2")
    with place.db.boot(SID) as session:
        first_turn(session).release()
    newest = next(iter(place.stored("out/")))
    put(place, newest, b"")
    for claim in (False, True):
        with pytest.raises(Corrupt, match="empty") as caught:
            place.db.boot(SID, claim=claim)
        assert caught.value.key == newest


@pytest.mark.parametrize("which", ["in", "out"])
@pytest.mark.parametrize("before", [0, 1])
def test_a_listing_that_is_older_than_the_snapshot_is_made_again(
    place: Place, which: keys.Log, before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns(place, before)
    prefix = keys.log_prefix(which, SID)
    stale, fresh = [place.bucket.list(prefix)], place.bucket.list
    place.send("next")
    place.answer()

    def listed(asked: str, **options: Any) -> Any:
        return stale.pop() if asked == prefix and stale else fresh(asked, **options)

    monkeypatch.setattr(place.bucket, "list", listed)
    loaded = load(place.db.store, SID)
    assert not stale
    assert (len(loaded.fold.chain), loaded.notes, loaded.readable) == (2 * before + 2, [], True)


# -- the in log --------------------------------------------------------------------------------------------


def expire_inputs(place: Place) -> Any:
    """As a bucket rule would; then somebody sends."""
    turns(place, 3)
    remove(place, *place.stored("in/"))
    return place.send("after")


def test_an_in_log_that_is_gone_is_a_gap(place: Place) -> None:
    turns(place, 3)
    remove(place, *place.stored("in/"))
    with pytest.raises(Gap, match="lost its newest inputs") as caught:
        place.db.boot(SID)
    assert (caught.value.log, caught.value.missing) == ("in", (1, 3))


def test_an_input_sent_after_the_in_log_was_lost_is_not_taken_for_answered(place: Place) -> None:
    receipt = expire_inputs(place)
    with pytest.raises(Gap, match="lost its newest inputs") as caught:
        place.db.boot(SID)
    assert caught.value.missing == (2, 3)
    with pytest.raises(Gap, match="not the one that the snapshot says") as caught:
        place.db.boot(receipt=receipt)
    assert (caught.value.log, caught.value.missing) == ("in", (1, 3))


def test_a_receipt_that_comes_again_is_still_no_fault(place: Place) -> None:
    """The input is the one that was applied; also one with no key, of which the snapshot says nothing."""
    receipts = [place.send("u1"), place.db.stop(SID), place.send("u2", key="k")]
    place.answer()
    for receipt in receipts:
        with place.db.boot(receipt=receipt) as session:
            assert (session.pending, session.report) == ([], [])


@pytest.mark.parametrize("far", [20_000, keys.MAX])
def test_a_stray_key_far_above_the_in_log_is_a_gap_and_costs_little(place: Place, far: int) -> None:
    turns(place, 1)
    put_in(place, in_record(far))
    before = len(place.bucket.calls)
    with pytest.raises(Gap) as caught:
        place.db.boot(SID)
    assert (caught.value.log, caught.value.missing) == ("in", (2, far - 1))
    assert len(place.bucket.calls) - before <= 12  # a checkpoint and a deletion are looked for, too


def test_two_stray_keys_far_above_the_in_log_cost_one_window_of_requests(place: Place) -> None:
    turns(place, 1)
    put_in(place, in_record(keys.MAX - 1))
    put_in(place, in_record(keys.MAX))
    before = len(place.bucket.calls)
    with pytest.raises(Gap) as caught:
        place.db.boot(SID)
    assert caught.value.missing == (2, 2)
    assert len(place.bucket.calls) - before < 4000


def test_nothing_can_be_sent_behind_the_last_place(place: Place) -> None:
    put_in(place, in_record(keys.MAX))
    with pytest.raises(Gap, match=r"no place is left behind the newest, in/chat/0{16}-9{16}.jsonl: .*delete"):
        place.send("u1")


@pytest.mark.parametrize("far", [20_000, keys.MAX - 1, keys.MAX])
def test_whatever_reads_a_whole_log_tells_a_stray_key_far_ahead_at_once(place: Place, far: int) -> None:
    turns(place, 3)
    put_in(place, in_record(far))
    before = len(place.bucket.calls)
    assert [problem.detail for problem in verify(place.db, SID).problems if problem.code == "gap"] == [
        f"in log: inputs 4 to {far - 1} are missing below {far}, the newest"
    ]
    file = io.BytesIO()
    assert "inputs 4 to" in export(place.db, SID, file).why
    with pytest.raises(Damaged, match="inputs 4 to"):
        import_(Place().db, file)
    for mode in MODES[:2]:
        (told,) = rebuild_in(place.db, Options(mode), [SID])
        assert (told.status, told.error) == ("failed", "Gap")
    assert len(place.bucket.calls) - before < 6000


def test_the_last_place_is_answered_as_any_and_nothing_comes_behind_it(place: Place) -> None:
    turns(place, 1)
    put_in(place, in_record(keys.MAX - 1))
    delete(place.db, SID)
    place.db.create(SID, messages=[])
    assert place.send("u2").id == keys.MAX
    place.answer("to u2")
    assert [message["id"] for message in place.db.history(SID)][:1] == ["u2"]
    assert verify(place.db, SID).ok
    for after in (keys.MAX, 10**20):
        assert list(log.follow(place.db.store, "in", SID, Cursor(after), timeout=9)) == []
    with pytest.raises(Gap, match="no place is left"):
        place.send("u3")


def test_a_missing_input_is_a_gap_once_looking_again_has_not_helped(place: Place) -> None:
    for number in range(1, 5):
        place.send(f"u{number}")
    for damage in (remove, lambda place, key: put(place, key, b"")):
        damage(place, keys.segment("in", SID, 2))
        with pytest.raises(Gap) as caught:
            place.db.boot(SID)
        assert (caught.value.log, caught.value.missing) == ("in", (2, 2))


def test_an_input_that_is_away_for_one_look_is_found(place: Place) -> None:
    for number in range(1, 4):
        place.send(f"u{number}")
    key = keys.segment("in", SID, 2)
    data = place.stored(key)[key]
    looks: list[str] = []

    def away(asked: Any, when: str) -> None:
        if asked.key == key:
            looks.append(when)
            if looks == ["before"]:
                remove(place, key)
            elif looks == ["before", "after"]:
                put(place, key, data)

    place.bucket.hook = away
    assert [item.ids for item in place.db.peek(SID).pending] == [(1,), (2,), (3,)]
    assert len(looks) > 2


def test_an_in_segment_of_two_records_is_corrupt(place: Place) -> None:
    place.send("u1")
    put_in(place, in_record(2), in_record(3))
    with pytest.raises(Corrupt, match="one record") as caught:
        place.db.boot(SID)
    assert caught.value.key == keys.segment("in", SID, 2)


def test_a_hole_below_the_newest_input_that_was_trimmed_is_no_fault(place: Place) -> None:
    """A sender that slept may have left a dead record at a place that was trimmed."""
    history = turns(place, 4)
    remove(place, *[keys.segment("in", SID, n) for n in (1, 2, 3)])
    put_in(place, in_record(1))
    assert (codes(place), place.db.history(SID)) == ([], history)


def test_an_unknown_kind_holds_nothing_up_and_a_boot_reads_only_what_it_needs() -> None:
    """Everything above it is applied, and listed so: only the newest inputs can still matter."""
    place = Place(sizes=Sizes(inline=1 << 30))  # one document, saved after every turn
    turns(place, 1)
    put_in(place, in_record(2, kind="from-a-later-release"))
    for number in range(3, 203):
        put_in(place, in_record(number))
    place.answer()
    document = json.loads(place.stored(SNAPSHOT)[SNAPSHOT])
    assert (document["lastInEventId"], len(document["inApplied"])) == ("1", 200)
    place.send("new")
    place.send("u202")  # once more: within the window it is a duplicate
    before = len(place.bucket.calls)
    found = load(place.db.store, SID).fold
    assert len(place.bucket.calls) - before < 3 + 64 + 5
    remove(place, SNAPSHOT)
    whole = load(place.db.store, SID).fold
    assert [i.id for i in found.inputs.owed()] == [i.id for i in whole.inputs.owed()] == [2, 203]
    assert found.chain.messages == whole.chain.messages
    assert found.inputs.last == whole.inputs.last == 203


# -- shapes ------------------------------------------------------------------------------------------------


def stored_session() -> Place:
    place = Place()
    turns(place, 2)
    place.db.stop(SID, "nobody")
    put_in(place, in_record(4, kind="later"))
    place.send("u5")
    place.answer()
    with place.db.boot(SID) as session:
        session.set_state({"title": "t"})
        session.set_context("u1", [user("c1")])
    place.send("u6")
    return place


GOOD = stored_session()
DOCUMENT: dict[str, Any] = json.loads(GOOD.stored(SNAPSHOT)[SNAPSHOT])
VALUES: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from([None, True, False, 0, 1, -1, 7, 2**62, 10**17, 1.5, "", "x", "5", "9" * 20, "٣"]),
    st.sampled_from([[], [None], [[]], [1, "a"], [{"id": 5}], {}, {"a": 1}, {"upto": 5}, {"upto": "u1"}]),
    st.sampled_from([[[1, [], "x"]], [[1, "k", 5]], [[True, "k", "h"]], [0], [-1], [True], [10**17]]),
    st.sampled_from([{"upto": "u1", "messages": [5]}, [{"id": "a", "parts": [5, None]}], [{"parts": 5}]]),
)


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in pairs:
        found += paths(inner, (*path, name))
    return found


def copy_of(place: Place) -> Database:
    clock = FakeClock()
    bucket = MemoryBucket(clock)
    for key, data in place.stored("").items():
        bucket.put(key, data)
    return Database(bucket, clock)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(paths(DOCUMENT)), VALUES), min_size=1, max_size=3), st.booleans())
def test_any_snapshot_boots_or_is_damaged(changes: list[tuple[tuple[Any, ...], Any]], crc: bool) -> None:
    """Whatever a field of it is changed to: a reader, a worker and its save come through, or say what is
    wrong with the stored data."""
    document = json.loads(json.dumps(DOCUMENT))
    for path, value in changes:
        place = document
        try:
            for name in path[:-1]:
                place = place[name]
            place[path[-1]] = json.loads(json.dumps(value))
        except (TypeError, KeyError, IndexError):
            continue  # an earlier change took this place away
    if not crc:
        del document["crc"]
    db = copy_of(GOOD)
    data = json.dumps(document, ensure_ascii=False).encode()
    db.store.put(SNAPSHOT, data)

    def answer() -> None:
        with db.boot(SID, takeover=True) as session:
            for turn in session.turns():
                with turn:
                    write_all(turn, saying("x"))
            session.set_state({"more": 1})

    calls: list[Callable[[], Any]] = [lambda: db.peek(SID).report, lambda: db.history(SID), answer]
    for call in calls:
        try:
            call()
        except (Corrupt, Gap):  # NewerVersion is one
            continue
        except Closed:  # a worker's answer to what it then says
            assert call is answer
            assert True in (document["closed"], document["deleted"])
    try:
        decode(data, session=SID)
    except Corrupt:
        blob = db.store.get(SNAPSHOT)
        assert blob is not None
        assert blob.data == data, "what could not be read was overwritten"
