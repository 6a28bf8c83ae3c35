"""Make a root full of sessions, always the same ones: `make_corpus.py URL [--sessions 10000] [--seed 1]`.

What is in it looks like what agents leave: most sessions are short and a few long; answers stream text and
reasoning, call tools, are packed and cut into segments as the engine does it. Of a hundred sessions

    92   end with their last turn, and have a snapshot of it
     4   have a turn open: their worker died in the middle of an answer
     2   have logs and no snapshot
     2   were written by the engine itself, through `send`, `boot` and `turns`

The others are written as bytes, by the engine's own codec, which takes a fraction of the time; into a folder
even without syncing: a corpus that is lost with the machine is made again. URL is any store URL; credentials
come from the environment.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.samples import Chunk, block, call
from snapshotter.core.blocks import DEFAULT
from snapshotter.core.chunks import delta_of
from snapshotter.core.fold import Fold
from snapshotter.database import Database
from snapshotter.database import open as open_database
from snapshotter.sealing import Checkpoint
from streams import keys
from streams.codec import decode_segment, encode_segment, frame
from streams.packing import Packer
from streams.records import Cursor

START_MS = 1_750_000_000_000
SPREAD_MS = 90 * 24 * 3600 * 1000
_ENGINE, _SNAPSHOTLESS, _OPEN = 2, 4, 8  # below which a session's number, modulo a hundred, is of that kind
_MANY = 64  # sessions of one job
_WRITERS = 8


def name(number: int) -> str:
    """The id of a session."""
    return f"chat-{number:06d}"


def turns_of(rng: random.Random) -> int:
    """How many turns a session has: most a few, one in a hundred dozens."""
    return min(200, 1 + int(rng.expovariate(1 / 3)) + (rng.randrange(20, 60) if rng.random() < 0.01 else 0))


def question(rng: random.Random, number: int) -> dict[str, Any]:
    text = "Tell me" + " about it" * rng.randrange(1, 30)
    return {"id": f"u{number}", "role": "user", "parts": [{"type": "text", "text": text}]}


def answer(rng: random.Random, number: int) -> Iterator[Chunk]:
    """The chunks of one answer: some reasoning, up to three tool calls, text."""
    yield {"type": "start", "messageId": f"msg_{number:024x}"}
    if rng.random() < 0.5:
        yield {"type": "start-step"}
        yield from block("reasoning", "r", rng.randrange(20, 200), rng.randrange(1000))
        for nth in range(rng.randrange(4)):
            yield from call(f"call-{number}-{nth}", "found " * rng.randrange(5, 800))
        yield {"type": "finish-step"}
    yield {"type": "start-step"}
    yield from block("text", "t", int(rng.lognormvariate(4.5, 0.8)), rng.randrange(1000))
    yield {"type": "finish-step"}
    yield {"type": "finish", "finishReason": "stop"}


def out_log(rng: random.Random, turns: int, start_ms: int, *, dies: bool) -> Iterator[tuple[int, bytes]]:
    """The out log: (first id, bytes) of each segment. `dies`: the last turn breaks off in its middle."""
    packer, segments, now = Packer(1, delta_of), 0, start_ms
    for number in range(1, turns + 1):
        began, pace = now, 1.0
        bodies = [*_records(rng, number)]
        if dies and number == turns:
            bodies = bodies[: max(2, len(bodies) // 2)]
        for at, body in enumerate(bodies, 1):
            now += 20
            packer.add(now, body)
            if now - began >= pace * 1000 or at == len(bodies):
                yield packer.first, _segment(packer, segments)
                packer, segments = Packer(packer.next, delta_of), segments + 1
                began, pace = now, min(5.0, pace * 1.5)
        now += rng.randrange(5_000, 600_000)


def _records(rng: random.Random, number: int) -> Iterator[dict[str, Any]]:
    start = {"turn": number, "attempt": 1, "epoch": 1, "run": "r-1", "mode": "fresh"}
    named = {"inputs": [number], "seen": number, "messageId": f"msg_{number:024x}"}
    yield {"control": "turn-start", **start, **named}
    for chunk in answer(rng, number):
        yield {"chunk": chunk}
    yield {"control": "turn-complete", "turn": number, "status": "completed", "finishReason": "stop"}


def _segment(packer: Packer, number: int) -> bytes:
    nonce, prev = f"{number + 1:024x}", f"{number:024x}" if number else None
    lines, last = packer.lines(), packer.next - 1
    return frame("out", packer.first, last, lines, nonce=nonce, epoch=1, run="r-1", prev=prev, lease=15)


class Maker:
    """Writes sessions into one root."""

    def __init__(self, url: str, seed: int) -> None:
        self._db = open_database(url)
        self._seed = seed
        parts = urlsplit(url)
        self._folder = Path(unquote(parts.path)) if parts.scheme == "file" else None

    def make(self, number: int) -> None:
        """Write one session."""
        rng = random.Random(f"{self._seed}/{number}")
        kind, turns = number % 100, turns_of(rng)
        if kind < _ENGINE:
            worked(self._db, name(number), rng, turns)
            return
        sid = self._db.sid(name(number))
        fold, at = Fold(), Cursor()
        start_ms = START_MS + rng.randrange(SPREAD_MS)
        for n in range(1, turns + 1):
            record = {"id": n, "ts": start_ms, "kind": "message", "message": question(rng, n)}
            self._put(keys.segment("in", sid, n), encode_segment("in", [record], nonce=f"{n:024x}"))
            fold.feed(record)
        for first, data in out_log(rng, turns, start_ms, dies=kind < _OPEN and kind >= _SNAPSHOTLESS):
            key = keys.segment("out", sid, first)
            self._put(key, data)
            segment = decode_segment(data, key=key)
            assert segment is not None
            fold.replay(segment.records)
            at = Cursor(segment.header.last, segment.header.nonce, segment.header.first)
        if kind >= _SNAPSHOTLESS and fold.open is None:
            Checkpoint(self._db.store, sid, fold, at, DEFAULT, lambda _spans: None).save(None, "as-given")

    def _put(self, key: str, data: bytes) -> None:
        if self._folder is None:
            self._db.store.put(key, data, nonce=self._db.clock.token())
            return
        path = self._folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def worked(db: Database, session_id: str, rng: random.Random, turns: int) -> None:
    """A session that the engine itself writes."""
    for number in range(1, turns + 1):
        db.send(session_id, question(rng, number))
        with db.boot(session_id, takeover=True) as session:
            for turn in session.turns():
                with turn:
                    for chunk in answer(rng, number):
                        turn.write(chunk)


def make_some(url: str, seed: int, numbers: range) -> int:
    """Write these sessions; returns how many."""
    maker = Maker(url, seed)
    with ThreadPoolExecutor(1 if url.startswith("file:") else _WRITERS) as pool:
        return len(list(pool.map(maker.make, numbers)))


def make(url: str, sessions: int, seed: int, jobs: int = 1) -> None:
    """Write the sessions 0 to `sessions`, which must not be there yet."""
    ranges = [range(at, min(at + _MANY, sessions)) for at in range(0, sessions, _MANY)]
    if jobs == 1:
        for numbers in ranges:
            make_some(url, seed, numbers)
        return
    with ProcessPoolExecutor(jobs) as pool:
        list(pool.map(partial(make_some, url, seed), ranges))


def main() -> None:
    parser = argparse.ArgumentParser(prog="make_corpus.py", description=__doc__.partition("\n")[0])
    parser.add_argument("url", help="a store URL, such as file:///tmp/corpus")
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    given = parser.parse_args()
    began = time.monotonic()
    make(given.url, given.sessions, given.seed, given.jobs)
    print(f"{given.sessions} sessions in {time.monotonic() - began:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
