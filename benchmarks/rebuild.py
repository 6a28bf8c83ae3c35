"""Rebuilding a root: how fast, against the least that it could cost.

The bound is what any rebuild has to do: find the objects, fetch them, decode their JSON. It makes the same
requests for the same sessions, as many in flight, in as many processes, and gives every line of what it got
to `orjson.loads`; checks, the fold, and the comparison with the stored snapshot come on top. A rebuild at
100 % of the bound would do these for nothing.

The corpus is `scripts/make_corpus.py`'s, in a folder (whose files are in the page cache: fetching them costs
next to nothing, so the fold shows most) and on a real S3 server (SeaweedFS, by minio-py) on this machine,
which needs some of its cores for itself.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from benchmarks.common import ROOT, Table, median, ratio, rounds
from snapshotter.agreeing import newest_inputs
from snapshotter.database import Database
from snapshotter.rebuilding import rebuild
from snapshotter.rebuilding.executors import Inline, processes
from snapshotter.rebuilding.threads import REQUESTS, PooledClock, Reader, is_at_hand
from snapshotter.rebuilding.threads import SESSIONS as SESSIONS_AHEAD
from streams import keys, log
from streams.buckets.url import open_bucket
from streams.store import Store

sys.path.insert(0, str(ROOT / "scripts"))
import make_corpus
import s3_server

SESSIONS = 200
CHUNK = 25
TIMES = 5


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
def served() -> Iterator[str]:
    """A real S3 server; its URL."""
    with tempfile.TemporaryDirectory() as folder:
        server = s3_server.start(Path(folder))
        before = dict(os.environ)
        os.environ.update(server.environment())
        try:
            yield f"minio://{server.endpoint.removeprefix('http://')}/{s3_server.BUCKET}/corpus"
        finally:
            os.environ.clear()
            os.environ.update(before)
            s3_server.stop(server)


@contextmanager
def foldered() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder).as_uri()


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
    stores: dict[str, Callable[[], Any]] = {"folder": foldered, "SeaweedFS": served}
    for store, opened in stores.items():
        with opened() as url:
            make_corpus.make(url, SESSIONS, seed=1)
            for jobs in (1, 2):
                table.rows.append((store, jobs, *_measured(url, jobs)))
    return [table]


def _measured(url: str, jobs: int) -> tuple[float, ...]:
    names = [make_corpus.name(number) for number in range(SESSIONS)]
    with Inline() if jobs == 1 else processes(jobs) as executor:
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
