"""The layout of a long history: which blocks are sealed and merged, and what that costs in the long run."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshotter.core.blocks import DEFAULT, Block, Piece, Sizes, newest, plan, split

SMALL = Sizes(small=100, large=1_000)


def kept(*sizes: int) -> list[Piece]:
    return [Piece(size, kept=True) for size in sizes]


def test_what_is_new_is_sealed_alone_until_a_tier_is_full() -> None:
    assert plan([], SMALL) == []
    assert plan([Piece(10)], SMALL) == [(0, 1)]
    assert plan([*kept(30, 30, 30), Piece(9)], SMALL) == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert plan([*kept(30, 30, 30), Piece(10)], SMALL) == [(0, 4)]


def test_a_larger_block_ends_the_run() -> None:
    assert plan([*kept(99, 100, 99), Piece(1)], SMALL) == [(0, 1), (1, 2), (2, 4)]
    assert plan([*kept(5_000, 99), Piece(2)], SMALL) == [(0, 1), (1, 3)]


def test_a_merge_may_complete_the_next_tier_at_once() -> None:
    assert plan([*kept(2_000, 450, 450, 60), Piece(40)], SMALL) == [(0, 1), (1, 5)]
    assert plan([*kept(2_000, 450, 440, 60), Piece(40)], SMALL) == [(0, 1), (1, 2), (2, 3), (3, 5)]


def test_one_block_alone_is_never_written_again() -> None:
    assert plan(kept(100), SMALL) == [(0, 1)]
    assert plan(kept(1_000), SMALL) == [(0, 1)]


@given(st.lists(st.tuples(st.integers(1, 2_000), st.booleans())))
def test_ranges_cover_all_pieces_in_order(given_pieces: list[tuple[int, bool]]) -> None:
    pieces = [Piece(*piece) for piece in given_pieces]
    ranges = plan(pieces, SMALL)
    assert [i for start, end in ranges for i in range(start, end)] == list(range(len(pieces)))
    sizes = [sum(p.bytes for p in pieces[start:end]) for start, end in ranges]
    for tier in (SMALL.small, SMALL.large):
        run = 0
        while run < len(sizes) and sizes[-1 - run] < tier:
            run += 1
        assert sum(sizes[len(sizes) - run :]) < tier or run == 1


def test_items_are_split_by_their_sizes() -> None:
    assert split([], 10) == []
    assert split([3, 3, 3, 3], 10) == [(0, 3), (3, 4)]
    assert split([50, 1, 1], 10) == [(0, 1), (1, 3)]
    assert split([10, 10], 10) == [(0, 1), (1, 2)]


def test_a_window_takes_the_newest_blocks_and_those_that_are_open() -> None:
    blocks = [Block("a", 50, 1, open=True), Block("b", 50, 1), Block("c", 40, 1), Block("d", 20, 1)]
    assert [b.key for b in newest(blocks, 10, None)] == ["a", "b", "c", "d"]
    assert [b.key for b in newest(blocks, 10, 64)] == ["a", "c", "d"]
    assert [b.key for b in newest(blocks, 10, 30)] == ["a", "d"]
    assert [b.key for b in newest(blocks, 10, 10)] == ["a"]
    assert [b.key for b in newest(blocks, 10, 71)] == ["a", "b", "c", "d"]


@dataclass
class Simulated:
    """Checkpoints of a session whose turns are all of one size, as exact numbers of bytes of JSON."""

    sizes: Sizes
    blocks: list[int] = field(default_factory=list)
    sealed: int = 0
    checkpoints: int = 0

    def live(self, turns: int, turn: int) -> None:
        behind, unsealed, since = 0, 0, 0
        for _ in range(turns):
            behind, unsealed, since = behind + turn, unsealed + turn, since + 1
            if behind >= self.sizes.tail or since >= self.sizes.turns:
                pieces = [*kept(*self.blocks), Piece(unsealed)]
                ranges = plan(pieces, self.sizes)
                sums = [sum(p.bytes for p in pieces[start:end]) for start, end in ranges]
                changed = [n for n, (s, e) in enumerate(ranges) if e - s > 1 or not pieces[s].kept]
                self.sealed += sum(sums[n] for n in changed)
                self.blocks, self.checkpoints = sums, self.checkpoints + 1
                behind = unsealed = since = 0


@pytest.mark.parametrize(("turns", "turn"), [(500, 6_100), (10_000, 6_100), (10_000, 900), (10_000, 200_000)])
def test_a_byte_is_sealed_at_most_once_a_tier(turns: int, turn: int) -> None:
    done = Simulated(DEFAULT)
    done.live(turns, turn)
    assert done.sealed <= 3 * turns * turn
    assert max(done.blocks) < DEFAULT.large + DEFAULT.small + max(turn, DEFAULT.tail + turn)


@pytest.mark.parametrize("turns", [500, 10_000])
def test_what_is_written_in_all_stays_below_the_budget(turns: int) -> None:
    """Hex digits of 6,100 bytes a turn: the log writes 1.4 times that with the question, blocks compress to
    58 %, and a row of the snapshot's list takes 160 bytes."""
    turn = 6_100
    done = Simulated(DEFAULT)
    done.live(turns, turn)
    rows = done.checkpoints * 160 * (len(done.blocks) + 10)
    assert 1.42 * turn * turns + 0.58 * done.sealed + rows <= 3.5 * turn * turns


@pytest.mark.parametrize("turn", [600, 6_100])
def test_a_boot_at_ten_thousand_turns_reads_few_objects(turn: int) -> None:
    done = Simulated(DEFAULT)
    done.live(10_000, turn)
    tail = min(DEFAULT.turns, DEFAULT.tail // turn + 1) * 4  # segments and inputs
    assert len(done.blocks) + tail <= 100
