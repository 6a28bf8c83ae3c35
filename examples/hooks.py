"""A host's own word on an interrupted turn, and a history that the host owns.

    python examples/hooks.py file:///tmp/chats

The first worker dies in the middle of an answer. The hook of the second one shortens the history, keeps what
the person asked, and lets it be answered anew. Everything is kept in a dictionary that stands for a database.
"""

import sys
from uuid import uuid4

import snapshotter
from snapshotter.hosting import RecoveryPlan

DATABASE = {}


class Died(BaseException):
    """Stands for a deploy that ends the worker."""


def hydrate(session_id):
    return list(DATABASE.get(session_id, {}).values())


def store(session_id, message):
    DATABASE.setdefault(session_id, {})[message["id"]] = message


def on_recovery_boot(context):
    unfinished = context.partial["parts"][-1]["text"] if context.partial else "nothing"
    print(f"attempt {context.attempt} of run {context.previous_run[:6]}… left: {unfinished}")
    return RecoveryPlan(
        chain=[*context.messages, *context.in_flight.messages],
        before_first_turn=lambda: print(f"{len(context.pending_tool_calls)} calls were open"),
    )


def agent(messages, *, die=False):
    yield {"type": "start"}
    yield {"type": "text-start", "id": "t"}
    yield {"type": "text-delta", "id": "t", "delta": f"I see {len(messages)} message(s)"}
    if die:
        raise Died
    yield {"type": "text-delta", "id": "t", "delta": ", and that is all."}
    yield {"type": "text-end", "id": "t"}
    yield {"type": "finish", "finishReason": "stop"}


def work(db, session_id, *, die=False):
    with db.boot(session_id, takeover=True) as session:
        for turn in session.turns():
            with turn:
                for _ in turn.tee(agent(turn.messages, die=die)):
                    pass
                store(session_id, turn.message)  # inside the block: before the log moves on


def main(url):
    chat = f"hooks-{uuid4().hex[:8]}"  # a session of its own for each run
    with snapshotter.open(url, hydrate=hydrate, on_recovery_boot=on_recovery_boot) as db:
        question = {"id": "q1", "role": "user", "parts": [{"type": "text", "text": "What do you see?"}]}
        db.send(chat, question)
        store(chat, question)
        try:
            work(db, chat, die=True)
        except Died:
            print("the first worker died")
        print("recovering:", db.recovering(chat))
        db.clock.sleep(2)  # the pause before a further attempt
        work(db, chat)
        answer = db.history(chat)[-1]["parts"][-1]["text"]
        print(answer)
        print("outcome:", db.outcome(chat).status)
        assert answer == "I see 1 message(s), and that is all."
        assert DATABASE[chat].keys() == {message["id"] for message in db.history(chat)}
        assert [message["role"] for message in db.history(chat)] == ["user", "assistant"]
        DATABASE.clear()
        db.clear(chat)
        assert db.history(chat) == []
    print("ok")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "memory://hooks")
