"""The scripts that start a server: what a shell may evaluate, and what is looked for first."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"


def test_start_prints_only_what_a_shell_may_evaluate(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.syspath_prepend(SCRIPTS)
    script = importlib.import_module("s3_server")
    server = script.Server(1, "http://127.0.0.1:9", "AK", "it's secret", str(tmp_path))
    monkeypatch.setattr(script, "start", lambda folder: server)
    assert script._start_command(tmp_path) == 0
    out, err = capsys.readouterr()
    assert all(line.startswith("export ") for line in out.splitlines())
    assert f"the store is {server.url}" in err
    assert f"--dir {tmp_path} stop" in err
    evaluate = f'{out}printf "%s %s" "$AWS_SECRET_ACCESS_KEY" "$OBJECT_STORE_BASE_URL"'
    done = subprocess.run(["sh", "-c", evaluate], capture_output=True, text=True, check=True)
    assert done.stdout == "it's secret http://127.0.0.1:9"


@pytest.mark.parametrize("here", [False, True])
def test_minio_is_looked_for_before_anything_else(tmp_path: Path, here: bool) -> None:
    """A PATH with no Docker, and a `minio` or none."""
    for name in ("dirname", *(["minio"] if here else [])):
        (tmp_path / name).symlink_to(shutil.which("dirname") or "")
    done = subprocess.run(
        [shutil.which("sh") or "sh", str(SCRIPTS / "minio.sh"), "check"],
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0 if here else 2, "")
    assert ('eval "$(python scripts/s3_server.py start)"' in done.stderr) is not here
