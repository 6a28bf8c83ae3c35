"""`incident`: whether the next boot goes on with an interrupted turn, from files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_runs import jsonl, run

U1 = {"id": 1, "ts": 0, "kind": "message", "message": {"id": "u1", "role": "user", "parts": []}}
STARTS = [
    {
        "id": n,
        "ts": 60_000 * n,
        "control": "turn-start",
        "turn": 1,
        "attempt": n,
        "epoch": n,
        "run": f"r{n}",
        "inputs": [1],
        "seen": 1,
        "mode": "fresh" if n == 1 else "retry",
    }
    for n in range(1, 6)
]


def incident(folder: Path, outs: list[dict[str, Any]], *more: str, now: int = 10**9) -> Any:
    (folder / "in.jsonl").write_bytes(jsonl(U1))
    (folder / "out.jsonl").write_bytes(jsonl(*outs))
    files = ("--in", folder / "in.jsonl", "--out", folder / "out.jsonl")
    return run("incident", *files, "--now", str(now), *more)


def test_it_prints_the_verdict_and_what_it_is_drawn_from(tmp_path: Path) -> None:
    done = incident(tmp_path, STARTS[:2])
    assert done.code == 0
    assert done.json == {
        "decision": "go_on",
        "reason": None,
        "attempt": 3,
        "interruptions": 2,
        "strikes": 2,
        "work": 200,
        "idle_ms": 0,
        "backoff_s": 16,
    }


def test_options_are_what_the_asker_knows(tmp_path: Path) -> None:
    assert incident(tmp_path, STARTS).json["reason"] == "interrupted_attempts_exceeded"
    killed = incident(tmp_path, STARTS, "--options", '{"cause":"out_of_memory"}')
    assert killed.json["reason"] == "out_of_memory"
    tight = incident(tmp_path, STARTS[:1], "--options", '{"limits":{"max_interrupted_attempts":1}}')
    assert tight.json["decision"] == "give_up"
    for keep, decision in ((False, "give_up"), ("raise", "go_on"), (True, "go_on")):
        asked = incident(tmp_path, STARTS[:2], "--options", json.dumps({"keep": keep}))
        assert asked.json["decision"] == decision


def test_what_came_later_does_not_count(tmp_path: Path) -> None:
    assert incident(tmp_path, STARTS, now=130_000).json["interruptions"] == 2


@pytest.mark.parametrize(
    "options",
    ["[]", "{", '{"keep":7}', '{"limits":7}', '{"limits":{"observer":1}}', '{"limits":{"max_attempts":0}}'],
)
def test_options_that_make_no_sense_are_refused(tmp_path: Path, options: str) -> None:
    done = incident(tmp_path, STARTS, "--options", options, "--json")
    assert done.code == 2
    assert "error" in done.json


def test_a_gap_has_an_exit_code_of_its_own(tmp_path: Path) -> None:
    done = incident(tmp_path, STARTS[1:])
    assert (done.code, done.json) == (3, {"error": "gap", "log": "out", "missing": [1, 1]})
