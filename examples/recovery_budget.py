"""A message that kills its workers, and what a host makes of it: limits, hooks, and a bounded bill.

    python examples/recovery_budget.py file:///tmp/chats

Three workers die over the same message. The fourth does not try again: the host is told, the turn is sealed,
and the person's next message is answered as if nothing had been.
"""

import sys
from uuid import uuid4

import snapshotter
from snapshotter import ChatRecovery


def agent(asked):
    """Stands for your agent; one picture is too large for it."""
    yield {"type": "start"}
    yield {"type": "start-step"}
    yield {"type": "text-start", "id": "t"}
    yield {"type": "text-delta", "id": "t", "delta": "I see "}
    if "picture" in asked:
        raise MemoryError
    yield {"type": "text-delta", "id": "t", "delta": "your text."}
    yield {"type": "text-end", "id": "t"}
    yield {"type": "finish-step"}
    yield {"type": "finish", "finishReason": "stop"}


def main(url):
    chat = f"chat-{uuid4().hex[:8]}"  # a session of its own for each run
    calls, told = 0, []
    recovery = ChatRecovery(
        max_interrupted_attempts=3,
        max_backoff=0,  # an example should not make you wait: the pause grows with each death
        terminal_message="That message is too much for me.",
        on_exhausted=lambda context: told.append((context.incident.id, context.incident.reason)),
        observer=lambda event: print(f"{event.kind}: attempt {event.attempt} {event.reason or ''}".rstrip()),
    )

    def work(delivery):
        nonlocal calls
        # What the queue knows: how often it has delivered this, and how the last worker ended.
        cause = "out_of_memory" if delivery > 1 else None
        with db.boot(chat, cause=cause) as session:
            for turn in session.turns():
                calls += 1
                with turn:
                    for _ in turn.tee(agent(turn.inputs[0]["message"]["parts"][0]["text"])):
                        pass

    with snapshotter.open(url, recovery=recovery) as db:
        db.send(chat, "Look at this picture")
        for delivery in range(1, 5):
            try:
                work(delivery)
            except MemoryError:
                print(f"worker {delivery} died; the next one would {db.peek(chat).incident.decision}")
        assert calls == 3, "the budget is what it costs at most"
        assert told == [("in1", "out_of_memory")]
        outcome = db.peek(chat).fold.last_turn
        assert outcome["status"] == "exhausted"
        assert outcome["error"] == "That message is too much for me."

        db.send(chat, "Then read this text")
        work(1)
        assert db.history(chat)[-1]["parts"][-1]["text"] == "I see your text."
        print("ok")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "memory://budget")
