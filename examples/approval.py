"""A tool that needs a person's yes: the turn ends with a question, the answer comes later, from elsewhere.

    python examples/approval.py file:///tmp/chats

The worker that asked is long gone when the person answers. The next one continues the same message.
"""

import sys
from uuid import uuid4

import snapshotter


def agent(messages):
    """Stands for your agent: asks before it deletes, and deletes once it may."""
    last = messages[-1]
    call = next((p for p in last["parts"] if p.get("type") == "tool-delete"), None)
    if call is None:
        yield {"type": "start"}
        yield {"type": "start-step"}
        call = {"toolCallId": "c1", "toolName": "delete", "input": {"path": "a.txt"}}
        yield {"type": "tool-input-available", **call}
        yield {"type": "tool-approval-request", "toolCallId": "c1", "approvalId": "p1"}
    else:
        assert call["approval"]["approved"] is True
        yield {"type": "start"}
        yield {"type": "tool-output-available", "toolCallId": "c1", "output": "deleted"}
        yield {"type": "start-step"}
        yield {"type": "text-start", "id": "t"}
        yield {"type": "text-delta", "id": "t", "delta": "Done, a.txt is gone."}
        yield {"type": "text-end", "id": "t"}
    yield {"type": "finish-step"}
    yield {"type": "finish", "finishReason": "stop"}


def work(db, receipt):
    with db.boot(receipt=receipt) as session:
        for turn in session.turns():
            with turn:
                for _ in turn.tee(agent(turn.messages)):
                    pass


def main(url):
    chat = f"files-{uuid4().hex[:8]}"  # a session of its own for each run
    with snapshotter.open(url) as db:
        work(db, db.send(chat, "Delete a.txt, please."))
        waiting = db.peek(chat)
        print("waits for an answer:", waiting.resume.kind, waiting.resume.message_id)
        assert waiting.resume.kind == "waiting"

        work(db, db.approve(chat, "p1"))
        _, answer = db.history(chat)
        print(answer["parts"][-1]["text"])
        calls = [part for part in answer["parts"] if part["type"] == "tool-delete"]
        assert [call["state"] for call in calls] == ["output-available"]
        print("ok")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "memory://approval")
