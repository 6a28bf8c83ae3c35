"""Whole sessions as version 1 stored them, in the middle of their lives: they boot to the same plan for ever,
with their snapshot and without. `session` is from before snapshots said whose they are and had a checksum;
for `session-2` the same snapshot is still written, to the byte. `session-3` has blocks and values. Of
`session-4` messages were redacted under an id that was used three times, and a turn is merged."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from snapshotter.core.contract import describe, fold_records
from snapshotter.core.snapshot import encode
from snapshotter.database import Database
from snapshotter.verify import verify
from streams import keys
from streams.buckets.memory import MemoryBucket
from streams.codec import decode_segment
from streams.records import Segment
from streams.testing.clocks import FakeClock

V1 = Path(__file__).parent / "v1"
NAMES = ["session", "session-2", "session-3", "session-4"]


def golden(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((V1 / name / "expected.json").read_text(encoding="utf-8"))
    return found


def stored(name: str, *, snapshot: bool = True) -> Database:
    bucket = MemoryBucket(FakeClock())
    for key, file in golden(name)["files"].items():
        if snapshot or not key.startswith("sessions/"):
            bucket.put(key, (V1 / name / file).read_bytes(), if_absent=True)
    return Database(bucket, FakeClock())


@pytest.mark.parametrize("name", NAMES)
def test_the_files_are_all_there(name: str) -> None:
    assert {path.name for path in (V1 / name).iterdir()} == {"expected.json", *golden(name)["files"].values()}


@pytest.mark.parametrize("name", NAMES)
def test_it_boots_with_its_snapshot_and_without(name: str) -> None:
    expected = golden(name)
    for snapshot in (True, False):
        session = stored(name, snapshot=snapshot).peek(expected["session"])
        found = describe(session.fold, session.plan)
        reported = found.pop("report")
        assert found == {field: value for field, value in expected["boot"].items() if field != "report"}
        assert not snapshot or reported == expected["boot"]["report"]
        assert [line["code"] for line in session.report if line["code"].startswith("snapshot")] == []


@pytest.mark.parametrize("name", NAMES)
def test_it_verifies(name: str) -> None:
    verdict = verify(stored(name), golden(name)["session"])
    assert verdict.ok, verdict.problems


def test_its_blocks_and_values_bear_the_hash_of_their_bytes() -> None:
    files = {key: name for key, name in golden("session-3")["files"].items() if keys.parse_content(key)}
    assert {key.split("/")[0] for key in files} == {"blocks", "values"}
    for key, name in files.items():
        digest = hashlib.sha256((V1 / "session-3" / name).read_bytes()).hexdigest()
        assert key.split("/")[2].startswith(f"{digest}-")


def test_the_same_snapshot_is_written_for_it() -> None:
    folder, files = V1 / "session-2", golden("session-2")["files"]
    segments: dict[str, list[Segment]] = {"in": [], "out": []}
    for key, name in sorted(files.items(), reverse=True):
        if not key.startswith("sessions/"):
            segment = decode_segment((folder / name).read_bytes(), key=key)
            assert segment is not None
            segments[key.split("/")[0]].append(segment)
    key, name = next(item for item in files.items() if "snapshot" in item[0])
    data = (folder / name).read_bytes()
    document = json.loads(data)
    cursor = int(document["lastOutEventId"])
    outs = [r for s in segments["out"] if s.header.last <= cursor for r in s.records]
    ins = [r for s in segments["in"] for r in s.records]
    newest = next(s.header for s in segments["out"] if s.header.last == cursor)
    sid = keys.parse_snapshot(key)
    assert sid is not None
    whole = fold_records(ins, outs)
    assert encode(whole, newest.nonce, document["savedAt"], session=sid, first=newest.first) == data
