"""What other processes do for `corpus_check.py`: they answer in sessions, die of a rebuild, read and judge.

As a program it is a rebuild that kills itself and all processes of its group, in the middle of its tasks:
`corpus_work.py URL JOURNAL JOBS SESSIONS`, once so many sessions are done.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import orjson
from corpus_sessions import answer, question, respond

import snapshotter
from snapshotter.core.snapshot import decode
from snapshotter.database import Database
from snapshotter.recovery import ChatRecovery
from snapshotter.shelf import inline
from snapshotter.verify import verify
from streams import keys

Stored = tuple[int, str]
"""Of a snapshot: the out record at which it stands, and a digest of what it says."""

_VARIES = ("savedAt", "crc", "lastOutTimestamp", "blocks")  # from one saving to the next


def opened(url: str) -> Database:
    """The root, for workers that do not wait before they try again."""
    return snapshotter.open(url, recovery=ChatRecovery(max_backoff=0))


def cursor_of(db: Database, session: str) -> int:
    """Where the stored snapshot stands; 0 where there is none."""
    blob = db.store.get(keys.snapshot(db.sid(session)))
    return 0 if blob is None else int(orjson.loads(blob.data)["lastOutEventId"])


def snapshots(url: str, sessions: Sequence[str]) -> dict[str, Stored]:
    """What is stored of these, where there is something: the history in itself, not in blocks."""
    found: dict[str, Stored] = {}
    with opened(url) as db:
        for session in sessions:
            sid = db.sid(session)
            blob = db.store.get(keys.snapshot(sid))
            if blob is not None:
                document = inline(db.store, sid, decode(blob.data, key=keys.snapshot(sid), session=sid))
                kept = {name: value for name, value in document.items() if name not in _VARIES}
                data = orjson.dumps(kept, option=orjson.OPT_SORT_KEYS)
                found[session] = int(document["lastOutEventId"]), hashlib.sha256(data).hexdigest()
    return found


def forget(url: str, sessions: Sequence[str]) -> int:
    """Remove the snapshots of these; returns of how many."""
    with opened(url) as db:
        for session in sessions:
            db.store.delete(keys.snapshot(db.sid(session)))
    return len(sessions)


def judge(url: str, sessions: Sequence[str]) -> list[str]:
    """What is wrong with these: every object is read, and the fold of the whole logs has to be what the
    snapshot says at its place, and what a boot returns at the end."""
    with opened(url) as db:
        verdicts = [verify(db, session) for session in sessions]
    return [f"{v.session}: {p.code}: {p.detail}" for v in verdicts for p in v.problems]


def answering(url: str, seed: int, worker: int, sessions: Sequence[str], folder: Path) -> None:
    """Ask and answer in these sessions, one after the other, until there is a file `stop` in the folder. Each
    visit is a line of a file there: the question's id, and where the snapshot stood before and after. Before
    every second one the snapshot is lost, so that a rebuild writes one while this worker does."""
    rng = random.Random(f"{seed}/worker/{worker}")
    with opened(url) as db, (folder / f"{worker}.jsonl").open("w") as told:
        for visit, session in enumerate(_again(sessions)):
            if visit % 2:
                db.store.delete(keys.snapshot(db.sid(session)))
            before = -1 if visit % 2 else cursor_of(db, session)
            message = question(rng, f"-{worker}-{visit}")
            db.send(session, message)
            respond(db, session, lambda visit=visit: answer(rng, 0, f"w-{worker}-{visit}"))  # type: ignore[misc]
            row = {"session": session, "id": message["id"], "before": before, "after": cursor_of(db, session)}
            print(json.dumps(row), file=told, flush=True)
            if (folder / "stop").exists():
                return


def _again(sessions: Sequence[str]) -> Iterator[str]:
    while True:
        yield from sessions


def histories(url: str, sessions: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """What a client sees of these."""
    with opened(url) as db:
        return {session: db.history(session) for session in sessions}


def rebuild_and_die(url: str, journal: str, jobs: int, sessions: int) -> None:
    """Begin, or resume, a run that writes snapshots back; kill this process group when so many are done."""
    done = 0

    def progress(results: Sequence[Any], _total: int) -> None:
        nonlocal done
        done += len(results)
        if done >= sessions:
            os.killpg(0, signal.SIGKILL)

    resume = Path(journal).exists()
    snapshotter.rebuild(url, mode="write", jobs=jobs, journal=journal, resume=resume, progress=progress)


def wait_for(path: Path, seconds: float = 60.0) -> None:
    """Until somebody has written into this file. Raises TimeoutError."""
    end = time.monotonic() + seconds
    while not (path.exists() and path.stat().st_size):
        if time.monotonic() > end:
            raise TimeoutError(f"nothing comes into {path}")
        time.sleep(0.02)


if __name__ == "__main__":
    rebuild_and_die(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
