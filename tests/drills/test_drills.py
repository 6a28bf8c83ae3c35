"""A small drill on each store; `drill.py` runs long ones.

A drill forks, and this process has threads, so it runs as a program of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import drill
import drill_place
import pytest
from drill_journal import read_all

PROGRAM = Path(drill.__file__)
SMALL = {"kills": 6, "zombies": 3, "pauses": 2, "restarts": 0, "stalls": 0, "fills": 0}


def run(store: str, kept: Path, seed: int, **trouble: int) -> dict[str, Any]:
    """The report of a drill. Journals and stored bytes are below `kept`."""
    options = [f"--{name}={count}" for name, count in {**SMALL, **trouble}.items()]
    command = [sys.executable, str(PROGRAM), "--json", f"--store={store}", f"--seed={seed}", f"--keep={kept}"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert found["wrong"] == [], found
    assert done.returncode == 0, done.stderr
    return dict(found)


def objects_of(folder: Path) -> dict[str, bytes]:
    root = folder / "objects"
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("store", "trouble"), [("file", {"fills": 1}), ("minio", {"restarts": 1}), ("s3", {})]
)
def test_nothing_acknowledged_is_lost(store: str, trouble: dict[str, int], tmp_path: Path) -> None:
    if store != "file":
        need_server()
    found = run(store, tmp_path, seed=7, **trouble)
    assert found["troubles"]["kill"] == SMALL["kills"]
    assert found["troubles"]["zombie"] == SMALL["zombies"]
    assert found["troubles"]["restart"] == (store == "minio")
    assert found["events"]["sent"] >= found["sessions"] > 0
    assert found["events"]["model-call"] >= found["events"]["turn-ended"] > 0
    if store == "file" and found["not_tried"]:
        pytest.skip(f"all else held; not tried here: {found['not_tried']}")
    assert found["troubles"]["full"] == (store == "file")


def test_what_is_lost_is_noticed(tmp_path: Path) -> None:
    """The newest of a log, back to what somebody was told of; and a receipt of an input that is not there."""
    run("file", tmp_path, seed=7, kills=1, zombies=1, pauses=0)
    (folder,) = tmp_path.iterdir()
    events, objects = read_all(folder / "journals"), objects_of(folder)
    assert drill.judge(events, objects) == []
    for log in ("in", "out"):
        keys = sorted(key for key in objects if key.startswith(f"{log}/drill-1/"))  # the newest first
        # Behind the end of the last turn there may be a claim that was let go, which nobody was told of.
        told = next(n for n, key in enumerate(keys) if log == "in" or b'"turn-complete"' in objects[key])
        less = {key: data for key, data in objects.items() if key not in keys[: told + 1]}
        assert drill.judge(events, less) != [], keys[told]
    again = [{**event, "id": event["id"] + 100} if event["what"] == "sent" else event for event in events]
    assert any(each.startswith("acknowledged and gone") for each in drill.judge(again, objects))


def need_server() -> None:
    """Without the server's program these drills are not run, which the summary says."""
    why = drill_place.why_no_server()
    if why and os.environ.get("SNAPSHOTTER_TEST_SERVERS") == "required":
        pytest.fail(f"SNAPSHOTTER_TEST_SERVERS=required, but: {why}")
    if why:
        pytest.skip(f"SeaweedFS is not run: {why}")
