"""Make a root full of sessions, always the same ones: `make_corpus.py URL [--sessions 10000] [--seed 1]`.

What is in it looks like what agents leave: most sessions are short and a few long; answers stream text and
reasoning, call tools, are packed and cut into segments as the engine does it. Of a hundred sessions

    82   end with their last turn, and have a snapshot of it
     5   are like them, and were compacted: a segment for each turn but the last
     1   is like them, and was trimmed: its log begins at a checkpoint
     4   have a turn open: their worker died in the middle of an answer
     2   have logs and no snapshot
     6   were written by the engine itself, each in a story of its own (`corpus_sessions.py`)

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
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from corpus_sessions import STORIES, answer, question, worked

from snapshotter.core.blocks import DEFAULT
from snapshotter.core.chunks import delta_of
from snapshotter.core.fold import Fold
from snapshotter.database import open as open_database
from snapshotter.recovery import ChatRecovery
from snapshotter.sealing import Checkpoint
from streams import keys
from streams.codec import decode_segment, encode_segment, frame
from streams.packing import Packer
from streams.records import Cursor

START_MS = 1_750_000_000_000
SPREAD_MS = 90 * 24 * 3600 * 1000
_MANY = 64  # sessions of one job
_WRITERS = 8

Kind = Literal["engine", "unsaved", "open", "compacted", "trimmed", "plain"]
_KINDS: tuple[tuple[Kind, int], ...] = (
    ("engine", len(STORIES)),
    ("unsaved", 2),
    ("open", 4),
    ("compacted", 5),
    ("trimmed", 1),
    ("plain", 82),
)


@dataclass(frozen=True, slots=True)
class Planned:
    """A session before it is written. `rng` is its own. `turns`: an open session's last one breaks off."""

    name: str
    kind: Kind
    turns: int
    rng: random.Random

    @property
    def saved(self) -> bool:
        """Whether it gets a snapshot."""
        return self.kind != "unsaved" and self.closed > 0

    @property
    def closed(self) -> int:
        """How many turns end."""
        return self.turns - (self.kind == "open")

    @property
    def first(self) -> int:
        """The turn with which its log begins, and which its checkpoint covers."""
        return max(1, self.turns // 2) if self.kind == "trimmed" else 1


def name(number: int) -> str:
    """The id of a session."""
    return f"chat-{number:06d}"


def planned(seed: int, number: int) -> Planned:
    """What the session with this number will be."""
    rng = random.Random(f"{seed}/{number}")
    place, kinds = number % 100, [kind for kind, count in _KINDS for _ in range(count)]
    return Planned(name(number), kinds[place], turns_of(rng), rng)


def turns_of(rng: random.Random) -> int:
    """How many turns a session has: most a few, one in a hundred dozens."""
    return min(200, 1 + int(rng.expovariate(1 / 3)) + (rng.randrange(20, 60) if rng.random() < 0.01 else 0))


def out_log(plan: Planned, start_ms: int) -> Iterator[tuple[int, bytes]]:
    """The out log: (first id, bytes) of each segment."""
    packer, segments, now = Packer(1, delta_of), 0, start_ms
    for number in range(1, plan.turns + 1):
        began, pace = now, 1.0
        merged = plan.kind == "compacted" and number < plan.turns
        bodies = [*_records(plan.rng, number)]
        if number > plan.closed:
            bodies = bodies[: max(2, len(bodies) // 2)]
        for at, body in enumerate(bodies, 1):
            now += 20
            packer.add(now, body)
            if at == len(bodies) or (now - began >= pace * 1000 and not merged):
                yield packer.first, _segment(packer, segments)
                packer, segments = Packer(packer.next, delta_of), segments + 1
                began, pace = now, min(5.0, pace * 1.5)
        now += plan.rng.randrange(5_000, 600_000)


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
        self._db = open_database(url, recovery=ChatRecovery(max_backoff=0))
        self._seed = seed
        parts = urlsplit(url)
        self._folder = Path(unquote(parts.path)) if parts.scheme == "file" else None

    def make(self, number: int) -> None:
        """Write one session."""
        plan = planned(self._seed, number)
        if plan.kind == "engine":
            worked(self._db, plan.name, plan.rng, plan.turns, number % 100)
            return
        sid, fold = self._db.sid(plan.name), Fold()
        start_ms = START_MS + plan.rng.randrange(SPREAD_MS)
        for n in range(1, plan.turns + 1):
            record = {"id": n, "ts": start_ms, "kind": "message", "message": question(plan.rng, n)}
            if n >= plan.first:
                self._put(keys.segment("in", sid, n), encode_segment("in", [record], nonce=f"{n:024x}"))
            fold.feed(record)
        etag = None
        for first, data in out_log(plan, start_ms):
            key = keys.segment("out", sid, first)
            segment = decode_segment(data, key=key)
            assert segment is not None
            fold.replay(segment.records)
            if fold.turn >= plan.first:
                self._put(key, data)
            at = Cursor(segment.header.last, segment.header.nonce, segment.header.first)
            ended = fold.turn if fold.open is None else 0
            if plan.saved and ended in (plan.closed, plan.first if plan.kind == "trimmed" else plan.closed):
                etag = self._save(sid, fold, at, etag)
                if plan.kind == "trimmed" and ended == plan.first:
                    self._keep(sid, ended)

    def _save(self, sid: str, fold: Fold, at: Cursor, etag: str | None) -> str:
        work = Checkpoint(self._db.store, sid, fold, at, DEFAULT, lambda _spans: None)
        saved = work.save(etag, "as-given")
        assert saved is not None
        return saved.etag

    def _keep(self, sid: str, turn: int) -> None:
        """The snapshot as it stands, as the checkpoint that a trim leaves."""
        found = self._db.store.get(keys.snapshot(sid))
        assert found is not None
        self._put(keys.checkpoint(sid, turn), found.data)

    def _put(self, key: str, data: bytes) -> None:
        if self._folder is None:
            self._db.store.put(key, data, nonce=self._db.clock.token())
            return
        path = self._folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


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
