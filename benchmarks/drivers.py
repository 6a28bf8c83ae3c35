"""What a request costs its client: CPU per GET, PUT and LIST, by each driver.

A process of its own (`benchmarks.canned`) answers at once and always alike, so the driver is measured and no
store. CPU time of this process, all threads, is what does not change with how busy the machine is; the
drivers take turns, and ratios are medians within a round. The last table is what our own request layer
adds (`streams.store`: counters, deadlines, the nonce) to a bucket that answers from memory.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from benchmarks.common import ROOT, Table, median, ratio
from streams.buckets.base import Bucket
from streams.buckets.memory import MemoryBucket
from streams.buckets.url import open_bucket
from streams.clock import SystemClock
from streams.store import Store

TIMES = 9
REQUESTS = 150
BYTES = 1000
LISTED = 20

_ENV = {"AWS_ACCESS_KEY_ID": "AK", "AWS_SECRET_ACCESS_KEY": "secret"}
_DATA = b"x" * BYTES
_VERBS: dict[str, Callable[[Bucket], object]] = {
    "GET": lambda bucket: bucket.get("out/s/1.jsonl"),
    "PUT": lambda bucket: bucket.put("out/s/1.jsonl", _DATA, if_absent=True, nonce="n"),
    "LIST": lambda bucket: bucket.list("out/s/", limit=LISTED),
}


def run() -> list[Table]:
    with _serving() as host:
        at = f"?endpoint=http://{host}"
        urls = {
            "s3": f"s3://b/bench{at}",
            "minio": f"minio://{host}/b/bench",
            "s3+obstore": f"s3+obstore://b/bench{at}",
        }
        buckets = {name: open_bucket(url, env=_ENV) for name, url in urls.items()}
        table = _requests(buckets)
        for bucket in buckets.values():
            bucket.close()
    return [table, _our_share()]


def _requests(buckets: dict[str, Bucket]) -> Table:
    cpu: dict[str, dict[str, list[float]]] = {verb: {name: [] for name in buckets} for verb in _VERBS}
    wall: dict[str, dict[str, list[float]]] = {verb: {name: [] for name in buckets} for verb in _VERBS}
    for number in range(TIMES + 1):
        for verb, call in _VERBS.items():
            for name, bucket in buckets.items():
                began, used = time.perf_counter(), time.process_time()
                for _ in range(REQUESTS):
                    call(bucket)
                if number:  # the first round warms up
                    cpu[verb][name].append((time.process_time() - used) / REQUESTS)
                    wall[verb][name].append((time.perf_counter() - began) / REQUESTS)
    table = Table(
        f"Client time per request: {BYTES:,} bytes, a listing of {LISTED}",
        ("driver", *(f"{verb} {what}" for verb in _VERBS for what in ("CPU µs", "of s3", "wall µs"))),
    )
    for name in buckets:
        row: list[object] = [name]
        for verb in _VERBS:
            share = ratio(cpu[verb], name, "s3")
            row += [median(cpu[verb][name]) * 1e6, share, median(wall[verb][name]) * 1e6]
        table.rows.append(row)
    return table


def _our_share() -> Table:
    bucket = MemoryBucket()
    bucket.put("k", _DATA)
    store = Store(bucket, SystemClock())
    kinds = {"bucket.get": lambda: bucket.get("k"), "store.get": lambda: store.get("k")}
    taken: dict[str, list[float]] = {name: [] for name in kinds}
    for number in range(TIMES + 1):
        for name, call in kinds.items():
            used = time.process_time()
            for _ in range(5000):
                call()
            if number:
                taken[name].append((time.process_time() - used) / 5000)
    table = Table("What the request layer adds", ("call", "CPU µs"))
    table.rows += [(name, median(values) * 1e6) for name, values in taken.items()]
    return table


@contextmanager
def _serving() -> Iterator[str]:
    command = [sys.executable, "-m", "benchmarks.canned", str(BYTES), str(LISTED)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as server:
        assert server.stdout is not None
        try:
            yield f"127.0.0.1:{server.stdout.readline().strip()}"
        finally:
            server.terminate()
