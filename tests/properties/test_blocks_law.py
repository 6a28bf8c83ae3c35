"""How a session is laid out changes nothing: blocks, values and windows are not seen from the front door.

The same script is played in a plain store (one document, nothing apart), with tiny blocks and values, and
with those and windows drawn for each boot.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from blocks_script import PLAIN, TINY, Play, Step, script
from chat_samples import SID
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from snapshotter import Refused
from snapshotter.core import chain
from snapshotter.verify import verify

SCRIPTS = settings(
    max_examples=60,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)


def played(sizes: Any, steps: list[Step], window: Callable[[], int | None] = lambda: None) -> Play:
    play = Play(sizes, window)
    play.play(steps)
    return play


def check(steps: list[Step], windows: random.Random) -> None:
    plain = played(PLAIN, steps)
    blocks = played(TINY, steps)
    windowed = played(TINY, steps, lambda: windows.choice([0, 3, 20, None]))
    told, records, found = plain.plans, plain.records(), plain.found()
    for play in (blocks, windowed):
        assert play.plans == told
        assert play.records() == records
        assert play.found() == found
        assert verify(play.db, SID).problems == []
    # The law: with the snapshot, at any length of the tail, and without one.
    assert windowed.document() == blocks.document()
    pages(windowed, plain, windows)
    for key in [key for key in windowed.space.order if key.startswith("sessions/")]:
        windowed.db.store.delete(key)
    assert windowed.found() == found


def pages(one: Play, other: Play, choose: random.Random) -> None:
    """Pages of the history are the same, whatever was read for them."""
    whole = other.db.history(SID)
    for _ in range(4):
        limit = choose.randrange(0, 12)
        before = choose.choice(whole)["id"] if whole and choose.random() < 0.7 else None
        assert one.db.history(SID, limit=limit, before=before) == other.db.history(
            SID, limit=limit, before=before
        )
    for play in (one, other):
        with pytest.raises(Refused):
            play.db.history(SID, limit=2, before="never there")


@pytest.fixture(autouse=True, scope="module")
def small_windows() -> Iterator[None]:
    """Ids are compared among six messages, and no window is smaller: else few sessions outgrow one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chain, "ID_WINDOW", 6)
        yield


@SCRIPTS
@given(st.data())
def test_blocks_values_and_windows_change_nothing(data: st.DataObject) -> None:
    def choose(n: int) -> int:
        return data.draw(st.integers(0, n - 1))

    check(script(choose, data.draw(st.integers(3, 25))), random.Random(data.draw(st.integers(0, 99))))


@pytest.mark.parametrize("seed", range(4))
def test_nor_in_a_long_session(seed: int) -> None:
    draw = random.Random(seed)
    check(script(draw.randrange, 160), draw)
