"""What was measured, as tables and as the page."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.common import Table
from benchmarks.load import long, soak

_TEXT = Path(__file__).parent / "page.md"
_MB = 1e6
Found = Mapping[str, Any]


def tables(found: Mapping[str, Found]) -> list[Table]:
    """Those of the parts that were measured."""
    made = {"crowd": _crowd, "soak": _soak, "long": _long, "records": _records}
    return [table for name, part in found.items() for table in made[name](part)]


def _table(title: str, columns: str, note: str = "") -> Table:
    return Table(title, columns.split(" | "), note=note)


def _crowd(found: Found) -> list[Table]:
    kept = " and ".join(f"{run['kept']:,} characters by {how}" for how, run in found["by"].items())
    costs = _table(
        f"{found['sessions']} sessions at once, each killed and resumed",
        "by | seconds | requests | PUT | GET | LIST | MB written | MB read",
        f"Two answers of {found['chunks']} deltas to each, {found['pace']:g} a second. All sessions were "
        f"whole afterwards. Durable when their workers died, and found by the next: {kept}.",
    )
    times = _table(
        "How long that takes, in ms",
        "by | boot p50 | boot p99 | takeover p50 | takeover p99 | flush p50 | flush p99",
        "boot: all of them at once. takeover: each after a death. flush: from asking until all is durable.",
    )
    held = _table(
        "What that process holds",
        "by | when | memory MB | threads | open files | connections | objects",
        "before: all is imported, and one session was worked on. after: what was opened is closed.",
    )
    for how, run in found["by"].items():
        bill = run["bill"]
        counts = (bill["requests"], bill["put"], bill["get"], bill["list"])
        costs.rows.append((how, run["seconds"], *counts, bill["written"] / _MB, bill["read"] / _MB))
        taken = [share * 1e3 for what in ("boot", "takeover", "flush") for share in run["times"][what]]
        times.rows.append((how, *taken))
        held.rows += [(how, when, *_reading(reading)) for when, reading in run["held"].items()]
    return [costs, times, held]


def _reading(reading: Found) -> tuple[Any, ...]:
    counts = [int(reading[name]) for name in ("threads", "files", "connections")]
    return (reading["memory"] / _MB, *counts, int(reading["objects"]) or "")


def _soak(found: Found) -> list[Table]:
    did = dict(found["did"])
    turns = did.pop("turns")
    ways = ", ".join(f"{count} {name}" for name, count in did.items())
    table = _table(
        f"A soak of {found['seconds']:g} seconds",
        "when | memory MB | threads | open files | connections | objects",
        f"{turns:,} turns: {ways}. {found['sessions']} sessions at a time, each of {soak.TURNS} turns. "
        f"Medians of what was read between rounds of {found['every']:g} s; most: within them.",
    )
    for when in ("first", "last", "most"):
        table.rows.append((when if when == "most" else f"{when} third", *_reading(found[when])))
    return [table]


def _long(found: Found) -> list[Table]:
    own = long.ASKED + long.ANSWERED
    kinds = ("out", "in", "blocks", "sessions")
    grown = _table(
        "What a turn writes and asks, on average up to this length",
        "turns | out kB | in kB | blocks kB | sessions kB | kB | times its own | PUT | GET | LIST | CPU ms",
        f"Its own: {own:,} bytes. Sender and worker together, merges and snapshots included.",
    )
    for row in found["grown"]:
        turns, bill = row["turns"], row["bill"]
        kbs = [row["written"].get(kind, 0) / turns / 1e3 for kind in kinds]
        total = sum(row["written"].values()) / turns
        asked = [bill[name] / turns for name in ("put", "get", "list")]
        grown.rows.append((turns, *kbs, total / 1e3, total / own, *asked, row["cpu"] / turns * 1e3))
    return [grown, _boots(found), _pages(found), _kept(found["kept"])]


def _boots(found: Found) -> Table:
    table = _table(
        "A boot of it",
        "turns | read | messages | requests | round trips | kB read | memory MB | CPU ms | times the first",
        "Nothing is owed. `times the first`: against the shortest that was read in the same way.",
    )
    first: dict[Any, float] = {}
    for row in found["boots"]:
        first.setdefault(row["window"], row["seconds"])
        read = "whole" if row["window"] is None else f"window={row['window']}"
        counts = (row["found"], row["bill"]["requests"], row["trips"], row["bill"]["read"] / 1e3)
        times = (row["seconds"] * 1e3, row["seconds"] / first[row["window"]])
        table.rows.append((row["turns"], read, *counts, row["memory"] / _MB, *times))
    return table


def _pages(found: Found) -> Table:
    table = _table(
        f"A page of {long.PAGE} messages of its history, at {found['lengths'][-1]:,} turns",
        "which | requests | kB read | memory MB | CPU ms",
    )
    for name, row in found["pages"].items():
        bill = row["bill"]
        costs = (bill["requests"], bill["read"] / 1e3, row["memory"] / _MB, row["seconds"] * 1e3)
        table.rows.append((name, *costs))
    return table


def _kept(found: Found) -> Table:
    bill = found["bill"]
    table = _table(
        f"Objects in the bucket, before and after a `maintain` that keeps {found['keeps']:,} turns of log",
        "kind | before | after",
        f"{bill['requests']:,} requests, {bill['read'] / _MB:.0f} MB read, {found['seconds']:.0f} s of CPU, "
        f"{found['memory'] / _MB:.0f} MB of memory. A boot behind it finds {found['messages']:,} messages.",
    )
    for kind in dict.fromkeys((*found["before"], *found["after"])):
        table.rows.append((kind, found["before"].get(kind, 0), found["after"].get(kind, 0)))
    return table


def _records(found: Found) -> list[Table]:
    made = found["made"]
    read = _table(
        f"A log of {made['records']:,} records, without a snapshot",
        "what | CPU s | records a CPU s | requests | memory MB",
        f"{found['turns']:,} turns of {found['deltas']:,} deltas: {made['objects']:,} objects, "
        f"{made['bytes'] / _MB:.1f} MB, in a folder; written in {made['seconds']:.0f} s.",
    )
    for name, row in found["read"].items():
        speed = made["records"] / row["seconds"]
        read.rows.append((name, row["seconds"], speed, row["requests"], row["memory"] / _MB))
    still = _table(
        "One open turn whose worker has died",
        "deltas | segments | written: CPU µs each | boot: CPU ms | CPU µs each | requests | memory MB",
    )
    for row in found["open"]:
        written, boot, deltas = row["written"], row["boot"], row["deltas"]
        own = (boot["seconds"] * 1e3, boot["seconds"] / deltas * 1e6)
        pace = written["seconds"] / deltas * 1e6
        still.rows.append((deltas, written["puts"], pace, *own, boot["requests"], boot["memory"] / _MB))
    return [read, still]


def page(made: Sequence[Table]) -> str:
    """The whole page."""
    machine = f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} shared cores"
    text = _TEXT.read_text().replace("{machine}", f"{machine}, minio {version('minio')}")
    return text.replace("{tables}", "\n\n".join(table.markdown() for table in made))
