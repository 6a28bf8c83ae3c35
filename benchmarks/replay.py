"""Replay: what a boot does with the bytes it has read, against only parsing the same bytes.

The yardstick is `orjson.loads` of each line, thrown away: less cannot be done with JSON. On top of that a
replay checks checksums and ids, and builds the messages.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import orjson

from benchmarks import samples
from benchmarks.common import Table, fresh, median, ratio, rounds
from snapshotter.core.fold import Fold
from streams.codec import decode_segment

TURNS, DELTAS = 200, 2000
LOGS = ("packed", "one record per delta")

_MILLION = """
import json, resource, sys, time
from benchmarks import replay, samples
from snapshotter.core.fold import Fold
packed = sys.argv[1] == "packed"
data = samples.segments(500, 2000, packed=packed)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
began = time.perf_counter()
fold = replay.fold(data, 500)
took = time.perf_counter() - began
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([took, sum(map(len, data)) / 1e6, before / 1024, after / 1024, len(fold.chain.messages)]))
"""


def fold(segments: list[bytes], turns: int) -> Fold:
    """Replay a whole session, one segment at a time."""
    made = Fold()
    for record in samples.inputs(turns):
        made.feed(record)
    for data in segments:
        segment = decode_segment(data)
        assert segment is not None
        made.replay(segment.records)
    assert len(made.chain.messages) == 2 * turns
    assert not made.report
    return made


def parse(segments: list[bytes]) -> None:
    """The yardstick: every line parsed, and dropped."""
    loads = orjson.loads
    for data in segments:
        for line in data.splitlines():
            loads(line)


def run() -> list[Table]:
    logs = {name: samples.segments(TURNS, DELTAS, packed=name == LOGS[0]) for name in LOGS}
    calls: dict[str, Callable[[], object]] = {}
    for name, data in logs.items():
        calls[f"parse {name}"] = partial(parse, data)
        calls[f"replay {name}"] = partial(fold, data, TURNS)
    taken = rounds(calls, 7)
    table = Table(
        f"Replay: {TURNS} turns of {DELTAS:,} deltas",
        (
            "log",
            "MB",
            "segments",
            "records",
            "parse ms",
            "replay ms",
            "ratio",
            "ratio to unpacked",
            "ns/delta",
        ),
        note="ratio: replay / parsing the same bytes line by line. Ratio to unpacked: replay / parsing the "
        "log as it would be with one record per delta. Packed is how a worker writes.",
    )
    for name, data in logs.items():
        replayed = median(taken[f"replay {name}"])
        table.rows.append(
            (
                name,
                sum(map(len, data)) / 1e6,
                len(data),
                sum(segment.count(b"\n") - 1 for segment in data),
                median(taken[f"parse {name}"]) * 1e3,
                replayed * 1e3,
                ratio(taken, f"replay {name}", f"parse {name}"),
                ratio(taken, f"replay {name}", f"parse {LOGS[1]}"),
                replayed / TURNS / DELTAS * 1e9,
            )
        )
    return [table, _million()]


def _million() -> Table:
    table = Table(
        "Replay of a million deltas (500 turns), in a fresh process",
        ("log", "MB", "seconds", "RSS before MB", "peak RSS MB"),
        note="RSS before: with the log's bytes in memory already.",
    )
    for log in LOGS:
        runs = sorted(fresh(_MILLION, log) for _ in range(3))
        took, size, before, after, _ = runs[1]
        table.rows.append((log, size, took, before, after))
    return table
