"""`incident`: whether the next boot goes on with an interrupted turn, from files and in a store."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from cli_runs import jsonl, run

import snapshotter
from snapshotter import ChatRecovery

U1 = {"id": 1, "ts": 0, "kind": "message", "message": {"id": "u1", "role": "user", "parts": []}}
STARTS: list[dict[str, Any]] = [
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


# -- a session in a store ----------------------------------------------------------------------------------


def failing(root: Path, times: int, error: str = "provider 500", **options: Any) -> None:
    """A session whose model fails so often."""
    recovery = ChatRecovery(max_backoff=0, **options)
    with snapshotter.open(root.as_uri(), recovery=recovery) as db:
        db.send("s", {"id": "u1", "role": "user", "parts": []})
        for _ in range(times):
            with pytest.raises(RuntimeError), db.boot("s") as session:
                for turn in session.turns():
                    with turn:
                        turn.write({"type": "start"})
                        raise RuntimeError(error)


def test_a_session_tells_what_the_next_boot_does_and_what_the_model_said(root: Path) -> None:
    failing(root, 2)
    at_once = ("--options", '{"limits":{"max_backoff":0}}')
    done = run("incident", root, "s", *at_once, "--json").json
    assert (done["next"], done["wait_s"], done["outcome"]) == ("begins attempt 3 (call_model)", 0.0, None)
    assert done["incident"].pop("idle_ms") < 60_000
    assert done["incident"] == {
        "decision": "go_on",
        "reason": None,
        "attempt": 3,
        "interruptions": 2,
        "strikes": 2,
        "work": 200,
        "backoff_s": 0,
        "id": "in1",
        "error": "RuntimeError: provider 500",
    }
    told = run("incident", root, "s", *at_once).out
    assert "next boot  begins attempt 3 (call_model)" in told
    assert "said       RuntimeError: provider 500" in told
    assert (
        "incident   2 interruptions, 2 attempts in a row without progress; attempt 3"
        in run("boot", root, "s").out
    )
    paused = run("incident", root, "s").out
    assert re.search(r"next boot  waits 1[0-6] s, then begins attempt 3", paused)
    tight = ("--options", '{"limits":{"max_backoff":0,"max_interrupted_attempts":2}}')
    assert "gives the turn up: interrupted_attempts_exceeded" in run("incident", root, "s", *tight).out
    asked = run("incident", root, "s", "--options", '{"keep":false,"limits":{"max_backoff":0}}', "--json")
    assert asked.json["incident"]["reason"] == "recovery_aborted"


@pytest.mark.parametrize("command", ["incident", "boot"])
def test_a_session_whose_turn_was_given_up_tells_why(root: Path, command: str) -> None:
    failing(root, 1, max_interrupted_attempts=1, terminal_message="Sorry.")
    with (
        snapshotter.open(root.as_uri(), recovery=ChatRecovery(max_interrupted_attempts=1)) as db,
        db.boot("s") as session,
    ):
        assert list(session.turns()) == []
    done = run(command, root, "s", "--json").json
    outcome = done["outcome"]
    assert (outcome["status"], outcome["reason"]) == ("exhausted", "interrupted_attempts_exceeded")
    assert outcome["detail"] == "RuntimeError: provider 500"
    told = run(command, root, "s").out
    assert "last turn  1 exhausted: interrupted_attempts_exceeded" in told
    assert "said       RuntimeError: provider 500" in told
    if command == "incident":
        (end,) = [r for r in run("log", root, "s", "out").lines if r.get("control") == "turn-complete"]
        assert outcome["ended_ms"] == end["ts"]
        assert (done["next"], done["incident"]) == ("has nothing to do", None)


def test_one_of_a_thing_is_one(root: Path) -> None:
    failing(root, 1)
    assert (
        "incident   1 interruption, 1 attempt in a row without progress; attempt 2"
        in run("boot", root, "s").out
    )
    assert "cost       100 of work, 1 attempt in a row without progress" in run("incident", root, "s").out


def test_a_session_that_waits_for_nothing_says_what_comes_first(root: Path) -> None:
    assert run("incident", root, "s").out.splitlines()[1] == "next boot  has nothing to do"
    with snapshotter.open(root.as_uri()) as db:
        db.send("s", {"id": "u1", "role": "user", "parts": []})
    assert run("incident", root, "s", "--json").json["next"] == "answers input 1 (message)"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ('{"limit":{}}', "options.limit: not known; there are run, cause, keep, limits"),
        ('{"limits":{"max_attemps":3}}', "limits.max_attemps: not known; there are max_attempts"),
        ('{"cause":137}', "cause is 137: a text is needed"),
        ('{"run":1}', "run: a text is needed"),
    ],
)
def test_words_that_are_not_known_are_refused(root: Path, options: str, told: str) -> None:
    done = run("incident", root, "s", "--options", options)
    assert done.code == 2
    assert told in done.err


@pytest.mark.parametrize(
    ("now", "told"),
    [
        (1_700_000_000, "is before all records, which begin at 1700000060000; it takes milliseconds"),
        (5, "is before all records, which begin at 1700000060000\n"),
    ],
)
def test_a_time_of_which_nothing_could_be_said_is_refused(tmp_path: Path, now: int, told: str) -> None:
    later = [{**start, "ts": 1_700_000_000_000 + start["ts"]} for start in STARTS]
    done = incident(tmp_path, later, now=now)
    assert done.code == 2
    assert told in done.err


@pytest.mark.parametrize("given", [(), ("./x",), ("./x", "s", "--now", "1"), ("--now", "1")])
def test_a_store_or_files_are_needed_and_not_both(given: tuple[str, ...]) -> None:
    done = run("incident", *given)
    assert done.code == 2
    assert "give URL and SESSION, or --in, --out and --now" in done.err


def test_a_history_of_a_host_s_own_is_not_shown_and_its_log_is_named(root: Path) -> None:
    message = {"id": "u1", "role": "user", "parts": []}
    stored = {"u1": message}
    with snapshotter.open(root.as_uri(), hydrate=lambda _: list(stored.values())) as db:
        for name in ("u1", "u2"):
            stored[name] = {**message, "id": name}
            db.send("s", stored[name])
            with db.boot("s") as session:
                for turn in session.turns():
                    with turn:
                        turn.write({"type": "start", "messageId": f"a-{name}"})
                        turn.write({"type": "source-url", "sourceId": "s", "url": "http://x"})
                        stored[turn.message_id] = turn.message  # type: ignore[assignment]
    done = run("history", root, "s")
    assert done.code == 2
    assert "read its records with `snapshotter log`" in done.err
    assert len(run("log", root, "s", "in").lines) == 2
