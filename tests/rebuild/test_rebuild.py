"""What a rebuild finds, writes and leaves, over whole roots."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chat_samples import user
from roots import corpus, documents, folder, forget, turns

import snapshotter
from snapshotter import windows
from snapshotter.database import Database
from snapshotter.database import open as open_database
from snapshotter.errors import InvalidValue, Misconfigured, Refused
from snapshotter.rebuilding import Options, Result, rebuild_some, working
from streams import keys


def test_the_corpus_equals_its_snapshots(root: Path, db: Database) -> None:
    summary = snapshotter.rebuild(root, jobs=1)
    saved = len(list(db.sessions()))
    assert summary.ok
    assert summary.sessions == 60
    assert dict(summary.statuses) == {"same": saved, "unsaved": 60 - saved}
    assert summary.sums["turns"] > 60


def test_what_is_written_back_is_what_stood_there(root: Path, db: Database) -> None:
    before = documents(db)
    for session in before:
        forget(db, session)
    summary = snapshotter.rebuild(root, mode="write", jobs=1)
    after = documents(db)
    assert summary.ok
    assert {session: after[session] for session in before} == before
    assert summary.statuses["written"] == len(after)
    for session in after.keys() - before.keys():  # those that had none, and an open turn behind the last
        assert after[session]["lastTurn"]["status"] == "completed"
    again = snapshotter.rebuild(root, mode="write", jobs=1)
    assert again.statuses["written"] == 0
    assert again.statuses["same"] == len(after)


def test_two_processes_come_to_the_same(root: Path) -> None:
    seen: dict[str, Result] = {}

    def progress(results: Any, total: int) -> None:
        assert total == 60
        seen.update({result.session: result for result in results})

    summary = snapshotter.rebuild(root, jobs=2, chunk=15, progress=progress)
    alone = {result.session: result for result in rebuild_some(root.as_uri(), Options(), list(seen))}
    assert summary.ok
    assert seen == alone


def test_windows_that_are_read_ahead_come_to_the_same(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"chat-{number:06d}" for number in range(60)]

    def found() -> list[Result]:  # of a log without a beginning more is read in vain where windows are wide
        results = rebuild_some(root.as_uri(), Options(), names)
        return [replace(result, bytes=0, requests=0) for result in results]

    before = found()
    monkeypatch.setattr(working, "is_at_hand", lambda _url: False)
    monkeypatch.setattr(windows, "WINDOW", 3)
    assert found() == before


def test_a_real_server_gives_the_same(seaweed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", seaweed.keys.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", seaweed.keys.secret_key)
    url = f"minio://{seaweed.url.removeprefix('http://')}/{seaweed.bucket}/rebuild"
    names = corpus(url, 30)
    assert set(snapshotter.rebuild(url, jobs=1).statuses) == {"same", "unsaved"}
    with open_database(url) as db:
        before = documents(db)
        for session in before:
            forget(db, session)
        summary = snapshotter.rebuild(url, mode="write", jobs=2, sessions=names)
        assert summary.ok
        assert {session: documents(db)[session] for session in before} == before
        exported = snapshotter.rebuild(url, mode="export", dest=f"{url}-tables", jobs=1, chunk=30)
    with open_database(f"{url}-tables") as tables:
        (part,) = tables.store.list("messages/").entries
        found = tables.store.get(part.key)
        assert found is not None
        assert found.data.count(b"\n") >= exported.sums["messages"] > 60


def test_one_bad_session_is_told_and_the_others_are_rebuilt(root: Path, db: Database) -> None:
    bad = "chat-000050"
    (path, *_) = sorted((root / "out" / bad).iterdir())
    data = path.read_bytes()
    path.write_bytes(data[:-20] + b"x" + data[-19:])
    summary = snapshotter.rebuild(root, jobs=1)
    assert [(r.session, r.status, r.error) for r in summary.problems] == [(bad, "failed", "Corrupt")]
    assert path.name in summary.problems[0].detail
    assert summary.sessions == 60
    assert not summary.ok


def test_a_hole_in_the_log_is_told(root: Path, db: Database) -> None:
    bad = "chat-000050"
    sorted((root / "out" / bad).iterdir())[-1].unlink()  # the oldest
    sorted((root / "in" / "chat-000051").iterdir())[-1].unlink()
    summary = snapshotter.rebuild(root, mode="write", jobs=1)
    assert sorted((r.session, r.error) for r in summary.problems) == [(bad, "Gap"), ("chat-000051", "Gap")]
    before = documents(db)
    assert bad in before  # what stands there was left


def test_every_difference_is_told(root: Path, db: Database) -> None:
    session = "chat-000050"
    key = keys.snapshot(session)
    blob = db.store.get(key)
    assert blob is not None
    document = json.loads(blob.data)
    document.pop("crc")
    document["messages"][0]["parts"][0]["text"] = "something else"
    document["messages"][1]["extra"] = 1
    document["state"] = {"a": [1]}
    db.store.put(key, json.dumps(document).encode())
    (result,) = rebuild_some(root.as_uri(), Options(), [session])
    assert (result.status, result.different) == ("different", 3)
    told = {row["path"]: row for row in result.differences}
    assert set(told) == {"messages[0].parts[0].text", "messages[1].extra", "state.a"}
    assert told["messages[0].parts[0].text"]["stored"] == '"something else"'
    assert told["messages[1].extra"] == {"path": "messages[1].extra", "stored": "1"}
    (mended,) = rebuild_some(root.as_uri(), Options("write"), [session])
    assert (mended.status, mended.different) == ("written", 3)
    (now,) = rebuild_some(root.as_uri(), Options(), [session])
    assert now.status == "same"


def test_a_snapshot_of_another_log_differs(root: Path, db: Database) -> None:
    key = keys.snapshot("chat-000050")
    blob = db.store.get(key)
    assert blob is not None
    document = json.loads(blob.data)
    document.pop("crc")
    document["lastOutNonce"] = "another"
    db.store.put(key, json.dumps(document).encode())
    (result,) = rebuild_some(root.as_uri(), Options(), ["chat-000050"])
    assert [row["path"] for row in result.differences] == ["lastOutNonce"]


def test_a_damaged_snapshot_is_replaced_only_when_asked_for(root: Path, db: Database) -> None:
    key = keys.snapshot("chat-000050")
    blob = db.store.get(key)
    assert blob is not None
    db.store.put(key, blob.data[:-30])
    for mode in ("compare", "write"):
        (result,) = rebuild_some(root.as_uri(), Options(mode), ["chat-000050"])
        assert (result.status, result.error) == ("failed", "Corrupt")
        assert result.replaceable
        assert Result.of(result.to_json()) == result
    options = Options("write", replace_unreadable=True)
    assert rebuild_some(root.as_uri(), options, ["chat-000050"])[0].status == "written"
    assert rebuild_some(root.as_uri(), Options(), ["chat-000050"])[0].status == "same"


def test_a_snapshot_is_not_called_replaceable_where_its_log_is_damaged_as_well(
    root: Path, db: Database
) -> None:
    key = keys.snapshot("chat-000050")
    blob = db.store.get(key)
    assert blob is not None
    db.store.put(key, blob.data[:-30])
    path = sorted((root / "out" / "chat-000050").iterdir())[0]
    path.write_bytes(path.read_bytes()[:-9])
    (result,) = rebuild_some(root.as_uri(), Options(), ["chat-000050"])
    assert (result.status, result.error) == ("failed", "Corrupt")
    assert not result.replaceable
    assert "replaceable" not in result.to_json()


def test_a_newer_releases_snapshot_is_never_touched(root: Path, db: Database) -> None:
    key = keys.snapshot("chat-000050")
    db.store.put(key, b'{"version":99}')
    options = Options("write", replace_unreadable=True)
    (result,) = rebuild_some(root.as_uri(), options, ["chat-000050"])
    assert (result.status, result.error) == ("failed", "NewerVersion")
    assert not result.replaceable
    found = db.store.get(key)
    assert found is not None
    assert found.data == b'{"version":99}'


def test_a_snapshot_ahead_of_its_log_is_told(root: Path, db: Database) -> None:
    path = sorted((root / "out" / "chat-000050").iterdir())[0]
    path.unlink()
    for mode in ("compare", "write"):
        (result,) = rebuild_some(root.as_uri(), Options(mode), ["chat-000050"])
        assert (result.status, result.error) == ("failed", "Gap")
        assert "the out log ends at" in result.detail


def test_sessions_are_selected(root: Path, db: Database) -> None:
    turns(db, "other", 1)
    db.send("only-asked", user("u1"))

    def chosen(**selection: Any) -> set[str]:
        found: set[str] = set()
        snapshotter.rebuild(
            root, jobs=1, progress=lambda results, _: found.update(r.session for r in results), **selection
        )
        return found

    assert len(chosen()) == 62
    assert chosen(prefix="chat-00000") == {f"chat-00000{n}" for n in range(10)}
    assert chosen(sessions=["other", "chat-000001", "other"]) == {"other", "chat-000001"}
    newest = max(info.modified_ms or 0 for info in db.sessions(prefix="chat"))
    assert chosen(since=newest + 1) == {"other", "only-asked"}
    assert chosen(since=newest + 1, prefix="only") == {"only-asked"}
    assert chosen(sessions=["other", "chat-000001"], since=newest + 1) == {"other"}


def test_a_session_that_was_named_and_is_not_there_is_told(root: Path) -> None:
    summary = snapshotter.rebuild(root, jobs=1, sessions=["nobody", "..", "chat-000001"])
    assert [(r.session, r.status, r.error) for r in summary.problems] == [
        ("nobody", "absent", ""),
        ("..", "failed", "InvalidId"),
    ]


def test_what_concerns_the_whole_store_ends_the_run(seaweed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", seaweed.keys.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", seaweed.keys.secret_key)
    url = f"minio://{seaweed.url.removeprefix('http://')}/no-such-bucket/x"
    for jobs in (1, 2):
        with pytest.raises(Misconfigured):
            snapshotter.rebuild(url, jobs=jobs, sessions=["a", "b"])


@pytest.mark.parametrize(
    "asked",
    [
        {"mode": "mend"},
        {"mode": "export", "dest": "memory://x", "format": "csv"},
        {"mode": "export"},
        {"dest": "memory://x"},
        {"jobs": 0},
        {"resume": True},
        {"replace_unreadable": True},
    ],
)
def test_what_means_nothing_is_refused(asked: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(Refused):
        snapshotter.rebuild(tmp_path, **asked)


def test_an_empty_root_is_no_problem(tmp_path: Path) -> None:
    summary = snapshotter.rebuild(tmp_path / "nothing")
    assert (summary.ok, summary.sessions) == (True, 0)
    with folder(tmp_path / "nothing") as db:
        assert list(db.sessions()) == []


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("sessions", "s-0", "sessions is a list of ids"),
        ("sessions", b"s-0", "sessions is a list of ids"),
        ("sessions", ["s-0", 1], "sessions is a list of ids"),
        ("prefix", ["a", "b"], "prefix is what ids begin with"),
        ("since", 1.7e12, "since is a time in epoch ms"),
        ("since", "24h", "since is a time in epoch ms"),
        ("chunk", 0, "chunk is a number of sessions, 1 or more"),
        ("jobs", "2", "jobs is a number of processes, 1 or more"),
    ],
)
def test_a_value_of_another_kind_is_refused_by_its_name(
    tmp_path: Path, name: str, value: Any, wanted: str
) -> None:
    with pytest.raises(InvalidValue, match=wanted) as caught:
        snapshotter.rebuild(tmp_path, **{name: value})
    assert caught.value.path == name
