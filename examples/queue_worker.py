"""A queue that delivers at least once, and workers that die: each message is answered once.

    python examples/queue_worker.py file:///tmp/chats

The queue is a list here. The one rule is the same as with SQS, Pub/Sub or RabbitMQ: acknowledge only what
did not raise `Retryable`.
"""

import sys
from collections import deque
from uuid import uuid4

import snapshotter


class Died(BaseException):
    """Stands for a kill: nothing gets the chance to clean up."""


def agent(messages, *, die):
    assert messages[-1]["role"] == "user"
    for number, word in enumerate(["One ", "two ", "three."]):
        if die and number == 2:
            raise Died
        yield word


def main(url):
    chat = f"counting-{uuid4().hex[:8]}"  # a session of its own for each run
    calls = 0
    with snapshotter.open(url, stable_timeout=0.0) as db:
        receipt = str(db.send(chat, "Count to three."))
        queue = deque([receipt, receipt, receipt])  # delivered three times
        while queue:
            message = queue.popleft()
            try:
                with db.boot(receipt=message) as session:
                    for turn in session.turns():
                        calls += 1
                        with turn:
                            words = agent(turn.messages, die=calls == 1)
                            for _ in turn.tee(snapshotter.text_chunks(words)):
                                pass
            except snapshotter.Retryable as error:
                print(f"not now: {error}")
                db.clock.sleep(error.retry_after)  # a queue would deliver the message again by then
                queue.append(message)
            except Died:
                print("a worker died in the middle of its answer")
                queue.append(message)

        history = db.history(chat)
        assert [message["role"] for message in history] == ["user", "assistant"]
        assert history[1]["parts"][1]["text"] == "One two three."
        assert calls == 2, "one call that died, one that answered; the other deliveries cost nothing"
        print("ok")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "memory://queue")
