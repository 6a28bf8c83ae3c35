"""A short real session on a store: a worker is killed in the middle of a turn, and the next one ends it.

    python session.py begin URL ID [--unfenced]    asks, answers half, says "durable", and waits to be killed
    python session.py end URL ID [--unfenced]      boots, carries on, and prints what the history is then

`killed_turn` does both, in processes of their own, and judges. The kill is a SIGKILL.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

_SECONDS = 120
_TOOL = {"toolCallId": "c1", "toolName": "book", "input": {"to": "OSL"}}


def killed_turn(url: str, session: str, environment: Mapping[str, str], *, unfenced: bool) -> str:
    """`completed`, or the name of the error that the store's lack is told by. Raises RuntimeError where the
    session went wrong without being told."""
    flag = [session, *(["--unfenced"] if unfenced else [])]
    command = [sys.executable, __file__, "begin", url, *flag]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(environment)) as first:
        assert first.stdout is not None
        try:
            said = first.stdout.readline().strip()
        finally:
            first.kill()
    if said != "durable":
        return _told(said, "the first worker")
    done = subprocess.run(
        [sys.executable, __file__, "end", url, *flag],
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
        env=dict(environment),
    )
    if done.returncode:
        return _told(done.stdout.strip(), f"the second worker: {done.stderr[-400:]}")
    history = json.loads(done.stdout)
    question, answer = history
    (tool,) = [part for part in answer["parts"] if part["type"] == "tool-book"]
    text = "".join(part["text"] for part in answer["parts"] if part["type"] == "text")
    if (question["role"], tool.get("output"), text) != ("user", {"ticket": "SN-17"}, "It is booked."):
        raise RuntimeError(f"the history is {history}")
    return "completed"


def _told(said: str, who: str) -> str:
    if not said.startswith("error "):
        raise RuntimeError(f"{who} said {said!r}")
    return said.removeprefix("error ")


def _begin(db: Any, session_id: str) -> None:
    db.send(session_id, "Book me a flight to Oslo.")
    turn = next(db.boot(session_id).turns())
    for chunk in (
        {"type": "start"},
        {"type": "start-step"},
        {"type": "tool-input-available", **_TOOL},
        {"type": "tool-output-available", "toolCallId": "c1", "output": {"ticket": "SN-17"}},
        {"type": "finish-step"},
        {"type": "start-step"},
        {"type": "text-start", "id": "t"},
        {"type": "text-delta", "id": "t", "delta": "It is b"},
    ):
        turn.write(chunk)
    turn.flush()
    print("durable", flush=True)
    sys.stdin.read()  # the kill comes first


def _end(db: Any, session_id: str) -> None:
    with db.boot(session_id, takeover=True) as session:
        for turn in session.turns():
            with turn:
                for chunk in (
                    {"type": "start"},
                    {"type": "start-step"},
                    {"type": "text-start", "id": "t"},
                    {"type": "text-delta", "id": "t", "delta": "It is booked."},
                    {"type": "text-end", "id": "t"},
                    {"type": "finish-step"},
                    {"type": "finish", "finishReason": "stop"},
                ):
                    turn.write(chunk)
    print(json.dumps(db.history(session_id)))


def main() -> int:
    import snapshotter

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("part", choices=("begin", "end"))
    parser.add_argument("url")
    parser.add_argument("session", metavar="id")
    parser.add_argument("--unfenced", action="store_true")
    args = parser.parse_args()
    at_once = snapshotter.ChatRecovery(max_backoff=0)
    try:
        with snapshotter.open(
            args.url, durability="live", allow_unfenced=args.unfenced, recovery=at_once
        ) as db:
            (_begin if args.part == "begin" else _end)(db, args.session)
    except snapshotter.StreamError as error:
        print(f"error {type(error).__name__}")
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
