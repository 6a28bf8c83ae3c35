"""What a record looks up, it must find: asked before it is written."""

from __future__ import annotations

from typing import Any

import pytest
from build import user

from snapshotter.core import reach
from snapshotter.core.blocks import Block, Span
from snapshotter.core.chain import Chain, Unloaded
from snapshotter.core.fold import Fold


def fold(*, loaded: bool = False) -> Fold:
    """Ten messages that were not read, then 80 that were; the inputs 1 to 4."""
    found = Fold()
    span = Span(Block("b", 10, 1), 10, loaded=loaded)
    old = [user(f"m{n}") for n in range(10)] if loaded else []
    recent = [{**user(f"m{n}"), "role": "assistant" if n % 2 else "user"} for n in range(10, 90)]
    found.chain = Chain([*old, *recent], [span])
    named: list[dict[str, Any]] = [
        {"kind": "message", "message": user("new")},
        {"kind": "edit", "messageId": "m5", "message": user("e")},
        {"kind": "regenerate", "messageId": "m15"},
        {"kind": "tool-result", "toolCallId": "c", "messageId": "m5", "output": 1},
    ]
    for number, record in enumerate(named, 1):
        found.feed({"id": number, "ts": 1, **record})
    return found


def history(op: str, **fields: Any) -> dict[str, Any]:
    return {"control": "history", "op": op, **fields}


NEEDS = [
    history("remove", messageId="m5"),
    history("remove", messageId="m20"),
    history("truncate-after", messageId="m20"),
    history("put", message=user("elsewhere")),
    {"control": "context", "upto": "m5", "messages": []},
    {"control": "turn-start", "mode": "continue", "messageId": "m5"},
    {"control": "turn-start", "mode": "continue", "messageId": "m21"},
    {"control": "turn-start", "mode": "fresh", "inputs": [2]},
    {"control": "turn-start", "mode": "regenerate", "inputs": [3]},
    {"control": "input-applied", "inputs": [4]},
]
SUFFICES = [
    history("remove", messageId="m80"),
    history("truncate-after", messageId="m80"),
    history("put", message=user("m20")),
    history("clear"),
    history("replace", messages=[]),
    {"control": "context", "upto": "m20", "messages": []},
    {"control": "turn-start", "mode": "continue", "messageId": "m81"},
    {"control": "turn-start", "mode": "fresh", "inputs": [1]},
    {"control": "state", "set": {}},
]


@pytest.mark.parametrize("body", NEEDS)
def test_what_acts_outside_the_window_needs_more(body: dict[str, Any]) -> None:
    with pytest.raises(Unloaded):
        reach.check(fold(), [body])
    reach.check(fold(loaded=True), [body])


@pytest.mark.parametrize("body", SUFFICES)
def test_what_acts_inside_needs_nothing(body: dict[str, Any]) -> None:
    reach.check(fold(), [body])


def test_an_open_turns_place_and_the_contexts_end_have_to_be_there() -> None:
    start = {"control": "turn-start", "turn": 1, "mode": "continue", "messageId": "m21"}
    found = fold()
    found.apply({"id": 1, "ts": 1, **start})
    assert found.open is not None
    assert found.open.slot == 11
    with pytest.raises(Unloaded):
        reach.check(found)
    found = fold()
    found.context = {"upto": "m5", "messages": []}
    with pytest.raises(Unloaded):
        reach.check(found)
    found.context = {"upto": "m20", "messages": []}
    reach.check(found)


def test_whose_answer_goes_on_is_asked_of_what_stands_before_it() -> None:
    chain, whole = fold().chain, fold(loaded=True).chain
    assert chain.messages[11]["id"] == whole.messages[21]["id"] == "m21"
    assert chain.asked_before(11) == whole.asked_before(21) == ["m20"]
    with pytest.raises(Unloaded):
        chain.asked_before(1)
    assert whole.asked_before(11) == ["m10", *(f"m{n}" for n in range(9, -1, -1))]
    assert whole.asked_before(0) == []


def test_an_edit_that_waits_for_the_close_of_a_turn_has_to_find_its_target() -> None:
    found = fold(loaded=True)
    found.apply({"id": 1, "ts": 1, "control": "turn-start", "turn": 1, "mode": "fresh", "inputs": [1]})
    found.apply({"id": 2, "ts": 2, "control": "input-applied", "inputs": [2]})
    reach.check(found)
    found.chain = fold().chain
    with pytest.raises(Unloaded):
        reach.check(found)
