"""Rebuilding a root: how fast, against the least that it could cost.

The bound is what any rebuild has to do: find the objects, fetch them, decode their JSON. It makes the same
requests for the same sessions, as many in flight, in as many processes, and gives every line of what it got
to `orjson.loads`; checks, the fold, and the comparison with the stored snapshot come on top. A rebuild at
100 % of the bound would do these for nothing.

The corpus is `scripts/make_corpus.py`'s, in a folder (whose files are in the page cache: fetching them costs
next to nothing, so the fold shows most) and on a real S3 server (SeaweedFS, by minio-py) on this machine,
which needs some of its cores for itself; at once, and 25 ms away, as a store behind a network is.

A second table says where the time of one process over a folder goes: the CPU of each part by itself, of the
sessions whose logs are whole. Fetching, parsing, the checks of a segment and the fold are what no rebuild can
do without; so it says what the fold alone leaves of the bound, too.
"""

from __future__ import annotations

import gc
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import orjson

from benchmarks.common import ROOT, Table, median, ratio, rounds
from benchmarks.peers.proxy import Proxy
from snapshotter import sameness
from snapshotter.agreeing import newest_inputs
from snapshotter.core.fold import Fold
from snapshotter.core.snapshot import restore
from snapshotter.database import Database
from snapshotter.rebuilding import Options, rebuild, rebuild_some
from snapshotter.rebuilding.executors import Inline, Processes
from snapshotter.rebuilding.threads import REQUESTS, PooledClock, Reader, is_at_hand
from snapshotter.rebuilding.threads import SESSIONS as SESSIONS_AHEAD
from snapshotter.shelf import inline
from streams import keys, log
from streams.buckets.url import open_bucket
from streams.codec import decode_segment
from streams.records import Segment
from streams.store import Store

sys.path.insert(0, str(ROOT / "scripts"))
import make_corpus
import s3_server

SESSIONS = 200
CHUNK = 25
TIMES = 5
LATENCY = 0.025

Urls = tuple[str, str]
"""Where the corpus is made, and where it is read: the same root."""


def fetch_some(url: str, sids: Sequence[str]) -> int:
    """The bound for some sessions; returns the bytes."""
    at_hand = is_at_hand(url)
    with PooledClock(1 if at_hand else REQUESTS) as clock, Reader(0 if at_hand else SESSIONS_AHEAD) as reader:
        db = Database(open_bucket(url, clock=clock), clock)
        try:
            return sum(_decoded(blobs) for blobs in reader.each(partial(_fetched, db, sid) for sid in sids))
        finally:
            db.close()


def _fetched(db: Database, session: str) -> list[bytes]:
    store: Store = db._own_store()
    sid = db.sid(session)
    snapshot = store.get(keys.snapshot(sid))
    places = log.tail_keys(store, "out", sid, 0).entries
    newest = newest_inputs(store, sid)[0]
    names = [*(place.key for place in places), *(keys.segment("in", sid, n) for n in range(1, newest + 1))]
    found = [blob.data for blob in store.gather([partial(store.get, key) for key in names]) if blob]
    return [*found, *([] if snapshot is None else [snapshot.data])]


def _decoded(blobs: Sequence[bytes]) -> int:
    for data in blobs:
        for line in data.splitlines():
            orjson.loads(line)
    return sum(map(len, blobs))


def bound(url: str, names: Sequence[str], executor: Executor) -> int:
    chunks = [names[at : at + CHUNK] for at in range(0, len(names), CHUNK)]
    return sum(future.result() for future in [executor.submit(fetch_some, url, c) for c in chunks])


@contextmanager
def served() -> Iterator[Urls]:
    """A real S3 server."""
    with tempfile.TemporaryDirectory() as folder, s3_server.running(Path(folder)) as server:
        url = _at(server.endpoint)
        yield url, url


@contextmanager
def distant() -> Iterator[Urls]:
    """The same, behind a proxy in a process of its own, which lets LATENCY pass before each request."""
    spawned = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder, s3_server.running(Path(folder)) as server:
        ours, theirs = spawned.Pipe()
        relay = spawned.Process(target=_relay, args=(server.endpoint, theirs), daemon=True)
        relay.start()
        try:
            yield _at(server.endpoint), _at(ours.recv())
        finally:
            ours.send(None)
            relay.join()


def _relay(upstream: str, asked: Connection) -> None:
    with Proxy(upstream) as proxy:
        proxy.latency = LATENCY
        asked.send(proxy.endpoint)
        asked.recv()


def _at(endpoint: str) -> str:
    return f"minio://{endpoint.removeprefix('http://')}/{s3_server.BUCKET}/corpus"


@contextmanager
def foldered() -> Iterator[Urls]:
    with tempfile.TemporaryDirectory() as folder:
        url = Path(folder).as_uri()
        yield url, url


def run() -> list[Table]:
    table = Table(
        "Rebuilding a root",
        (
            "store",
            "processes",
            "sessions/s",
            "turns/s",
            "MB/s",
            "requests/s",
            "of the bound",
            "bound",
        ),
        note=f"{SESSIONS} sessions, each compared with its stored snapshot. `bound` in sessions/s.",
    )
    tables = [table]
    stores: dict[str, Callable[[], Any]] = {
        "folder": foldered,
        "SeaweedFS": served,
        f"SeaweedFS, {LATENCY * 1000:.0f} ms away": distant,
    }
    for store, opened in stores.items():
        with opened() as (made, url):
            make_corpus.make(made, SESSIONS, seed=1)
            for jobs in (1, 2):
                table.rows.append((store, jobs, *_measured(url, jobs)))
            if is_at_hand(url):
                tables.append(_parts(url))
    return tables


def _measured(url: str, jobs: int) -> tuple[float, ...]:
    names = [make_corpus.name(number) for number in range(SESSIONS)]
    with Inline() if jobs == 1 else Processes(jobs) as executor:
        summary = rebuild(url, sessions=names, chunk=CHUNK, executor=executor)
        assert summary.ok, summary.problems
        taken = rounds(
            {
                "bound": partial(bound, url, names, executor),
                "rebuild": partial(rebuild, url, sessions=names, chunk=CHUNK, executor=executor),
            },
            times=TIMES,
        )
    seconds = median(taken["rebuild"])
    counts = (SESSIONS, summary.sums["turns"], summary.sums["bytes"] / 1e6, summary.sums["requests"])
    share = f"{100 * ratio(taken, 'bound', 'rebuild'):.0f} %"
    return (*(number / seconds for number in counts), share, SESSIONS / median(taken["bound"]))  # type: ignore[return-value]


class _Whole:
    """Sessions whose logs are whole, in parts that were made before, so that each can be timed alone."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._clock = PooledClock(1)
        self._db = Database(open_bucket(url, clock=self._clock), self._clock)
        plans = (make_corpus.planned(1, number) for number in range(SESSIONS))
        self._names = [plan.name for plan in plans if plan.kind not in ("engine", "trimmed")]
        self._blobs = [_fetched(self._db, name) for name in self._names]
        self._segments = [_checked(blobs) for blobs in self._blobs]
        self._folds = [_folded(segments) for segments in self._segments]

    def fetch(self) -> None:
        for name in self._names:
            _fetched(self._db, name)

    def parse(self) -> None:
        for blobs in self._blobs:
            _decoded(blobs)

    def check(self) -> None:
        for blobs in self._blobs:
            _checked(blobs)

    def fold(self) -> list[tuple[int, int]]:
        """Where each log ends, and how many messages it makes."""
        return [(fold.cursor, len(fold.chain)) for fold in map(_folded, self._segments)]

    def compare(self) -> None:
        store = self._db._own_store()
        for name, fold, blobs in zip(self._names, self._folds, self._blobs, strict=True):
            for data in filter(_is_snapshot, blobs):
                document = orjson.loads(data)
                if not sameness.is_as_stored(fold, document):
                    stored = restore(inline(store, self._db.sid(name), document))
                    list(sameness.differences(sameness.facts(fold), sameness.facts(stored)))

    def rebuild(self) -> None:
        for at in range(0, len(self._names), CHUNK):
            rebuild_some(self._url, Options(), self._names[at : at + CHUNK])


def _checked(blobs: Sequence[bytes]) -> list[Segment]:
    """The segments: headers, checksums, ids; parsing is part of it."""
    found = [decode_segment(data) for data in blobs if not _is_snapshot(data)]
    return [segment for segment in found if segment is not None]


def _folded(segments: Sequence[Segment]) -> Fold:
    fold = Fold()
    for segment in segments:
        if segment.header.log == "in":
            fold.feed(segment.records[0])
    for segment in sorted(segments, key=lambda s: s.header.first):
        if segment.header.log == "out":
            fold.replay(segment.records)
    return fold


def _is_snapshot(data: bytes) -> bool:
    return data.startswith(b'{"version":')


def _parts(url: str) -> Table:
    """What one process does with a folder, part by part."""
    whole = _Whole(url)
    calls = {name: getattr(whole, name) for name in ("rebuild", "fetch", "parse", "check", "fold", "compare")}
    # What is kept to be timed is no rebuild's garbage: the collector has to pass it over.
    gc.collect()
    gc.freeze()
    taken = rounds(calls, times=TIMES, timer=time.process_time)
    gc.unfreeze()
    share = {name: ratio(taken, name, "rebuild") for name in calls}
    done = share["fetch"] + share["check"] + share["fold"] + share["compare"]
    rows = {
        "find and fetch": share["fetch"],
        "parse each line": share["parse"],
        "the checks of segments": share["check"] - share["parse"],
        "the fold": share["fold"],
        "compare with the snapshots": share["compare"],
        "the rest: windows, links, results": 1 - done,
    }
    bounding = share["fetch"] + share["parse"]
    table = Table(
        "Where the time of a rebuild goes",
        ("part", "ms a session", "of the rebuild"),
        note="One process, a folder, CPU time. The first two are the bound: the rebuild reaches"
        f" {100 * bounding:.0f} % of it. Were all free but these two and the fold, it would reach"
        f" {100 * bounding / (bounding + share['fold']):.0f} %.",
    )
    each = 1000 * median(taken["rebuild"]) / len(whole._names)
    table.rows += [(name, each * part, f"{100 * part:.0f} %") for name, part in rows.items()]
    return table
