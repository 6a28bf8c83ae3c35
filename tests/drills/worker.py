"""The agent of a drill: boots the session of a receipt, and answers what is owed there.

Its model is fake and depends on nothing but the messages it is shown. It says a few words, has a tool run
that must never run twice for the same question, and says some more. Each word quotes the question and its own
answer, as the checker wants it. What the engine acknowledged goes into the journal, after it did; a model's
call and a tool's run before they happen.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from drill_actor import Handle, Job
from drill_clock import FastClock
from drill_journal import Journal

import snapshotter
from snapshotter.database import Database
from snapshotter.turn import Turn

Chunk = dict[str, Any]
Message = dict[str, Any]
# A drill that kills does not wait between two attempts; how many there may be is the engine's own limit.
RECOVERY = snapshotter.ChatRecovery(max_backoff=0, stable_timeout=60.0)
TOKEN = re.compile(r"asked (tok-\w+)")
TOOL = "once-charge"


def prepare(place: dict[str, Any], who: str, seed: int) -> Handle:
    """To be run in the worker's own process. `place`: url, env, speed, began and the folder of journals."""
    dice = Random(seed)
    journal = Journal(Path(place["journals"]), who)
    db = open_database(place, durability=dice.choice(["stream", "live", "steps"]))
    return lambda job: handle(db, journal, dice, job)


def open_database(place: dict[str, Any], durability: str = "stream") -> Database:
    """What the engine has to say goes into `engine.log` beside the journals."""
    logging.basicConfig(filename=Path(place["journals"]) / "engine.log")
    clock = FastClock(place["speed"], place["began"])
    return snapshotter.open(
        place["url"], env=place["env"], recovery=RECOVERY, clock=clock, durability=durability
    )


def handle(db: Database, journal: Journal, dice: Random, job: Job) -> Job:
    """One delivery of a receipt. `done`: the queue may forget it; `later`: it comes again."""
    session_id = job["receipt"]["session"]
    try:
        work(db, journal, dice, job)
    except Exception as error:
        return {"later": note_error(journal, session_id, error)}
    journal.note("left", session_id, how="ok")
    return {"done": True}


def note_error(journal: Journal, session_id: str, error: Exception) -> str:
    """Returns its name. Busy and Fenced are no trouble, and have events of their own."""
    kind = type(error).__name__
    if isinstance(error, snapshotter.Busy | snapshotter.Fenced):
        journal.note(kind.lower(), session_id, detail=str(error))
    else:
        typed = isinstance(error, snapshotter.StreamError)
        journal.note("error", session_id, type=kind, typed=typed, detail=repr(error))
    journal.note("left", session_id, how=kind.lower())
    return kind


def work(db: Database, journal: Journal, dice: Random, job: Job) -> None:
    session_id, since = job["receipt"]["session"], time.monotonic()
    with db.boot(receipt=job["receipt"], takeover=job["takeover"], delivery=job["delivery"]) as session:
        journal.note("booted", session_id, since=since, resume=session.resume.kind, messages=session.messages)
        for turn in session.turns():
            about = {
                "turn": turn.number,
                "attempt": turn.attempt,
                "inputs": [record["id"] for record in turn.inputs],
                "question": question_of(turn.messages),
            }
            with turn:
                fin = answer(turn, journal, dice, about)
            journal.note("turn-ended", session_id, **about, status=turn.status, fin=fin)


def text_of(message: Message) -> str:
    return "".join(part["text"] for part in message["parts"] if part["type"] == "text")


def question_of(messages: list[Message]) -> str:
    """The token of the newest user message that has one; a note for the model has none."""
    texts = [text_of(message) for message in messages if message["role"] == "user"]
    return str([token for text in texts for token in TOKEN.findall(text)][-1])


def answer(turn: Turn, journal: Journal, dice: Random, about: dict[str, Any]) -> str:
    """Call the model, write what it streams, note what is durable. Returns the last word."""
    session_id, question = turn.session_id, about["question"]
    mine = f"a{dice.getrandbits(64):016x}"
    journal.note("model-call", session_id, **about, answer=mine)
    runs: dict[str, str] = {}
    words: list[str] = []

    def run_tool() -> Any:
        call, run = f"{question}/{TOOL}", f"r{dice.getrandbits(64):016x}"
        journal.note("tool-run", session_id, call=call, run=run)
        time.sleep(dice.uniform(0.0, 0.1))
        runs[call] = run
        return {"run": run}

    for chunk in model(turn.messages, f"{question}~{mine}", dice, run_tool):
        time.sleep(dice.uniform(0.0, 0.03))
        turn.write(chunk)
        words += chunk.get("delta", "").split()
        if chunk["type"] == "text-end":
            turn.flush()
        if chunk["type"] in ("text-end", "tool-output-available"):
            journal.note("durable", session_id, question=question, words=words, id=turn.durable_id, runs=runs)
    return next(word for word in text_of(turn.message or {"parts": []}).split() if word.endswith(".fin"))


def model(messages: list[Message], sign: str, dice: Random, run_tool: Callable[[], Any]) -> Iterator[Chunk]:
    """What the model streams for these messages. `sign` begins each of its words."""
    yield {"type": "start"}
    yield {"type": "start-step"}
    question = sign.partition("~")[0]
    answers = [text_of(message) for message in messages if message["role"] == "assistant"]
    if any(question in text and text.rstrip().endswith(".fin") for text in answers):
        yield from finish()  # an attempt before has said it whole
        return
    count = dice.randrange(4)
    call = {"toolCallId": f"call-{sign}", "toolName": TOOL, "input": {"for": question}}
    called = [part for message in messages for part in message["parts"] if part["type"] == f"tool-{TOOL}"]
    if all(part.get("input") != call["input"] for part in called):
        yield from say("thinking", [f"{sign}.{n}" for n in range(count)])
        yield {"type": "tool-input-available", **call}
        yield {"type": "tool-output-available", "toolCallId": call["toolCallId"], "output": run_tool()}
        yield {"type": "finish-step"}
        yield {"type": "start-step"}
    words = [f"{sign}.{n}" for n in range(count, count + dice.randrange(8))]
    yield from say("answer", [*words, f"{sign}.fin"])
    yield from finish()


def finish() -> Iterator[Chunk]:
    yield {"type": "finish-step"}
    yield {"type": "finish", "finishReason": "stop"}


def say(part: str, words: list[str]) -> Iterator[Chunk]:
    yield {"type": "text-start", "id": part}
    for word in words:
        yield {"type": "text-delta", "id": part, "delta": f"{word} "}
    yield {"type": "text-end", "id": part}
