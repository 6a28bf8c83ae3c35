"""What a session hands out is its caller's own: changed in place, it changes nothing that is stored."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from chat_samples import SID, Place, call, die, first_turn, result, saying, text, user, write_all

from snapshotter import ChatRecovery
from snapshotter.core.copies import Copies, own
from snapshotter.hosting import RecoveryBoot, RecoveryPlan
from snapshotter.recovery import RecoveryContext
from snapshotter.verify import verify


def spoil(value: Any) -> None:
    """Change everything that can be changed in a value, as a careless adapter would."""
    if isinstance(value, dict):
        for item in value.values():
            spoil(item)
        value.clear()
        value["spoiled"] = True
    elif isinstance(value, list):
        for item in value:
            spoil(item)
        value.append("spoiled")
    elif hasattr(value, "ids"):  # an Item
        spoil(list(value.messages))
        spoil(list(value.inputs))


@pytest.fixture
def place() -> Place:
    """A session with a tool call and state, and an owed message."""
    place = Place()
    place.send("u1", body={"model": {"name": "large"}})
    with place.db.boot(SID) as session, first_turn(session) as turn:
        turn.set_state({"page": {"number": 1}})
        write_all(turn, [{"type": "start"}, call(), result(output={"rows": [1, 2]}), *text("ok")])
    place.send("u2", body={"model": {"name": "large"}})
    return place


def check(place: Place) -> list[dict[str, Any]]:
    """Nothing stored is spoiled, and the log alone says the same as the snapshot."""
    history = place.db.history(SID)
    assert "spoiled" not in repr(history) + repr(place.db.peek(SID).state)
    assert verify(place.db, SID).ok
    return history


def test_everything_of_a_session_and_a_turn_may_be_changed_in_place(place: Place) -> None:
    with place.db.boot(SID) as session:
        for name in ("messages", "pending", "state"):
            spoil(getattr(session, name))
        with first_turn(session) as turn:
            assert turn.item is not None
            for name in ("messages", "inputs", "item", "body", "state", "message"):
                assert getattr(turn, name)
                spoil(getattr(turn, name))
            write_all(turn, [{"type": "start"}, call("c2"), result("c2", {"rows": [3]})])
            spoil(turn.message)
            write_all(turn, text("second"))
    outputs = [part["output"] for m in check(place) for part in m["parts"] if "output" in part]
    assert outputs == [{"rows": [1, 2]}, {"rows": [3]}]


def test_chunks_belong_to_the_caller_before_and_after_they_are_written(place: Place) -> None:
    with place.db.boot(SID) as session, first_turn(session) as turn:
        for chunk in [{"type": "start"}, call("c2"), result("c2", {"rows": [3]}), *text("second")]:
            given: Any = copy.deepcopy(chunk)
            spoil(turn.write(given))
            spoil(given)
    assert [part.get("text") for part in check(place)[-1]["parts"]] == [None, "second"]


@pytest.mark.parametrize("kind", ["message", "action"])
def test_what_is_put_into_a_session_is_taken_as_it_was(place: Place, kind: str) -> None:
    stash: Any = {"at": [1]}
    state: Any = {"list": [1]}
    note: Any = user("note")
    summary: Any = [user("s", "summary")]
    if kind == "action":
        place.answer()
        place.db.action(SID, "tidy")
    with place.db.boot(SID) as session, first_turn(session) as turn:
        turn.set_state(state)
        turn.edit_history("put", message=note)
        turn.set_context("u1", summary)
        spoil([state, note, summary])
        write_all(turn, saying("second"))
        turn.stash(stash)
        spoil(stash)
    assert check(place)
    assert place.db.peek(SID).state == {"page": {"number": 1}, "list": [1]}
    context = place.db.peek(SID).context
    assert context is not None
    assert context["messages"] == [user("s", "summary")]


def interrupted(place: Place) -> None:
    session = place.db.boot(SID)
    turn = first_turn(session)
    write_all(turn, [{"type": "start"}, call("c2"), *text("half")])
    turn.stash({"at": [1]})
    turn.flush()
    die(session)
    place.clock.advance(600)


def told(*names: str) -> Callable[[Any], None]:
    def hook(context: Any) -> None:
        for name in names:
            assert getattr(context, name)
            spoil(getattr(context, name))

    return hook


def test_contexts_of_recovery_are_the_hooks_own(place: Place) -> None:
    seen: list[RecoveryContext] = []
    names = ("partial", "recovery_data", "body", "inputs")

    def hook(context: RecoveryContext) -> None:
        seen.append(context)
        told(*names)(context)
        spoil(list(context.inputs))

    interrupted(place)
    place.db.recovery = ChatRecovery(max_backoff=0, on_chat_recovery=hook)
    with place.db.boot(SID) as session:
        spoil([session.partial, session.pending_tool_calls])
        with first_turn(session) as turn:
            assert turn.recovery_data == {"at": [1]}
            spoil(turn.recovery_data)
            assert turn.recovery_data != {"at": [1]}  # the same copy: it is the caller's
            write_all(turn, saying("second"))
    assert len(seen) == 1
    assert check(place)[-1]["parts"][-1]["text"] == "second"


def test_what_on_recovery_boot_is_told_is_its_own() -> None:
    def hook(context: RecoveryBoot) -> RecoveryPlan:
        items = [*context.pending, context.in_flight]
        told("messages", "in_flight", "partial", "pending_tool_calls", "pending", "stash")(context)
        return RecoveryPlan(dispatch=items)

    place = Place(on_recovery_boot=hook)
    place.send("u1")
    place.answer("first")
    place.send("u2")
    interrupted(place)
    place.send("u3")
    place.answer("done")
    texts = [message["parts"][-1].get("text") for message in check(place)]
    assert texts == ["hi", "first", "hi", "half", "done", "hi", "done"]


def test_a_turn_makes_its_copies_once_until_the_history_is_edited(place: Place) -> None:
    with place.db.boot(SID) as session, first_turn(session) as turn:
        first, again = turn.messages, turn.messages
        assert first is not again  # a tool loop appends to it
        assert all(a is b for a, b in zip(first, again, strict=True))
        spoil(first[0])
        turn.edit_history("put", message=user("note"))
        assert turn.messages[0]["id"] == "u1"
        turn.set_context("note", [user("s", "summary")])
        assert [message["id"] for message in turn.messages] == ["s", "u2"]
        write_all(turn, saying("second"))


def test_a_copy_shares_nothing_and_may_nest_as_deeply_as_it_likes() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    value = {"a": [{"b": [1, "x", None]}], "c": {}, "deep": deep}
    made = own(value)
    assert made["a"] == value["a"]
    assert made["a"] is not value["a"]
    assert made["a"][0]["b"] is not value["a"][0]["b"]  # type: ignore[index]
    assert made["c"] is not value["c"]
    depth = 0
    while made["deep"]:
        made["deep"], depth = made["deep"][0], depth + 1
        value["deep"] = value["deep"][0]
    assert depth == 100_000
    assert own("text") == "text"


def test_copies_are_kept_while_their_sources_are_the_same_objects() -> None:
    copies, sources = Copies(), [{"n": 1}, {"n": 2}]
    first = copies.get("x", sources, lambda: sources)
    assert copies.get("x", list(sources), lambda: sources) is first
    assert copies.get("y", sources, lambda: sources) is not first
    sources[1] = {"n": 2}
    assert copies.get("x", sources, lambda: sources) is not first
