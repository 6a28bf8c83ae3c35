"""Writing a session that comes from a file: claimed first, whole at the end, never over another one.

    1  a claim (`streams.claims`) takes the first place of the in log: nobody sends here now
       (`log.append_input` refuses)
    2  a claim takes the first place of the out log: no create, worker or fork begins a session here
    3  both logs from the newest segment down, but for their first places; what is sent from now on stands
       behind the file's newest input, and is owed
    4  values and blocks
    5  in place of the claims what belongs there: in, then out. Where the file has nothing at all of a log,
       that is a segment without effect; of a log that was trimmed it is an empty object
    6  checkpoints, and the snapshot last
    7  a look at the out log: where the session was deleted meanwhile, it stays deleted (`moving`)

Nothing is ever deleted here: it would be younger than the minimum age, and others write that place next. Who
loses 2 has written nothing else; it puts a spent input in place of its claim, and is refused. Until 5 (of a
trimmed session until 6) whoever looks finds a log with a hole, and never half of a history. The claims name
the file, so an import that was broken off is run again with the same file, and with no other; or the session
is deleted. What is left empty bears the file's digest, too, but in a bucket of files, which keeps no such
marks: there a session that was trimmed must not be imported while a fork makes one of the same id.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from snapshotter import saving
from snapshotter.core.inputs import GONE
from streams import claims, keys
from streams.buckets.base import Blob
from streams.codec import decode_segment, encode_segment
from streams.errors import PreconditionFailed
from streams.keys import Log

from .bench import Bench
from .deletions import stands_above

SNAPSHOT = "snapshot.json"
ROOMS = ("in", "out", "values", "blocks", "checkpoints")
MARK = "import-"
"""How the nonce of what an import writes begins; a fork takes nothing of it for its own."""

_LOGS: tuple[Log, Log] = ("in", "out")


def key_of(sid: str, name: str) -> str:
    """The key of what bears this name in a file."""
    if name == SNAPSHOT:
        return keys.snapshot(sid)
    room, _, rest = name.partition("/")
    return f"{room}/{sid}/{rest}"


class Arrival:
    """One session's objects by their names, on their way into a root. `exported_ms`: the file's date."""

    def __init__(self, bench: Bench, objects: Mapping[str, bytes], exported_ms: int = 0) -> None:
        self._bench = bench
        self._store = bench.store
        digest = hashlib.sha256()
        for name in sorted(objects):
            digest.update(name.encode() + b"\0" + hashlib.sha256(objects[name]).digest())
        self._mark = MARK + digest.hexdigest()[:32]
        self._date_ms = exported_ms
        self._firsts = {which: self._name(keys.segment(which, bench.sid, 1)) for which in _LOGS}
        self._ends = {which: _end(objects, which) for which in _LOGS}
        self._claims = {
            which: claims.encode(digest.hexdigest()[:16], self._ends[which] or 1) for which in _LOGS
        }
        self._objects = {self._firsts[which]: self._instead(which) for which in _LOGS} | dict(objects)

    def missing(self) -> list[str]:
        """The names that are still to be written. Raises Refused where another session, or all of this one,
        stands there; what was sent behind it is neither."""
        newest = min(name for name in self._objects if name.startswith("in/"))
        there = {name for name in self._there() if not (name.startswith("in/") and name < newest)}
        if SNAPSHOT in there:
            raise self._bench.taken("an import")
        if not any(self._is_claimed(which) for which in _LOGS if self._firsts[which] in there) and (
            not set(self._objects) - there or not all(map(self._holds, there))
        ):
            raise self._bench.taken("an import")
        return [name for name in self._objects if name not in there or name in self._firsts.values()]

    def write(self) -> None:
        """Raises Refused where somebody was faster, and what requests raise; run it again then."""
        self._claim()
        names = sorted(self._objects)  # the names of logs count down: the newest segment comes first
        firsts = self._firsts.values()
        for room in ROOMS[:-1]:
            for name in names:
                if name.startswith(f"{room}/") and name not in firsts:
                    self._create(name)
        for which in _LOGS:
            if not self._holds(self._firsts[which]):
                self._settle(which, self._objects[self._firsts[which]])
        for name in [n for n in names if n.startswith("checkpoints/")]:
            self._create(name)
        if SNAPSHOT in self._objects:
            # Where another stands there by now, a worker went on from the logs, and what it saved is later.
            self._put(SNAPSHOT, self._objects[SNAPSHOT])

    def withdraw(self) -> None:
        """Let senders in again where a claim of this import stands before another's session."""
        if self._is_claimed("in"):
            self._settle("in", self._spent())

    def is_deleted(self) -> bool:
        """Whether the session was deleted behind all that the file has."""
        return stands_above(self._bench, self._ends["out"] or 1, ("session-deleted",))

    # -- claims -------------------------------------------------------------------------------------------

    def _claim(self) -> None:
        """Take the first place of both logs. Raises Refused, with nothing taken."""
        for which in _LOGS:
            first = self._firsts[which]
            if not (self._put(first, self._claims[which]) or self._is_claimed(which) or self._holds(first)):
                if which == "out":
                    self.withdraw()
                raise self._bench.taken("an import")

    def _is_claimed(self, which: Log) -> bool:
        """Whether an import of this file holds the first place, and has not settled it."""
        return self._claimed(which) is not None

    def _claimed(self, which: Log) -> Blob | None:
        blob = self._store.get(keys.segment(which, self._bench.sid, 1))
        return blob if blob is not None and blob.data == self._claims[which] else None

    def _settle(self, which: Log, data: bytes) -> None:
        """Replace a claim, under its ETag, which is that of no other object."""
        name, etags, blob = self._firsts[which], self._bench.etags(), self._claimed(which)
        if blob is None:
            raise self._bench.taken("an import")
        key = key_of(self._bench.sid, name)
        if etags == "none":
            self._store.put(key, data, nonce=self._mark)
            return
        try:
            self._store.put_once(key, data, if_match=saving.match_of(blob.etag, etags), nonce=self._mark)
        except PreconditionFailed:
            if not self._holds(name):  # another import of this very file was faster
                raise self._bench.taken("an import") from None

    def _instead(self, which: Log) -> bytes:
        """What takes the first place of a log where the file has nothing for it."""
        if self._ends[which]:
            return b""
        return self._spent() if which == "in" else self._heartbeat()

    def _spent(self) -> bytes:
        record = {"id": 1, "ts": self._date_ms, "kind": GONE}
        return encode_segment("in", [record], nonce=self._mark)

    def _heartbeat(self) -> bytes:
        record = {"id": 1, "ts": self._date_ms, "control": "heartbeat"}
        return encode_segment("out", [record], nonce=self._mark, epoch=0, run=self._mark, lease=0)

    # -- objects ------------------------------------------------------------------------------------------

    def _name(self, key: str) -> str:
        return key.replace(f"/{self._bench.sid}/", "/", 1)

    def _there(self) -> set[str]:
        found: set[str] = set()
        for room in ROOMS:
            found |= {
                self._name(entry.key) for entry in self._bench.shelf(f"{room}/{self._bench.sid}/").entries
            }
        if self._store.head(keys.snapshot(self._bench.sid)) is not None:
            found.add(SNAPSHOT)
        return found

    def _create(self, name: str) -> None:
        if not self._put(name, self._objects[name]) and not self._holds(name):
            raise self._bench.taken("an import")

    def _put(self, name: str, data: bytes) -> bool:
        """Create the object; False where something else stands there."""
        key = key_of(self._bench.sid, name)
        try:
            self._store.put_once(key, data, if_absent=True, nonce=self._store.clock.token())
        except PreconditionFailed:
            return False
        return True

    def _holds(self, name: str) -> bool:
        """Whether the file's own object stands there; of empty ones its own mark tells."""
        blob = self._store.get(key_of(self._bench.sid, name))
        if blob is None or blob.data != self._objects.get(name):
            return False
        return bool(blob.data) or blob.nonce in (None, self._mark)


def _end(objects: Mapping[str, bytes], which: Log) -> int:
    """The newest id of a log in a file; 0 where it has nothing of it."""
    newest = min((name for name in objects if name.startswith(f"{which}/")), default="")
    segment = decode_segment(objects[newest]) if newest else None
    return 0 if segment is None else segment.header.last
