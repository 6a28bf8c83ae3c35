"""The command: servers and processes are set up, the measuring is done, the report is written."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.common import ROOT
from benchmarks.peers import environments, measure, report
from benchmarks.peers.measure import PEERS, Found
from benchmarks.peers.proxy import Proxy

sys.path.insert(0, str(ROOT / "scripts"))
import s3_server

PAGE = ROOT / "docs" / "benchmarks.md"
LENGTHS = (10, 100, 500, 10_000)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks peers", description=__doc__)
    parser.add_argument("--dir", type=Path, default=environments.FOLDER, help="where the peers' venvs are")
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)), help="turns, with commas between")
    parser.add_argument(
        "--only", help=f"some of {', '.join(peer.key for peer in PEERS)}, with commas between"
    )
    parser.add_argument(
        "--report", type=Path, help="the page to write; of everything it is docs/benchmarks.md by default"
    )
    parser.add_argument("--json", type=Path, help="also write what was measured to this file")
    parser.add_argument("--again", type=Path, help="measure nothing: report what such a file has")
    options = parser.parse_args(arguments)
    options.lengths = [int(length) for length in options.lengths.split(",")]
    wanted = options.only.split(",") if options.only else [peer.key for peer in PEERS]
    unknown = sorted(set(wanted) - {peer.key for peer in PEERS})
    if unknown:
        parser.error(f"no peer named {', '.join(unknown)}")
    options.peers = [peer for peer in PEERS if peer.key in wanted]
    if options.report is None and not options.only and tuple(options.lengths) == LENGTHS:
        options.report = PAGE
    return options


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def measured(options: argparse.Namespace) -> Iterator[Found]:
    """Everything that the options ask for, on a server that is started for it."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        server = s3_server.start(data / "server")
        try:
            with (
                Proxy(server.endpoint) as proxy,
                measure.processes(options.peers, options.dir, data, server.environment()) as running,
            ):
                yield from measure.measure(running, options.lengths, server.endpoint, proxy, data, _tell)
        finally:
            s3_server.stop(server)


def main(arguments: Sequence[str]) -> None:
    options = _options(arguments)
    found: list[Found] = []
    if options.again is not None:
        found = [Found.of(row) for row in json.loads(options.again.read_text())]
    for row in measured(options) if options.again is None else ():
        found.append(row)
        if options.json is not None:  # after each: a run takes long
            options.json.write_text(json.dumps([row.plain() for row in found], indent=1) + "\n")
    names = dict.fromkeys(peer.environment for peer in options.peers)
    versions = {name: environments.versions(options.dir, name) for name in names}
    tables = report.tables(found)
    for table in tables:
        print("\n" + table.markdown())
    if options.report is not None:
        plot = options.report.with_suffix(".svg")
        report.draw(found, environments.python(options.dir, "plot"), plot)
        options.report.write_text(report.page(tables, versions, plot.name))
        _tell(f"written: {options.report}, {plot}")
