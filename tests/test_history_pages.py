"""Pages of a long history: slices of the whole, which cost what stands between them and the end, once."""

from __future__ import annotations

from typing import Any

import pytest
from chat_samples import SID, Place, saying, user, write_all

from snapshotter import Refused, histories
from snapshotter.core.blocks import Sizes
from snapshotter.core.snapshot import decode

SIZES = Sizes(inline=2_000, tail=3_000, turns=6, small=4_000, large=10_000, value=3_000)
KEY = f"sessions/{SID}/snapshot.json"
WAITING = {
    "id": "asked",
    "role": "assistant",
    "parts": [{"type": "tool-ask", "toolCallId": "c1", "state": "input-available", "input": {}}],
}


@pytest.fixture(params=[1, 20_000, 1 << 24], ids=["one block", "some blocks", "all blocks"])
def together(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many bytes of blocks are read in one round trip."""
    monkeypatch.setattr(histories, "_TOGETHER", request.param)
    return int(request.param)


@pytest.fixture
def place() -> Place:
    """A history of 261 messages in blocks; one of the older waits for its call, some are stored apart."""
    place = Place(sizes=SIZES)
    old = [user(f"h{number}", "x" * (4_000 if number % 20 == 0 else 500)) for number in range(120)]
    place.db.create(SID, messages=[*old[:40], WAITING, *old[40:]])
    for number in range(14):
        with place.db.boot(SID) as session:
            for message in range(10):
                session.edit_history("put", message=user(f"p{number}-{message}", "x" * 500))
    return place


def rows(place: Place) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = decode(place.stored(KEY)[KEY], session=SID)["blocks"]
    return found


def read_blocks(place: Place) -> list[str]:
    """The names of the blocks that were read, each as often as it was."""
    return [call.key.split("/")[-1][:-8] for call in place.bucket.calls if call.key.startswith("blocks/")]


def test_every_page_is_a_slice_of_the_whole(place: Place, together: int) -> None:
    whole = place.db.history(SID)
    assert (len(whole), whole[40]) == (261, WAITING)
    assert [row.get("open", False) for row in rows(place)].count(True) == 1
    for limit in (0, 1, 7, 64, 200, 300):
        assert place.db.history(SID, limit=limit) == whole[max(0, 261 - limit) : 261]
        for end in range(0, 261, 20):
            page = place.db.history(SID, limit=limit, before=whole[end]["id"])
            assert page == whole[max(0, end - limit) : end], (limit, end)


def test_a_history_is_paged_to_its_beginning(place: Place, together: int) -> None:
    found: list[dict[str, Any]] = []
    before = None
    while page := place.db.history(SID, limit=9, before=before):
        found, before = [*page, *found], page[0]["id"]
    assert found == place.db.history(SID)


def test_an_answer_that_is_owed_is_laid_over_its_message_on_a_page(place: Place, together: int) -> None:
    place.db.tool_result(SID, "c1", "yes")
    place.send("owed")
    whole = place.db.history(SID)
    assert whole[40]["parts"][0]["output"] == "yes"
    assert place.db.history(SID, limit=3, before=whole[42]["id"]) == whole[39:42]


def test_a_page_reads_each_block_behind_it_once_and_none_before_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(histories, "_TOGETHER", 1)
    whole, blocks = place.db.history(SID), rows(place)
    first_of: dict[str, int] = {}
    position = 0
    for row in blocks:
        first_of[row["key"]] = position
        position += row["count"]
    for end in (120, 160):
        place.bucket.calls.clear()
        assert place.db.history(SID, limit=5, before=whole[end]["id"]) == whole[end - 5 : end]
        needed = [
            row["key"] for row in blocks if first_of[row["key"]] + row["count"] > end - 5 or row.get("open")
        ]
        assert sorted(read_blocks(place)) == sorted(needed)
        assert len(needed) < len(blocks)


def test_no_more_blocks_are_read_together_than_fit(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    inner = histories._older

    def watched(spans: Any, messages: Any, fetch: Any) -> Any:
        def counted(blocks: Any) -> Any:
            asked.append(sum(block.bytes for block in blocks))
            return fetch(blocks)

        return inner(spans, messages, counted)

    monkeypatch.setattr(histories, "_older", watched)
    monkeypatch.setattr(histories, "_TOGETHER", 30_000)
    place.db.history(SID, limit=5, before="h0")
    assert len(asked) > 1
    assert max(asked) <= max(30_000, *(row["bytes"] for row in rows(place)))


def test_a_message_that_is_nowhere_is_refused(place: Place, together: int) -> None:
    with pytest.raises(Refused, match="no message 'never there'"):
        place.db.history(SID, limit=5, before="never there")


def test_a_page_whose_block_is_gone_is_read_from_the_log(together: int) -> None:
    place = Place(sizes=SIZES)
    for number in range(120):
        place.send(f"u{number}")
        with place.db.boot(SID) as session:
            for turn in session.turns():
                with turn:
                    write_all(turn, saying(f"{number} " + "x" * 400))
    whole = place.db.history(SID)
    place.bucket.inner.delete(f"blocks/{SID}/{rows(place)[0]['key']}.json.gz")
    assert place.db.history(SID, limit=5, before=whole[9]["id"]) == whole[4:9]
    assert whole[8]["id"] == "u4"
