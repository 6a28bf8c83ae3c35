"""Export and import: one session as one file, to keep it, or to move it to another root.

The file is a zip archive that any tool opens: the stored objects byte by byte, under names without the
session's, and last a manifest:

    snapshot.json   out/<MAX-first>-<first>.jsonl   in/…   checkpoints/…   blocks/…   values/…
    manifest.json   {"format":"snapshotter-session","version":1,"session":…,"exportedAt":ms,
                     "objects":[{"name":…,"bytes":…,"sha256":…}, …]}

An export reads in the order in which a verification does (snapshot, out, in, the rest), so a session may be
at work meanwhile; what is read is then checked as an import would, and read again where it does not hold
together.

An import checks everything before it writes anything: the manifest, every checksum, and that the session
verifies. It refuses a session that exists. How it is written is told in `arriving`; one that was broken off
is run again with the same file.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import orjson

from snapshotter.core.snapshot import decode
from snapshotter.spans import maintained
from snapshotter.verify import verify
from streams import keys
from streams.buckets.memory import MemoryBucket
from streams.errors import Corrupt, Damaged, NewerVersion, Refused, TooLarge
from streams.log import Vanished

from .arriving import SNAPSHOT, Arrival, key_of
from .bench import LOGS, Bench, Done, restarting
from .deleting import finish

if TYPE_CHECKING:
    from snapshotter.database import Database

FORMAT = "snapshotter-session"
VERSION = 1

_MANIFEST = "manifest.json"
_READING = ("out", "in", "checkpoints", "blocks", "values")  # behind the snapshot
LIMIT = 1024 * 1024 * 1024
"""Bytes: what the objects of a file that is imported may take together, unless more is allowed. They are all
held in memory, since nothing is written before the whole session verifies."""

_LARGEST = 256 * 1024 * 1024  # bytes of one object; a larger one is not ours
_LARGEST_MANIFEST = 64 * 1024 * 1024  # bytes: some 300,000 objects
_PLAIN = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # others unpack without a limit
_NOT_WHOLE = (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, ValueError)


@dataclass(slots=True)
class Package:
    """A session's objects by their names in the file. `etag`: of the snapshot, as it was read. `exported_ms`
    (epoch ms): when the file was written."""

    session: str
    objects: dict[str, bytes] = field(default_factory=dict)
    etag: str | None = None
    exported_ms: int = 0

    def stored(self) -> Iterator[tuple[str, bytes]]:
        """The objects under their keys in a root."""
        sid = keys.encode_sid(self.session)
        return ((key_of(sid, name), data) for name, data in self.objects.items())

    def problems(self) -> list[str]:
        """What keeps this from being a whole session, in words."""
        from snapshotter.database import Database

        bucket = MemoryBucket()
        db = Database(bucket)
        sid = db.sid(self.session)
        for key, data in self.stored():
            bucket.put(key, data)
        found = [f"{problem.code}: {problem.detail}" for problem in verify(db, self.session).hindering]
        return found or self._lacking(sid)

    def _lacking(self, sid: str) -> list[str]:
        """A session that verifies may keep its history elsewhere, and then no file holds it."""
        if SNAPSHOT not in self.objects:
            return []
        key = keys.snapshot(sid)
        if not decode(self.objects[SNAPSHOT], key=key, session=sid, hydrated=True).get("hydrated"):
            return []
        return ["hydrated: the snapshot is a cursor only, the history belongs to a hydrate hook"]


@maintained("export")
def export(db: Database, session_id: str, file: str | os.PathLike[str] | IO[bytes]) -> Done:
    """Write one session to a file (a path that does not exist yet, or something to write bytes to).

    A session that does not verify is exported as it is, and `why` says so: an import will refuse it. Raises
    Refused where there is no such session, a file at the path already, or no way to write one, Vanished where
    others tidied up three times, and what requests raise.
    """
    bench = Bench(db, session_id, "export", None, False)
    package, problems = restarting(lambda: _consistent(bench, session_id))
    with _written(file) as target, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        listed = []
        for name, data in package.objects.items():
            archive.writestr(_entry(name), data, zipfile.ZIP_DEFLATED)
            digest = hashlib.sha256(data).hexdigest()
            listed.append({"name": name, "bytes": len(data), "sha256": digest})
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "session": session_id,
            "exportedAt": db.clock.now_ms(),
            "objects": listed,
        }
        archive.writestr(_entry(_MANIFEST), orjson.dumps(manifest), zipfile.ZIP_DEFLATED)
    bench.done.written = len(package.objects)
    bench.done.why = f"it does not verify: {'; '.join(problems[:3])}" if problems else ""
    return bench.done


@maintained("import", named=False)
def import_(
    db: Database, file: str | os.PathLike[str] | IO[bytes], *, dry_run: bool = False, limit: int = LIMIT
) -> Done:
    """Write the session that a file holds into this root, under its own id. `limit`: the bytes that its
    objects may take together; they are held in memory.

    Raises Corrupt (NewerVersion) for a file that is no whole export, TooLarge for one above the limit, before
    any of its objects is unpacked, Damaged for a session that does not verify, Refused where the session
    exists; nothing was written then. Refused, too, where it was deleted meanwhile, and is. Raises what
    requests raise; run it again with the same file then.
    """
    package = _unpacked(file, limit)
    bench = Bench(db, package.session, "import", None, dry_run)
    problems = package.problems()
    if problems:
        raise Damaged(f"session {package.session!r} in the file does not verify: {'; '.join(problems[:3])}")
    arrival = Arrival(bench, package.objects, package.exported_ms)
    if not dry_run:
        bench.db._ensure()
    try:
        missing = arrival.missing()
    except Refused:
        if not dry_run:
            arrival.withdraw()
        raise
    bench.done.written = len(missing)
    bench.done.why = _beside_the_file(missing, package)
    if not dry_run:
        _arrive(bench, arrival)
    return bench.done


def _beside_the_file(missing: list[str], package: Package) -> str:
    """Why more is written than the file has, where that is so."""
    own = sum(name not in package.objects for name in missing)
    return f"{own} for the beginning of a log, of which the file has none" if own else ""


def _arrive(bench: Bench, arrival: Arrival) -> None:
    """Write it all. Where a deletion came between it wins: what was written behind its back goes, too."""
    lost: Refused | None = None
    try:
        arrival.write()
    except Refused as error:
        lost = error
    if arrival.is_deleted():
        finish(bench)
        lost = Refused(f"session {bench.done.session!r} was deleted while it was imported")
    if lost is not None:
        raise lost


# -- reading a session --------------------------------------------------------------------------------


def read_whole(bench: Bench, session_id: str) -> Package:
    """Every object of a session. Raises Refused where there is none, Vanished where one was gone when it was
    read."""
    package = Package(session_id)
    snapshot = bench.store.get(keys.snapshot(bench.sid))
    if snapshot is not None:
        package.objects[SNAPSHOT], package.etag = snapshot.data, snapshot.etag
    for room in _READING:
        prefix = _room(bench, room)
        entries = bench.shelf(prefix).entries
        for entry, blob in bench.read(entries):
            package.objects[f"{room}/{entry.key.removeprefix(prefix)}"] = blob.data
    if not package.objects:
        raise Refused(f"there is no session {session_id!r} at {bench.db.url}")
    return package


def _consistent(bench: Bench, session_id: str) -> tuple[Package, list[str]]:
    """The session as read, and what is wrong with it. Raises Vanished where it changed in between."""
    package = read_whole(bench, session_id)
    problems = package.problems()
    if problems:
        now = bench.store.get(keys.snapshot(bench.sid))
        there = {e.key for which in LOGS for e in bench.shelf(_room(bench, which)).entries if e.size}
        read = {key for key, data in package.stored() if data and key.partition("/")[0] in LOGS}
        if (now and now.etag) != package.etag or not read <= there:
            raise Vanished(f"session {session_id!r} became another while it was read")
    return package, problems


def _room(bench: Bench, room: str) -> str:
    return f"{room}/{bench.sid}/"


@contextmanager
def _written(file: str | os.PathLike[str] | IO[bytes]) -> Iterator[IO[bytes]]:
    """The file to write to; a new one at a path is removed again where that fails."""
    if not isinstance(file, str | os.PathLike):
        yield file
        return
    path = Path(file)
    try:
        opened = path.open("xb")
    except FileExistsError:
        raise Refused(f"{path} is there already: an export never writes over a file, name another") from None
    except OSError as error:
        raise Refused(f"{path} cannot be written: {error.strerror}") from error
    with opened as target:
        try:
            yield target
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def _entry(name: str) -> zipfile.ZipInfo:
    return zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))


# -- reading a file -----------------------------------------------------------------------------------


def _unpacked(file: str | os.PathLike[str] | IO[bytes], limit: int) -> Package:
    """The session in a file. Raises Corrupt, NewerVersion, TooLarge."""
    if isinstance(file, str | os.PathLike):
        with Path(file).open("rb") as source:
            if not stat.S_ISREG(os.fstat(source.fileno()).st_mode):  # a pipe, or a device that has no end
                raise _corrupt(
                    str(file), "it is no regular file, and an export is read from its end: save it first"
                )
            return _unpacked_from(source, str(file), limit)
    return _unpacked_from(file, "the file", limit)


def _unpacked_from(source: IO[bytes], name: str, limit: int) -> Package:
    try:
        with zipfile.ZipFile(source) as archive:
            return _package(archive, name, limit)
    except _NOT_WHOLE as error:
        raise _corrupt(name, str(error)) from error
    except OSError as error:
        if error.errno not in (None, errno.EINVAL):  # those are the archive's own wrong offsets
            raise
        raise _corrupt(name, str(error)) from error


def _package(archive: zipfile.ZipFile, name: str, limit: int) -> Package:
    listed = archive.namelist()
    found = _bytes(archive, _MANIFEST, _LARGEST_MANIFEST, name) if _MANIFEST in listed else b""
    manifest = _manifest(found, name)
    package = Package(manifest["session"], exported_ms=manifest["exportedAt"])
    told = {row["name"]: row for row in manifest["objects"]}
    if sorted(listed) != sorted([*told, _MANIFEST]):
        raise _corrupt(name, "its manifest does not list what is in it")
    size = sum(archive.getinfo(entry).file_size for entry in told)  # an entry never unpacks to more
    if size > limit:
        raise TooLarge(
            f"{name} unpacks to {size:,} bytes, which import_ holds in memory, and its limit is {limit:,}",
            size=size,
            limit=limit,
        )
    for entry, row in told.items():
        package.objects[entry] = _checked(archive, entry, row, name)
    return package


def _bytes(archive: zipfile.ZipFile, entry: str, limit: int, name: str) -> bytes:
    """What an entry unpacks to: never more than it tells, and that is no more than the limit (bytes)."""
    info = archive.getinfo(entry)
    if info.file_size > limit:
        raise _corrupt(name, f"{entry} tells of {info.file_size} bytes, and {limit} is the most")
    if info.flag_bits & 1:
        raise _corrupt(name, f"{entry} is encrypted")
    if info.compress_type not in _PLAIN:
        raise _corrupt(name, f"{entry} is compressed in another way than stored or deflated")
    return archive.read(info)


def _manifest(data: bytes, name: str) -> dict[str, Any]:
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict) or found.get("format") != FORMAT or type(found.get("version")) is not int:
        raise _corrupt(name, f"it has no {_MANIFEST} of the format {FORMAT}")
    if found["version"] > VERSION:
        raise NewerVersion(
            f"{name} has version {found['version']}, this release reads up to {VERSION}: upgrade snapshotter",
            key=name,
        )
    rows = found.get("objects")
    if (
        not isinstance(found.get("session"), str)
        or not isinstance(rows, list)
        or type(found.get("exportedAt")) is not int
    ):
        raise _corrupt(name, "its manifest has a wrong shape")
    for row in rows:
        kinds = {"name": str, "bytes": int, "sha256": str}
        if not isinstance(row, dict) or any(type(row.get(k)) is not kind for k, kind in kinds.items()):
            raise _corrupt(name, "its manifest has a wrong shape")
    return found


def _checked(archive: zipfile.ZipFile, entry: str, row: dict[str, Any], name: str) -> bytes:
    """One object, if it is the one that the manifest tells of."""
    sid = keys.encode_sid("x")  # any will do
    if not _is_ours(key_of(sid, entry)):
        raise _corrupt(name, f"{entry!r} is no object of a session")
    if archive.getinfo(entry).file_size != row["bytes"]:
        raise _corrupt(name, f"{entry} has another size than the manifest says")
    data = _bytes(archive, entry, _LARGEST, name)
    if hashlib.sha256(data).hexdigest() != row["sha256"]:
        raise _corrupt(name, f"{entry} does not match its checksum")
    return data


def _is_ours(key: str) -> bool:
    parsers = (keys.parse_snapshot, keys.parse_segment, keys.parse_checkpoint, keys.parse_content)
    return any(parse(key) is not None for parse in parsers)


def _corrupt(name: str, why: str) -> Corrupt:
    return Corrupt(f"{name} cannot be imported: {why}", key=name)
