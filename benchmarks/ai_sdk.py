"""The accumulator beside the reader that it imitates: `readUIMessageStream` of npm `ai`, in Node.

Both read the same chunks and must end with the same message. The SDK's reader hands out a copy of the
message after every chunk, as its use in a browser wants; ours makes one when asked. So ours is timed both
ways: looked at once, at the end, and after every chunk.

Needs `node` and the folder that scripts/oracles.sh fills; without them the table says so.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from benchmarks import samples
from benchmarks.common import ROOT, Table, median
from snapshotter.core.accumulator import Accumulator

TIMES = 5
HOME = Path(os.environ.get("SNAPSHOTTER_ORACLES", Path.home() / ".cache" / "snapshotter-oracles"))

Chunk = dict[str, Any]


def _streams() -> dict[str, list[Chunk]]:
    long_input = list(samples.call("c", "done", pieces=1000))
    return {
        "text, 500 deltas": list(samples.block("text", "t", 500)),
        "text, 5,000 deltas": list(samples.block("text", "t", 5000)),
        "answer in two steps, 2,000 deltas": list(samples.answer(1, 2000)),
        "tool input of 1,000 deltas": long_input,
    }


def _sdk(chunks: list[Chunk]) -> dict[str, Any]:
    answer = subprocess.run(
        ["node", str(ROOT / "benchmarks" / "ai_sdk.mjs")],
        input=json.dumps({"chunks": chunks, "times": TIMES}),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "SNAPSHOTTER_ORACLES": str(HOME)},
    )
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def _ours(chunks: list[Chunk], *, each: bool) -> tuple[float, Any]:
    times, shown = [], None
    for _ in range(TIMES):
        accumulator = Accumulator(strict=True)
        began = time.perf_counter()
        for chunk in chunks:
            accumulator.apply(chunk)
            if each:
                accumulator.view()
        shown = accumulator.view(trailing_step=False)
        times.append(time.perf_counter() - began)
    return median(times), shown


def run() -> list[Table]:
    table = Table(
        "Chunks to message, against the AI SDK's reader",
        ("stream", "chunks", "SDK chunks/s", "ours, seen at the end", "ours, seen after each"),
        note="Chunks per second. The SDK's reader shows the message after each chunk.",
    )
    if shutil.which("node") is None or not (HOME / "ai" / "node_modules" / "ai").exists():
        table.note = f"Not run: it needs node and npm ai in {HOME} (scripts/oracles.sh)."
        return [table]
    for name, chunks in _streams().items():
        sdk = _sdk(chunks)
        end, shown = _ours(chunks, each=False)
        each, _ = _ours(chunks, each=True)
        assert shown["parts"] == sdk["last"]["parts"], f"{name}: not the message that the SDK makes"
        count = len(chunks)
        rates = (count / median(sdk["seconds"]), count / end, count / each)
        table.rows.append((name, count, *rates))
    return [table]
