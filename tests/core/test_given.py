"""What callers hand to the pure functions: what is no history is refused, with its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from snapshotter import InvalidValue, classify_resume, for_model, open, repair, sanitize, shorten  # noqa: A004
from snapshotter.core.reconcile import merge_orphan, news, reconcile, upsert_incoming_message
from snapshotter.hosting import receive

HISTORY: list[Any] = [{"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}]

WITH_A_LIST: dict[str, tuple[Callable[[Any], object], str]] = {
    "repair": (repair, "messages"),
    "sanitize": (sanitize, "messages"),
    "shorten": (lambda given: shorten(given, 1000), "messages"),
    "classify_resume": (classify_resume, "messages"),
    "for_model": (lambda given: for_model(given, "call_model"), "messages"),
    "reconcile": (lambda given: reconcile(given, HISTORY), "incoming"),
    "news": (lambda given: news(HISTORY, given), "stored"),
    "upsert": (lambda given: upsert_incoming_message(given, HISTORY[0]), "stored"),
    "receive": (lambda given: receive(open("memory://given"), "s", given), "incoming"),
}


@pytest.mark.parametrize("name", WITH_A_LIST)
@pytest.mark.parametrize(
    ("given", "place", "told"),
    [
        (None, "", "a list of messages is needed, not None"),
        ("hi", "", "a list of messages is needed, not a str"),
        ({"id": "u1"}, "", "a list of messages is needed, not a dict"),
        (["hi"], "[0]", ""),
        ([HISTORY[0], None], "[1]", ""),
    ],
)
def test_what_is_no_list_of_messages_is_refused_with_its_place(
    name: str, given: Any, place: str, told: str
) -> None:
    call, argument = WITH_A_LIST[name]
    with pytest.raises(InvalidValue) as raised:
        call(given)
    assert raised.value.path == f"{argument}{place}"
    assert str(raised.value).startswith(f"{argument}{place}: ")
    assert told in str(raised.value)


@pytest.mark.parametrize("name", WITH_A_LIST)
def test_a_history_is_taken_as_a_list_and_as_a_tuple(name: str) -> None:
    call, _ = WITH_A_LIST[name]
    assert call(HISTORY) is not None
    assert call(tuple(HISTORY)) is not None


@pytest.mark.parametrize("call", [sanitize, lambda given: shorten(given, 1000), classify_resume])
def test_what_repair_returns_is_not_yet_a_list(call: Callable[[Any], object]) -> None:
    with pytest.raises(InvalidValue, match=r"not a Repaired; pass its `\.messages`"):
        call(repair(HISTORY))
    assert call(repair(HISTORY).messages) is not None


@pytest.mark.parametrize("call", [repair, lambda given, **names: for_model(given, "call_model", **names)])
@pytest.mark.parametrize("names", ["ask", None, ["ask", 1], {"ask": "rerun"}])
def test_client_tools_are_a_list_of_names(call: Callable[..., object], names: Any) -> None:
    with pytest.raises(InvalidValue, match="a list of names is needed") as raised:
        call(HISTORY, client_tools=names)
    assert raised.value.path == "client_tools"
    assert call(HISTORY, client_tools={"ask"}) is not None


def test_one_message_alone_is_an_object() -> None:
    with pytest.raises(InvalidValue, match="message: a message is a dict, not a str"):
        upsert_incoming_message(HISTORY, "hi")  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="orphan: a message is a dict, not None"):
        merge_orphan(HISTORY[0], None)  # type: ignore[arg-type]


@pytest.mark.parametrize("limit", ["1000", None, True, 511.5, 511])
def test_a_limit_is_a_count_of_bytes(limit: Any) -> None:
    with pytest.raises(InvalidValue, match="at least 512 are needed") as raised:
        shorten(HISTORY, limit)
    assert raised.value.path == "limit_bytes"


def test_a_word_that_is_not_known_of_a_turn_is_refused() -> None:
    with pytest.raises(InvalidValue, match=r"turn\.finish_reason: not known here") as raised:
        classify_resume(HISTORY, {"status": "completed", "finish_reason": "stop"})
    assert raised.value.path == "turn.finish_reason"
