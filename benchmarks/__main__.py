"""`python -m benchmarks [name …] [--json FILE]`: run the benchmarks, print their tables.

`python -m benchmarks peers [--help]`: beside others, a report of its own.
`python -m benchmarks load [--help]`: many sessions, turns and records, a report of its own.
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import sys
from pathlib import Path

NAMES = (
    "replay",
    "ai_sdk",
    "writing",
    "booting",
    "costs",
    "flat",
    "rebuild",
    "imports",
    "coldstart",
    "drivers",
    "sizes",
    "telling",
)


def main() -> None:
    if sys.argv[1:2] in (["peers"], ["load"]):  # have options of their own, and take a quarter of an hour
        importlib.import_module(f"benchmarks.{sys.argv[1]}.command").main(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"which ones: {', '.join(NAMES)}; all by default")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the tables to this file")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(NAMES))
    if unknown:
        parser.error(f"no benchmark named {', '.join(unknown)}")
    tables = []
    print(f"# Python {platform.python_version()}, {platform.machine()}", flush=True)
    for name in options.names or NAMES:
        for table in importlib.import_module(f"benchmarks.{name}").run():
            tables.append({"benchmark": name, **table.plain()})
            print("\n" + table.markdown(), flush=True)
    if options.json is not None:
        found = {"python": sys.version, "machine": platform.platform(), "tables": tables}
        options.json.write_text(json.dumps(found, indent=1) + "\n")


main()
