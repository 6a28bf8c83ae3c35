"""Every error is one line, a code word for programs, and an exit code; never a traceback, never a secret."""

from __future__ import annotations

import errno
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_runs import ANSWER, answered, database, jsonl, run

import snapshotter
from snapshotter.cli import examine, look, problems
from snapshotter.core.snapshot import VERSION
from snapshotter.errors import CredentialsExpired
from streams.buckets import url as url_module
from streams.buckets.base import Blob, Page
from streams.buckets.memory import MemoryBucket

SECRET = "a-secret-that-nobody-may-see"


@pytest.fixture
def held(root: Path) -> Iterator[snapshotter.Session]:
    """A session in the middle of a turn of a living worker."""
    with database(root) as db:
        db.send("s", "hi")
        with db.boot("s") as session:
            turn = next(session.turns())
            turn.write(ANSWER[0])
            turn.flush()
            yield session


def test_a_busy_session_is_retryable(root: Path, held: snapshotter.Session) -> None:
    found = run("record", root, "s", "--wait", 0, "--json", stdin=jsonl(*ANSWER))
    assert found.code == 5
    assert found.json["error"] == "busy"
    assert found.json["retry_after"] > 0
    told = run("record", root, "s", "--wait", 0, stdin=jsonl(*ANSWER))
    assert told.err.startswith("error: session 's': run ")
    assert "hint: wait, or give --takeover" in told.err
    assert told.out == ""


def test_takeover_does_not_wait(root: Path, held: snapshotter.Session) -> None:
    done = run("record", root, "s", "--takeover", "--json", stdin=jsonl(*ANSWER))
    assert done.lines[-1]["status"] == "completed"
    assert held.current is not None
    with pytest.raises(snapshotter.Fenced):
        held.current.complete()


def test_nothing_owed_is_refused(root: Path) -> None:
    answered(root)
    found = run("record", root, "s", "--json", stdin=jsonl(*ANSWER))
    assert (found.code, found.json["error"]) == (2, "refused")
    assert "nothing is owed" in found.json["message"]


def test_a_chunk_that_breaks_a_rule_is_refused_and_named(root: Path) -> None:
    run("send", root, "s", "hi")
    found = run("record", root, "s", "--json", stdin=jsonl({"type": "text-delta", "id": "t", "delta": "x"}))
    assert (found.code, found.lines[-1]["error"]) == (2, "chunk-error")


def test_a_conflict_names_the_first(root: Path) -> None:
    run("send", root, "s", "hi", "--key", "k")
    found = run("send", root, "s", "other", "--key", "k", "--json")
    assert (found.code, found.json["error"], found.json["first"]) == (2, "conflict", 1)


def test_a_gap_names_what_is_missing(root: Path) -> None:
    answered(root)
    next(root.rglob("snapshot.json")).unlink()
    next((root / "out").rglob("*-1.jsonl")).unlink()
    found = run("boot", root, "s", "--json")
    assert (found.code, found.json["error"]) == (3, "gap")
    assert (found.json["log"], found.json["missing"][0]) == ("out", 1)


def test_corrupt_data_names_its_key(root: Path) -> None:
    answered(root)
    next(root.rglob("snapshot.json")).unlink()
    segment = next((root / "out").rglob("*-1.jsonl"))
    segment.write_bytes(segment.read_bytes()[:-2])
    found = run("history", root, "s", "--json")
    assert (found.code, found.json["error"]) == (4, "corrupt")
    assert found.json["key"].endswith("-1.jsonl")
    assert "snapshotter verify" in run("history", root, "s").err


def test_a_newer_snapshot_asks_for_an_upgrade(root: Path) -> None:
    answered(root)
    snapshot = next(root.rglob("snapshot.json"))
    snapshot.write_text(json.dumps({**json.loads(snapshot.read_text()), "version": VERSION + 1}))
    found = run("boot", root, "s", "--json")
    assert (found.code, found.json["error"]) == (4, "newer-version")
    assert "hint: upgrade snapshotter" in run("boot", root, "s").err


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (("ls",), "Missing argument"),
        (("send", "memory://x", "s"), "give TEXT"),
        (("send", "memory://x", "s", "hi", "--message", "{}"), "give TEXT"),
        (("send", "memory://x", "s", "--message", "[]"), "a UIMessage"),
        (("approve", "memory://x", "s"), "give APPROVAL"),
        (("edit", "memory://x", "s", "m"), "give TEXT"),
        (("nonsense",), "No such command"),
        (("log", "memory://x", "s", "sideways"), "sideways"),
        (("record", "memory://x", "s", "/no/such/file"), "/no/such/file"),
        (("record", "memory://x", "s", "--delay", "-1"), "-1"),
    ],
)
def test_wrong_usage(args: tuple[str, ...], word: str) -> None:
    told = run(*args)
    assert (told.code, told.out) == (2, "")
    assert told.err.startswith("error: ")
    assert word in told.err
    found = run(*args, "--json")
    assert (found.code, found.json["error"], found.err) == (2, "usage", "")


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        (("--allow-unfenced",), "write it before the command: `snapshotter --allow-unfenced send …`"),
        (("--log-format", "json"), "write it before the command: `snapshotter --log-format … send …`"),
        (("--version",), "send --help` shows how"),
        (("--nonsense",), "send --help` shows how"),
    ],
)
def test_an_option_of_the_whole_program_behind_a_command_is_told_its_place(
    option: tuple[str, ...], hint: str
) -> None:
    told = run("send", "memory://x", "s", "hi", *option)
    assert (told.code, told.out) == (2, "")
    assert "No such option" in told.err
    assert hint in told.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("send", "memory://x", "..", "hi"), "invalid-id"),
        (("send", "memory://x", "s", "--message", '{"parts":[],"x":NaN}'), "invalid-value"),
        (("send", "memory://x", "s", "--message", '{"parts":7}'), "invalid-value"),
        (("send", "memory://x", "s", "x" * 1_100_000), "too-large"),
        (("boot", "memory://x", "s", "--receipt", "7"), "invalid-value"),
        (("boot", "memory://x", "s", "--receipt", '{"session":"other","id":1}'), "refused"),
        (("history", "memory://x", "s", "--before", "nobody"), "refused"),
        (("ls", "memory://x", "--since", "yesterday"), "refused"),
        (("ls", "ftp://host/path"), "invalid-id"),
        (("demo", "--root", "memory://x"), "refused"),
    ],
)
def test_input_that_is_refused(args: tuple[str, ...], code: str) -> None:
    found = run(*args, "--json")
    assert (found.code, found.json["error"], found.err) == (2, code, "")
    assert run(*args).err.startswith("error: ")


def test_a_url_with_credentials_is_refused_and_not_repeated() -> None:
    for url in (f"s3://key:{SECRET}@bucket/x", f"minio://key:{SECRET}@host/bucket"):
        for found in (run("ls", url, "--json"), run("ls", url), run("doctor", url)):
            assert found.code == 2
            assert SECRET not in found.out + found.err


def test_an_option_named_json_behind_two_dashes_is_text() -> None:
    told = run("send", "memory://x", "..", "--", "--json")
    assert told.err.startswith("error: ")


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


def test_a_missing_bucket_is_misconfigured(moto_server: Any, keys: None) -> None:
    url = f"s3://no-such-bucket?endpoint={moto_server.url}&region=us-east-1"
    found = run("ls", url, "--json")
    assert (found.code, found.json["error"]) == (6, "bucket-missing")
    assert "never creates a bucket" in run("ls", url).err
    examined = run("doctor", url, "--json")
    assert (examined.code, examined.json["ok"], examined.json["error"]) == (6, False, "bucket-missing")
    assert [c["check"] for c in examined.json["checks"] if not c["ok"]] == ["reachable"]
    assert SECRET not in found.out + examined.out


def test_doctor_trusts_a_real_connection(moto_server: Any, keys: None) -> None:
    url = f"s3://{moto_server.bucket}/doctor?endpoint={moto_server.url}&region=us-east-1"
    found = run("doctor", url, "--json")
    assert (found.code, found.json["ok"]) == (0, True)
    assert SECRET not in found.out


def test_a_store_that_does_not_answer_is_unreachable(keys: None) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    found = run("doctor", f"s3://bucket?endpoint=http://127.0.0.1:{port}&region=us-east-1", "--json")
    assert (found.code, found.json["error"]) == (5, "unreachable")
    told = run("doctor", f"s3://bucket?endpoint=http://127.0.0.1:{port}&region=us-east-1")
    assert "BAD reachable" in told.out
    assert "not to be trusted" in told.out


def test_no_credentials_are_misconfigured(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "OBJECT_STORE_ACCESS_KEY_ID"):
        monkeypatch.delenv(name, raising=False)
    found = run("doctor", "minio://127.0.0.1:1/bucket", "--json")
    assert (found.code, found.json["error"]) == (6, "credentials-expired")
    assert [(c["check"], c["ok"]) for c in found.json["checks"]] == [("driver", True), ("credentials", False)]
    assert found.json["checks"][-1]["means"]


def test_a_driver_that_is_not_installed_is_told_as_that(monkeypatch: pytest.MonkeyPatch, keys: None) -> None:
    def missing(_module: str) -> None:
        raise ModuleNotFoundError(name="boto3")

    monkeypatch.setattr(url_module, "import_module", missing)
    found = run("doctor", "s3://bucket", "--json")
    assert (found.code, found.json["error"]) == (6, "misconfigured")
    assert [(c["check"], c["ok"]) for c in found.json["checks"]] == [("driver", False)]
    told = run("doctor", "s3://bucket").out
    assert "pip install 'boto3>=1.36'" in told
    assert "credentials" not in told


def test_a_folder_that_may_not_be_written_is_spoken_of_as_a_folder(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_args: object, **_options: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", denied)
    told = run("send", root, "s", "hi")
    assert told.code == 6
    assert f"the store's folder {root} cannot be made" in told.err
    examined = run("doctor", root)
    assert examined.code == 6
    for text in (told.err, examined.out.partition("BAD")[2]):
        assert "folder" in text
        assert "credentials" not in text
        assert "GetObject" not in text


def test_a_folder_that_cannot_be_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    told = run("send", tmp_path / "file" / "x", "s", "hi")
    assert told.code == 6
    assert "cannot be made" in told.err
    assert "tried" not in told.err


def test_a_defect_is_told_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: Any, **_options: Any) -> Any:
        raise KeyError("oops")

    monkeypatch.setattr(look, "open_database", broken)
    found = run("ls", "memory://x", "--json")
    assert (found.code, found.json["error"]) == (70, "defect")
    told = run("ls", "memory://x")
    assert told.err.startswith("error: a defect of snapshotter: KeyError")
    assert "Traceback" not in told.err


def test_every_public_error_has_an_exit_code_that_is_documented() -> None:
    special: dict[str, dict[str, Any]] = {
        "Gap": {"log": "in", "missing": (1, 2)},
        "TooLarge": {"size": 2, "limit": 1},
        "Conflict": {"first": 1},
        "ChunkError": {},
    }
    seen = {}
    for name in dir(snapshotter):
        kind = getattr(snapshotter, name)
        if not (isinstance(kind, type) and issubclass(kind, snapshotter.StreamError)) or name == "ChunkError":
            continue
        seen[name] = problems.failure_of(kind("why", **special.get(name, {}))).exit_code
    assert {seen[n] for n in ("Busy", "Fenced", "Unknown", "Throttled", "Unreachable", "Deadline")} == {5}
    assert {seen[n] for n in ("BucketMissing", "AccessDenied", "CredentialsExpired", "Unsupported")} == {6}
    assert (seen["Gap"], seen["Corrupt"], seen["NewerVersion"]) == (3, 4, 4)
    assert set(seen.values()) == {2, 3, 4, 5, 6}


def test_credentials_that_the_store_refuses_are_not_called_good(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(MemoryBucket):
        def get(self, key: str) -> Blob | None:
            raise CredentialsExpired("no usable credentials")

        def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Page:
            raise CredentialsExpired("no usable credentials")

    monkeypatch.setattr(examine, "open_bucket", lambda *_args, **_options: Refusing())
    found = run("doctor", "memory://x", "--json")
    assert (found.code, found.json["error"]) == (6, "credentials-expired")
    assert [(c["check"], c["ok"]) for c in found.json["checks"]] == [("driver", True), ("credentials", False)]


def test_an_export_to_where_no_file_can_be_is_refused_in_words(root: Path) -> None:
    answered(root)
    told = run("export", root, "s", root / "no" / "x.zip", "--json")
    assert (told.code, told.json["error"]) == (2, "refused")
    assert told.json["message"] == f"{root}/no/x.zip cannot be written: No such file or directory"
