"""A history that the host owns, and what a store and the log still do for it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from chat_samples import (
    SID,
    Message,
    Place,
    ask,
    call,
    die,
    first_turn,
    result,
    saying,
    shape,
    text,
    user,
    write_all,
)

import snapshotter
from snapshotter import Database, InvalidValue, Refused
from snapshotter.hosting import NotDurable
from snapshotter.verify import verify


class App:
    """An application with a history of its own."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.asked: list[str] = []
        self.place = Place(hydrate=self.hydrate)

    def hydrate(self, session_id: str) -> list[Message]:
        self.asked.append(session_id)
        return json.loads(json.dumps(self.messages))

    def keep(self, message: Message) -> None:
        """Store a message, by its id."""
        others = [m for m in self.messages if m["id"] != message["id"]]
        self.messages = [*others, json.loads(json.dumps(message))]

    def send(self, name: str) -> None:
        self.keep(user(name))
        self.place.send(name)

    def work(self, answer: str = "done", *, keep: bool = True) -> list[str]:
        """Answer everything, and store each answer once its turn has ended."""
        kinds = []
        with self.place.db.boot(SID) as session:
            for turn in session.turns():
                with turn:
                    kinds.append(turn.kind)
                    write_all(turn, saying(answer))
                if keep:
                    self.keep(session.fold.chain.messages[-1])
        return kinds

    def snapshot(self) -> Any:
        found = self.place.stored("sessions/")
        return json.loads(next(iter(found.values()))) if found else None

    def shown(self) -> list[str]:
        return [content[-1] for _, content in shape(self.place.db.history(SID))]


@pytest.fixture
def app() -> App:
    return App()


def test_the_hooks_history_is_what_the_model_sees(app: App) -> None:
    app.messages = [user("old", "before there was a log")]
    app.send("u1")
    with app.place.db.boot(SID) as session:
        turn = first_turn(session)
        assert [m["id"] for m in turn.messages] == ["old", "u1"]
        write_all(turn, saying("done"))
        turn.complete()
    assert app.shown() == ["before there was a log", "hi", "done"]
    assert set(app.asked) == {SID}


def test_the_snapshot_is_a_cursor_that_moves_past_what_the_hook_holds(app: App) -> None:
    app.send("u1")
    app.work("one")
    assert app.snapshot() is None or app.snapshot()["lastOutEventId"] == "0"
    app.send("u2")
    app.work("two")
    found = app.snapshot()
    assert (found["hydrated"], found["messages"], found["turn"]) == (True, [], 1)
    assert app.shown() == ["hi", "one", "hi", "two"]
    tail = app.place.db.peek(SID)
    assert len(tail.messages) == 4


def test_a_turn_that_the_host_never_stored_is_not_lost(app: App) -> None:
    app.send("u1")
    app.work("one", keep=False)
    app.send("u2")
    app.work("two")
    app.send("u3")
    app.work("three")
    # The hook lacks the first answer: the cursor stays, and the log tells it again and again.
    assert app.snapshot() is None or app.snapshot()["lastOutEventId"] == "0"
    assert [t for t in app.shown() if t != "hi"] == ["one", "two", "three"]


def test_by_id_the_hooks_messages_win(app: App) -> None:
    app.send("u1")
    app.work("one")
    app.messages[1]["parts"][-1]["text"] = "one, corrected by hand"
    app.messages[0] = user("u1", "hello")
    assert app.shown() == ["hello", "one, corrected by hand"]


def test_an_interrupted_answer_is_the_logs_though_the_host_has_stored_some_of_it(app: App) -> None:
    app.send("u1")
    session = app.place.db.boot(SID)
    turn = first_turn(session)
    write_all(turn, [{"type": "start"}, {"type": "start-step"}, call(), result()])
    turn.flush()
    app.keep({"id": turn.message_id, "role": "assistant", "parts": []})
    write_all(turn, text("more than the host has"))
    turn.flush()
    die(session)
    app.place.clock.advance(3600)
    assert app.shown() == ["hi", "more than the host has"]
    assert app.work() == ["retry_response"]
    assert [m["role"] for m in app.place.db.history(SID)] == ["user", "assistant"]


def test_an_answer_that_is_continued_keeps_its_place(app: App) -> None:
    app.send("u1")
    with app.place.db.boot(SID) as session:
        turn = first_turn(session)
        write_all(turn, [{"type": "start"}, call("c1", "ask_user")])
        turn.complete()
        app.keep(session.fold.chain.messages[-1])
    app.place.db.tool_result(SID, "c1", 7)
    assert app.work("thanks") == ["tool-answers"]
    app.send("u2")
    app.work("two")
    assert [m["role"] for m in app.place.db.history(SID)] == ["user", "assistant", "user", "assistant"]
    assert app.shown() == ["hi", "thanks", "hi", "two"]


def outputs(messages: list[Message]) -> list[tuple[str, Any]]:
    return [(p["toolCallId"], p.get("output")) for m in messages for p in m["parts"] if "toolCallId" in p]


def test_a_settled_call_that_the_hooks_copy_lacks_is_not_lost(app: App) -> None:
    start = [{"type": "start"}, {"type": "start-step"}]
    app.send("u1")
    session = app.place.db.boot(SID)
    turn = first_turn(session)
    write_all(turn, [*start, call("c1"), result("c1", "one"), *text("never durable")])
    app.keep(turn.message)
    die(session)
    with app.place.db.boot(SID, takeover=True) as session:
        turn = first_turn(session)
        write_all(turn, [*start, call("c2"), result("c2", "paid"), *text("all done")])
        turn.complete()
        whole = session.fold.chain.messages[-1]
    both = [("c1", "one"), ("c2", "paid")]
    assert outputs(app.place.db.history(SID)) == both
    for name in ("u2", "u3"):  # the cursor stays where it is: nobody else has the second call
        app.send(name)
        app.work(name)
        assert app.snapshot() is None or app.snapshot()["lastOutEventId"] == "0"
        assert outputs(app.place.db.history(SID)) == both
    app.messages = [whole if m["id"] == whole["id"] else m for m in app.messages]
    app.send("u4")
    app.work("four")
    assert app.snapshot()["lastOutEventId"] != "0"
    assert outputs(app.place.db.history(SID)) == both


def test_a_call_that_is_settled_only_in_the_log_keeps_the_cursor(app: App) -> None:
    app.send("u1")
    with app.place.db.boot(SID) as session:
        turn = first_turn(session)
        write_all(turn, [{"type": "start"}, call()])
        app.keep(turn.message)
        write_all(turn, [result(output="paid")])
        turn.complete()
    for name in ("u2", "u3"):
        app.send(name)
        app.work(name)
        assert outputs(app.place.db.history(SID)) == [("c1", "paid")]
    assert app.snapshot() is None or app.snapshot()["lastOutEventId"] == "0"


def test_a_superseded_call_does_not_keep_the_cursor(app: App) -> None:
    app.send("u1")
    with app.place.db.boot(SID) as session:
        turn = first_turn(session)
        write_all(turn, [{"type": "start"}, call("c1", "ask_user")])
        turn.complete()
        app.keep(session.fold.chain.messages[-1])
    for name in ("u2", "u3"):
        app.send(name)
        app.work(name)
    assert app.snapshot()["lastOutEventId"] != "0"


def test_what_the_host_removed_stays_removed(app: App) -> None:
    for name in ("u1", "u2"):
        app.send(name)
        app.work(name)
    app.messages = app.messages[2:]
    app.send("u3")
    app.work("three")
    assert "u1" not in [m["id"] for m in app.place.db.history(SID)]


def test_a_boot_without_the_hook_refuses_a_cursor(app: App) -> None:
    for name in ("u1", "u2"):
        app.send(name)
        app.work()
    bare = Database(app.place.bucket, app.place.clock)
    before = app.place.stored("")
    for read in (bare.boot, bare.peek, bare.history):
        with pytest.raises(Refused, match="hydrate"):
            read(SID)
    assert app.place.stored("") == before


def test_a_history_from_before_the_hook_is_kept_until_the_hook_has_it(app: App) -> None:
    plain = Database(app.place.bucket, app.place.clock)
    plain.send(SID, user("u1"))
    with plain.boot(SID) as session:
        for turn in session.turns():
            with turn:
                write_all(turn, saying("old answer"))
    old = app.snapshot()
    assert len(old["messages"]) == 2
    app.send("u2")
    app.work("two")
    assert app.snapshot() == old
    app.messages = [*old["messages"], *app.messages]
    app.send("u3")
    app.work("three")
    assert app.snapshot()["hydrated"] is True
    assert app.shown() == ["hi", "old answer", "hi", "two", "hi", "three"]


def test_what_a_hook_raises_or_gets_wrong_stops_the_boot(app: App) -> None:
    def broken(_session: str) -> list[Message]:
        raise OSError("no database")

    with pytest.raises(OSError, match="no database"):
        Database(app.place.bucket, app.place.clock, hydrate=broken).boot(SID)
    app.messages = [{"role": "user", "parts": []}]
    with pytest.raises(InvalidValue) as wrong:
        app.place.db.boot(SID)
    assert wrong.value.path == "hydrate[0]"


def test_verify_checks_the_logs_of_a_session_whose_history_is_elsewhere(app: App) -> None:
    for name in ("u1", "u2"):
        app.send(name)
        app.work()
    found = verify(Database(app.place.bucket, app.place.clock), SID)
    assert (found.ok, [note.code for note in found.notes]) == (True, ["hydrated"])
    key = next(key for key in app.place.stored("out/"))
    app.place.space.objects[key] = replace(app.place.space.objects[key], data=b"broken")
    assert [p.code for p in verify(app.place.db, SID).problems] == ["corrupt"]


# -- without a store ------------------------------------------------------------------------------------


def test_without_a_store_one_warning_says_what_is_lost() -> None:
    with pytest.warns(NotDurable, match="conversations will not survive") as seen:
        snapshotter.open(None).close()
    assert len(seen) == 1
    with pytest.warns(NotDurable, match="not recovered") as seen:
        db = snapshotter.open(None, hydrate=lambda _: [user("u0", "kept elsewhere")])
    assert len(seen) == 1
    with db:
        assert [m["id"] for m in db.history(SID)] == ["u0"]
        db.send(SID, user("u1"))
        with db.boot(SID) as session:
            assert len(first_turn(session).messages) == 2


@pytest.mark.parametrize("stored", [False, True])
def test_an_answer_that_goes_on_is_whole_whether_the_host_stored_the_rest_or_not(
    app: App, stored: bool
) -> None:
    app.send("u1")
    with app.place.db.boot(SID, client_tools=["where"]) as session:
        for turn in session.turns():
            with turn:
                write_all(turn, [{"type": "start"}, {"type": "start-step"}, call("c1", "where")])
            app.keep(session.fold.chain.messages[-1])
    app.place.db.tool_result(SID, "c1", "home")
    app.work("found you", keep=stored)
    assert app.snapshot()["lastOutEventId"] != "0"  # the cursor stands between the two turns
    shown = ("assistant", ["step-start:", "tool-where:output-available", "step-start:", "found you"])
    assert shape(app.place.db.history(SID))[-1] == shown
    app.send("u2")
    app.work("two")
    assert shape(app.place.db.history(SID))[1] == shown


def test_a_copy_from_the_middle_of_a_turn_does_not_hide_a_question_to_a_person(app: App) -> None:
    app.send("u1")
    with app.place.db.boot(SID) as session:
        turn = first_turn(session)
        write_all(turn, [{"type": "start"}, {"type": "start-step"}, call()])
        app.keep(turn.message)
        write_all(turn, [ask(), {"type": "finish-step"}, {"type": "finish", "finishReason": "tool-calls"}])
        turn.complete()
    part = app.place.db.history(SID)[-1]["parts"][-1]
    assert (part["state"], part["approval"]) == ("approval-requested", {"id": "ap1"})
    app.place.db.approve(SID, "ap1")
    assert app.work("thank you", keep=False) == ["tool-answers"]
    assert app.shown()[-1] == "thank you"


def test_a_copy_from_the_middle_of_a_turn_does_not_hide_the_end_of_its_text(app: App) -> None:
    app.send("u1")
    with app.place.db.boot(SID) as session:
        turn = first_turn(session)
        write_all(turn, [{"type": "start"}, {"type": "text-start", "id": "t"}])
        turn.write({"type": "text-delta", "id": "t", "delta": "the first half"})
        app.keep(turn.message)
        turn.write({"type": "text-delta", "id": "t", "delta": " and the second"})
        write_all(turn, [{"type": "text-end", "id": "t"}, {"type": "finish", "finishReason": "stop"}])
        turn.complete()
    for name in ("u2", "u3"):
        app.send(name)
        app.work(name)
    assert app.shown()[1] == "the first half and the second"
    assert app.snapshot() is None or app.snapshot()["lastOutEventId"] == "0"  # the host still lacks it


def test_a_call_that_nobody_answered_is_marked_as_superseded_in_the_hosts_copy_too(app: App) -> None:
    app.send("u1")
    with app.place.db.boot(SID, client_tools=["where"]) as session:
        turn = first_turn(session)
        write_all(turn, [{"type": "start"}, call("c1", "where")])
        turn.complete()
        app.keep(session.fold.chain.messages[-1])
    app.send("u2")
    app.work("two")
    part = app.place.db.history(SID)[1]["parts"][-1]
    assert part["state"] == "output-error"
    assert part["resultProviderMetadata"]["snapshotter"]["superseded"] is True


def test_what_the_hook_returned_may_be_changed_afterwards(app: App) -> None:
    kept = user("u0", "as it was")
    db = Database(app.place.bucket, app.place.clock, hydrate=lambda _: [kept])
    with db.boot(SID) as session:
        kept["parts"][0]["text"] = "changed"
        assert session.messages[0]["parts"][0]["text"] == "as it was"


def test_the_hooks_message_wins_also_over_one_that_was_stopped_while_a_turn_is_open(app: App) -> None:
    app.send("u1")
    with app.place.db.boot(SID) as session:
        turn = first_turn(session)
        write_all(turn, text("Hel"))
        app.send("u2")
        app.place.db.stop(SID, "u2")
        turn.release("signal")
    with app.place.db.boot(SID) as session:
        turn = first_turn(session)
        assert [m["id"] for m in turn.messages if m["role"] == "user"][:1] == ["u1"]
        app.keep(user("u2", "as the host has it"))
        assert app.shown()[-1] == "as the host has it"
        turn.complete()
    assert app.shown()[-1] == "as the host has it"
