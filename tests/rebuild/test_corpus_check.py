"""The check of a whole corpus, small: on a folder and on a real server, and that it sees what is wrong."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from roots import TESTS, corpus, folder, loaded, make_corpus, turns

from snapshotter.database import Database
from streams import keys

corpus_check: Any = loaded(TESTS.parent / "scripts" / "corpus_check.py")
corpus_work: Any = loaded(TESTS.parent / "scripts" / "corpus_work.py")

KINDS = {"engine": 6, "unsaved": 2, "open": 4, "compacted": 5, "trimmed": 1, "plain": 42}


def check(url: str, **asked: Any) -> dict[str, Any]:
    """Check a small corpus; what each step counted."""
    report = corpus_check.check(corpus_check.Asked(url, "test", 60, **asked, kills=1, workers=2, rounds=4))
    assert report.wrong == []
    assert len(report.lines()) == 7
    assert report.largest > 0  # of this process, too, and of all that other tests have done in it
    return {step.name: step.counts for step in report.steps}


@pytest.mark.slow
def test_a_folder_is_always_what_its_logs_say(tmp_path: Path) -> None:
    counts = check(tmp_path.joinpath("root").as_uri(), jobs=2)
    assert list(counts) == ["make", "compare", "killed", "beside", "verify"]
    assert {kind: counts["make"][kind] for kind in KINDS} == KINDS
    assert (counts["compare"]["same"], counts["compare"]["unsaved"]) == (58, 2)
    assert counts["killed"]["kills"] == 1
    assert 0 < counts["killed"]["resumed"] < 60
    assert counts["beside"]["turns beside"] >= 2
    assert counts["verify"]["same"] == 60


@pytest.mark.slow
def test_a_real_server_is_always_what_its_logs_say(seaweed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", seaweed.keys.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", seaweed.keys.secret_key)
    url = f"minio://{seaweed.url.removeprefix('http://')}/{seaweed.bucket}/corpus-check"
    counts = check(url, jobs=1)
    assert counts["verify"]["same"] == 60
    with pytest.raises(SystemExit, match="is not empty"):
        check(url, jobs=1)


def test_the_same_seed_makes_the_same_sessions(root: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    corpus(again.as_uri(), 60)
    plans = [make_corpus.planned(1, number) for number in range(60)]
    for plan in plans:
        made = [sorted(p.name for p in (base / "in" / plan.name).iterdir()) for base in (root, again)]
        assert made[0] == made[1]
        if plan.kind != "engine":  # whose nonces are new each time
            logs = [sorted((base / "out" / plan.name).iterdir()) for base in (root, again)]
            assert [p.read_bytes() for p in logs[0]] == [p.read_bytes() for p in logs[1]]
    assert make_corpus.planned(2, 50).turns != make_corpus.planned(1, 50).turns


class _Judging:
    """A check over a corpus that is there already; tests spoil it between two looks."""

    def __init__(self, root: Path) -> None:
        self.check = corpus_check.Check(
            corpus_check.Asked(root.as_uri(), "test", 60, jobs=1), root, lambda _: None
        )
        self.check._before = self.look()

    def look(self) -> dict[str, Any]:
        found: dict[str, Any] = self.check._stored([f"chat-{number:06d}" for number in range(60)])
        return found


def spoil(db: Database, session: str, **fields: Any) -> None:
    """Another snapshot stands there."""
    key = keys.snapshot(session)
    blob = db.store.get(key)
    assert blob is not None
    document = {**json.loads(blob.data), **fields}
    document.pop("crc", None)
    db.store.put(key, json.dumps(document).encode())


def test_a_snapshot_that_is_another_one_is_seen(root: Path, db: Database) -> None:
    judging = _Judging(root)
    assert judging.check._changed(judging.look()) == []
    spoil(db, "chat-000050", state={"a": 1})
    db.store.delete(keys.snapshot("chat-000051"))
    turns(db, "chat-000052", 1, start=99)
    wrong = judging.check._changed(judging.look())
    assert [each.partition(":")[0] for each in wrong] == ["chat-000050", "chat-000051"]
    assert judging.check._changed(judging.look(), ["chat-000050", "chat-000051"]) == []
    counts, told = judging.check.compare()
    assert counts["different"] == 1
    assert any("chat-000050: different" in each for each in told)
    assert any("it should be" in each for each in told)


def test_a_snapshot_that_steps_back_is_seen() -> None:
    def visit(before: int, after: int) -> dict[str, Any]:
        return {"session": "s", "id": "u", "before": before, "after": after}

    def steps(*visits: dict[str, Any], stored: int) -> int:
        return len(corpus_check._stepped_back(visits, {"s": (stored, "")} if stored else {}))

    assert steps(visit(0, 5), visit(5, 5), visit(9, 12), stored=12) == 0
    assert steps(visit(0, 5), visit(-1, 9), visit(9, 12), stored=12) == 0
    assert steps(visit(0, 5), visit(-1, 9), visit(7, 12), stored=12) == 1
    assert steps(visit(0, 5), visit(4, 9), stored=9) == 1
    assert steps(visit(0, 5), visit(5, 4), stored=4) == 1
    assert steps(visit(0, 5), visit(5, 9), stored=8) == 1
    assert steps(visit(0, 5), stored=0) == 1


def test_a_question_that_is_lost_stands_twice_or_waits_is_seen(root: Path, db: Database) -> None:
    judging = _Judging(root)
    turns(db, "chat-000050", 1, start=90)
    db.send("chat-000051", {"id": "u91", "role": "user", "parts": []})
    visits = [
        {"session": "chat-000050", "id": "u90"},
        {"session": "chat-000051", "id": "u91"},
        {"session": "chat-000050", "id": "u92"},
    ]
    wrong = judging.check._unanswered(visits, ["chat-000050", "chat-000051"])
    assert [each.split(": ")[:2] for each in wrong] == [
        ["chat-000051", "u91 stands 1 times"],
        ["chat-000050", "u92 stands 0 times"],
    ]


def test_a_boot_that_is_not_what_the_logs_say_is_seen(root: Path, db: Database) -> None:
    spoil(db, "chat-000050", state={"a": 1})
    shutil.rmtree(root / "in" / "chat-000051")
    wrong = corpus_work.judge(root.as_uri(), ["chat-000050", "chat-000051", "chat-000052"])
    assert {each.split(": ")[0]: each.split(": ")[1] for each in wrong} == {
        "chat-000050": "law",
        "chat-000051": "gap",
    }


def test_a_run_that_is_not_killed_is_seen(root: Path, tmp_path: Path) -> None:
    judging = _Judging(root)
    (told,) = judging.check._kill(tmp_path / "run.jsonl", 61)
    assert "ended with 0" in told
    with folder(root) as db:
        assert len(list(db.sessions())) == 60


def test_who_waits_for_a_worker_that_never_comes_is_told(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError):
        corpus_work.wait_for(tmp_path / "none", 0.0)
    with_line = tmp_path / "line"
    with_line.write_text("{}")
    corpus_work.wait_for(with_line, 0.0)


def test_workers_share_no_session() -> None:
    names = [f"s{number}" for number in range(1000)]
    dealt = corpus_check._dealt(names, 3)
    assert [len(part) for part in dealt] == [8, 8, 8]
    assert len({name for part in dealt for name in part}) == 24
    assert [len(part) for part in corpus_check._dealt(names[:7], 3)] == [1, 1, 1]
