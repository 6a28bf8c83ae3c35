"""What leaves memory while a log is folded changes nothing: a rebuild and `verify` come to what they come
to with all of it in memory."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chat_samples import SID
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from roots import TESTS, forget, loaded, one

from snapshotter import spilling, windows
from snapshotter.comparing import spilled
from snapshotter.core import chain
from snapshotter.core.fold import Fold
from snapshotter.rebuilding import Options, Result, exporting
from snapshotter.rebuilding.folding import Work
from snapshotter.rebuilding.threads import Reader
from snapshotter.shelf import inline
from snapshotter.spilling import Spill
from snapshotter.verify import verify
from streams import keys, places
from streams.errors import Retryable

blocks: Any = loaded(TESTS / "properties" / "blocks_script.py")

SCRIPTS = settings(
    max_examples=40,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
LAYOUTS = [blocks.PLAIN, blocks.TINY, replace(blocks.PLAIN, inline=700, large=400)]


@pytest.fixture(autouse=True, scope="module")
def small_windows() -> Iterator[None]:
    """Ids are compared among six messages: else few sessions outgrow what stays in memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chain, "ID_WINDOW", 6)
        yield


@contextmanager
def spilling_at_once(run: int) -> Iterator[list[int]]:
    """Whatever may leave memory does, in runs of so many bytes; the messages of each run that was written."""
    left: list[int] = []

    def put(spill: Spill, messages: Any, data: Any) -> Any:
        left.append(len(messages))
        return written(spill, messages, data)

    with pytest.MonkeyPatch.context() as patch:
        written = Spill._put
        patch.setattr(Spill, "_put", put)
        patch.setattr(windows, "WINDOW", 2)
        patch.setattr(places, "SHORT", 1)
        patch.setattr(spilling, "LIMIT", 1)
        patch.setattr(spilling, "_RUN", run)
        patch.setattr(spilling, "_TOGETHER", 2)
        yield left


def exported(play: Any) -> tuple[list[dict[str, Any]], Result]:
    """The rows of a session."""
    export = exporting.Export("memory://nowhere", "jsonl", [SID])
    with Reader(0) as reader:
        result = (
            Work(play.db, SID, Options("export", dest="memory://nowhere"))
            .start()
            .finish(reader.ahead, export.add)
        )
    return [json.loads(line) for line in export._parts["messages"].data().splitlines()], result


def told(result: Result) -> dict[str, Any]:
    """A result without what it cost."""
    return {n: v for n, v in result.to_json().items() if n not in ("bytes", "requests")}


def tampered(play: Any, number: int) -> None:
    """The stored history with another text in one of its messages."""
    key = keys.snapshot(SID)
    document = inline(play.db.store, SID, json.loads(play.space.objects[key].data))
    messages = [dict(message) for message in document["messages"]]
    messages[number % len(messages)]["parts"] = [{"type": "text", "text": "never said"}]
    data = {name: value for name, value in document.items() if name != "crc"}
    forget(play.db, SID)
    play.db.store.put(key, json.dumps({**data, "messages": messages}).encode())


def check(play: Any, sizes: Any, run: int, number: int) -> int:
    """All that reads a whole log, with and without spilling; returns how many messages left memory."""
    plain = told(one(play.db, Options(sizes=sizes)))
    rows, result = exported(play)
    with spilling_at_once(run) as left:
        assert told(one(play.db, Options(sizes=sizes))) == plain
        verdict = verify(play.db, SID)
        assert verdict.problems == []
        spilled_rows, spilled_result = exported(play)
        assert (spilled_rows, told(spilled_result)) == (rows, told(result))
    if play.document() is None:
        return sum(left)
    state = play.found()
    forget(play.db, SID)
    found = one(play.db, Options("write", sizes=sizes))
    assert found.status == "written", found
    layout = play.document()
    forget(play.db, SID)
    with spilling_at_once(run):
        assert one(play.db, Options("write", sizes=sizes)).status == "written"
        again = one(play.db, Options(sizes=sizes))
        assert again.status == "same", again
        assert verify(play.db, SID).problems == []
    assert play.found() == state
    assert play.document() == layout
    if found.messages:
        tampered(play, number)
        different = told(one(play.db, Options(sizes=sizes)))
        problems = verify(play.db, SID).problems
        with spilling_at_once(run):
            assert told(one(play.db, Options(sizes=sizes))) == different
            assert verify(play.db, SID).problems == problems
    return sum(left)


@SCRIPTS
@given(data=st.data())
def test_a_session_is_what_it_is_with_all_of_it_in_memory(data: st.DataObject) -> None:
    steps = blocks.script(lambda n: data.draw(st.integers(0, n - 1)), data.draw(st.integers(8, 24)))
    sizes = data.draw(st.sampled_from(LAYOUTS))
    play = blocks.Play(sizes, lambda: None)
    play.play(steps)
    check(play, sizes, data.draw(st.sampled_from([1, 600, 10**6])), data.draw(st.integers(0, 40)))


@pytest.mark.parametrize("seed", range(6))
def test_long_ones(seed: int) -> None:
    choose = random.Random(seed)
    steps = blocks.script(choose.randrange, 90)
    sizes = LAYOUTS[seed % 3]
    play = blocks.Play(sizes, lambda: None)
    play.play([step for step in steps if step[:2] not in (("history", "clear"), ("history", "replace"))])
    assert check(play, sizes, (1, 600)[seed % 2], seed) > 10


def said(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}]


def folded(count: int) -> tuple[Fold, Spill]:
    """A fold of so many settled messages, all but the newest of which left memory."""
    fold, spill = Fold(), Spill()
    for number in range(count):
        fold.chain.append({"id": f"u{number}", "role": "user", "parts": said(str(number))})
    spill.settle(fold, spilling.LIMIT)
    return fold, spill


def test_an_id_that_never_was_costs_no_reading() -> None:
    fold, spill = folded(5_000)
    with spill:
        held = len(fold.chain)
        assert (fold.chain.total, held) == (5_000, 2 * chain.ID_WINDOW)
        unknown = [fold.chain.find(f"never-{number}") for number in range(200)]
        assert unknown == [None] * 200
        with pytest.raises(chain.Unloaded):
            fold.chain.find("u17")


def test_what_a_record_acts_on_is_read_back_and_may_leave_again() -> None:
    fold, spill = folded(5_000)
    with spill:
        fold.cursor = 9
        message = {"id": "u17", "role": "user", "parts": []}
        put = {"id": 10, "control": "history", "op": "put", "message": message}
        spill.replay(fold, [put])
        position = fold.chain.find("u17")
        assert position is not None
        assert fold.chain.messages[position]["parts"] == []
        spill.settle(fold, spilling.LIMIT)
        assert len(fold.chain) > 4_000, "what was read back counts like what was read anew"
        spill.settle(fold, 10 * spilling.LIMIT)
        assert (len(fold.chain), fold.chain.total) == (2 * chain.ID_WINDOW, 5_000)
        texts = [message["parts"] for message in spilled(fold, spill).messages(fold.chain.messages)]
        assert texts == [[] if n == 17 else said(str(n)) for n in range(5_000)]


def test_what_is_not_settled_and_what_a_context_ends_with_stay() -> None:
    fold, spill = Fold(), Spill()
    with spill:
        call = {"type": "tool-t", "toolCallId": "c", "state": "input-available", "input": {}}
        for number in range(400):
            parts = [call] if number in (3, 90) else said(str(number))
            fold.chain.append({"id": f"m{number}", "role": "assistant", "parts": parts})
        fold.context = {"upto": "m300", "messages": []}
        spill.settle(fold, spilling.LIMIT)
        assert [message["id"] for message in fold.chain.messages[:3]] == ["m3", "m90", "m300"]
        assert fold.chain.unsettled() == [1, 0]
        assert fold.chain.find("m300") == 2
        shown = [message["id"] for message in spilled(fold, spill).messages(fold.chain.messages)]
        assert shown == [f"m{number}" for number in range(400)]


def test_the_file_is_gone_whatever_happens() -> None:
    """Also where the rebuild fails."""
    play = blocks.Play(blocks.TINY, lambda: None)
    play.play([step for n in range(30) for step in (("send", f"u{n}", 30, "say"), ("work",))])
    opened: list[Any] = []
    make = spilling.tempfile.TemporaryFile

    def file(**how: Any) -> Any:
        opened.append(make(**how))
        return opened[-1]

    def lost(_spill: Spill, _span: Any) -> Any:
        raise OSError("the disk is gone")

    with pytest.MonkeyPatch.context() as patch, spilling_at_once(1):
        patch.setattr(spilling.tempfile, "TemporaryFile", file)
        assert one(play.db, Options()).status == "same"
        assert verify(play.db, SID).ok
        patch.setattr(Spill, "pairs", lost)
        failed = one(play.db, Options())
    assert (failed.status, failed.error, failed.detail) == ("failed", "OSError", "the disk is gone")
    assert len(opened) == 3
    assert all(file.closed for file in opened)


def test_a_full_disk_is_told_with_what_to_do() -> None:
    """The file takes what its buffer takes, and no more; the error says where to look."""
    play = blocks.Play(blocks.TINY, lambda: None)
    play.play([step for n in range(30) for step in (("send", f"u{n}", 30, "say"), ("work",))])
    with pytest.MonkeyPatch.context() as patch, spilling_at_once(1):
        full = Path("/dev/full")
        patch.setattr(spilling.tempfile, "TemporaryFile", lambda **_: full.open("w+b", buffering=64))
        failed = one(play.db, Options())
        assert (failed.status, failed.error) == ("failed", "Retryable")
        assert "No space left on device" in failed.detail
        assert "TMPDIR" in failed.detail
        with pytest.raises(Retryable, match="TMPDIR"):
            verify(play.db, SID)
    assert one(play.db, Options()).status == "same"
    assert verify(play.db, SID).ok
