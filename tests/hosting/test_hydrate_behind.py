"""A host whose history lacks something: it is told what, and how to mend it; and what a hook may return."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from chat_samples import SID, Place, call, first_turn, saying, user, write_all

from snapshotter import InvalidValue
from snapshotter.database import Database
from snapshotter.hosting.hydrating import Hydration


class App:
    """An application that stores a question when it is sent, and an answer when `work` says so."""

    def __init__(self) -> None:
        self.messages: dict[str, Any] = {}
        self.place = Place(hydrate=lambda _: list(self.messages.values()))

    def ask(self, name: str, *, keep: bool = True) -> str:
        """One question and its answer; the answer's id."""
        self.messages[name] = user(name)
        self.place.send(name)
        with self.place.db.boot(SID) as session:
            for turn in session.turns():
                with turn:
                    write_all(turn, saying(f"to {name}"))
                    if keep:
                        self.messages[turn.message_id] = turn.message
                    last = turn.message_id
        return last

    def behind(self) -> list[str]:
        return [line["detail"] for line in self.place.db.peek(SID).report if line["code"] == "hydrate-behind"]

    def cursor(self) -> int:
        found = self.place.stored("sessions/")
        return int(json.loads(next(iter(found.values())))["lastOutEventId"]) if found else 0


def test_an_answer_that_the_host_did_not_store_is_named(caplog: pytest.LogCaptureFixture) -> None:
    app = App()
    for name in ("u1", "u2", "u3"):
        app.ask(name)
    assert app.behind() == []
    lost = app.ask("u4", keep=False)
    stands = app.cursor()
    app.ask("u5")
    with caplog.at_level(logging.WARNING, "snapshotter"):
        app.ask("u6")
    assert app.cursor() == stands
    (told,) = app.behind()
    assert told.startswith(f"the hook's history lacks {lost}, or a settled call of it: ")
    assert "Write db.history() back, in its order" in told
    assert any("hydrate-behind" in record.getMessage() for record in caplog.records)


def test_writing_the_history_back_mends_it() -> None:
    app = App()
    lost = app.ask("u1", keep=False)
    app.ask("u2")
    whole = app.place.db.history(SID)
    app.messages.clear()
    app.messages.update({message["id"]: message for message in whole})
    assert list(app.messages)[:2] == ["u1", lost]
    assert app.behind() == []
    before = app.cursor()
    app.ask("u3")
    assert app.cursor() > before
    assert app.place.db.history(SID) == list(app.messages.values())


def test_a_settled_call_that_the_host_dropped_is_named() -> None:
    app = App()
    app.messages["u1"] = user("u1")
    app.place.send("u1")
    with app.place.db.boot(SID) as session, first_turn(session) as turn:
        ends = {"type": "tool-output-available", "toolCallId": "c1", "output": 1}
        write_all(turn, [{"type": "start"}, call("c1"), ends])
        assert turn.message is not None
        app.messages[turn.message_id] = {**turn.message, "parts": []}
    (told,) = app.behind()
    assert turn.message_id in told


def test_of_many_that_are_lacking_some_are_named() -> None:
    given = Hydration([], {"messages": [user(f"u{n}") for n in range(23)]})
    fold = Database(Place().bucket).load(SID).fold
    assert given.finish(fold) is False
    assert "u19 and 3 more, or" in given.note()["detail"]


@pytest.mark.parametrize("answer", [None, "hi", {"id": "u1"}, 7])
def test_what_is_no_list_names_hook_and_session(answer: Any) -> None:
    place = Place(hydrate=lambda _: answer)
    with pytest.raises(
        InvalidValue, match=r"hydrate\('chat'\) returned .*: a list of messages is needed"
    ) as raised:
        place.db.history(SID)
    assert raised.value.path == "hydrate"


@pytest.mark.parametrize("wrong", [{"foo": 1}, "hi", {"id": "a", "role": "user", "content": "hi"}, {"id": 1}])
def test_what_is_no_message_is_named_by_its_place(wrong: Any) -> None:
    place = Place(hydrate=lambda _: [user("u1"), wrong])
    with pytest.raises(
        InvalidValue, match=r"hydrate\('chat'\)\[1\] is .*: a message needs an id and"
    ) as raised:
        place.db.boot(SID)
    assert raised.value.path == "hydrate[1]"


def test_a_generator_of_messages_is_taken() -> None:
    place = Place(hydrate=lambda _: (user(name) for name in ("u1", "u2")))
    assert [message["id"] for message in place.db.history(SID)] == ["u1", "u2"]
