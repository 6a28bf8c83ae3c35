"""The judge itself: what it reads from raw bytes, and what it does not let pass."""

from __future__ import annotations

import pytest
from chat_samples import SID, Place
from pieces import Broken, log_of

from snapshotter.maintenance import Keep, compact, trim

DAY = 86_400.0


def half_compacted() -> tuple[dict[str, bytes], str, str]:
    """A trimmed log whose oldest turn a compaction has merged; it was killed before it deleted the last
    segment of it. The objects, the merged segment's key, the other one's."""
    place = Place()
    for number in (1, 2, 3):
        place.send(f"u{number}")
        place.answer(f"answer {number}")
        place.clock.advance(DAY)
        if number == 2:
            trim(place.db, SID, keep=Keep(turns=1))
    before = place.stored("out/")
    compact(place.db, SID)
    after = place.stored("out/")
    gone = min(before.keys() - after.keys())  # keys count down
    return place.stored("") | {gone: before[gone]}, max(after), gone


def test_the_longer_of_two_segments_that_end_at_one_place_counts() -> None:
    objects, merged, dead = half_compacted()
    log = log_of(objects, SID)
    assert [piece.key for piece in log.below] == [merged]
    assert dead in objects


def test_a_turn_of_which_only_a_dead_segment_is_left_was_cut() -> None:
    objects, merged, _ = half_compacted()
    del objects[merged]
    with pytest.raises(Broken, match="was cut"):
        log_of(objects, SID)
