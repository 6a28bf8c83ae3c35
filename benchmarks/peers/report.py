"""What was measured, as tables, as targets that are met or missed, and as the page.

Times are medians; a ratio is the median of the ratios within a round, against our own boot of the same length
by `s3+obstore://` (or by the first of our drivers that took part).
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

from benchmarks.common import ROOT, Table, median
from benchmarks.flat import Growth
from benchmarks.peers.measure import LATENCY, WARM, Found
from benchmarks.peers.proxy import Cost
from benchmarks.samples import peers_turn, short_turn
from benchmarks.texts import SHORT, TURN

_BLOBS = ("strands-snapshot", "strands-message")
_QUEUED = 64
_TEXT = Path(__file__).parent / "page.md"


def tables(found: Sequence[Found]) -> list[Table]:
    """All of the report's. The long run is made anew: it needs no store."""
    lengths = {row.turns for row in found if row.peer.ours}
    lengths |= {10_000} if 500 in lengths else set()
    long_run, averages = _long_run(sorted(lengths))
    made = [_boots(found), _turns(found), _starts(found), long_run]
    if any(row.peer.sql for row in found):
        made.insert(2, _databases(found))
    return [_targets(found, averages), *made]


def _reference(found: Sequence[Found], turns: int) -> Found:
    own = [row for row in found if row.turns == turns and row.peer.ours]
    return next((row for row in own if row.peer.key == "ours-obstore"), own[0])


def _times(row: Found, other: Found, latency: float) -> float:
    """How many times as long as the other one this boot takes."""
    pairs = zip(row.boot.seconds[latency], other.boot.seconds[latency], strict=True)
    return median([mine / its for mine, its in pairs])


def _kinds(cost: Cost) -> str:
    return " ".join(f"{count} {kind}" for kind, count in cost.kinds.items())


def _stored(found: Sequence[Found]) -> Iterator[Found]:
    return (row for row in found if not row.peer.sql)


def _boots(found: Sequence[Found]) -> Table:
    table = Table(
        "A boot of a session in S3",
        (
            "turns",
            "who",
            "requests",
            "of them",
            "round trips",
            "kB read",
            "ms",
            f"ms at +{LATENCY * 1000:.0f}",
            "times ours",
            "… at +25",
        ),
        note="By a process that has imported and has its client; its connections are new. `times ours`: in "
        "the same run, against `s3+obstore://` at the same length.",
    )
    for row in _stored(found):
        cost, reference = _boot(row), _reference(found, row.turns)
        ratios = (_times(row, reference, 0.0), _times(row, reference, LATENCY))
        walls = (row.wall(0.0) * 1e3, row.wall(LATENCY) * 1e3)
        counts = (cost.requests, _kinds(cost), cost.round_trips, cost.received / 1e3)
        table.rows.append((row.turns, row.peer.label, *counts, *walls, *ratios))
    return table


def _turns(found: Sequence[Found]) -> Table:
    table = Table(
        "A turn in S3",
        (
            "turns",
            "who",
            "first: requests",
            "of them",
            "round trips",
            "kB sent",
            "next: requests",
            "round trips",
            "kB sent",
        ),
        note="`first`: of a process that has just booted, until it ends. `next`: of one that goes on, a mean "
        f"of {WARM}; of ours one of these makes a checkpoint, now and then with a merge (the fair average is "
        "the long run's, below), and the sender is not in it (a LIST and a PUT of 1.2 kB). LangGraph's reads "
        "its state by itself.",
    )
    for row in _stored(found):
        first = row.first
        assert first is not None
        means = [_mean(row.next, which) for which in (lambda c: c.requests, lambda c: c.round_trips)]
        sent = _mean(row.next, lambda c: c.sent) / 1e3
        own = (first.requests, _kinds(first), first.round_trips, first.sent / 1e3)
        table.rows.append((row.turns, row.peer.label, *own, *means, sent))
    return table


def _mean(costs: Sequence[Cost], which: Callable[[Cost], float]) -> float:
    return sum(map(which, costs)) / len(costs)


def _databases(found: Sequence[Found]) -> Table:
    table = Table(
        "The same session in SQLite, on this machine",
        ("turns", "who", "boot ms", "times ours", "rows a turn", "kB a turn"),
        note="No network is between: what these save is not what a session in a bucket is for. `times ours`: "
        "against our boot from S3 without latency.",
    )
    for row in found:
        if row.peer.sql:
            ratio = _times(row, _reference(found, row.turns), 0.0)
            counts = (row.rows, row.row_bytes / 1e3)
            table.rows.append((row.turns, row.peer.label, row.wall(0.0) * 1e3, ratio, *counts))
    return table


def _starts(found: Sequence[Found]) -> Table:
    table = Table(
        "A cold process: from its start to a booted session",
        (
            "turns",
            "who",
            "import ms",
            "client and boot ms",
            "whole process ms",
            "times ours",
            "most memory MB",
        ),
        note="No latency added. Bytecode is there.",
    )
    for row in (row for row in found if row.starts):
        own = _reference(found, row.turns)
        pairs = zip(row.starts, own.starts, strict=True)
        ratio = median([start["process"] / other["process"] for start, other in pairs])
        times = [
            median([start[what] for start in row.starts]) * 1e3 for what in ("imports", "boot", "process")
        ]
        memory = median([start["memory"] for start in row.starts]) / 1e6
        table.rows.append((row.turns, row.peer.label, *times, ratio, memory))
    return table


@dataclass(frozen=True, slots=True)
class Average:
    """Ours, a turn on average up to some length. Requests of a worker that goes on, of one behind a queue,
    and of the sender; what all of it writes, and how many times the turn's own bytes that is."""

    goes_on: float
    queued: float
    sender: float
    written: float
    times: float


def _long_run(lengths: Sequence[int]) -> tuple[Table, dict[tuple[str, int], Average]]:
    """The table, and its rows by kind of answer and length."""
    table = Table(
        "Ours in the long run: a turn on average, merges and snapshots included",
        ("turns", "answer", "requests", "… behind a queue", "… of the sender", "kB written", "times its own"),
        note="In memory and on virtual time, so exact. Requests of a worker that stays for a hundred turns, "
        "boots included; of workers that each answer one input from a queue, behind their boots (a mean of "
        f"the {_QUEUED} turns after that length); of the sender. `its own`: question, call, result "
        "and answer.",
    )
    found = {}
    for name, (chunks, own) in {"with a tool": (peers_turn, TURN), "short": (short_turn, SHORT)}.items():
        growth = Growth(chunks)
        for turns in lengths:
            growth.grow(turns)
            worker, sender = growth.worker.copy(), growth.sender.copy()
            written = (worker.written + sender.written) / turns
            queued = Growth(chunks, growth).queued(_QUEUED).requests / _QUEUED
            requests = (worker.requests / turns, queued, sender.requests / turns)
            found[name, turns] = Average(*requests, written / 1e3, written / own)
            table.rows.append((turns, name, *astuple(found[name, turns])))
    return table, found


# -- targets ------------------------------------------------------------------------------------------


def _targets(found: Sequence[Found], averages: dict[tuple[str, int], Average]) -> Table:
    table = Table("Targets", ("target", "measured", "met"))
    at = [row for row in _stored(found) if row.turns == 500]
    for row in at:
        if row.peer.ours:
            wall, own = row.wall(LATENCY), row.wall(0.0)
            target = f"boot at 500 turns ≤ 3 latencies and decoding: {row.peer.label}"
            text = f"{wall * 1e3:.0f} ms; without latency {own * 1e3:.0f} ms"
            _judge(table, target, text, wall <= 3 * LATENCY + own)
    for (name, turns), average in averages.items():
        if turns < 500:
            continue
        if name == "short":
            text = f"{average.queued:.2f} behind a queue, {average.goes_on:.2f} of one that goes on"
            met = max(average.queued, average.goes_on) <= 4
            aside = "behind a queue it is" if average.queued <= 4 else None
            _judge(table, f"≤ 4 requests of a worker for a short answer, {turns:,} turns", text, met, aside)
        else:
            target = f"≤ 3.5 times its own bytes, {turns:,} turns"
            _judge(table, target, f"{average.times:.2f}", average.times <= 3.5)
    if any(not row.peer.ours for row in at) and any(row.peer.ours for row in at):
        _against(table, found, at, averages["with a tool", 500].written)
    return table


def _against(table: Table, found: Sequence[Found], at: Sequence[Found], kb: float) -> None:
    """What is said of others: of boots at 500 turns, and of the bytes of a turn, of which ours has `kb`."""
    own = _reference(found, 500)
    window = next((row for row in at if row.peer.key == "ours-window"), None)
    others = [row for row in at if not row.peer.ours]
    for row in others:
        if row.peer.key not in _BLOBS:
            ratio = _times(row, own, LATENCY)
            target = f"boot at 500 turns faster than {row.peer.label}"
            _judge(table, target, f"it takes {ratio:.2f} times ours", ratio > 1)
            continue
        pairs = zip(own.boot.seconds[LATENCY], row.boot.seconds[LATENCY], strict=True)
        behind = median([mine - its for mine, its in pairs])
        target = f"boot at 500 turns at most one latency behind {row.peer.label}"
        _judge(table, target, f"{behind * 1e3:+.0f} ms", behind <= LATENCY)
        if window is not None:
            ratio = _times(row, window, LATENCY)
            _judge(table, "… with a window ahead of it", f"it takes {ratio:.2f} times ours", ratio > 1)
    for row in others:
        first = min((r for r in found if r.peer is row.peer), key=lambda r: r.turns)
        sent = _mean(row.next, lambda c: c.sent) / 1e3
        before, after = [(_boot(r).requests, _boot(r).received / 1e3) for r in (first, row)]
        text = (
            f"its {sent:.1f} kB, ours {kb:.1f} kB; its boot: {before[0]} → {after[0]} requests, "
            f"{before[1]:.0f} → {after[1]:.0f} kB"
        )
        grows = after[0] > before[0] + 2 or after[1] > 2 * before[1]
        target = f"bytes of a turn below {row.peer.label}"
        _judge(table, target, text, kb < sent, "its boot grows" if grows else None)


def _boot(row: Found) -> Cost:
    assert row.boot.cost is not None
    return row.boot.cost


def _judge(table: Table, target: str, measured: str, met: bool, aside: str | None = None) -> None:
    table.rows.append((target, measured, "yes" if met else f"no ({aside})" if aside else "no"))


# -- the page -----------------------------------------------------------------------------------------


def draw(found: Sequence[Found], program: str, to: Path) -> None:
    """The picture, by a process that has matplotlib."""
    rows = [
        {
            "label": row.peer.label,
            "key": row.peer.key,
            "ours": row.peer.ours,
            "turns": row.turns,
            "boot": row.wall(LATENCY) * 1e3,
            "sent": _mean(row.next, lambda c: c.sent) / 1e3,
        }
        for row in _stored(found)
    ]
    script = Path(__file__).parent / "plot.py"
    subprocess.run([program, str(script), str(to)], input=json.dumps(rows), text=True, check=True, cwd=ROOT)


def page(made: Sequence[Table], versions: dict[str, dict[str, str]], plot: str) -> str:
    """The page: the fixed words of `page.md` around the tables."""
    told = "; ".join(f"{name}: {', '.join(map(' '.join, each.items()))}" for name, each in versions.items())
    where = (
        f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} shared cores. {told}."
    )
    machine = textwrap.fill(where, 110, break_on_hyphens=False)
    text = _TEXT.read_text(encoding="utf-8")
    tables = "\n\n".join(table.markdown() for table in made)
    return text.replace("{machine}", machine).replace("{plot}", plot).replace("{tables}", tables)
