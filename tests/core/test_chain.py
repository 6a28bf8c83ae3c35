"""The chain: its two indexes stay true under every operation, and the window in which ids are held."""

from __future__ import annotations

from build import bot, tool, user

from snapshotter.core.chain import ID_WINDOW, Chain, free_id


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
