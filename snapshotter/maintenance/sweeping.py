"""gc: what nobody names any more, and what deletions have emptied.

    blocks, values          that no snapshot, no checkpoint, no record and no block names
    checkpoints             all but the newest of which use can be made
    empty objects           that a deletion left; below a tombstone also what writers that slept wrote since

Only what is past the minimum age, and never the newest segment of a log, a tombstone or its fence.

*List first, read afterwards.* A writer names only what it sealed lately, or what the snapshot that it
replaces names. So what is old, and is named by nothing that is read after the listing, will never be named
again; nor is a name ever used twice. The other way round, something sealed and named between the two readings
would be taken for garbage. Only the store's own dates are compared, so no clock can make it delete what
lives.

A name is looked for in the stored bytes as they are: that it might stand in somebody's text by chance only
keeps it. Of an id with neither logs nor a snapshot (a sender died behind its value) all old content goes:
nobody will name it. While a session has logs and no snapshot, no content goes, and an empty object in a log's
first place may be the claim of a fork that is to be run again. What is no object of ours is left, and told.

Whatever should be read and cannot be (a damaged object, a snapshot that is not there, an empty
segment that no deletion accounts for) ends the sweep with nothing deleted.

Of a deleted session nothing is kept that a checkpoint names, nor of any what one names of which a block is
gone: who wrote it beside a deletion, or beside a worker that merged its blocks, could not take it back
(`copying`). Checkpoints are listed when the snapshot was read, so what a copy of it names is found in either.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from snapshotter import blocks, saving
from snapshotter.checkpoints import cursor_of
from snapshotter.core.blocks import Block
from snapshotter.core.snapshot import decode
from snapshotter.spans import maintained
from streams import keys
from streams.buckets.base import Blob, Entry
from streams.codec import decode_segment
from streams.errors import Corrupt, Missing
from streams.keys import Log
from streams.log import Place, Vanished

from .bench import LOGS, Bench, Done, Shelf, restarting
from .copying import is_whole
from .deletions import newest_deletion
from .rules import Rules

if TYPE_CHECKING:
    from snapshotter.database import Database

_NAME = re.compile(rb"[0-9a-f]{64}-[A-Za-z0-9_-]{1,64}")
_BLOCKS = 8  # that are unpacked together: what bounds the memory


@maintained("gc")
def gc(db: Database, session_id: str, *, rules: Rules | None = None, dry_run: bool = False) -> Done:
    """Delete what is garbage of one session.

    Raises Refused where there is no such session, Corrupt or NewerVersion where something that may name a
    block or a value cannot be read (nothing is deleted then), Vanished where others tidied up three times,
    and what requests raise.
    """
    return restarting(lambda: _gc(Bench(db, session_id, "gc", rules, dry_run)))


def _gc(bench: Bench) -> Done:
    strange: list[str] = []
    shelves = {
        "blocks": _shelf(bench, keys.blocks_prefix(bench.sid), strange),
        "values": _shelf(bench, keys.values_prefix(bench.sid), strange),
    }
    logs = {which: bench.places(which) for which in LOGS}
    stored = bench.snapshot()
    document = None if stored is None else stored[1]
    # Behind the snapshot: see `copying`.
    shelves["checkpoints"] = _shelf(bench, keys.checkpoints_prefix(bench.sid), strange)
    standing = _standing(bench, shelves, document)
    trimmed = any(place.first > 1 for place in logs["out"][0][:1])
    for places, _ in logs.values():
        _check_emptied(bench, places, document, trimmed)
    begun = stored is not None or any(places for places, _ in logs.values())
    if not (begun or strange or any(shelf.entries for shelf in shelves.values())):
        raise bench.absent()
    doomed: list[Place | Entry] = list(_unnamed(bench, shelves, stored, standing, begun))
    doomed += _old(bench, _without(shelves["checkpoints"], standing[:1]))
    for places, date_ms in logs.values():
        doomed += _emptied(bench, places, date_ms, document)
    bench.delete(doomed)
    if strange:
        bench.done.why = f"left alone, since no such object is ours: {', '.join(strange[:3])}"
    emptied = [([p for p in places[:-1] if not p.size], date_ms) for places, date_ms in logs.values()]
    return bench.explain([*((shelf.entries, shelf.date_ms) for shelf in shelves.values()), *emptied])


def _shelf(bench: Bench, prefix: str, strange: list[str]) -> Shelf:
    """What is stored there, but for keys that are none of a session's: those are added to `strange`."""
    found = bench.shelf(prefix)
    ours: list[Entry] = []
    for entry in found.entries:
        if keys.parse_content(entry.key) or keys.parse_checkpoint(entry.key):
            ours.append(entry)
        else:
            strange.append(entry.key)
    return Shelf(ours, found.date_ms)


def named_in(bench: Bench, documents: Iterable[dict[str, Any]]) -> set[bytes]:
    """Every name in what the blocks of these snapshot documents hold, and in both logs. Raises as `gc`."""
    named: set[bytes] = set()
    for document in documents:
        named |= names(_opened(bench, document))
    for which in LOGS:
        named |= names(_segments(bench, which))
    return named


def _unnamed(
    bench: Bench,
    shelves: dict[str, Shelf],
    snapshot: tuple[Blob, dict[str, Any]] | None,
    standing: list[_Standing],
    begun: bool,
) -> Iterator[Entry]:
    """Old blocks and values that nothing names. A session that has begun and has no snapshot keeps all: it
    may have lost it."""
    blocks, values = (_old(bench, shelves[name]) for name in ("blocks", "values"))
    if not begun:
        yield from (*blocks, *values)
    if snapshot is None or not (blocks or values):
        return
    blob, document = snapshot
    stored = [(blob.data, document), *((one.data, one.document) for one in standing)]
    named = names(data for data, _ in stored)
    yield from (entry for entry in blocks if _name(entry) not in named)
    values = [entry for entry in values if _name(entry) not in named]
    if not values:
        return
    # By name: one that was sealed since the listing may have taken over what an older one named.
    named |= named_in(bench, [found for _, found in stored])
    yield from (entry for entry in values if _name(entry) not in named)


def _old(bench: Bench, shelf: Shelf) -> list[Entry]:
    """What is past the minimum age, the empty ones included."""
    return [entry for entry in shelf.entries if bench.rules.is_old(entry.modified_ms, shelf.date_ms)]


def _name(entry: Entry) -> bytes:
    found = keys.parse_content(entry.key)
    return found[2].encode() if found is not None else b""


def names(data: Iterable[bytes]) -> set[bytes]:
    """Everything in there that may be the name of a block or a value."""
    return {found for one in data for found in _NAME.findall(one)}


@dataclass(frozen=True, slots=True)
class _Standing:
    """A checkpoint of which use can be made, as stored."""

    entry: Entry
    data: bytes
    document: dict[str, Any]


def _standing(bench: Bench, shelves: dict[str, Shelf], snapshot: dict[str, Any] | None) -> list[_Standing]:
    """The checkpoints, newest first, but those behind a tombstone, and those below the snapshot of which a
    block or a value is gone: a process wrote it, and died before it looked whether it may stand."""
    if snapshot is not None and snapshot.get("deleted"):
        return []
    there = {_name(entry) for name in ("blocks", "values") for entry in shelves[name].entries if entry.size}
    found = []
    for entry, blob in bench.read(entry for entry in shelves["checkpoints"].entries if entry.size):
        document = decode(blob.data, key=entry.key, session=bench.sid, hydrated=True)
        listed = all(name.encode() in there for name in saving.named(document))
        covered = snapshot is not None and cursor_of(document) <= cursor_of(snapshot)
        if listed or not covered or is_whole(bench, document):
            found.append(_Standing(entry, blob.data, document))
    return found


def _without(shelf: Shelf, kept: list[_Standing]) -> Shelf:
    return Shelf(
        [entry for entry in shelf.entries if entry not in [one.entry for one in kept]], shelf.date_ms
    )


def _segments(bench: Bench, which: Log) -> Iterator[bytes]:
    places, _ = bench.places(which)
    for place, blob in bench.read(place for place in places if place.size):
        decode_segment(blob.data, key=place.key)
        yield blob.data


def _opened(bench: Bench, document: dict[str, Any]) -> Iterator[bytes]:
    """What the blocks of a document hold, checked as a boot does. Raises Corrupt, and Vanished where one is
    gone."""
    rows = [Block.of(row) for row in document.get("blocks") or ()]
    try:
        for start in range(0, len(rows), _BLOCKS):
            yield from map(orjson.dumps, blocks.read(bench.store, bench.sid, rows[start : start + _BLOCKS]))
    except Missing as gone:
        raise Vanished(f"{gone.key} was named and then gone") from gone


def _check_emptied(
    bench: Bench, places: Sequence[Place], document: dict[str, Any] | None, trimmed: bool
) -> None:
    """Raise Corrupt where a segment is empty that no deletion has emptied: what it named is not known. In a
    log's first place it may be the claim of a fork or an import, which never named anything; and of a session
    that was opened again a trim may have taken the deletion away, and left inputs that it had emptied."""
    first = document is not None and len(places) == 1
    empty = [place for place in places if not place.size and (place.first > 1 or first)]
    if not empty:
        return
    known = document or {}
    ends = {"out": 0, "in": int(known.get("lastInEventId") or 0)}
    if known.get("deleted"):
        ends["out"] = cursor_of(known)
    elif (deletion := newest_deletion(bench)) is not None:
        ends = {"out": deletion[0].first, "in": max(deletion[1], ends["in"])}
    elif not trimmed:
        ends["in"] = 0
    for place in empty:
        if place is places[-1] or place.first > ends[_which(place)]:
            if bench.store.head(place.key) is None:  # a trim took it away, and the deletion with it
                raise Vanished(f"{place.key} was listed and then gone")
            raise Corrupt(f"{place.key} is empty, and no deletion accounts for it", key=place.key, offset=0)


def _which(place: Place) -> str:
    """The log that a segment belongs to."""
    return place.key.partition("/")[0]


def _emptied(
    bench: Bench, places: Sequence[Place], date_ms: int | None, document: dict[str, Any] | None
) -> list[Place]:
    """Of a log (oldest first) what a deletion emptied; below a tombstone everything. Never the newest, nor,
    while there is no snapshot, what may be a claim."""
    ends = {"out": 0, "in": 0}  # the first id that a deleted session keeps
    if document is not None and document.get("deleted"):
        ends["out"] = int(document.get("lastOutFirst") or 0)
        ends["in"] = int(document.get("lastInEventId") or 0) + 1
    found = []
    for place in places[:-1]:
        below = place.first < ends[_which(place)]
        if document is None and place.first == 1:
            continue
        if (below or not place.size) and bench.rules.is_old(place.modified_ms, date_ms):
            found.append(place)
    return found
