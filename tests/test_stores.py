"""The register of servers, the table that is made from it, and the page that holds the table."""

from __future__ import annotations

import importlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "scripts"
PAGE = ROOT / "docs" / "stores.md"


@pytest.fixture
def compatibility(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(SCRIPTS)
    return importlib.import_module("compatibility")


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(SCRIPTS)
    return importlib.import_module("stores.table")


def test_the_page_has_one_table_with_a_version_and_a_date_for_every_server_and_driver(
    table, compatibility
) -> None:
    rows = table.rows_of(PAGE.read_text(encoding="utf-8"))
    places = [(row[0], row[2]) for row in rows]
    assert places == [
        (store.name, driver)
        for store in compatibility.STORES.values()
        for driver in compatibility.DRIVERS.values()
    ]
    for _server, version, _driver, engine, lacks, killed, date in rows:
        assert re.fullmatch(r"\d+(\.\d+)+", version)
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", date)
        assert engine.strip("*") in {"works", "works only with `allow_unfenced`", "refused"}
        assert lacks
        assert killed


def test_what_the_page_says_of_checks_and_verdicts_is_what_the_doctor_says() -> None:
    text = PAGE.read_text(encoding="utf-8")
    from streams import probe

    found = probe.Capabilities(True, True, True, True, "as-given", 1)
    for changes in ({"listing": False}, {"refuses": True}):
        told = (
            probe.lack(probe.Capabilities(**{n: getattr(found, n) for n in found.__slots__} | changes)) or ""
        )
        quoted = [part for part in re.findall(r'"([^"]+)"', text) if part in told]
        assert quoted, told


ROW = ("moto", "1.0", "boto3", "**works**", "–", "completed", "2026-01-01")


def page(table: Any, *rows: tuple[str, ...]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (table.HEADER, ("---",) * 7, *rows)]
    return "\n".join(("# Stores", table.BEGIN, "", *(lines if rows else ()), "", table.END, "the end", ""))


def test_rows_are_replaced_kept_added_and_ordered(table) -> None:
    other = ("ceph", *ROW[1:])
    gone = ("gone", *ROW[1:])
    newer = (*ROW[:1], "2.0", *ROW[2:])
    order = [("ceph", "boto3"), ("moto", "boto3"), ("moto", "obstore")]
    assert table.with_rows(page(table), [ROW], order) == page(table, ROW)
    assert table.with_rows(page(table, ROW, other, gone), [newer], order) == page(table, other, newer)
    assert table.with_rows(page(table, other, newer), [], order) == page(table, other, newer)


def test_drivers_that_came_to_the_same_share_a_line(table) -> None:
    alike = [(*ROW[:2], driver, *ROW[3:]) for driver in ("boto3", "minio-py", "obstore")]
    order = [("moto", row[2]) for row in alike]
    joined = page(table, (*ROW[:2], "boto3, minio-py, obstore", *ROW[3:]))
    assert table.with_rows(page(table), alike, order) == joined
    assert table.rows_of(joined) == alike
    newer = (*alike[1][:6], "2026-02-02")
    assert table.with_rows(joined, [newer], order) == page(table, alike[0], newer, alike[2])


def test_a_page_without_its_markers_is_not_rewritten(table) -> None:
    good = page(table, ROW)
    assert table.rows_of(good) == [ROW]
    for bad in (
        good.replace(table.BEGIN, ""),
        good.replace(table.END, ""),
        f"{table.END}\n{good}",
        good + table.BEGIN,
        good + table.END,
        good.replace("| driver ", ""),
        good.replace(" | –", ""),
    ):
        with pytest.raises(table.Malformed):
            table.with_rows(bad, [ROW], [("moto", "boto3")])


FOUND = {
    "verdict": "fenced",
    "left": [],
    "capabilities": {"etag": "unquoted"},
    "contract": [
        {"check": "one_racer_replaces", "state": "fails", "guarantee": "replace"},
        {"check": "a_key_is_created_once", "state": "ok", "guarantee": "create"},
        {"check": "the_store_dates_its_answers", "state": "fails", "guarantee": ""},
        {"check": "a_checksum_is_taken", "state": "not applicable", "guarantee": ""},
        {"check": "a_listing_keeps_to_its_prefix", "state": "not answered", "guarantee": "listing"},
    ],
}


def test_what_a_server_lacks_in_words(compatibility) -> None:
    words = ("conditional replace", "complete listings in order", "dates", compatibility.UNQUOTED)
    assert compatibility.lacking(FOUND) == ", ".join(words)
    assert compatibility.lacking({"error": "unreachable", "message": "a|b"}) == "a/b"
    for copy, lacks in ((True, "–"), (False, "copies that are creates")):
        known = {"etag": "as-given", "create": True, "copy": copy}
        assert compatibility.lacking({**FOUND, "contract": [], "capabilities": known}) == lacks


def test_every_check_that_nothing_hangs_on_has_its_word(compatibility) -> None:
    from snapshotter.cli import deep

    optional = {name for name, (guarantee, _) in deep.BEARINGS.items() if not guarantee}
    assert compatibility._WITHOUT.keys() == optional | {deep.CHECKSUM}
    assert compatibility._GUARANTEES.keys() == {g for g, _ in deep.BEARINGS.values() if g}


@pytest.mark.parametrize(
    ("verdict", "sessions", "as_said"),
    [
        ("fenced", ("completed", "completed"), True),
        ("unfenced", ("Unsupported", "completed"), True),
        ("refused", ("Unsupported", "Unsupported"), True),
        ("fenced", ("Unsupported", "completed"), False),
        ("unfenced", ("completed", "completed"), False),
        ("refused", ("Unsupported", "completed"), False),
        ("refused", ("Corrupt", "Corrupt"), False),
        ("open", ("completed", "completed"), False),
    ],
)
def test_an_engine_that_does_something_else_than_was_said_is_told(
    verdict, sessions, as_said, compatibility, monkeypatch
) -> None:
    monkeypatch.setattr(compatibility, "examine", lambda *_: {**FOUND, "verdict": verdict})
    monkeypatch.setattr(compatibility, "sessions", lambda *_: sessions)
    outcome = compatibility.Outcome()
    server = compatibility.Running("1.0", 9, "k", "s")
    compatibility.try_driver("moto", server, "s3", outcome)
    assert (outcome.wrong == []) is as_said
    assert len(outcome.rows) == 1
    monkeypatch.setattr(
        compatibility, "examine", lambda *_: {**FOUND, "verdict": verdict, "left": ["probe/x"]}
    )
    compatibility.try_driver("moto", server, "s3", outcome)
    # A store that is refused may have kept what it was told to delete.
    assert any("left behind: probe/x" in line for line in outcome.wrong) is (verdict != "refused")


def test_a_server_that_cannot_be_started_keeps_its_rows_and_is_told(
    compatibility, monkeypatch, tmp_path, capsys
) -> None:
    before = page(compatibility.sys.modules["stores.table"], (compatibility.STORES["ceph"].name, *ROW[1:]))
    (tmp_path / "stores.md").write_text(before, encoding="utf-8")
    monkeypatch.setattr(compatibility, "PAGE", tmp_path / "stores.md")

    def missing(name: str, folder: Path) -> Any:
        raise compatibility.NoServer("no radosgw; apt-get install …")

    monkeypatch.setattr(compatibility, "started", missing)
    monkeypatch.setattr(sys, "argv", ["compatibility.py", "ceph"])
    before_signal = signal.getsignal(signal.SIGTERM)
    try:
        assert compatibility.main() == 3
    finally:
        signal.signal(signal.SIGTERM, before_signal)
    assert "not started: ceph: no radosgw; apt-get install" in capsys.readouterr().err
    assert (tmp_path / "stores.md").read_text(encoding="utf-8") == before


def test_a_server_ends_with_whoever_started_it(tmp_path: Path) -> None:
    """Also by SIGKILL: then the pipe to the minder is closed, and nothing else."""
    starter = (
        "import subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, {str(SCRIPTS / 'stores' / 'minder.py')!r}, 'sh', '-c',"
        " 'echo $$; exec sleep 600'], stdin=subprocess.PIPE)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", starter], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        os.kill(pid, 0)
        process.kill()
        # Its output ends when the last of its processes has: the minder, after it has ended the server.
        assert process.stdout.read() == ""
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_minder_ends_with_its_server() -> None:
    minder = [sys.executable, str(SCRIPTS / "stores" / "minder.py")]
    with subprocess.Popen([*minder, "sh", "-c", "exit 7"], stdin=subprocess.PIPE) as process:
        assert process.wait(60) == 7


@pytest.mark.parametrize("unfenced", [False, True])
def test_the_session_with_a_killed_worker_completes_on_a_folder(unfenced, tmp_path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(SCRIPTS)
    session = importlib.import_module("stores.session")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert session.killed_turn((tmp_path / "r").as_uri(), "s", environment, unfenced=unfenced) == "completed"
    (tmp_path / "file").touch()
    refused = session.killed_turn((tmp_path / "file" / "r").as_uri(), "s", environment, unfenced=unfenced)
    assert refused == "Misconfigured"
    with pytest.raises(RuntimeError, match="the first worker"):
        session.killed_turn("--help", "s", environment, unfenced=unfenced)
