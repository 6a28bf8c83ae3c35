"""Claims: a boot that says so before it loads, and what kills while it loads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from chat_samples import SID, Place, die, first_turn, saying, text, write_all

import snapshotter.claiming
import snapshotter.database
from snapshotter import Busy, ChatRecovery, Corrupt, Gap, Refused
from snapshotter.claiming import Claiming
from snapshotter.core.fold import Fold
from snapshotter.core.snapshot import encode
from snapshotter.core.tally import Tally
from snapshotter.holding import Wait
from streams import keys

Loader = Callable[..., Any]


class Killed(BaseException):
    """The process dies: nothing catches it."""


@pytest.fixture
def place() -> Place:
    return Place(recovery=ChatRecovery(max_backoff=0))


@contextmanager
def loading(how: Loader, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """While this lasts, loading a session does something else."""
    with monkeypatch.context() as patch:
        patch.setattr(snapshotter.database, "load", how)
        yield


def kill(*_args: Any, **_kwargs: Any) -> Any:
    raise Killed


def killed_loads(place: Place, times: int, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
    with loading(kill, monkeypatch):
        for _ in range(times):
            with pytest.raises(Killed):
                place.db.boot(SID, claim=True, **options)
            place.clock.advance(60.0)


def exhausted(place: Place) -> list[dict[str, Any]]:
    return [end for end in place.controls("turn-complete") if end["status"] == "exhausted"]


def test_a_claim_is_in_the_log_before_anything_is_loaded(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    receipt = place.send("u1")
    seen: list[Any] = []
    real = snapshotter.database.load

    def look(*args: Any, **kwargs: Any) -> Any:
        seen.extend(place.records())
        return real(*args, **kwargs)

    with loading(look, monkeypatch), place.db.boot(receipt=receipt, claim=True, cause="evicted") as session:
        with first_turn(session) as turn:
            write_all(turn, saying("hello"))
        run = session.run
    (fence,) = seen
    assert (fence["why"], fence["for"], fence["run"], fence["cause"]) == ("boot", 1, run, "evicted")
    assert [r["control"] for r in place.records() if "control" in r] == [
        "fence",
        "turn-start",
        "turn-complete",
    ]
    assert place.db.peek(SID).incident.interruptions == 0


@pytest.mark.parametrize(("delivery", "claims"), [(1, 0), (2, 1), (7, 1)])
def test_a_second_delivery_claims(place: Place, delivery: int, claims: int) -> None:
    receipt = place.send("u1")
    with place.db.boot(receipt=receipt, delivery=delivery):
        assert len(place.controls("fence")) == claims


@pytest.mark.parametrize("delivery", [0, -1, True, "2"])
def test_a_delivery_that_is_no_count_is_refused(place: Place, delivery: Any) -> None:
    with pytest.raises(Refused, match="delivery"):
        place.db.boot(SID, delivery=delivery)


def test_a_session_in_which_nothing_was_ever_sent_is_not_claimed(place: Place) -> None:
    with place.db.boot(SID, claim=True) as session:
        assert session.pending == []
    assert place.stored("") == {}


def test_a_claim_leaves_in_good_order(place: Place) -> None:
    place.send("u1")
    with place.db.boot(SID, claim=True) as session:
        assert session.busy is None
    assert place.records()[-1] == {**place.records()[-1], "control": "turn-release", "why": "cancelled"}
    found = place.db.peek(SID)
    assert (found.busy, found.incident.interruptions) == (None, 0)


def test_a_claim_keeps_others_away_while_it_loads(place: Place) -> None:
    place.send("u1")
    session = place.db.boot(SID, claim=True)
    with pytest.raises(Busy):
        place.db.boot(SID, stable_timeout=0.0)
    with pytest.raises(Busy):
        place.db.boot(SID, stable_timeout=0.0, claim=True)
    session.close()
    place.answer()


def test_a_claim_waits_for_a_living_worker(place: Place) -> None:
    place.send("u1")
    session = place.db.boot(SID)
    first_turn(session)
    die(session)
    began = place.clock.monotonic()
    with pytest.raises(Busy):
        place.db.boot(SID, claim=True)
    assert place.clock.monotonic() - began == pytest.approx(25.0, abs=1)
    assert place.controls("fence") == []
    place.clock.advance(45.0)
    place.answer(claim=True)


def test_an_input_whose_loading_kills_is_sealed_unloaded(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    receipt = place.send("u1")
    place.send("u2")
    killed_loads(place, 5, monkeypatch, receipt=receipt)
    assert exhausted(place) == []
    killed_loads(place, 1, monkeypatch, receipt=receipt)
    (end,) = exhausted(place)
    assert end["reason"] == "interrupted_attempts_exceeded"
    assert [start["inputs"] for start in place.controls("turn-start")] == [[1]]
    place.answer("to u2")
    assert [m["role"] for m in place.db.history(SID)] == ["user", "user", "assistant"]


def test_out_of_memory_is_named(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.send("u1")
    killed_loads(place, 6, monkeypatch, cause="out_of_memory")
    (end,) = exhausted(place)
    assert end["reason"] == "out_of_memory"


def test_the_open_turn_is_what_kills_where_there_is_one(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.send("u1")
    session = place.db.boot(SID)
    turn = first_turn(session)
    write_all(turn, text("Hel"))
    turn.flush()
    die(session)
    place.clock.advance(60.0)
    killed_loads(place, 5, monkeypatch)  # with the attempt's own death: the fifth claim finds five
    (end,) = exhausted(place)
    assert end["turn"] == 1
    assert [m["role"] for m in place.db.history(SID)] == ["user", "assistant"]


def test_a_snapshot_is_counted_from_and_not_loaded(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.send("u1")
    place.answer()
    place.send("u2")
    killed_loads(place, 6, monkeypatch)
    assert [start["inputs"] for start in place.controls("turn-start")] == [[1], [2]]


def test_the_host_is_told_of_what_is_sealed_unloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, str]] = []

    def exhausted(context: Any) -> None:
        told.append((context.kind, context.incident.id))
        raise KeyError

    place = Place(recovery=ChatRecovery(max_backoff=0, max_interrupted_attempts=1, on_exhausted=exhausted))
    place.send("u1")
    killed_loads(place, 1, monkeypatch)
    with place.db.boot(SID, claim=True) as session:
        assert session.pending == []
        assert [line["code"] for line in session.report] == ["hook-failed"]
    assert told == [("unloaded", "in1")]


def test_claims_pause_and_polite_ones_put_nothing_off(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(recovery=ChatRecovery())
    place.send("u1")
    killed_loads(place, 3, monkeypatch)  # 60 s apart: 4, 16 and 64 s of pause
    with pytest.raises(Busy) as raised:
        place.db.boot(SID, claim=True, stable_timeout=0.0)
    assert raised.value.retry_after <= 4 + 1
    place.clock.advance(raised.value.retry_after)
    with place.db.boot(SID, claim=True, stable_timeout=0.0) as session:
        assert session.incident.interruptions == 3


def test_loading_that_only_fails_takes_its_claim_back(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: Any, **_kwargs: Any) -> Any:
        raise Corrupt("injected", key="x")

    place.send("u1")
    with loading(fail, monkeypatch), pytest.raises(Corrupt):
        place.db.boot(SID, claim=True)
    assert place.db.peek(SID).incident.interruptions == 0
    place.answer()


def test_no_snapshot_is_taken_while_claims_count(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.send("u1")
    killed_loads(place, 2, monkeypatch)
    with place.db.boot(SID) as session:
        session.set_state({"a": 1})
    assert place.stored("sessions/") == {}
    assert place.db.peek(SID).incident.interruptions == 2
    place.answer()
    assert len(place.stored("sessions/")) == 1


@pytest.mark.parametrize("sent", [0, 1])
def test_a_claim_for_an_input_that_is_not_there_writes_nothing(place: Place, sent: int) -> None:
    for n in range(sent):
        place.send(f"u{n}")
    before = place.stored("")
    for options in ({}, {"claim": True}, {"delivery": 2}):
        with pytest.raises(Gap, match="another store or session") as raised:
            place.db.boot(receipt={"session": SID, "id": 9}, **options)
        assert raised.value.missing == (sent + 1, 9)
    assert place.stored("") == before
    place.send("next")
    place.answer()


def test_a_claim_in_the_log_for_an_input_that_is_not_there_breaks_nothing(place: Place) -> None:
    place.send("u1")
    bogus = Claiming(
        place.db.store, SID, place.db.sid(SID), place.db.recovery, 9, (0.0, 0.0), False, None, lambda: None
    )
    claim = bogus._claim(Wait(place.clock, (0.0, 0.0)))
    assert claim is not None
    claim.writer.close(flush=False)  # it dies
    assert place.controls("fence")[-1]["for"] == 9
    place.clock.advance(60.0)
    assert [m["id"] for m in place.db.history(SID)] == ["u1"]
    place.answer()
    place.send("u2")
    place.answer(claim=True)
    assert [m["role"] for m in place.db.history(SID)] == ["user", "assistant"] * 2


def left_in_good_order(place: Place) -> None:
    """Whoever comes next neither waits nor counts a death."""
    assert place.records()[-1]["control"] == "turn-release"
    length = len(place.records())
    place.clock.advance(120.0)
    assert len(place.records()) == length  # nobody beats any more
    found = place.db.peek(SID)
    assert (found.busy, found.incident.interruptions) == (None, 0)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, TimeoutError])
def test_a_claim_that_is_interrupted_while_it_counts_is_taken_back(
    place: Place, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def stop(*_args: Any) -> Any:
        raise error

    place.send("u1")
    with monkeypatch.context() as patch, pytest.raises(error):
        patch.setattr(Tally, "of_snapshot", stop)
        place.db.boot(SID, claim=True)
    left_in_good_order(place)


def test_a_claim_that_is_interrupted_in_its_pause_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(_seconds: float) -> None:
        raise TimeoutError

    place = Place(recovery=ChatRecovery())
    place.send("u1")
    killed_loads(place, 1, monkeypatch)
    with monkeypatch.context() as patch, pytest.raises(TimeoutError):
        patch.setattr(snapshotter.claiming, "_silence", lambda *_: 0.0)
        patch.setattr(place.clock, "sleep", stop)
        place.db.boot(SID, claim=True)
    assert place.records()[-1]["control"] == "turn-release"
    length = len(place.records())
    place.clock.advance(120.0)
    assert len(place.records()) == length
    assert place.db.peek(SID).incident.interruptions == 1


def test_a_claim_that_is_interrupted_while_it_seals_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(_context: Any) -> None:
        raise KeyboardInterrupt

    recovery = ChatRecovery(max_backoff=0, max_interrupted_attempts=1, on_exhausted=stop)
    place = Place(recovery=recovery)
    place.send("u1")
    killed_loads(place, 1, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        place.db.boot(SID, claim=True)
    assert place.records()[-1]["control"] == "turn-release"
    length = len(place.records())
    place.clock.advance(120.0)
    assert len(place.records()) == length


def test_a_claim_that_is_interrupted_while_it_loads_is_taken_back(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_args: Any, **_kwargs: Any) -> Any:
        raise KeyboardInterrupt

    place.send("u1")
    with loading(stop, monkeypatch), pytest.raises(KeyboardInterrupt):
        place.db.boot(SID, claim=True)
    left_in_good_order(place)


def test_a_claim_whose_session_is_refused_is_taken_back(place: Place) -> None:
    place.send("u1")
    with pytest.raises(ValueError, match="no such policy"):
        place.db.boot(SID, claim=True, tool_policies={"x": "no such policy"})
    left_in_good_order(place)


# -- the tally against the fold ---------------------------------------------------------------------------


def test_a_tally_reads_the_head_of_every_snapshot_that_is_written() -> None:
    tally = Tally.of_snapshot(encode(Fold(), 'n"\\', 0))
    assert tally is None  # a nonce that needs escapes is none of ours: the whole document is read
    tally = Tally.of_snapshot(encode(Fold(), "abc", 5))
    assert tally is not None
    assert (tally.cursor, tally.nonce, tally.applied_upto) == (0, "abc", 0)
    assert Tally.of_snapshot(b'{"version":1,"messages":[]}') is None


def test_another_writers_snapshot_is_loaded_to_be_read(place: Place) -> None:
    place.send("u1")
    place.answer()
    key = keys.snapshot(place.db.sid(SID))
    place.db.store.bucket.put(key, b'{"version":1,"messages":[],"lastOutEventId":"0","lastInEventId":"0"}')
    with place.db.boot(SID, claim=True) as session:
        assert [m["id"] for m in session.messages[:1]] == ["u1"]
