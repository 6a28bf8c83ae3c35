"""The command: which parts, how large, on a server that is started for them; then the report is written."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT
from benchmarks.load import crowd, long, report
from benchmarks.load.gauge import isolated
from benchmarks.rebuild import served

PAGE = ROOT / "docs" / "load.md"
Found = dict[str, Any]


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks load", description=__doc__)
    add = parser.add_argument
    add("parts", nargs="*", metavar="part", help=f"some of {', '.join(PARTS)}; all by default")
    add("--sessions", type=int, default=200, help="crowd: so many at once")
    add("--chunks", type=int, default=300, help="crowd: deltas of an answer")
    add("--pace", type=float, default=25.0, help="crowd: deltas a second of each model")
    add("--seconds", type=float, default=180.0, help="soak: how long")
    add("--every", type=float, default=5.0, help="soak: seconds of a round")
    add("--lengths", type=_numbers, default=[1_000, 10_000, 100_000], help="long: turns, with commas between")
    add("--turns", type=int, default=1_000, help="records: turns of the log")
    add("--deltas", type=int, default=1_000, help="records: deltas of each of them")
    add("--open", type=_numbers, default=[10_000, 100_000], help="records: deltas of a turn that is open")
    add("--report", type=Path, help="the page to write, of all parts; with no options it is docs/load.md")
    add("--json", type=Path, help="also write what was measured to this file")
    add("--again", type=Path, help="measure nothing that such a file has")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.parts) - set(PARTS))
    if unknown:
        parser.error(f"no part named {', '.join(unknown)}")
    options.parts = [name for name in PARTS if name in (options.parts or PARTS)]
    if not arguments:
        options.report = PAGE
    return options


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# -- the parts ----------------------------------------------------------------------------------------


def _crowd(options: argparse.Namespace) -> Found:
    size = {"sessions": options.sessions, "chunks": options.chunks, "pace": options.pace}
    with served() as url:
        return {**size, "by": {how: isolated("crowd", "run", url=url, how=how, **size) for how in crowd.HOW}}


def _soak(options: argparse.Namespace) -> Found:
    size = {"seconds": options.seconds, "every": options.every, "sessions": 8, "workers": 4}
    with served() as url:
        return {**size, **isolated("soak", "run", url=url, **size)}


def _long(options: argparse.Namespace) -> Found:
    lengths = sorted(options.lengths)
    last = lengths[-1]
    with tempfile.TemporaryDirectory() as folder:
        grown = isolated("long", "grow", lengths=lengths, folder=folder)
        boots = []
        for length in lengths:
            for window in (long.WINDOW, None):
                _tell(f"booting {length} turns, {window or 'whole'}")
                found = isolated("long", "booted", folder=folder, length=length, window=window)
                boots.append({"turns": length, "window": window, **found})
        places = {"the newest messages": last, "a tenth back": last * 9 // 10, "the middle": last // 2}
        pages = {
            name: isolated("long", "paged", folder=folder, length=last, before=before)
            for name, before in places.items()
        }
        _tell("maintaining")
        kept = isolated("long", "kept", folder=folder, length=last, turns=min(1000, last // 10))
    return {"lengths": lengths, "grown": grown, "boots": boots, "pages": pages, "kept": kept}


def _records(options: argparse.Namespace) -> Found:
    with tempfile.TemporaryDirectory() as folder:
        url = Path(folder).as_uri()
        made = isolated("records", "made", url=url, turns=options.turns, deltas=options.deltas)
        calls = {"boot": "booted", "verify": "verified", "follow": "followed", "rebuild": "rebuilt"}
        read = {}
        for name, call in calls.items():
            _tell(name)
            read[name] = isolated("records", call, url=url)
        still = []
        for deltas in options.open:
            written = isolated("records", "opened", url=url, name=f"open-{deltas}", deltas=deltas)
            boot = isolated("records", "booted", url=url, name=f"open-{deltas}")
            still.append({"deltas": deltas, "written": written, "boot": boot})
    return {"turns": options.turns, "deltas": options.deltas, "made": made, "read": read, "open": still}


PARTS: dict[str, Callable[[argparse.Namespace], Found]] = {
    "crowd": _crowd,
    "soak": _soak,
    "long": _long,
    "records": _records,
}


def measured(options: argparse.Namespace) -> dict[str, Found]:
    """What the options ask for, part by part; told, and written down, as it comes."""
    found: dict[str, Found] = {}
    if options.again is not None and options.again.exists():
        found.update(json.loads(options.again.read_text()))
    for name in options.parts:
        if name not in found:
            _tell(f"# {name}")
            found[name] = PARTS[name](options)
        if options.json is not None:
            options.json.write_text(json.dumps(found, indent=1) + "\n")
    return {name: found[name] for name in options.parts}


def main(arguments: Sequence[str]) -> None:
    options = _options(arguments)
    found = measured(options)
    tables = report.tables(found)
    for table in tables:
        print("\n" + table.markdown(), flush=True)
    if options.report is not None:
        options.report.write_text(report.page(tables))
        _tell(f"written: {options.report}")
