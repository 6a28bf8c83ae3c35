"""What is special to a folder: durability, processes, litter, hostile names, errors of the disk."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from streams.buckets import file as file_module
from streams.buckets.file import FileBucket
from streams.errors import (
    AccessDenied,
    InvalidId,
    Misconfigured,
    PreconditionFailed,
    Unknown,
    Unreachable,
    Unsupported,
)
from streams.store import Store
from streams.testing import FakeClock


@pytest.fixture(params=["nameless", "named"])
def bucket(request, tmp_path, monkeypatch) -> FileBucket:
    """Both ways to create: with O_TMPFILE, and as on systems that lack it."""
    if request.param == "named":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    return FileBucket(tmp_path / "deep" / "root", FakeClock())


def failing(number: int, times: int = 1):
    """A stand-in that raises this OSError `times` times."""

    def call(*args, **kwargs):
        raise OSError(number, os.strerror(number))

    return call


def litter(bucket: FileBucket) -> list[str]:
    return [p.name for p in bucket._root.rglob("*.tmp")]


def test_objects_are_plain_files(bucket) -> None:
    bucket.put("in/s/1.jsonl", b'{"v":1}\n', if_absent=True, nonce="n")
    assert (bucket._root / "in/s/1.jsonl").read_bytes() == b'{"v":1}\n'
    assert litter(bucket) == []


def test_what_comes_after_a_key_is_what_a_sorted_list_says(bucket) -> None:
    """A folder stands where its name and a slash sort: behind `a-b` and `a.b`, before `a0`."""
    keys = ["a-b", "a.b/x", "a/b/c", "a/b-c", "a/b.c/x", "a0", "b", "b-/z"]
    for key in keys:
        bucket.put(key, b"1")
    starts = ["", "a", "a/", "a/b", "a/b-", "a/b/c", "a/b/c~", "a-", "a-b/x", "a.b/", "a~", "b-", "b/", "z"]
    for after in (*starts, *keys):
        for prefix in ("", "a", "a/", "a/b", "b"):
            shown = [entry.key for entry in bucket.list(prefix, after=after).entries]
            assert shown == sorted(key for key in keys if key.startswith(prefix) and key > after), (
                prefix,
                after,
            )


def test_a_file_that_is_read_in_pieces_is_whole(bucket, monkeypatch) -> None:
    data = bytes(range(256)) * 9
    bucket.put("a", data)
    bucket.put("empty", b"")
    monkeypatch.setattr(file_module.os, "read", lambda file, size, read=os.read: read(file, min(size, 100)))
    assert bucket.get("a").data == data
    assert bucket.get("empty").data == b""


def test_a_missing_root_reads_as_empty_and_is_made_by_the_first_write(bucket) -> None:
    assert bucket.get("a") is None
    assert bucket.head("a") is None
    assert bucket.list("").entries == ()
    bucket.delete("a")
    assert not bucket._root.parent.exists(), "reading made a folder"
    with pytest.raises(PreconditionFailed):
        bucket.put("a", b"1", if_match='"x"')
    bucket.put("x/a", b"1", if_absent=True)
    assert bucket.get("x/a").data == b"1"


def test_a_folder_that_vanishes_is_made_again(bucket) -> None:
    bucket.put("x/a", b"1", if_absent=True)
    (bucket._root / "x/a").unlink()
    (bucket._root / "x").rmdir()
    store = Store(bucket, FakeClock())
    store.put_once("x/a", b"2", if_absent=True, nonce="n")
    assert bucket.get("x/a").data == b"2"


@pytest.mark.parametrize(
    "key", ["../a", "a/../../b", "/a", "a//b", "", ".", "a/.", ".snapshotter/x", ".x", "a\0b", "a b", "ü"]
)
def test_no_key_leaves_the_root_or_meets_the_buckets_own_files(bucket, key) -> None:
    for call in (
        lambda: bucket.get(key),
        lambda: bucket.put(key, b"", if_absent=True),
        lambda: bucket.delete(key),
        lambda: bucket.list(f"{key}/"),
    ):
        with pytest.raises(InvalidId):
            call()


def test_one_key_below_another_is_refused(bucket) -> None:
    bucket.put("a/b", b"1", if_absent=True)
    for key in ("a", "a/b/c"):
        for condition in ({"if_absent": True}, {}):
            with pytest.raises(InvalidId, match="folder of another"):
                bucket.put(key, b"2", **condition)
    assert bucket.list("").entries[0].key == "a/b"
    assert litter(bucket) == []


def test_a_name_longer_than_the_filesystem_takes_is_refused(bucket) -> None:
    with pytest.raises(InvalidId, match="shorter"):
        bucket.put(f"in/{'x' * 300}/1", b"1", if_absent=True)
    with pytest.raises(InvalidId, match="shorter"):
        bucket.get(f"in/{'x' * 300}/1")


def test_what_is_acknowledged_was_synced_file_first_and_then_its_folders(bucket, monkeypatch) -> None:
    synced: list[str] = []
    real = os.fdatasync

    def watch(file: int) -> None:
        path = Path(f"/proc/self/fd/{file}").readlink()
        synced.append("file" if not path.is_dir() else os.path.relpath(path, bucket._root))
        real(file)

    monkeypatch.setattr(os, "fdatasync", watch)
    bucket.put("x/y/a", b"1", if_absent=True)
    assert [s for s in synced if s != ".snapshotter"][-2:] == ["file", "x/y"]
    assert {"../..", "..", ".", "x"} <= set(synced), "a new folder's entry stands in its parent"
    synced.clear()
    bucket.put("x/y/b", b"1", if_absent=True)
    assert synced == ["file", "x/y"]
    synced.clear()
    with pytest.raises(PreconditionFailed):
        bucket.put("x/y/b", b"1", if_absent=True)
    assert synced[-1] == "x/y", "another's object may not be durable yet when it is reported"
    synced.clear()
    bucket.delete("x/y/b")
    assert synced[-1] == "x/y"


@pytest.mark.parametrize("condition", [{"if_absent": True}, {}])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_failed_sync_is_unknown_and_not_repeated(bucket, monkeypatch, condition, number) -> None:
    bucket.put("x/first", b"1")
    calls = []
    monkeypatch.setattr(os, "fdatasync", lambda file: calls.append(file) or failing(number)())
    with pytest.raises(Unknown, match="sync"):
        Store(bucket, FakeClock()).put("x/a", b"1") if not condition else bucket.put("x/a", b"1", **condition)
    assert len(calls) == 1
    monkeypatch.undo()
    assert litter(bucket) == []


@pytest.mark.parametrize("condition", [{"if_absent": True}, {}])
@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, Unreachable),
        (errno.EDQUOT, Unreachable),
        (errno.EIO, Unreachable),
        (errno.EACCES, AccessDenied),
        (errno.EROFS, AccessDenied),
    ],
)
def test_disk_errors_are_typed_and_leave_nothing_behind(bucket, monkeypatch, condition, number, kind) -> None:
    bucket.put("x/old", b"1")
    monkeypatch.setattr(os, "write", failing(number))
    with pytest.raises(kind):
        bucket.put("x/a", b"2", **condition)
    with pytest.raises(kind):
        bucket.put("x/old", b"2")
    monkeypatch.undo()
    assert [e.key for e in bucket.list("").entries] == ["x/old"]
    assert bucket.get("x/old").data == b"1"
    assert litter(bucket) == []


def test_short_writes_are_continued(bucket, monkeypatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda file, data: real(file, bytes(data)[:3]))
    bucket.put("a", b"0123456789", if_absent=True)
    assert bucket.get("a").data == b"0123456789"


def test_a_filesystem_without_nameless_files_gets_named_ones(tmp_path, monkeypatch) -> None:
    bucket = FileBucket(tmp_path)
    real = os.open
    refused = []

    def without(path, flags, *rest, **named):
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            refused.append(path)
            raise OSError(errno.EOPNOTSUPP, "no")
        return real(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", without)
    bucket.put("a", b"1", if_absent=True)
    bucket.put("b", b"1", if_absent=True)
    assert len(refused) == 1, "asked once, then remembered"
    with pytest.raises(PreconditionFailed):
        bucket.put("a", b"2", if_absent=True)
    assert bucket.get("a").data == b"1"
    assert litter(bucket) == []


def test_a_filesystem_without_hard_links_is_unsupported(tmp_path, monkeypatch) -> None:
    bucket = FileBucket(tmp_path)
    bucket._nameless = False
    monkeypatch.setattr(os, "link", failing(errno.EPERM))
    with pytest.raises(Unsupported, match="hard links"):
        bucket.put("a", b"1", if_absent=True)
    assert litter(bucket) == []


def test_stale_temporary_files_are_swept_and_young_ones_left(tmp_path) -> None:
    clock = FakeClock()
    FileBucket(tmp_path, clock).put("a", b"1")
    own = tmp_path / ".snapshotter"
    for name, age in (("old.tmp", 3601), ("young.tmp", 3599)):
        (own / name).write_bytes(b"half")
        then = (clock.now_ms() - age * 1000) * 1_000_000
        os.utime(own / name, ns=(then, then))
    FileBucket(tmp_path, clock)
    assert [p.name for p in own.glob("*.tmp")] == ["young.tmp"]


def test_a_listing_shows_keys_alone_and_opens_no_file(bucket, monkeypatch) -> None:
    for key in ("b/1", "b/2", "a"):
        bucket.put(key, b"xyz")
    (bucket._root / ".snapshotter/x.tmp").write_bytes(b"")
    (bucket._root / ".DS_Store").write_bytes(b"")
    monkeypatch.setattr(Path, "open", failing(errno.EACCES))
    assert [(e.key, e.size, e.etag) for e in bucket.list("").entries] == [
        ("a", 3, ""),
        ("b/1", 3, ""),
        ("b/2", 3, ""),
    ]


def test_times_come_from_one_clock(bucket) -> None:
    clock = bucket._clock
    written = bucket.put("a", b"1", if_absent=True)
    clock.advance(100)
    blob = bucket.get("a")
    assert blob.modified_ms == written.date_ms == bucket.list("").entries[0].modified_ms
    assert blob.date_ms - blob.modified_ms == 100_000


WORKER = textwrap.dedent(
    """
    import sys
    from streams.buckets.file import FileBucket
    from streams.errors import PreconditionFailed

    root, rounds = sys.argv[1], int(sys.argv[2])
    bucket = FileBucket(root)
    created = 0
    for n in range(rounds):
        try:
            bucket.put(f"race/{n}", b"x", if_absent=True)
            created += 1
        except PreconditionFailed:
            pass
        while True:
            blob = bucket.get("counter")
            try:
                bucket.put("counter", str(int(blob.data) + 1).encode(), if_match=blob.etag)
                break
            except PreconditionFailed:
                pass
    print(created)
    """
)


def test_conditions_hold_between_processes(tmp_path) -> None:
    rounds, workers = 100, 4
    bucket = FileBucket(tmp_path / "root")
    bucket.put("counter", b"0", if_absent=True)
    command = [sys.executable, "-c", WORKER, str(tmp_path / "root"), str(rounds)]
    environment = {**os.environ, "PYTHONPATH": str(Path(file_module.__file__).parents[2])}
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) for _ in range(workers)
    ]
    created = [int(process.communicate(timeout=120)[0]) for process in running]
    assert sum(created) == rounds, "each key was created once"
    assert bucket.get("counter").data == str(rounds * workers).encode(), "no update was lost"


def test_a_writer_killed_at_any_moment_leaves_whole_objects_only(tmp_path) -> None:
    code = textwrap.dedent(
        """
        import sys
        from streams.buckets.file import FileBucket

        bucket = FileBucket(sys.argv[1])
        for n in range(1000000):
            body = str(n).encode() * 20000
            bucket.put(f"x/{n:06}", body, if_absent=True)
            bucket.put("x/latest", body)
            print(n, flush=True)
        """
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(file_module.__file__).parents[2])}
    for attempt in range(3):
        root = tmp_path / str(attempt)
        with subprocess.Popen(
            [sys.executable, "-c", code, str(root)], stdout=subprocess.PIPE, env=environment, text=True
        ) as process:
            assert process.stdout
            acknowledged = [int(process.stdout.readline()) for _ in range(5 + attempt)][-1]
            process.kill()
        bucket = FileBucket(root)
        for entry in bucket.list("x/").entries:
            data = bucket.get(entry.key).data
            number = data[: len(data) // 20000]
            assert data == number * 20000
        for number in range(acknowledged + 1):
            assert bucket.get(f"x/{number:06}") is not None, "acknowledged and lost"


@pytest.mark.parametrize("condition", [{"if_absent": True}, {}])
@pytest.mark.parametrize("below", ["", "x", "x/y"])
def test_a_folder_that_cannot_be_made_is_told_at_once(tmp_path, condition, below) -> None:
    (tmp_path / "file").write_bytes(b"")
    bucket = FileBucket(tmp_path / "file" / below)
    with pytest.raises(Misconfigured, match="cannot be made") as caught:
        bucket.put("a", b"1", **condition)
    assert str(bucket._root) in str(caught.value)


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOENT, Misconfigured),
        (errno.EPERM, AccessDenied),
        (errno.EACCES, AccessDenied),
        (errno.EROFS, AccessDenied),
        (errno.ENOSPC, Unreachable),
    ],
)
def test_why_a_folder_is_not_made_decides_whether_to_try_again(tmp_path, monkeypatch, number, kind) -> None:
    bucket, clock = FileBucket(tmp_path / "new" / "root"), FakeClock()
    monkeypatch.setattr(Path, "mkdir", failing(number))
    began = clock.monotonic()
    with pytest.raises(kind) as caught:
        Store(bucket, clock).put("a", b"1")
    assert type(caught.value) is kind
    assert (clock.monotonic() > began) is (kind is Unreachable), "only what may pass is tried again"


def test_a_parent_removed_meanwhile_is_made_again(tmp_path, monkeypatch) -> None:
    bucket, real, calls = FileBucket(tmp_path / "new" / "root"), Path.mkdir, []

    def removed_once(path: Path, **options: bool) -> None:
        calls.append(path)
        if len(calls) == 2:
            calls[0].rmdir()
        real(path, **options)

    monkeypatch.setattr(Path, "mkdir", removed_once)
    Store(bucket, FakeClock()).put("a", b"1")
    assert bucket.get("a").data == b"1"


def test_a_name_longer_than_the_filesystem_takes_is_refused_by_every_call(tmp_path: Path) -> None:
    bucket, name = FileBucket(tmp_path), f"in/{'x' * 300}"
    bucket.put("in/there/a", b"x")
    calls = [
        lambda: bucket.get(f"{name}/a"),
        lambda: bucket.put(f"{name}/a", b"x"),
        lambda: bucket.list(f"{name}/"),
        lambda: bucket.delete(f"{name}/a"),
    ]
    for call in calls:
        with pytest.raises(InvalidId, match="longer than the filesystem takes"):
            call()
