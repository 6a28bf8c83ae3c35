"""Session ids, prefixes and URLs reach nothing outside their root, and no other session, through any door."""

from __future__ import annotations

import io
import os
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import snapshotter
from snapshotter import Corrupt, Database, InvalidId, Misconfigured, maintenance
from snapshotter.cli.app import cli
from snapshotter.errors import Damaged, StreamError
from snapshotter.maintenance import Keep
from snapshotter.rebuilding import rebuild
from streams import keys
from streams.buckets.base import Bucket
from streams.buckets.file import FileBucket
from streams.buckets.memory import MemoryBucket, Space
from streams.buckets.names import check_listing
from streams.buckets.url import located, open_bucket
from streams.testing.faults import FaultyBucket

PIECES = (
    *("..", ".", "/", "//", "../", "/..", "\\", "..\\", "\0", "\n", "\r", "~", ":", " ", "*", "?", "$", "-"),
    *("%2e", "%2E%2E", "%2f", "%2F", "%252f", "%00", "%", "%c0%ae", "..%2f", "&", "+", "@", "=", "#"),
    *(
        "\u2024",
        "\uff0e",
        "\u2025",
        "\uff0f",
        "\u2215",
        "\u202e",
        "e\u0301",
        "é",
        "ﬀ",
        "İ",
        "\u200b",
        "\ufeff",
    ),
    *("/etc/passwd", "sessions", "in", "out", "snapshot.json", ".snapshotter", "victim", "a", "A", "x" * 900),
)
HOSTILE = (
    *("../victim", "../../victim", "/etc/passwd", "..\\victim", "a/../../victim", "....//", "..%2fvictim"),
    *("%2e%2e/victim", "victim\0", "victim/", "./victim", ".snapshotter", "VICTIM", "\uff0e\uff0e/victim"),
    *(
        "\u2024\u2024/victim",
        "victim/snapshot.json",
        "../sessions/victim",
        "vict%69m",
        " victim",
        "victim.",
        "-",
    ),
)
hostile = st.one_of(st.lists(st.sampled_from(PIECES), max_size=6).map("".join), st.text(max_size=30))
quickly = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
VICTIM = "victim"


def answer(db: Database, session: str) -> None:
    with db.boot(session, takeover=True) as booted:
        for turn in booted.turns():
            with turn:
                for chunk in ({"type": "start"}, {"type": "finish", "finishReason": "stop"}):
                    turn.write(chunk)


def archive(session: str, name: str = "", data: bytes = b"{}") -> io.BytesIO:
    """A file to be imported as this session, with one object if it has a name."""
    file = io.BytesIO()
    listed = [{"name": name, "bytes": len(data), "sha256": sha256(data).hexdigest()}] if name else []
    manifest = {"format": "snapshotter-session", "version": 1, "session": session, "objects": listed}
    with zipfile.ZipFile(file, "w") as made:
        if name:
            made.writestr(zipfile.ZipInfo(name), data)
        made.writestr("manifest.json", orjson.dumps(manifest))
    return file


def doors(db: Database, session: str) -> Iterator[Callable[[], Any]]:
    """Everything that takes a session's id."""
    yield lambda: db.send(session, {"id": "u1", "role": "user", "parts": []})
    yield lambda: answer(db, session)
    yield lambda: db.edit(session, "u1", "b")
    yield lambda: db.stop(session)
    yield lambda: db.regenerate(session)
    yield lambda: db.approve(session, "call", approved=True)
    yield lambda: db.history(session)
    yield lambda: list(db.follow(session, timeout=0))
    yield lambda: list(db.records(session, "in"))
    yield lambda: db.peek(session).close()
    yield lambda: db.boot(receipt={"session": session, "id": 1}, takeover=True).close()
    yield lambda: list(db.sessions(prefix=session))
    yield lambda: maintenance.maintain(db, [session], keep=Keep(turns=1))
    yield lambda: maintenance.redact(db, session, "u1")
    yield lambda: maintenance.fork(db, VICTIM, f"{session}-fork")
    yield lambda: maintenance.fork(db, session, session)
    yield lambda: maintenance.export(db, session, io.BytesIO())
    yield lambda: maintenance.import_(db, archive(session, "out/x.jsonl"))
    yield lambda: db.close_session(session)
    yield lambda: maintenance.delete(db, session)
    yield lambda: db.create(session, messages=[])


def own_keys(session: str) -> set[str]:
    """How the keys of a session's objects begin; none for an id that cannot be stored."""
    with suppress(InvalidId):
        return {f"{folder}/{keys.encode_sid(session)}/" for folder in keys.FOLDERS}
    return set()


# -- ids -------------------------------------------------------------------------------------------------


@quickly
@given(hostile)
def test_no_id_writes_or_reads_anything_but_its_own_session(session: str) -> None:
    space = Space()
    owner = Database(MemoryBucket(space=space, prefix="base/root"))
    owner.send(VICTIM, "private")
    answer(owner, VICTIM)
    for key in ("base/victim", "base/root2/sessions/x/snapshot.json", "victim", "sessions/x/snapshot.json"):
        MemoryBucket(space=space).put(key, b"not yours")
    before = {key: blob.data for key, blob in space.objects.items()}
    bucket = FaultyBucket(MemoryBucket(space=space, prefix="base/root"))
    db = Database(bucket)
    for door in doors(db, session):
        with suppress(StreamError):
            door()
    fork = own_keys(f"{session}-fork") | own_keys(VICTIM)  # which is forked
    start = keys.sessions_prefix(keys.encode_start(session)) if own_keys(session) else "sessions/"
    for call in bucket.calls:
        own = own_keys(session) | fork | {start, "sessions/"}
        assert any(call.key.startswith(prefix) for prefix in own), call
    if session != VICTIM:
        assert {k: blob.data for k, blob in space.objects.items() if k in before} == before
    new = [key.removeprefix("base/root/") for key in space.objects if key not in before]
    assert all(any(key.startswith(prefix) for prefix in own_keys(session) | fork) for key in new)


@given(hostile, hostile)
@quickly
def test_two_ids_are_two_sessions(one: str, other: str) -> None:
    assert one == other or not own_keys(one) & own_keys(other)
    assert not any(a.startswith(b) for a in own_keys(one) for b in own_keys(other) if a != b)


def test_on_every_backend_hostile_ids_are_sessions_of_their_own(bucket_factory: Callable[[], Bucket]) -> None:
    db = Database(bucket_factory())
    for session in HOSTILE:
        db.send(session, {"id": "u", "role": "user", "parts": [{"type": "text", "text": session}]})
    for session in HOSTILE:
        (record,) = db.records(session, "in")
        assert record["message"]["parts"][0]["text"] == session


@pytest.mark.parametrize("driver", ["s3", "minio", "obstore"])
def test_on_a_real_server_nothing_lands_outside_the_root(seaweed: Any, driver: str) -> None:
    base = f"border-{os.urandom(4).hex()}"
    everything = seaweed.s3()
    everything.put(f"{base}/victim", b"not yours")
    bucket = getattr(seaweed, driver)(f"{base}/root/of")
    with Database(bucket) as db:
        for session in HOSTILE:
            db.send(session, "x")
            answer(db, session)
    found = {entry.key for entry in everything.list(f"{base}/").entries} - {f"{base}/victim"}
    everything.close()
    assert len(found) >= 3 * len(HOSTILE)
    allowed = {"capabilities.json"} | {p for session in HOSTILE for p in own_keys(session)}
    for key in found:
        below = key.removeprefix(f"{base}/root/of/")
        assert below != key
        assert any(below.startswith(prefix) for prefix in allowed), key


# -- a folder --------------------------------------------------------------------------------------------


def tree(folder: Path) -> dict[str, bytes | None]:
    """Everything below the folder but what is in its `root`."""
    found = [path for path in folder.rglob("*") if not path.is_relative_to(folder / "root")]
    return {str(path): path.read_bytes() if path.is_file() else None for path in found}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A folder with a `root`, and beside it what nobody may touch."""
    with snapshotter.open(tmp_path / "root") as db:
        db.send(VICTIM, "private")
        answer(db, VICTIM)
    (tmp_path / "victim").write_bytes(b"not yours")
    (tmp_path / "sessions/victim").mkdir(parents=True)
    (tmp_path / "sessions/victim/snapshot.json").write_bytes(b"{}")
    return tmp_path


@settings(quickly, max_examples=20)  # each writes, and syncs, some dozens of files
@given(hostile)
def test_no_id_leaves_a_folder(session: str) -> None:
    with tempfile.TemporaryDirectory() as made:
        base = Path(made)
        (base / "victim").write_bytes(b"not yours")
        before = tree(base)
        with snapshotter.open(base / "root") as db:
            db.send(VICTIM, "private")
            for door in doors(db, session):
                with suppress(StreamError):
                    door()
        assert tree(base) == before


@pytest.mark.parametrize("session", HOSTILE)
def test_no_command_leaves_a_folder(base: Path, session: str) -> None:
    root, before = str(base / "root"), tree(base)
    listed = base / "root" / "listed.txt"
    listed.write_text(f"{session.replace(chr(0), '')}\n", encoding="utf-8")
    commands = [
        ["send", root, "--", session, "hi"],
        ["history", root, "--", session],
        ["log", root, "--", session, "in"],
        ["ls", root, "--prefix", session],
        ["verify", root, "--", session],
        ["stop", root, "--", session],
        ["fork", root, "--", VICTIM, f"{session}x"],
        ["redact", root, "--", session, "u1"],
        ["rebuild", root, "--sessions-from", str(listed), "--jobs", "1", "--write"],
        ["delete", root, "--yes", "--", session],
    ]
    for command in commands:
        assert CliRunner().invoke(cli, command).exit_code in (0, 1, 2), command
    assert tree(base) == before
    with snapshotter.open(base / "root") as db:
        assert db.history(VICTIM)[0]["parts"][0]["text"] == "private"


def test_a_list_of_sessions_to_be_rebuilt_leads_nowhere(base: Path) -> None:
    before = tree(base)
    summary = rebuild(base / "root", mode="write", sessions=[*HOSTILE, "..", VICTIM], jobs=1)
    assert summary.statuses["failed"] >= 1  # the one that is no id
    assert tree(base) == before


# -- symbolic links --------------------------------------------------------------------------------------


@pytest.mark.parametrize("link", ["in", "in/s", "in/s/1"])
def test_a_link_below_the_root_is_never_followed(tmp_path: Path, link: str) -> None:
    outside = tmp_path / "outside"
    (outside / "s").mkdir(parents=True)
    (outside / "s/1").write_bytes(b"private")
    place = tmp_path / "root" / link
    place.parent.mkdir(parents=True)
    place.symlink_to(outside / link.removeprefix("in").removeprefix("/"))
    before = tree(tmp_path)
    bucket = FileBucket(tmp_path / "root")
    calls: list[Callable[[], Any]] = [
        lambda: bucket.get("in/s/1"),
        lambda: bucket.head("in/s/1"),
        lambda: bucket.put("in/s/1", b"x"),
        lambda: bucket.put("in/s/1", b"x", if_absent=True),
        lambda: bucket.put("in/s/1", b"x", if_match='"x"'),
        lambda: bucket.delete("in/s/1"),
    ]
    for call in calls:
        with pytest.raises(Misconfigured, match="symbolic link"):
            call()
    assert bucket.list("").entries == ()
    assert tree(tmp_path) == before


def test_a_link_in_the_place_of_the_buckets_own_folder(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    old = outside / "1-1-old.tmp"
    old.write_bytes(b"private")
    os.utime(old, (0, 0))
    (tmp_path / "root").mkdir()
    (tmp_path / "root/.snapshotter").symlink_to(outside)
    bucket = FileBucket(tmp_path / "root")
    with pytest.raises(Misconfigured, match="symbolic link"):
        bucket.put("a", b"1")
    assert old.read_bytes() == b"private"
    assert [path.name for path in outside.iterdir()] == [old.name]


def test_the_root_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "root").symlink_to(tmp_path / "real")
    FileBucket(tmp_path / "root").put("in/a", b"1", if_absent=True)
    assert (tmp_path / "real/in/a").read_bytes() == b"1"


# -- keys, prefixes, URLs, archives ----------------------------------------------------------------------


@quickly
@given(hostile)
def test_a_prefix_of_a_url_is_plain_or_refused(path: str) -> None:
    for url in (f"s3://bucket/{path}", f"s3+obstore://bucket/{path}", f"minio://127.0.0.1:9/bucket/{path}"):
        with suppress(InvalidId):
            found = located(url, env={})
            assert found.bucket == "bucket"
            # What stands behind a "?" is a query; it was known, or it would have been refused.
            assert found.prefix == path.partition("?")[0].removeprefix("/").removesuffix("/")
            assert not set(found.prefix.split("/")) & {".", ".."}
            assert found.prefix.isascii()


@quickly
@given(hostile)
def test_a_file_url_names_one_absolute_folder(path: str) -> None:
    with suppress(InvalidId):
        bucket = open_bucket(f"file:///tmp/base/{path}", env={})
        assert isinstance(bucket, FileBucket)
        assert bucket._root.is_relative_to("/tmp/base")
        assert ".." not in bucket._root.parts


@pytest.mark.parametrize("prefix", ["..", ".", "in/..", "in/../out/", "/in/", "in//", "in/a b", "ü", "in/\0"])
def test_no_listing_leaves_its_root(prefix: str, stores: list[Bucket]) -> None:
    with pytest.raises(InvalidId):
        check_listing(prefix)
    for bucket in stores:
        with pytest.raises(InvalidId):
            bucket.list(prefix)


@pytest.fixture
def stores(moto_server: Any) -> Iterator[list[Bucket]]:
    found = [MemoryBucket(), *(getattr(moto_server, driver)("p") for driver in ("s3", "minio", "obstore"))]
    yield found
    for bucket in found:
        bucket.close()


def test_a_listing_takes_whole_segments_and_the_beginning_of_one() -> None:
    for prefix in ("", "in/", "in/a%2Fb/", "in/a", "sessions/acme%2F", "a/b/c"):
        assert check_listing(prefix) == prefix


@quickly
@given(hostile.filter(lambda name: name not in ("", "snapshot.json", "manifest.json")))
def test_an_archives_names_are_of_a_session_or_refused(name: str) -> None:
    db = Database(MemoryBucket())
    with pytest.raises((Corrupt, UnicodeEncodeError) if "\ud800" <= max(name) <= "\udfff" else Corrupt):
        maintenance.import_(db, archive("s", name))
    assert list(db.store.entries("")) == []


@quickly
@given(hostile)
def test_an_archive_of_a_hostile_session_is_imported_as_its_own(session: str) -> None:
    data = b""
    with suppress(InvalidId):
        sid = keys.encode_sid(session)
        source, target = Database(MemoryBucket()), Database(MemoryBucket())
        source.send(session, "x")
        answer(source, session)
        file = io.BytesIO()
        maintenance.export(source, session, file)
        data = file.getvalue()
        maintenance.import_(target, io.BytesIO(data))
        assert {e.key for e in target.store.entries("")} == {e.key for e in source.store.entries("")}
        assert all(f"/{sid}/" in e.key for e in target.store.entries(""))
    if not data:
        with pytest.raises((InvalidId, Damaged)):
            maintenance.import_(Database(MemoryBucket()), archive(session, "snapshot.json"))
