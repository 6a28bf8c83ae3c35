"""Writing a session that comes from a file: claimed first, whole at the end, never over another one.

    1  an empty object takes the first place of the in log: nobody sends here now (`log.append_input` refuses)
    2  an empty object takes the first place of the out log: no create, worker or fork begins a session here
    3  both logs from the newest segment down, but for their first places; what is sent from now on stands
       behind the file's newest input, and is owed
    4  values and blocks
    5  what the file has for the first places: in, then out. Where it has nothing at all of a log, the place
       is given back; of one that was trimmed it stays empty
    6  checkpoints, and the snapshot last

Who loses 1 or 2 has written nothing else, gives back what it took, and is refused. Until 5 (of a trimmed
session until 6) whoever looks finds a log with a hole, and never half of a history. The claims bear the
file's own digest, so an import that was broken off is run again with the same file, and with no other. A
bucket of files keeps no such marks: there two different files must not be imported at once under one id.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from snapshotter import saving
from streams import keys
from streams.errors import PreconditionFailed, Refused
from streams.keys import Log

from .bench import Bench

SNAPSHOT = "snapshot.json"
ROOMS = ("in", "out", "values", "blocks", "checkpoints")
MARK = "import-"
"""How the nonce of a claim begins; a fork takes the claim of an import for none of its own."""

_LOGS: tuple[Log, Log] = ("in", "out")


def key_of(sid: str, name: str) -> str:
    """The key of what bears this name in a file."""
    if name == SNAPSHOT:
        return keys.snapshot(sid)
    room, _, rest = name.partition("/")
    return f"{room}/{sid}/{rest}"


class Arrival:
    """One session's objects by their names, on their way into a root."""

    def __init__(self, bench: Bench, objects: Mapping[str, bytes]) -> None:
        self._bench = bench
        self._store = bench.store
        self._objects = objects
        digest = hashlib.sha256()
        for name in sorted(objects):
            digest.update(name.encode() + b"\0" + hashlib.sha256(objects[name]).digest())
        self._mark = MARK + digest.hexdigest()[:32]
        self._firsts = {which: self._name(keys.segment(which, bench.sid, 1)) for which in _LOGS}

    def missing(self) -> list[str]:
        """The names that are still to be written. Raises Refused where another session, or all of this one,
        stands there."""
        there = self._there()
        if SNAPSHOT in there:
            raise self._exists()
        if not any(self._is_claimed(which) for which in _LOGS if self._firsts[which] in there):
            for name in there:
                blob = self._store.get(key_of(self._bench.sid, name))
                if blob is None or blob.data != self._objects.get(name):
                    raise self._exists()
            if not set(self._objects) - there:
                raise self._exists()
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
            self._settle(which)
        for name in [n for n in names if n.startswith("checkpoints/")]:
            self._create(name)
        if SNAPSHOT in self._objects:
            # Where another stands there by now, a worker went on from the logs, and what it saved is later.
            self._put(SNAPSHOT)

    # -- claims -------------------------------------------------------------------------------------------

    def _claim(self) -> None:
        """Take the first place of both logs. Raises Refused, with nothing taken."""
        took: list[Log] = []
        for which in _LOGS:
            if not (self._put(self._firsts[which], b"") or self._holds(self._firsts[which])):
                self._give_back(took)
                raise self._exists()
            took.append(which)

    def _is_claimed(self, which: Log) -> bool:
        """Whether an import of this file holds the first place, and has not settled it."""
        head = self._store.head(keys.segment(which, self._bench.sid, 1))
        return head is not None and not head.size and head.nonce in (None, self._mark)

    def _give_back(self, took: list[Log]) -> None:
        for which in took:
            if self._is_claimed(which):
                self._store.delete(keys.segment(which, self._bench.sid, 1))

    def _settle(self, which: Log) -> None:
        """Put into a claimed place what the file has for it."""
        name = self._firsts[which]
        if not any(other.startswith(f"{which}/") for other in self._objects):
            self._give_back([which])
        elif self._objects.get(name) and not self._holds(name):
            self._replace(name)

    def _replace(self, name: str) -> None:
        key, data, etags = key_of(self._bench.sid, name), self._objects[name], self._bench.etags()
        head, nonce = self._store.head(key), self._store.clock.token()
        if head is None or head.size:
            raise self._exists()
        if etags == "none":
            self._store.put(key, data, nonce=nonce)
            return
        match = saving.match_of(head.etag, etags)
        try:
            self._store.put_once(key, data, if_match=match, nonce=nonce)
        except PreconditionFailed:
            if not self._holds(name):  # another import of this very file was faster
                raise self._exists() from None

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
        if not self._put(name) and not self._holds(name):
            raise self._exists()

    def _put(self, name: str, data: bytes | None = None) -> bool:
        """Create the object; False where something else stands there."""
        key = key_of(self._bench.sid, name)
        nonce = self._store.clock.token() if data is None else self._mark
        try:
            self._store.put_once(
                key, self._objects[name] if data is None else data, if_absent=True, nonce=nonce
            )
        except PreconditionFailed:
            return False
        return True

    def _holds(self, name: str) -> bool:
        """Whether the file's own object stands there."""
        blob = self._store.get(key_of(self._bench.sid, name))
        return blob is not None and blob.data == self._objects.get(name)

    def _exists(self) -> Refused:
        name, url = self._bench.done.session, self._bench.db.url
        return Refused(f"session {name!r} exists at {url}: an import never changes one")
