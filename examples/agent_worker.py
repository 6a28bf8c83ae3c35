"""A serverless worker: a function that is called with a queue message, and may die at any line.

    python examples/agent_worker.py file:///tmp/chats

`handler` is the whole worker. It boots, takes what is owed, streams, returns. Killed anywhere, it is called
again with the same message and carries on: nothing is answered twice, no tool is run twice.
"""

import sys
from uuid import uuid4

import snapshotter

charged = []  # stands for the world outside: what the tool really did


def agent(messages):
    """Stands for your agent: one tool call, then the answer. It goes by what the messages say."""
    calls = [p for m in messages for p in m["parts"] if p.get("type") == "tool-charge"]
    yield {"type": "start"}
    yield {"type": "start-step"}
    if not calls:
        yield {"type": "tool-input-available", "toolCallId": "c1", "toolName": "charge", "input": {"sum": 5}}
        charged.append(5)
        yield {"type": "tool-output-available", "toolCallId": "c1", "output": "paid"}
        yield {"type": "finish-step"}
        yield {"type": "start-step"}
        paid = True
    else:
        paid = calls[-1]["state"] == "output-available"
    yield {"type": "text-start", "id": "t"}
    for word in ["It ", "is ", "paid." if paid else "unclear; ask your bank."]:
        yield {"type": "text-delta", "id": "t", "delta": word}
    yield {"type": "text-end", "id": "t"}
    yield {"type": "finish-step"}
    yield {"type": "finish", "finishReason": "stop"}


def handler(event, db):
    """One delivery of a queue message. True: acknowledge it."""
    try:
        with db.boot(
            receipt=event["receipt"],
            deadline=event.get("seconds_left"),
            takeover=event.get("others_are_dead", False),
        ) as session:
            for turn in session.turns():
                with turn:
                    for _chunk in turn.tee(agent(turn.messages)):
                        pass  # forward it to whoever listens
    except snapshotter.Retryable:
        return False
    return True


def main(url):
    chat = f"shop-{uuid4().hex[:8]}"  # a session of its own for each run
    with snapshotter.open(url) as db:
        event = {"receipt": str(db.send(chat, "Charge me five.")), "seconds_left": 60.0}
        assert handler(event, db)
        assert handler(event, db), "a second delivery finds it answered"
        _, answer = db.history(chat)
        print("".join(part.get("text", "") for part in answer["parts"]))
        assert charged == [5]
        print("ok")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "memory://shop")
