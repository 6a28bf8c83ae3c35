"""The scripts that start a server: what a shell may evaluate, and what is looked for first."""

from __future__ import annotations

import importlib
import json
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


def s3_server(monkeypatch, *words: str) -> tuple[int | str | None, list[str]]:
    """The exit code of `s3_server.py WORDS`, and which servers it would have started and stopped."""
    monkeypatch.syspath_prepend(SCRIPTS)
    script = importlib.import_module("s3_server")
    servers: list[str] = []

    def start(folder: Path) -> object:
        servers.append("start")
        return script.Server(1, "http://127.0.0.1:9", "AK", "secret", str(folder))

    monkeypatch.setattr(script, "start", start)
    monkeypatch.setattr(script, "stop", lambda _server: servers.append("stop"))
    monkeypatch.setattr("sys.argv", ["s3_server.py", *words])
    try:
        return script.main(), servers
    except SystemExit as ended:
        return ended.code, servers


@pytest.mark.parametrize("words", [("--help",), ("start", "--help"), ("stop", "--help"), ("run", "--help")])
def test_help_starts_no_server(words, monkeypatch, capsys) -> None:
    assert s3_server(monkeypatch, *words) == (0, [])
    assert capsys.readouterr().out.startswith("usage: s3_server.py")


@pytest.mark.parametrize("words", [("run",), ("run", "--"), ("run", "--", "no-such-program"), ("start", "x")])
def test_what_cannot_be_run_is_one_error_and_no_server(words, monkeypatch, capsys) -> None:
    assert s3_server(monkeypatch, *words) == (2, [])
    assert "error: " in capsys.readouterr().err.splitlines()[-1]


def test_a_program_that_the_system_refuses_is_an_error_and_the_server_stops(
    tmp_path, monkeypatch, capsys
) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF, and nothing behind it")
    program.chmod(0o755)
    assert s3_server(monkeypatch, "run", "--", str(program)) == (2, ["start", "stop"])
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"error: {str(program)!r} cannot be run")


def test_run_tells_the_program_where_the_store_is(tmp_path, monkeypatch, capfd) -> None:
    told = s3_server(
        monkeypatch, "run", "--", "sh", "-c", 'echo "$SNAPSHOTTER_URL $AWS_ACCESS_KEY_ID"; exit 7'
    )
    assert told == (7, ["start", "stop"])
    url = "s3://snapshotter?endpoint=http://127.0.0.1:9&region=us-east-1"
    out, err = capfd.readouterr()
    assert out == f"{url} AK\n"
    assert url in err


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


SOUND = {"name": "sound", "version": "1", "vulns": []}
WEAK = {"name": "weak", "version": "1", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2"]}]}
OURS = {"name": "snapshotter", "skip_reason": "distribution marked as editable"}
UNKNOWN = {"name": "other", "skip_reason": "Dependency not found on PyPI and could not be audited"}


@pytest.mark.parametrize(
    ("answers", "code", "told"),
    [
        ([[SOUND, OURS]], 0, "audited 1 packages by pypi"),
        ([[SOUND, UNKNOWN], [SOUND, SOUND]], 0, "audited 2 packages by osv"),
        ([[SOUND, WEAK, UNKNOWN]], 1, "weak 1: PYSEC-1 (mended in: 2)"),
        ([None, [WEAK]], 1, "weak 1: PYSEC-1"),
        ([[UNKNOWN], None], 3, "NOT AUDITED"),
        ([None, [SOUND, UNKNOWN]], 3, "NOT AUDITED"),
        ([[], []], 3, "NOT AUDITED"),
    ],
)
def test_an_audit_that_could_not_ask_is_no_clean_one(answers, code, told, monkeypatch, capsys) -> None:
    """`answers`: of one database after the other, None for one that is out of reach."""
    monkeypatch.syspath_prepend(SCRIPTS)
    audit = importlib.import_module("audit")
    left = list(answers)

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        packages = left.pop(0)
        text = "" if packages is None else json.dumps({"dependencies": packages})
        return subprocess.CompletedProcess(command, 1, text, "")

    monkeypatch.setattr(audit.subprocess, "run", run)
    assert audit.main() == code
    assert left == []
    out, err = capsys.readouterr()
    assert told in out + err
