"""Histories as tables, read back by other people's programs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow.parquet as pq
import pytest
from chat_samples import SID, Place, call, die, first_turn, result, saying, user, write_all
from roots import folder, make_corpus, one, turns

import snapshotter
from snapshotter.comparing import spilled
from snapshotter.database import Database
from snapshotter.rebuilding import Options, exporting
from snapshotter.rebuilding.exporting import MESSAGES, SESSIONS, Export, check_apart
from snapshotter.rebuilding.working import rebuild_in
from snapshotter.spilling import Spill
from streams.errors import Misconfigured, Refused

Rows = list[dict[str, Any]]

# As docs/rebuild.md tells: what may be null in all the rows that polars looks at.
NULLABLE: dict[str, dict[str, Any]] = {
    "messages": {"id": pl.String, "role": pl.String, "metadata": pl.String, "tools": pl.List(pl.String)},
    "sessions": {"status": pl.String, "finish_reason": pl.String, "last_at": pl.String},
}


def scanned(dest: Path, table: str, kind: str) -> pl.LazyFrame:
    """A table, read by polars."""
    if kind == "parquet":
        return pl.scan_parquet(dest / table / "*.parquet")
    return pl.scan_ndjson(dest / table / "*.jsonl", schema_overrides=NULLABLE[table])


def rows(dest: Path, table: str, kind: str) -> Rows:
    """All rows of a table, in no order."""
    found: Rows = []
    for path in sorted((dest / table).iterdir()):
        assert path.suffix == f".{kind}"
        if kind == "parquet":
            found += pq.read_table(path).to_pylist()
        else:
            found += map(json.loads, path.read_bytes().splitlines())
    return found


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@pytest.mark.parametrize("jobs", [1, 2])
def test_every_message_and_every_session_is_one_row(root: Path, db: Database, kind: Any, jobs: int) -> None:
    dest = root.parent / "tables"
    summary = snapshotter.rebuild(root, mode="export", format=kind, dest=dest, jobs=jobs)
    assert dict(summary.statuses) == {"exported": 60}
    messages, sessions = rows(dest, "messages", kind), rows(dest, "sessions", kind)
    assert {tuple(row) for row in messages} == {MESSAGES}
    assert {tuple(row) for row in sessions} == {SESSIONS}
    assert len(sessions) == 60
    assert {path.name for path in dest.iterdir()} == {"messages", "sessions"}  # no lock of the bucket's
    for row in sessions:
        history = db.peek(row["session"]).messages
        own = sorted((r for r in messages if r["session"] == row["session"]), key=lambda r: r["position"])
        assert [json.loads(r["parts"]) for r in own] == [m["parts"] for m in history]
        assert [(r["position"], r["id"], r["role"]) for r in own] == [
            (n, m["id"], m["role"]) for n, m in enumerate(history)
        ]
        assert row["messages"] == len(history)
    plans = [make_corpus.planned(1, number) for number in range(60)]
    assert {row["session"] for row in sessions if row["open"]} == {p.name for p in plans if p.kind == "open"}


@pytest.mark.parametrize("table", ["messages", "sessions"])
def test_a_place_that_holds_parts_is_refused(root: Path, table: str) -> None:
    dest, journal = root.parent / "tables", root.parent / "run.jsonl"
    snapshotter.rebuild(root, mode="export", dest=dest, jobs=1, chunk=7)
    other = "sessions" if table == "messages" else "messages"
    for path in (dest / other).iterdir():
        path.unlink()
    before = sorted(path.name for path in (dest / table).iterdir())
    for kind in ("jsonl", "parquet"):  # one cuts the sessions otherwise, and readers take both
        with pytest.raises(Refused, match=f"holds parts of an export already .{table}.: name another place"):
            snapshotter.rebuild(root, mode="export", format=kind, dest=dest, jobs=1, journal=journal)
    assert sorted(path.name for path in (dest / table).iterdir()) == before
    assert not list((dest / other).iterdir())
    assert not journal.exists()


def test_other_things_at_the_place_are_no_parts(root: Path) -> None:
    dest = root.parent / "tables"
    (dest / "messages").mkdir(parents=True)
    (dest / "messages" / "README.txt").write_text("what these tables are")
    (dest / "notes.txt").write_text("mine")
    assert snapshotter.rebuild(root, mode="export", dest=dest, jobs=1).ok
    assert (dest / ".snapshotter").is_dir()  # may be somebody else's


def test_what_is_no_lock_file_stays(root: Path) -> None:
    dest = root.parent / "tables"
    (dest / ".snapshotter").mkdir(parents=True)
    (dest / ".snapshotter" / "1-2-x.tmp").touch()  # somebody is writing
    assert snapshotter.rebuild(root, mode="export", dest=dest, jobs=1).ok
    assert [path.name for path in (dest / ".snapshotter").iterdir()] == ["1-2-x.tmp"]


def test_a_run_that_is_resumed_writes_over_its_own_parts(root: Path) -> None:
    dest, journal = root.parent / "tables", root.parent / "run.jsonl"
    asked: dict[str, Any] = {"mode": "export", "dest": dest, "jobs": 1, "chunk": 7, "journal": journal}
    snapshotter.rebuild(root, **asked)
    found = sorted(map(str, rows(dest, "messages", "jsonl")))
    kept = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(kept[:-2]))  # it was broken off before the last two were noted
    summary = snapshotter.rebuild(root, **asked, resume=True)
    assert 0 < summary.resumed < summary.sessions == 60
    assert sorted(map(str, rows(dest, "messages", "jsonl"))) == found


@pytest.fixture
def worked(tmp_path: Path) -> Iterator[tuple[Database, Path]]:
    """A root with one session that has something in every column, and another that is open."""
    with folder(tmp_path / "root") as db:
        db.send("full", {**user("u1", "hello"), "metadata": {"lang": "en"}})
        with db.boot("full") as session:
            session.set_state({"title": "a talk"})
            for turn in session.turns():
                with turn:
                    write_all(turn, [*list(saying("hi"))[:-2], call("c1"), result("c1")])
                    write_all(turn, [{"type": "finish-step"}, {"type": "finish", "finishReason": "stop"}])
        db.send("full", user("u2", "and now?"))
        db.send("open", user("u1"))
        opened = db.boot("open")
        turn = first_turn(opened)
        write_all(turn, list(saying("half"))[:4])
        turn.flush()
        die(opened)
        yield db, tmp_path / "root"


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_what_each_column_holds(worked: tuple[Database, Path], kind: Any) -> None:
    _, root = worked
    dest = root.parent / "tables"
    snapshotter.rebuild(root, mode="export", format=kind, dest=dest.as_uri(), jobs=1)
    asked, answered = sorted(
        (r for r in rows(dest, "messages", kind) if r["session"] == "full"), key=lambda r: r["position"]
    )
    assert (asked["text"], asked["tools"], asked["unfinished"]) == ("hello", [], False)
    assert json.loads(asked["metadata"]) == {"lang": "en"}
    assert (answered["role"], answered["text"], answered["tools"]) == ("assistant", "hi", ["tool"])
    assert answered["metadata"] is None
    sessions = {row["session"]: row for row in rows(dest, "sessions", kind)}
    full = sessions["full"]
    last_at = full.pop("last_at")
    last_at = last_at if kind == "parquet" else datetime.fromisoformat(last_at)
    assert abs((datetime.now(UTC) - last_at).total_seconds()) < 600
    assert json.loads(full.pop("state")) == {"title": "a talk"}
    assert full == {
        "session": "full",
        "turn": 1,
        "status": "completed",
        "finish_reason": "stop",
        "messages": 2,
        "open": False,
        "resume": "none",
        "owed": 1,
        "closed": False,
        "epoch": 2,
        "cursor": full["cursor"],
        "inputs": 2,
        "base": "first",
    }
    assert (sessions["open"]["open"], sessions["open"]["resume"]) == (True, "retry_response")
    assert (sessions["open"]["status"], sessions["open"]["messages"]) == (None, 2)


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_duckdb_reads_them(root: Path, kind: Any) -> None:
    dest = root.parent / "tables"
    summary = snapshotter.rebuild(root, mode="export", format=kind, dest=dest, jobs=1)
    asked = duckdb.sql(
        f"select count(*), count(distinct session), max(s.last_at) > timestamptz '2025-01-01' "
        f"from '{dest}/messages/*.{kind}' m join '{dest}/sessions/*.{kind}' s using (session)"
    )
    count, sessions, recent = asked.fetchall()[0]
    assert (sessions, recent) == (60, True)
    assert count >= summary.sums["messages"]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_polars_reads_them(root: Path, kind: Any) -> None:
    dest = root.parent / "tables"
    summary = snapshotter.rebuild(root, mode="export", format=kind, dest=dest, jobs=1)
    messages, sessions = (scanned(dest, table, kind) for table in ("messages", "sessions"))
    found = (
        messages.join(sessions, on="session")
        .filter(pl.col("tools").list.contains("search"))
        .select("session", "text", "tools", "position", "unfinished", "last_at", "turn")
        .collect()
    )
    rows_there = [row for row in rows(dest, "messages", kind) if "search" in row["tools"]]
    assert len(rows_there) > 20
    assert sorted(found.select("session", "position").rows()) == sorted(
        (row["session"], row["position"]) for row in rows_there
    )
    assert sessions.select(pl.col("turn").sum()).collect().item() == summary.sums["turns"]
    if kind == "parquet":  # there they have types of their own
        assert found.schema["last_at"] == pl.Datetime("ms", "UTC")
        assert found.schema["tools"] == pl.List(pl.String)
        assert found.schema["unfinished"] == pl.Boolean


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_polars_reads_a_column_that_begins_with_nulls(worked: tuple[Database, Path], kind: Any) -> None:
    _, root = worked
    dest = root.parent / "tables"
    snapshotter.rebuild(root, mode="export", format=kind, dest=dest, jobs=1, sessions=["open"])
    for table in ("messages", "sessions"):  # its rows hold nulls, and come first
        (part,) = (dest / table).iterdir()
        part.rename(root.parent / f"{table}.first")
    snapshotter.rebuild(root, mode="export", format=kind, dest=dest, jobs=1, sessions=["full"])
    for table in ("messages", "sessions"):
        (root.parent / f"{table}.first").rename(dest / table / f"part-0.{kind}")
    found = scanned(dest, "sessions", kind).select("session", "status", "finish_reason").collect()
    assert found.rows() == [("open", None, None), ("full", "completed", "stop")]
    told = scanned(dest, "messages", kind).select("session", "metadata", "tools").collect().rows()
    assert [row[0] for row in told] == ["open", "open", "full", "full"]
    assert {row[1] for row in told} == {None, '{"lang":"en"}'}
    assert told[-1][2] == ["tool"]


def test_the_page_names_the_columns_that_polars_has_to_be_told_of() -> None:
    page = (Path(__file__).parents[2] / "docs" / "rebuild.md").read_text(encoding="utf-8")
    (source,) = re.findall(r"^```python\n(import polars.*?)^```", page, re.M | re.S)
    asked: dict[str, Any] = {}

    class Polars:
        String, List = pl.String, pl.List

        @staticmethod
        def scan_ndjson(path: str, *, schema_overrides: dict[str, Any]) -> None:
            asked[path] = schema_overrides

    exec(source.replace("import polars as pl\n", ""), {"pl": Polars})
    assert asked == {f"tables/{table}/*.jsonl": columns for table, columns in NULLABLE.items()}


def test_nothing_at_all_is_a_readable_part(tmp_path: Path) -> None:
    for kind in ("jsonl", "parquet"):
        Export(tmp_path.as_uri(), kind, ["nobody"]).write()  # type: ignore[arg-type]
        assert rows_of(tmp_path, kind) == []


def rows_of(dest: Path, kind: str) -> Rows:
    (path,) = (dest / "messages").glob(f"*.{kind}")
    return pq.read_table(path).to_pylist() if kind == "parquet" else path.read_bytes().splitlines()


def test_parquet_without_pyarrow_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(exporting, "import_module", missing)
    with pytest.raises(Misconfigured, match=r"pip install pyarrow"):
        Export("memory://x", "parquet", [])


def test_foreign_messages_are_exported_as_they_are() -> None:
    """What another writer left may lack what ours have."""
    place = Place()
    turns(place.db, SID, 1)
    with place.db.boot(SID) as session:
        parts = [{"type": "dynamic-tool", "toolName": "t"}, {"type": "text"}, "text"]
        session.edit_history("replace", messages=[{"id": "x", "role": "user", "parts": parts[:2]}])
    found: Rows = []
    fold = place.db.load(SID).fold
    export = Export("memory://foreign", "jsonl", [SID])
    export.add(spilled(fold, Spill()), one(place.db, Options()))
    found = [json.loads(line) for line in export._parts["messages"].data().splitlines()]
    assert [(row["id"], row["text"], row["tools"]) for row in found] == [("x", "", ["t"])]


@pytest.mark.parametrize("way", ["root", "root/", "root/tables", "root/../root/out", "link", "link/below"])
def test_nothing_is_exported_into_the_root(root: Path, way: str) -> None:
    (root.parent / "link").symlink_to(root)
    before = sorted(root.rglob("*"))
    with pytest.raises(Refused, match=r"written into the root|segment '\.' or '\.\.'"):
        snapshotter.rebuild(root, mode="export", dest=Path(root.parent, way), jobs=1)
    assert sorted(root.rglob("*")) == before


@pytest.mark.parametrize(
    ("root", "dest", "apart"),
    [
        ("s3://b/agents", "s3://b/agents/", False),
        ("s3://b/agents", "s3+obstore://b/agents/tables?region=eu-west-1", False),
        ("s3://b/agents", "minio://s3.eu-west-1.amazonaws.com/b/agents", False),
        ("s3://b/agents?endpoint=http://127.0.0.1:9000", "minio://localhost:9000/b/agents", False),
        ("s3://b", "s3://b/tables", False),
        ("s3://b/tables/sessions/mine", "s3://b/tables", False),
        ("s3://b/agents", "s3://b/agents-tables", True),
        ("s3://b/agents", "s3://b", True),
        ("s3://b/agents", "s3://c/agents", True),
        ("s3://b/agents", "minio://localhost:9000/b/agents", True),
        ("minio://one:9000/b/agents", "minio://two:9000/b/agents", True),
        ("memory://m/agents", "memory://m/agents/tables", False),
        ("memory://m/agents", "memory://n/agents", True),
        ("s3://tmp/agents", "file:///tmp/agents", True),
    ],
)
def test_one_place_is_one_by_whatever_driver_it_is_named(
    root: str, dest: str, apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "OBJECT_STORE_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    if apart:
        check_apart(root, dest)
        return
    with pytest.raises(Refused, match="written into the root"):
        check_apart(root, dest)


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_part_that_grows_too_large_becomes_several(
    root: Path, db: Database, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And those of an earlier attempt that had more of them are gone."""
    names = [make_corpus.name(number) for number in range(9)]

    def exported(dest: Path) -> tuple[list[str], list[str]]:
        rebuild_in(db, Options("export", format=kind, dest=dest.as_uri()), names)  # type: ignore[arg-type]
        parts = [path.name for path in dest.joinpath("messages").iterdir()]
        return sorted(map(str, rows(dest, "messages", kind))), sorted(parts)

    found, parts = exported(root.parent / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(exporting, "_PART_BYTES", 1)
        patch.setattr(exporting, "_GROUP_BYTES", 1)
        same, several = exported(root.parent / "cut")
    assert (same, len(parts)) == (found, 1)
    assert len(several) > 9
    assert exported(root.parent / "cut") == (found, parts)
