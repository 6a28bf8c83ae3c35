"""One peer in a process of its own: `python -m benchmarks.peers.child MODULE VARIANT PLACE [--once TURNS]`.

It reads commands, JSON lists, and answers each with the seconds that it took and what it came to:

    ["open", 10, "http://…"]    new clients of this endpoint, as a new process has them; it is asked nothing.
                                10: which session, for one that keeps several
    ["boot"]                    read the session; how many messages
    ["send", 12]                hand in the message of this number, where that is a thing of its own
    ["turn", 12]                answer it
    ["end"]                     nothing more is to be answered
    ["grow", 100, 500]          let the session, which has 100 turns, have 500

With `--once` it opens and boots one time and ends, telling how long it took since it began to import: what a
cold process pays. `memory` is the most that the process ever held, in bytes (Linux).

This module and the drivers run where nothing of ours is installed; only `ours.py` imports the engine.
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

from benchmarks.peers.driver import Driver


def _answer(driver: Driver, what: str, *given: Any) -> dict[str, Any]:
    if what == "open":
        given, endpoint = given[:-1], given[-1]
        os.environ["AWS_ENDPOINT_URL"] = os.environ["OBJECT_STORE_BASE_URL"] = endpoint
    began = time.perf_counter()
    value = getattr(driver, what)(*given)
    return {"seconds": time.perf_counter() - began, "value": value}


def _memory() -> int:
    """The most bytes that this process ever held. What `getrusage` tells begins with its parent's."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split(None, 1)[0]) * 1024


def _once(module: str, variant: str, place: str, turns: int, out: TextIO) -> None:
    began = time.perf_counter()
    driver: Driver = import_module(f"benchmarks.peers.{module}").make(variant, place)
    imported = time.perf_counter()
    driver.open(turns)
    messages = driver.boot()
    ended = time.perf_counter()
    found = {"imports": imported - began, "boot": ended - imported, "messages": messages, "memory": _memory()}
    print(json.dumps(found), file=out, flush=True)


def main() -> None:
    module, variant, place, *rest = sys.argv[1:]
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    if rest:
        _once(module, variant, place, int(rest[-1]), out)
        os._exit(0)  # ends no thread in order: what a library does at its end is no part of a boot
    driver: Driver = import_module(f"benchmarks.peers.{module}").make(variant, place)
    for line in sys.stdin:
        print(json.dumps(_answer(driver, *json.loads(line))), file=out, flush=True)


if __name__ == "__main__":
    main()
