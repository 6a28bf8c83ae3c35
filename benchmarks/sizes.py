"""Segments: bytes and time of packed runs against one record per delta."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from functools import partial

from benchmarks import samples
from benchmarks.common import Table, median, rounds
from snapshotter.core.chunks import delta_of
from streams.codec import decode_segment, frame
from streams.packing import Packer

DELTAS = 5_000


def _fill(packed: bool) -> Packer:
    packer = Packer(1, delta_of if packed else lambda _chunk: None)
    for at, chunk in enumerate(samples.block("text", "t", DELTAS)):
        packer.add(1_750_000_000_000 + at * 20, {"chunk": chunk})
    return packer


def _bytes(packer: Packer) -> bytes:
    return frame("out", 1, packer.next - 1, packer.lines(), nonce="0" * 24, epoch=1, run="r-1", lease=15)


def run() -> list[Table]:
    text = "".join(samples.tokens(DELTAS))
    table = Table(
        f"Segments: {DELTAS:,} text deltas at 50 a second ({len(text):,} bytes of text)",
        ("form", "bytes", "bytes/delta", "gzip -6 bytes", "add ms", "encode ms", "decode ms"),
        note="add: into the buffer; encode: by the flusher; decode: checked, as a boot does. The packed form "
        "keeps every delta's boundaries. gzip is only for comparison: segments are plain text.",
    )
    for name, packed in (("packed", True), ("one record per delta", False)):
        packer = _fill(packed)
        data = _bytes(packer)
        calls: dict[str, Callable[[], object]] = {
            "add": partial(_fill, packed),
            "encode": partial(_bytes, packer),
            "decode": partial(decode_segment, data),
        }
        taken = rounds(calls)
        times = [median(taken[what]) * 1e3 for what in calls]
        table.rows.append((name, len(data), len(data) / DELTAS, len(gzip.compress(data, 6)), *times))
    return [table]
