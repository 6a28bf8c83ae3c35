"""The chain: its two indexes stay true under every operation, and the window in which ids are held."""

from __future__ import annotations

import pytest
from build import bot, tool, user

from snapshotter.core.blocks import Block, Span
from snapshotter.core.chain import ID_WINDOW, Chain, Unloaded, free_id


def test_an_id_is_held_by_the_newest_64_messages_only() -> None:
    assert ID_WINDOW == 64
    chain = Chain([user(f"u{n}") for n in range(65)])
    assert not chain.holds("u0")
    assert chain.holds("u1")
    assert chain.find("u0") == 0


def test_a_name_means_the_newest_that_bears_it() -> None:
    chain = Chain([user("a", "old"), user("b"), user("a", "new")])
    assert chain.find("a") == 2
    chain.set(0, user("a", "older"))
    assert chain.find("a") == 2
    chain.cut(2)
    assert chain.find("a") == 0
    assert chain.find("none") is None
    assert chain.find(None) is None


def test_the_unsettled_are_known_after_every_operation() -> None:
    waiting, settled = bot("w", tool("c")), bot("w", tool("c", "output-available", output=1))
    chain = Chain([waiting, user("u")])
    assert chain.unsettled() == [0]
    chain.append(bot("x", tool("c")))
    assert chain.unsettled() == [2, 0]
    chain.set(0, settled)
    assert chain.unsettled() == [2]
    chain.splice(0, 1)
    assert chain.unsettled() == [1]
    chain.set(1, bot("renamed", tool("c")))
    assert (chain.unsettled(), chain.find("renamed"), chain.find("x")) == ([1], 1, None)


def test_a_free_id_is_taken_as_wanted_else_derived_else_numbered() -> None:
    held = {"a", "msg-1", "msg-1-2"}
    assert free_id("b", "msg-1", held.__contains__) == "b"
    assert free_id("a", "msg-2", held.__contains__) == "msg-2"
    assert free_id("a", "msg-1", held.__contains__) == "msg-1-3"
    assert [free_id(odd, "msg-9", held.__contains__) for odd in (None, "", 5, ["a"])] == ["msg-9"] * 4


# -- blocks and windows ------------------------------------------------------------------------------------


def windowed(*spans: tuple[int, bool], recent: int = 0) -> Chain:
    """A chain of blocks of so many messages, read or not, and of `recent` ones. Ids count from m0."""
    messages, held, number = [], [], 0
    for index, (count, loaded) in enumerate(spans):
        held.append(Span(Block(f"b{index}", count, 1), count, loaded=loaded))
        messages += [user(f"m{n}") for n in range(number, number + count) if loaded]
        number += count
    return Chain([*messages, *[user(f"m{n}") for n in range(number, number + recent)]], held)


def layout(chain: Chain) -> list[tuple[str, int, bool]]:
    return [(span.block.key, span.count, span.dirty) for span in chain.spans]


def test_a_change_marks_its_block_and_no_other() -> None:
    chain = windowed((3, True), (2, True), recent=2)
    chain.set(6, user("x"))
    assert layout(chain) == [("b0", 3, False), ("b1", 2, False)]
    chain.set(3, user("y"))
    assert layout(chain) == [("b0", 3, False), ("b1", 2, True)]
    assert not chain.changed


def test_a_removal_shortens_its_block_and_a_cut_drops_those_behind() -> None:
    chain = windowed((3, True), (2, True), (4, True), recent=2)
    chain.splice(3, 4)
    assert layout(chain) == [("b0", 3, False), ("b1", 1, True), ("b2", 4, False)]
    chain.splice(3, 4)
    assert layout(chain) == [("b0", 3, False), ("b2", 4, False)]
    chain.splice(2, 4, [user("new")])
    assert layout(chain) == [("b0", 3, True), ("b2", 3, True)]
    chain.cut(4)
    assert layout(chain) == [("b0", 3, True), ("b2", 1, True)]
    assert (len(chain), chain.sealed, chain.changed) == (4, 4, True)
    chain.seal(chain.spans)
    assert not chain.changed
    chain.clear()
    assert (chain.messages, chain.spans, chain.changed) == ([], [], True)


def test_what_may_lie_outside_the_window_is_not_answered() -> None:
    chain = windowed((2, True), (70, False), (40, True), recent=30)
    assert chain.window_start() == 2
    assert chain.find("m73") == 3
    assert not chain.holds("m0")
    assert not chain.holds("m5")
    assert chain.holds("m141")
    for name in ("m5", "never", "m1"):  # of m1 a newer namesake may stand in the block between
        with pytest.raises(Unloaded):
            chain.find(name)
    assert chain.find("") is None


def test_a_window_is_never_left_with_less_than_64_messages() -> None:
    chain = windowed((2, True), (70, False), (40, True), recent=30)
    for position in (0, 2, 65):
        with pytest.raises(Unloaded):
            chain.cut(position)
        with pytest.raises(Unloaded):
            chain.splice(position, position + 1)
    assert len(chain) == 72
    chain.cut(66)
    assert len(chain) == 66
    assert layout(chain) == [("b0", 2, False), ("b1", 70, False), ("b2", 40, False)]


def test_a_block_that_is_read_later_stands_in_its_place() -> None:
    chain = windowed((2, True), (3, False), (2, False), recent=1)
    assert chain.fill(chain.spans[2], [user("m5"), user("m6")]) == 2
    assert chain.partial
    assert chain.fill(chain.spans[1], [user(f"m{n}") for n in (2, 3, 4)]) == 2
    assert [m["id"] for m in chain.messages] == [f"m{n}" for n in range(8)]
    assert (chain.partial, chain.sealed, chain.find("m0"), chain.find("no")) == (False, 7, 0, None)


def test_references_are_kept_for_messages_that_stand_there() -> None:
    chain = windowed((1, True), recent=1)
    first, second = chain.messages
    ref = {"key": f"{'0' * 64}-n", "bytes": 1}
    for message in (first, second):
        chain.apart.note(message, ref)
    chain.set(1, dict(second))
    assert chain.apart.ref_of(chain.messages[1]) is None
    chain.seal([])
    assert chain.apart.ref_of(first) == ref
    assert chain.apart.ref_of(second) is None
