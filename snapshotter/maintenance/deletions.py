"""What a log says about deletions, to maintenance that works beside them."""

from __future__ import annotations

from streams.codec import decode_segment
from streams.records import Cursor

from .bench import Bench


def newest_deletion(bench: Bench) -> tuple[Cursor, int] | None:
    """Where the newest deletion of the session stands in the out log, and the newest input that it spends;
    None where there is none. Raises Corrupt, Vanished, and what requests raise."""
    places, _ = bench.places("out")
    for place, blob in bench.read([place for place in reversed(places) if place.size]):
        segment = decode_segment(blob.data, key=place.key)
        if segment is not None and any(r.get("control") == "session-deleted" for r in segment.records):
            spent = [r["for"] for r in segment.records if type(r.get("for")) is int]
            header = segment.header
            return Cursor(header.last, header.nonce, header.first), max(spent, default=0)
    return None
