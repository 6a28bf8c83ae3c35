"""A client that sends its whole transcript with each request."""

from __future__ import annotations

import json
from typing import Any

from chat_samples import SID, Place, call, saying, user, write_all

from snapshotter.hosting import receive


def kinds(place: Place) -> list[tuple[str, Any]]:
    return [(record["kind"], record.get("message", {}).get("id")) for record in place.records("in")]


def test_only_what_is_new_is_sent() -> None:
    place = Place()
    transcript = [user("u1")]
    assert len(receive(place.db, SID, transcript)) == 1
    place.answer()
    transcript = [*place.db.history(SID), user("u2")]
    receive(place.db, SID, transcript, body={"model": "small"})
    assert receive(place.db, SID, transcript) == []
    assert receive(place.db, SID, []) == []
    assert kinds(place) == [("message", "u1"), ("message", "u2")]
    assert place.records("in")[1]["body"] == {"model": "small"}


def test_a_result_in_the_copy_of_an_answer_is_an_answer() -> None:
    place = Place()
    place.send("u1")
    with place.db.boot(SID) as session:
        for turn in session.turns():
            with turn:
                write_all(turn, [{"type": "start"}, call("c1", "ask_user")])
    transcript = json.loads(json.dumps(place.db.history(SID)))
    transcript[-1]["parts"][0].update(state="output-available", output=7)
    assert len(receive(place.db, SID, transcript)) == 1
    assert receive(place.db, SID, transcript) == []
    with place.db.boot(SID) as session:
        (turn,) = [self_ended(turn) for turn in session.turns()]
        assert turn == "tool-answers"
    assert place.db.history(SID)[-1]["parts"][0]["output"] == 7


def self_ended(turn: Any) -> str:
    with turn:
        write_all(turn, saying("thanks"))
    return str(turn.kind)


def test_a_last_message_that_says_something_else_is_an_edit() -> None:
    place = Place()
    for name in ("u1", "u2"):
        place.send(name)
        place.answer(f"to {name}")
    receive(place.db, SID, [user("u1", "something else")])
    assert kinds(place)[-1] == ("edit", "u1")
    place.answer("again")
    assert [m["id"] for m in place.db.history(SID) if m["role"] == "user"] == ["u1"]
    assert place.db.history(SID)[0] == user("u1", "something else")
    assert receive(place.db, SID, [user("u1", "old"), *place.db.history(SID)[1:]]) == []
