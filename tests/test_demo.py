"""The demonstration, run for real: a process is killed, and every check has to hold."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from snapshotter import demo
from snapshotter.core.replay import replay


@pytest.mark.parametrize("kill", [True, False])
def test_the_demonstration(tmp_path: Path, kill: bool) -> None:
    told: list[str] = []
    outcome = demo.run(tmp_path.as_uri(), kill=kill, say=told.append)
    assert [check for check in outcome.checks if not check.ok] == []
    assert len(outcome.checks) >= 14
    assert outcome.ok
    story = "\n".join(told)
    assert ("SIGKILL" if kill else "SIGTERM") in story
    assert ("retry_response" if kill else "continue_response") in story
    assert f"verify {outcome.url}" in story


def test_the_command_leaves_a_folder_that_verifies(tmp_path: Path) -> None:
    def snapshotter(*args: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "snapshotter", *args]
        env = {**os.environ, "PYTHONPATH": str(Path(demo.__file__).parent.parent)}
        return subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, encoding="utf-8", check=False
        )

    done = snapshotter("demo", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    outcome = json.loads(done.stdout)
    assert outcome["ok"] is True
    assert (tmp_path / "demo-data").is_dir()
    verified = snapshotter("verify", outcome["url"], "--json")
    assert json.loads(verified.stdout)["rebuildable"] is True
    assert len(snapshotter("history", outcome["url"], outcome["session"], "--json").stdout.split("\n")) == 9


def test_a_check_that_fails_is_told_and_fails_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from snapshotter.cli.app import cli

    monkeypatch.setattr(demo, "_text", lambda _message: "something else")
    with pytest.raises(SystemExit) as left:
        cli.main(["demo", "--root", str(tmp_path)])
    assert left.value.code == 1
    assert "✗ the unfinished answer is a piece of the real one" in capsys.readouterr().out


def test_two_runs_in_one_root_do_not_meet(tmp_path: Path) -> None:
    url = tmp_path.as_uri()
    assert demo.run(url).url != demo.run(url).url
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("path", sorted(demo.RECORDINGS.glob("*.jsonl")), ids=lambda path: path.stem)
def test_every_shipped_recording_replays(path: Path) -> None:
    played = demo.recording(path.stem)
    assert played.about["name"] == path.stem
    result = replay({"chunks": played.chunks, "message": played.about.get("message")}, strict=True)
    assert result.get("report") == []
    assert result["message"]["parts"]
