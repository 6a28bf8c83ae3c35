"""Who is compared, and the measuring itself: every peer a process, all of them over one store.

At each length, with every session grown to it:

    boots    in rounds, every peer once in each, at once and with latency; requests from the rounds with it
    turns    the first turn of a process that has just booted, and those of one that goes on, a mean
    starts   at one length, processes that import, open, boot and end, in rounds, too: time and memory
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, environment, median
from benchmarks.peers import environments
from benchmarks.peers.proxy import Cost, Proxy

LATENCY = 0.025
ROUNDS = 3
STARTED = 100
"""The length at which processes are started: that of the longest session that all have."""
WARM = 4
"""Turns of a process that goes on, whose mean is told."""


@dataclass(frozen=True, slots=True)
class Peer:
    """One way to keep a session. `longest`: it is not tried beyond so many turns; LangGraph keeps every state
    of a turn, which are 4.2 GB after 500."""

    key: str
    label: str
    environment: str
    module: str
    variant: str
    longest: int = 500
    sql: bool = False

    @property
    def ours(self) -> bool:
        return self.module == "ours"


PEERS = (
    Peer("ours-s3", "Snapshotter, `s3://` (boto3)", environments.OWN, "ours", "s3", 10_000),
    Peer("ours-minio", "Snapshotter, `minio://`", environments.OWN, "ours", "minio", 10_000),
    Peer("ours-obstore", "Snapshotter, `s3+obstore://`", environments.OWN, "ours", "s3+obstore", 10_000),
    Peer(
        "ours-window",
        "Snapshotter, `s3+obstore://`, `window=64`",
        environments.OWN,
        "ours",
        "s3+obstore/w",
        10_000,
    ),
    Peer("strands-snapshot", "Strands SnapshotSessionManager", "strands", "strands_", "invocation"),
    Peer("strands-message", "Strands SnapshotSessionManager, each message", "strands", "strands_", "message"),
    Peer("strands-s3", "Strands S3SessionManager, whole", "strands", "strands_", "whole"),
    Peer("strands-window", "Strands S3SessionManager, window of 40", "strands", "strands_", "window"),
    Peer("langgraph-s3", "LangGraph, objectstorage", "langgraph", "langgraph_", "s3", 100),
    Peer(
        "langgraph-exit", 'LangGraph, objectstorage, `durability="exit"`', "langgraph", "langgraph_", "exit"
    ),
    Peer("langgraph-sqlite", "LangGraph, SQLite", "langgraph", "langgraph_", "sqlite", 100, sql=True),
    Peer("openai", "OpenAI Agents SQLiteSession", "openai", "openai_", "", sql=True),
    Peer("eventsourcing", "eventsourcing, SQLite", "eventsourcing", "eventsourcing_", "events", sql=True),
    Peer(
        "eventsourcing-snapshots",
        "eventsourcing, SQLite, a snapshot a turn",
        "eventsourcing",
        "eventsourcing_",
        "snapshots",
        sql=True,
    ),
)


@dataclass
class Boot:
    """Of one session length: what a boot asks, and its seconds in each round, by latency; what it found."""

    cost: Cost | None = None
    messages: int = 0
    seconds: dict[float, list[float]] = field(default_factory=dict)


@dataclass
class Found:
    """What was measured of one peer at one length. `first`, `next`: of turns. `rows` and `row_bytes`: what a
    turn added to a database. `starts`: what fresh processes told."""

    peer: Peer
    turns: int
    boot: Boot = field(default_factory=Boot)
    first: Cost | None = None
    next: list[Cost] = field(default_factory=list)
    rows: float = 0.0
    row_bytes: float = 0.0
    starts: list[dict[str, float]] = field(default_factory=list)

    def plain(self) -> dict[str, Any]:
        return {**asdict(self), "peer": self.peer.key}

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Found:
        """From what `plain` made, by way of JSON."""
        peer = next(peer for peer in PEERS if peer.key == plain["peer"])
        boot = plain["boot"]
        seconds = {float(latency): taken for latency, taken in boot["seconds"].items()}
        costs: dict[str, Any] = {
            "first": Cost(**plain["first"]),
            "next": [Cost(**cost) for cost in plain["next"]],
        }
        return cls(
            **{**plain, **costs, "peer": peer, "boot": Boot(Cost(**boot["cost"]), boot["messages"], seconds)}
        )

    def wall(self, latency: float) -> float:
        """The median boot, in seconds."""
        return median(self.boot.seconds[latency])


class Process:
    """A peer's process, and the session that it keeps."""

    def __init__(self, peer: Peer, program: str, place: str, env: dict[str, str]) -> None:
        self.peer, self.done = peer, 0
        self._command = [program, "-m", "benchmarks.peers.child", peer.module, peer.variant, place]
        self._env = env
        self._running = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=env
        )

    def ask(self, what: str, *given: Any) -> Any:
        """One command; its answer."""
        assert self._running.stdin is not None
        assert self._running.stdout is not None
        self._running.stdin.write(json.dumps([what, *given]) + "\n")
        self._running.stdin.flush()
        line = self._running.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.peer.key} has ended while it was asked to {what}")
        return json.loads(line)

    def once(self, turns: int, endpoint: str) -> dict[str, float]:
        """A fresh process that opens and boots; with the seconds of all of it."""
        env = {**self._env, "AWS_ENDPOINT_URL": endpoint, "OBJECT_STORE_BASE_URL": endpoint}
        began = time.perf_counter()
        command = [*self._command, "--once", str(turns)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env=env)
        return {**json.loads(done.stdout), "process": time.perf_counter() - began}

    def turn(self) -> None:
        self.ask("send", self.done)
        self.ask("turn", self.done)
        self.done += 1

    def close(self) -> None:
        self._running.communicate()  # it ends when nothing more can come


@contextmanager
def processes(
    peers: Iterable[Peer], folder: Path, data: Path, env: dict[str, str]
) -> Iterator[list[Process]]:
    """All peers' processes. All of ours keep the same sessions."""
    quiet = {"OTEL_SDK_DISABLED": "true", "LANGSMITH_TRACING": "false", "OPENAI_AGENTS_DISABLE_TRACING": "1"}
    with ExitStack() as stack:
        found = []
        for peer in peers:
            place = str(data) if peer.sql else "ours" if peer.ours else peer.key
            program = environments.python(folder, peer.environment)
            process = Process(peer, program, place, {**environment(), **env, **quiet})
            stack.callback(process.close)
            found.append(process)
        yield found


def measure(
    running: Sequence[Process],
    lengths: Sequence[int],
    server: str,
    proxy: Proxy,
    data: Path,
    tell: Callable[[str], None],
) -> Iterator[Found]:
    """Grow every session to each length, measure what the module says."""
    for turns in sorted(lengths):
        there = {process: Found(process.peer, turns) for process in running if turns <= process.peer.longest}
        for process in there:
            tell(f"{process.peer.key}: grows to {turns} turns")
            process.ask("open", turns, server)
            if not process.peer.ours:
                process.ask("boot")
            process.ask("grow", process.done, turns)
            process.done = turns
        tell(f"boots of {turns} turns")
        for latency in (0.0, LATENCY):
            _boots(there, proxy, latency)
        if turns == min(STARTED, max(lengths)):
            _starts(there, proxy)
        for process, row in there.items():
            _turns(process, row, proxy, data)
        yield from there.values()


def _boots(there: dict[Process, Found], proxy: Proxy, latency: float) -> None:
    for number in range(ROUNDS + 1):
        for process, row in there.items():
            process.ask("open", row.turns, proxy.endpoint)
            proxy.take()
            proxy.latency = latency
            answer = process.ask("boot")
            proxy.latency = 0.0
            row.boot.cost, row.boot.messages = proxy.take(), answer["value"]
            if number:  # the first one is a warm-up
                row.boot.seconds.setdefault(latency, []).append(answer["seconds"])


def _starts(there: dict[Process, Found], proxy: Proxy) -> None:
    for number in range(ROUNDS + 1):
        for process, row in there.items():
            start = process.once(row.turns, proxy.endpoint)
            if number:  # the first one writes the bytecode
                row.starts.append(start)


def _turns(process: Process, row: Found, proxy: Proxy, data: Path) -> None:
    """The first turn of a process, and of a second one some further ones."""
    process.ask("open", row.turns, proxy.endpoint)
    process.ask("send", process.done)
    process.ask("boot")
    proxy.take()
    proxy.latency = LATENCY
    process.ask("turn", process.done)
    process.ask("end")
    proxy.latency = 0.0
    row.first = proxy.take()
    process.done += 1
    process.ask("open", row.turns, proxy.endpoint)
    process.ask("send", process.done)
    process.ask("boot")
    process.ask("turn", process.done)
    process.done += 1
    before = _stored(data, process.peer) if process.peer.sql else (0, 0)
    for _ in range(WARM):
        proxy.take()
        proxy.latency = LATENCY
        process.turn()
        proxy.latency = 0.0
        row.next.append(proxy.take())
    if process.peer.sql:
        after = _stored(data, process.peer)
        row.rows, row.row_bytes = ((b - a) / WARM for a, b in zip(before, after, strict=True))
    process.ask("end")


def _stored(data: Path, peer: Peer) -> tuple[int, int]:
    """Rows and bytes of all values in the peer's database."""
    name = f"eventsourcing-{peer.variant}" if peer.module == "eventsourcing_" else peer.module.rstrip("_")
    rows = size = 0
    with sqlite3.connect(data / f"{name}.sqlite") as database:
        ask = partial(database.execute)
        for (table,) in ask("SELECT name FROM sqlite_master WHERE type='table'").fetchall():
            columns = [
                f'COALESCE(LENGTH(CAST("{c[1]}" AS BLOB)),0)' for c in ask(f'PRAGMA table_info("{table}")')
            ]
            here = ask(f'SELECT COUNT(*), SUM({"+".join(columns)}) FROM "{table}"').fetchone()
            rows, size = rows + here[0], size + (here[1] or 0)
    return rows, size
