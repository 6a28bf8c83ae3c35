"""The user of a drill: sends, and sends again what was not acknowledged, under the same id and key.

A job is one message, `{"session", "token", "keyed"}`: the token is its id and, if `keyed`, its idempotency
key too. The answer is its receipt, or that it has to be tried again. Now and then the client sends twice what
was acknowledged, or reads the history; a job without a token reads the last one.
"""

from __future__ import annotations

import time
from pathlib import Path
from random import Random
from typing import Any

from drill_actor import Handle, Job
from drill_journal import Journal
from worker import note_error, open_database

import snapshotter
from snapshotter.database import Database
from snapshotter.receipt import Receipt


def prepare(place: dict[str, Any], who: str, seed: int) -> Handle:
    """To be run in the client's own process; `place` as for a worker."""
    journal, db = Journal(Path(place["journals"]), who), open_database(place)
    dice = Random(seed)
    return lambda job: handle(db, journal, dice, job)


def handle(db: Database, journal: Journal, dice: Random, job: Job) -> Job:
    """`receipt`: sent; `history`: read; `later`: the job comes again."""
    session = job["session"]
    try:
        if "token" not in job:
            read(db, journal, session, final=True)
            return {"history": True}
        receipt = send(db, journal, job)
        if dice.random() < 0.1:
            send(db, journal, job)
        if dice.random() < 0.1:
            read(db, journal, session)
    except Exception as error:
        return {"later": note_error(journal, session, error)}
    return {"receipt": {"session": session, "id": receipt.id}}


def send(db: Database, journal: Journal, job: Job) -> Receipt:
    """Send once. Raises what `send` raises, with `send-failed` noted."""
    session, about = job["session"], {"kind": "message", "token": job["token"]}
    text = f"asked {job['token']}"
    journal.note("send", session, **about, text=text)
    message = {"id": job["token"], "role": "user", "parts": [{"type": "text", "text": text}]}
    try:
        receipt = db.send(session, message, key=job["token"] if job["keyed"] else None)
    except snapshotter.StreamError:
        journal.note("send-failed", session, **about)
        raise
    journal.note("sent", session, **about, id=receipt.id)
    return receipt


def read(db: Database, journal: Journal, session: str, *, final: bool = False) -> None:
    since = time.monotonic()
    messages = db.history(session)
    journal.note("history", session, since=since, messages=messages, final=final)
