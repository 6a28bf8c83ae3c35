"""A whole session as version 1 stored it, in the middle of its life: it boots to the same plan for ever, with
its snapshot and without, and the same snapshot is still written for it, to the byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from snapshotter.core.contract import describe, fold_records
from snapshotter.core.snapshot import encode
from snapshotter.database import Database
from snapshotter.verify import verify
from streams.buckets.memory import MemoryBucket
from streams.codec import decode_segment
from streams.testing.clocks import FakeClock

FOLDER = Path(__file__).parent / "v1" / "session"
GOLDEN: dict[str, Any] = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))


def stored(*, snapshot: bool = True) -> Database:
    bucket = MemoryBucket(FakeClock())
    for key, name in GOLDEN["files"].items():
        if snapshot or not key.startswith("sessions/"):
            bucket.put(key, (FOLDER / name).read_bytes(), if_absent=True)
    return Database(bucket, FakeClock())


def test_the_files_are_all_there() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {"expected.json", *GOLDEN["files"].values()}


def test_it_boots_with_its_snapshot_and_without() -> None:
    for snapshot in (True, False):
        session = stored(snapshot=snapshot).peek(GOLDEN["session"])
        found = describe(session.fold, session.plan)
        reported = found.pop("report")
        assert found == {name: value for name, value in GOLDEN["boot"].items() if name != "report"}
        assert not snapshot or reported == GOLDEN["boot"]["report"]


def test_it_verifies() -> None:
    verdict = verify(stored(), GOLDEN["session"])
    assert verdict.ok, verdict.problems


def test_the_same_snapshot_is_written_for_it() -> None:
    segments = {"in": [], "out": []}
    for key, name in sorted(GOLDEN["files"].items(), reverse=True):
        if not key.startswith("sessions/"):
            segment = decode_segment((FOLDER / name).read_bytes(), key=key)
            assert segment is not None
            segments[key.split("/")[0]].append(segment)
    data = next((FOLDER / name).read_bytes() for key, name in GOLDEN["files"].items() if "snapshot" in key)
    document = json.loads(data)
    cursor = int(document["lastOutEventId"])
    outs = [r for s in segments["out"] if s.header.last <= cursor for r in s.records]
    ins = [r for s in segments["in"] for r in s.records]
    assert encode(fold_records(ins, outs), document["lastOutNonce"], document["savedAt"]) == data
