"""A folder as a bucket: one file per object, its bytes as they are, readable with any tool.

Create writes a nameless file (O_TMPFILE; elsewhere a temporary one), syncs it and gives it its name
with link(2), which fails where the name is taken: of any number of racers one wins, and no reader ever
sees half an object. Replace and delete take a lock, and replace compares, then renames a synced
temporary file over the old one. At last the directory is synced, and the parents of new directories;
only then the call returns. A sync that fails is never repeated, because the kernel may have dropped
the very pages: the call raises Unknown.

The lock is flock(2) on a descriptor opened for this one call. Such a lock holds between threads as
well as processes; one shared descriptor would not lock out the threads that share it, and POSIX record
locks vanish when any descriptor of the file is closed.

What is the bucket's own (temporary files, locks) lives in `.snapshotter` below the root, on the same
filesystem; no key begins with a dot there. The root may be reached through symbolic links; below it one is
never followed, since it could lead anywhere: listings pass it over, all else refuses it. Who may write into
the folder can still swap one in between the look and the use; give such people roots of their own.

Differences from an object store: no nonce is kept (a link has no lost replies; the request layer
compares bytes instead); a listing has no ETags ("") because they are MD5s of content; names longer
than the filesystem takes (255 bytes a segment) are refused with InvalidId; it does not copy by itself, since
a link would bear the date of its source, by which maintenance judges ages, and be damaged along with it.
Where the filesystem ignores case (macOS, as it is delivered), ids that differ in case alone are one session.
Use a local filesystem.
"""

from __future__ import annotations

import builtins
import errno
import fcntl
import hashlib
import os
import stat
import sys
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from operator import itemgetter
from pathlib import Path

from streams.buckets.base import Blob, Entry, Head, Page, Written
from streams.buckets.names import KEY_BYTES, check_path
from streams.clock import Clock, SystemClock
from streams.errors import (
    AccessDenied,
    InvalidId,
    Misconfigured,
    PreconditionFailed,
    StreamError,
    Unknown,
    Unreachable,
    Unsupported,
)

_OWN = ".snapshotter"
_STALE_MS = 3_600_000  # a temporary file this old belongs to nobody any more
_PIECE = 1 << 24
_REMEMBERED = 10_000  # directories that a process remembers to have synced
_LOCKS = 64  # keys share this many locks, so that sessions do not wait for one another's syncs
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
_NO_TMPFILE = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)


class FileBucket:
    """A bucket in the folder `path`, which is made by the first write.

    Raises Misconfigured (no folder can ever be made there, a symbolic link below the root), AccessDenied
    (EACCES, EPERM, EROFS), InvalidId (names too long, or a key below another key), Unreachable (disk full,
    out of descriptors, I/O error on a read) and Unknown (a failed sync).
    """

    trusted = True
    copies = False

    def __init__(self, path: str | Path, clock: Clock | None = None) -> None:
        self._root = Path(path).absolute()
        self._base = str(self._root).rstrip("/")
        self._clock = clock or SystemClock()
        self._synced: set[Path] = set()  # directories whose own entry this process knows to be durable
        self._nameless = hasattr(os, "O_TMPFILE") and Path("/proc/self/fd").is_dir()
        self.url = self._root.as_uri()
        self.room = KEY_BYTES
        self._sweep()

    def get(self, key: str) -> Blob | None:
        try:
            found = _read(self._place(key))
        except OSError as error:
            raise _typed(error, key) from error
        if found is None:
            return None
        data, modified_ms = found
        return Blob(data, _etag(data), None, modified_ms, self._clock.now_ms())

    def head(self, key: str) -> Head | None:
        """As `get`: the ETag is a hash of the content, so the file is read."""
        blob = self.get(key)
        if blob is None:
            return None
        return Head(len(blob.data), blob.etag, None, blob.modified_ms, blob.date_ms)

    def put(
        self,
        key: str,
        data: bytes,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        nonce: str = "",  # noqa: ARG002 - not kept; see the top of this file
    ) -> Written:
        path = self._path(key)
        with _translated(key):
            try:
                self._make(path.parent)
                if if_absent:
                    self._create(path, key, data)
                else:
                    with self._locked(key):
                        self._replace(path, key, data, if_match)
            except FileNotFoundError:
                self._synced.clear()  # somebody removed a folder; the next attempt makes it again
                raise
        return Written(_etag(data), self._clock.now_ms())

    def copy(self, source: str, key: str, etag: str) -> bool:  # noqa: ARG002 - see the top of this file
        raise Unsupported("a folder does not copy by itself")

    def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Page:
        folder = prefix.rpartition("/")[0]
        entries: builtins.list[Entry] = []
        more = False
        with _translated(prefix):
            # `_place` refuses what would leave the root.
            path = self._place(folder) if "/" in prefix else self._base
            for key, file in self._walk(path, f"{folder}/" if folder else "", prefix, after):
                try:
                    found = file.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue  # deleted since its name was read
                if len(entries) == limit:
                    more = True
                    break
                entries.append(Entry(key, found.st_size, "", found.st_mtime_ns // 1_000_000))
        resume = entries[-1].key if entries else after
        return Page(tuple(entries), more, resume, self._clock.now_ms())

    def delete(self, key: str) -> None:
        """Empty folders stay: removing one would race with the create of its next object."""
        path = self._path(key)
        with _translated(key):
            if not self._root.is_dir():
                return
            with self._locked(key), suppress(FileNotFoundError, NotADirectoryError):
                path.unlink()
                _sync_directory(path.parent)

    def close(self) -> None:
        """Nothing to let go of: every call closes what it opened."""

    # --- names ------------------------------------------------------------------------------------------

    def _path(self, key: str) -> Path:
        with _translated(key):
            return Path(self._place(key))

    def _place(self, key: str) -> str:
        """Where the key's file is, or would be. As text: a rebuild asks for hundreds of thousands."""
        if check_path(key, "the key").startswith("."):
            raise InvalidId(f"the key {key!r} begins with a dot; such names are the file bucket's own")
        path = self._base
        for segment in key.split("/"):
            path = f"{path}/{segment}"
            try:
                found = os.lstat(path)
            except (FileNotFoundError, NotADirectoryError):
                continue  # nothing is there yet
            if stat.S_ISLNK(found.st_mode):
                raise _link(path)
        return path

    def _walk(
        self, path: str, folder: str, prefix: str, after: str
    ) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Files with their keys, in byte order of these; folders that cannot matter are not opened."""
        # What sorts before `shown`, as a file or as a folder, was listed already: there may be thousands.
        shown = after[len(folder) :].partition("/")[0] if after.startswith(folder) else ""
        try:
            with os.scandir(path) as found:
                own = [e for e in found if f"{e.name}/" >= shown and not e.is_symlink()]
                names = [(f"{e.name}/" if e.is_dir(follow_symlinks=False) else e.name, e) for e in own]
        except (FileNotFoundError, NotADirectoryError):
            return
        # With its slash, a folder's name sorts exactly where the keys below it belong.
        names.sort(key=itemgetter(0))
        for name, entry in names:
            key = folder + name
            if not folder and name.startswith("."):
                continue
            if name.endswith("/"):
                if key.startswith(prefix) and (key > after or after.startswith(key)):
                    yield from self._walk(entry.path, key, prefix, after)
            elif key.startswith(prefix) and key > after:
                yield key, entry

    # --- writing ----------------------------------------------------------------------------------------

    def _create(self, path: Path, key: str, data: bytes) -> None:
        try:
            if not (self._nameless and self._link_nameless(path, data)):
                self._link_named(path, data)
        except FileExistsError:
            if path.is_dir():
                raise
            # Whoever wrote it may not have synced it yet; nothing is told about it before it is durable.
            _sync_directory(path.parent)
            raise PreconditionFailed(f"{key} exists") from None
        _sync_directory(path.parent)

    def _link_nameless(self, path: Path, data: bytes) -> bool:
        """False where this filesystem has no nameless files; then nothing was written."""
        try:
            file = os.open(path.parent, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o666)
        except OSError as error:
            if error.errno not in _NO_TMPFILE or not path.parent.is_dir():
                raise
            self._nameless = False
            return False
        with _closing(file), _opened(path.parent) as folder:
            self._fill(file, data)
            # Python follows the link in /proc only where it is given a directory descriptor.
            os.link(f"/proc/self/fd/{file}", path.name, src_dir_fd=folder, dst_dir_fd=folder)
        return True

    def _link_named(self, path: Path, data: bytes) -> None:
        temporary = self._temporary(data)
        try:
            os.link(temporary, path)
        except OSError as error:
            if error.errno in (errno.EPERM, errno.EOPNOTSUPP):
                raise Unsupported(f"the filesystem of {self._root} has no hard links; use another") from error
            raise
        finally:
            temporary.unlink()

    def _replace(self, path: Path, key: str, data: bytes, if_match: str | None) -> None:
        """To be called under the key's lock."""
        if if_match is not None:
            found = _read(path)
            if found is None or _etag(found[0]) != if_match:
                raise PreconditionFailed(f"{key} is not the version {if_match}")
        temporary = self._temporary(data)
        try:
            temporary.rename(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        _sync_directory(path.parent)

    def _temporary(self, data: bytes) -> Path:
        """A full, synced file that has no key yet."""
        folder = self._root / _OWN
        self._make(folder)
        path = folder / f"{os.getpid()}-{threading.get_ident()}-{self._clock.token()}.tmp"
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except FileExistsError:  # left by a crashed process that had our number
            return self._temporary(data)
        try:
            with _closing(file):
                self._fill(file, data)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return path

    def _fill(self, file: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(file, view) :]
        # One clock dates everything: ages are differences between this and `date_ms`.
        now = self._clock.now_ms() * 1_000_000
        os.utime(file, ns=(now, now))
        _sync(file)

    def _make(self, folder: Path) -> None:
        """Make the folder and make its entry durable, also where another process made it just now."""
        if folder in self._synced:
            return
        if folder != self._root:
            self._make(folder.parent)
            if folder.is_symlink():
                raise _link(folder)
            folder.mkdir(exist_ok=True)
        else:
            self._make_root()
        _sync_directory(folder.parent)
        if len(self._synced) >= _REMEMBERED:
            self._synced.clear()  # a process may see sessions without end; to sync once more does no harm
        self._synced.add(folder)

    def _make_root(self) -> None:
        """Raises Misconfigured, or AccessDenied, where no later attempt would fare better."""
        missing = [parent for parent in self._root.parents if not parent.is_dir()]
        for folder in (*reversed(missing), self._root):
            try:
                folder.mkdir(exist_ok=True)
            except OSError as error:
                told = f"the store's folder {self._root} cannot be made: {folder}: {error.strerror}"
                if error.errno in _DENIED:
                    raise AccessDenied(f"{told}; give this user access, or name another folder") from error
                # A parent that was there a moment ago was removed by somebody: that is worth another attempt.
                if error.errno == errno.ENOENT and not folder.parent.is_dir():
                    raise
                if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EEXIST):
                    raise Misconfigured(f"{told}; name another folder") from error
                raise
            if folder != self._root:
                _sync_directory(folder.parent)

    @contextmanager
    def _locked(self, key: str) -> Iterator[None]:
        self._make(self._root / _OWN)
        path = self._root / _OWN / f"{zlib.crc32(key.encode()) % _LOCKS:02}.lock"
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        with _closing(file):  # closing unlocks
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _sweep(self) -> None:
        """Remove temporary files that a crash left behind; a live writer's are younger."""
        oldest = (self._clock.now_ms() - _STALE_MS) * 1_000_000
        folder = self._root / _OWN
        if folder.is_symlink():
            return
        with suppress(OSError):  # housekeeping; a read-only folder can still be read
            for path in folder.glob("*.tmp"):
                if path.stat().st_mtime_ns < oldest:
                    path.unlink(missing_ok=True)


def _link(path: str | Path) -> Misconfigured:
    return Misconfigured(f"{path} is a symbolic link below the store's folder and is not followed; remove it")


def _etag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


def _read(path: str | Path) -> tuple[bytes, int] | None:
    """The bytes and the time of writing (epoch ms), both of one version; None where there is no such file."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        found = os.fstat(file)
        data = piece = os.read(file, found.st_size + 1)
        while piece and len(data) != found.st_size:
            piece = os.read(file, _PIECE)
            data += piece
    except IsADirectoryError:
        return None
    finally:
        os.close(file)
    return data, found.st_mtime_ns // 1_000_000


@contextmanager
def _closing(file: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.close(file)


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with _closing(file):
        yield file


def _sync_directory(folder: Path) -> None:
    with _opened(folder) as file:
        _sync(file)


def _sync(file: int) -> None:
    try:
        if sys.platform == "darwin":
            fcntl.fcntl(file, fcntl.F_FULLFSYNC)  # there, fsync leaves the data in the drive's cache
        else:
            os.fdatasync(file)
    except OSError as error:
        raise Unknown(f"a sync to disk failed ({error.strerror}); the write may or may not last") from error


@contextmanager
def _translated(key: str) -> Iterator[None]:
    """The border: no OSError leaves this file."""
    try:
        yield
    except StreamError:
        raise
    except OSError as error:
        raise _typed(error, key) from error


def _typed(error: OSError, key: str) -> StreamError:
    if error.errno in _DENIED:
        return AccessDenied(f"{key}: {error.strerror}; give this user access to the store's folder")
    if error.errno == errno.ENAMETOOLONG:
        return InvalidId(f"{key[:60]}…: a name is longer than the filesystem takes; use a shorter session id")
    if error.errno in (errno.ENOTDIR, errno.EISDIR, errno.EEXIST):
        return InvalidId(f"{key}: one key would be the folder of another")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Unreachable(f"{key}: the disk is full; nothing was written", retry_after=30.0)
    return Unreachable(f"{key}: {error.strerror or error}")
