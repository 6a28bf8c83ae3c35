"""The stored bytes of one session, read by themselves: segments, blocks, values, snapshots, checkpoints.

Written from FORMAT.md alone. Imports neither the engine nor its codec, so that a mistake of theirs is not
made again here. Where somebody tidies up (`tidied`) segments may be dead, emptied, merged or gone:

    whole     the log from its first record
    deleted   the log from the newest deletion's fence; nothing below it counts
    trimmed   the newest checkpoint, and what stands behind its cursor; the turn that ended there is whole

`Log` says which of them a session's out log is. What should be there and is not is Broken, in every case.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Record = dict[str, Any]
Objects = Mapping[str, bytes]
_KEY = re.compile(r"(in|out)/([^/]+)/(\d{16})-(\d+)\.jsonl")

_ANEW = ("delete", "create")


class Broken(Exception):
    """Stored bytes that do not hold together. `key` names the object."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(f"{key}: {why}")
        self.key = key


@dataclass(frozen=True)
class Piece:
    """One segment: its header, its records as stored."""

    key: str
    head: Record
    records: list[Record]

    @property
    def first(self) -> int:
        return int(self.head["first"])

    @property
    def last(self) -> int:
        return int(self.head["last"])

    def says(self, control: str, **fields: Any) -> bool:
        """Whether a record of it is this control."""
        wanted = {"control": control, **fields}
        return any(all(r.get(name) == value for name, value in wanted.items()) for r in self.records)


@dataclass(frozen=True)
class Log:
    """The live segments of an out log, in order. `base`: the checkpoint that they stand behind, where the log
    was trimmed; `below`: what is left of what that covers, newest first. `floor`: every input up to this one
    may be gone."""

    pieces: list[Piece]
    base: Record | None = None
    below: tuple[Piece, ...] = ()
    floor: int = 0

    @property
    def begins_later(self) -> bool:
        """Whether its first record is gone."""
        return self.base is not None or bool(self.pieces and self.pieces[0].first > 1)

    @property
    def tells_all(self) -> bool:
        """Whether it says what the session began with: of a fork only the checkpoint does."""
        return self.base is not None or not self.pieces or self.pieces[0].first != 2

    @property
    def turns(self) -> int:
        """Up to this turn nothing but a checkpoint tells of what was done, and before a deletion nothing."""
        begins = self.pieces[0].records if self.pieces else []
        told = [record["turn"] for record in begins if record.get("why") == "delete"]
        return max([*told, int(self.base["turn"]) if self.base is not None else 0])


def read_piece(key: str, data: bytes) -> Piece:
    """Raises Broken for anything that FORMAT.md does not allow."""
    line, _, body = data.partition(b"\n")
    try:
        head = json.loads(line)
        records = [json.loads(row) for row in body.split(b"\n") if row]
    except ValueError as error:
        raise Broken(key, f"no JSON: {error}") from error
    covered, comma, told = line.rpartition(b',"hcrc":')
    if not comma or zlib.crc32(covered) != int(told.rstrip(b"}")):
        raise Broken(key, "the header's checksum is wrong")
    if zlib.crc32(body) != head["crc"]:
        raise Broken(key, "the checksum is wrong")
    match = _KEY.fullmatch(key)
    if match is None or (match[1], int(match[4])) != (head["log"], head["first"]):
        raise Broken(key, "its name is not its header's")
    if int(match[3]) != 9999999999999999 - head["first"]:
        raise Broken(key, "its name does not count down")
    expect = head["first"]
    for record in records:
        if record["id"] != expect:
            raise Broken(key, f"record {record['id']} stands where {expect} is due")
        expect += len(record.get("cuts", "1"))
    if head["last"] != expect - 1:
        raise Broken(key, f"ends at {expect - 1}, says {head['last']}")
    return Piece(key, head, records)


def pieces_of(objects: Objects, log: str, sid: str, *, tidied: bool = False) -> list[Piece]:
    """The segments of a log in order; raises Broken unless they are one chain without a hole. `tidied`: as
    far as they are alive."""
    if tidied and log == "out":
        return log_of(objects, sid).pieces
    found = _stored(objects, log, sid)
    return list(_chained(found, 1, None, dead=False))


def deletions_of(objects: Objects, sid: str) -> list[Piece]:
    """The out segments that delete the session, also those below the newest."""
    return [piece for piece in _stored(objects, "out", sid) if piece.says("session-deleted")]


def _stored(objects: Objects, log: str, sid: str) -> list[Piece]:
    """Every segment that holds something."""
    found = [
        read_piece(key, data) for key, data in objects.items() if key.startswith(f"{log}/{sid}/") and data
    ]
    return sorted(found, key=lambda piece: piece.first)


def _chained(found: list[Piece], expect: int, nonce: str | None, *, dead: bool = True) -> Iterator[Piece]:
    """The segments from this id on. `dead`: those that begin below what was read are skipped."""
    epoch = 0
    for piece in found:
        head = piece.head
        if piece.first < expect and dead:
            continue
        if piece.first != expect:
            raise Broken(piece.key, f"begins at {piece.first}, due is {expect}")
        if head["log"] == "out":
            if head.get("prev") != nonce:
                raise Broken(piece.key, "does not continue the one before")
            if head["epoch"] < epoch:
                raise Broken(piece.key, "an older worker wrote behind a newer one")
            epoch = head["epoch"]
        elif len(piece.records) != 1:
            raise Broken(piece.key, "an in segment holds one record")
        expect, nonce = piece.last + 1, head["nonce"]
        yield piece


# -- a session that somebody tidies up ----------------------------------------------------------------


def log_of(objects: Objects, sid: str) -> Log:
    """The out log, whichever of the three it is. Raises Broken."""
    found = _stored(objects, "out", sid)
    base = checkpoint_of(objects, sid)
    fences = deletions_of(objects, sid)
    if fences:
        fence = fences[-1]
        start, prev = fence.first, fence.head.get("prev")
    elif found and found[0].first == 2 and found[0].says("fence", why="create") and base is None:
        start, prev = 2, None  # a fork of a session without a turn
    else:
        start, prev = 1, None
    try:
        live = list(_chained(found, start, prev))
        spent = [
            record.get("for", 0) for piece in live for record in piece.records if record.get("why") in _ANEW
        ]
        return Log(live, floor=max([_spent_by_tombstone(objects, sid), *spent]))
    except Broken:
        if base is None or int(base["lastOutEventId"]) < start:
            raise
    return _trimmed(found, base)


def _spent_by_tombstone(objects: Objects, sid: str) -> int:
    """The newest input that a deletion, which was run again, has spent."""
    key = f"sessions/{sid}/snapshot.json"
    document = document_of(key, objects[key], sid) if key in objects else {}
    return int(document["lastInEventId"] or 0) if document.get("deleted") else 0


def _trimmed(found: list[Piece], base: Record) -> Log:
    """The log behind a checkpoint. Raises Broken where it does not reach down to it, or where the turn that
    it covers last was cut."""
    cursor = int(base["lastOutEventId"])
    live = list(_chained(found, cursor + 1, base["lastOutNonce"]))
    below: list[Piece] = []
    end, nonce = cursor, base["lastOutNonce"]
    ends = {(piece.last, piece.head["nonce"]): piece for piece in reversed(found)}
    # Of two that end at the same place the longer one: that was merged, and the other one is dead.
    while (piece := ends.get((end, nonce))) is not None:
        below.append(piece)
        end, nonce = piece.first - 1, piece.head.get("prev")
        if piece.says("turn-start", attempt=1) or piece.says("fence", why="create"):
            return Log(live, base, tuple(below), int(base["lastInEventId"] or 0))
    raise Broken(f"out/{base['session']}/", f"the turn that ended at {cursor} was cut: {below}")


def inputs_of(objects: Objects, sid: str, floor: int = 0) -> dict[int, Record]:
    """The inputs by id, large values put back; above the floor none is missing. Raises Broken."""
    found = _stored(objects, "in", sid)
    above = [piece for piece in found if piece.first > floor]
    live = [piece for piece in found if piece.first <= floor] + list(
        _chained(above, floor + 1, None, dead=False)
    )
    return {piece.first: filled(objects, sid, piece.records[0]) for piece in live}


def checkpoint_of(objects: Objects, sid: str) -> Record | None:
    """The newest checkpoint that holds something."""
    names = sorted(key for key, data in objects.items() if key.startswith(f"checkpoints/{sid}/") and data)
    return document_of(names[0], objects[names[0]], sid) if names else None


def document_of(key: str, data: bytes, sid: str) -> Record:
    """A snapshot. Raises Broken."""
    covered, comma, told = data.rpartition(b',"crc":')
    if not comma or zlib.crc32(covered) != int(told.rstrip(b"}")):
        raise Broken(key, "its checksum is wrong")
    document: Record = json.loads(data)
    if document["session"] != sid:
        raise Broken(key, f"is of session {document['session']}")
    return document


def history_of(objects: Objects, sid: str, document: Record) -> list[Record]:
    """The messages of a snapshot: those of its blocks, then its own. Raises Broken."""
    messages: list[Record] = []
    for row in document.get("blocks") or ():
        key = f"blocks/{sid}/{row['key']}.json.gz"
        packed = _named(objects, key, row["key"])
        text = gzip.decompress(packed)
        held = json.loads(text)
        if (len(text), len(held)) != (row["bytes"], row["count"]):
            raise Broken(key, f"holds {len(held)} messages in {len(text)} bytes, the snapshot says {row}")
        messages += held
    return [_unfolded(objects, sid, message) for message in [*messages, *document["messages"]]]


def filled(objects: Objects, sid: str, record: Record) -> Record:
    """The record with its large values put back. Raises Broken."""
    found = dict(record)
    ref = found.pop("ref", None)
    if ref is not None:
        chunk = "control" not in found and "kind" not in found
        found["chunk" if chunk else "message"] = _value(objects, sid, ref)
    if isinstance(found.get("messages"), list):
        found["messages"] = [_unfolded(objects, sid, message) for message in found["messages"]]
    return found


def _unfolded(objects: Objects, sid: str, message: Record) -> Record:
    return _value(objects, sid, message["ref"]) if message.keys() == {"ref"} else message


def _value(objects: Objects, sid: str, ref: Record) -> Any:
    key = f"values/{sid}/{ref['key']}.json"
    data = _named(objects, key, ref["key"])
    if len(data) != ref["bytes"]:
        raise Broken(key, f"has {len(data)} bytes, not {ref['bytes']}")
    return json.loads(data)


def _named(objects: Objects, key: str, name: str) -> bytes:
    data = objects.get(key)
    if not data:
        raise Broken(key, "is named, and not there")
    if hashlib.sha256(data).hexdigest() != name.partition("-")[0]:
        raise Broken(key, "is not what its name says")
    return data


def remains(objects: Objects, sid: str, text: str, *, alone: bool = False) -> list[str]:
    """The objects in which a text still stands: both logs, the snapshot, and what that names. `alone`: nobody
    else was at work, so it may stand nowhere."""
    found = []
    for key, data in objects.items():
        room, _, rest = key.partition("/")
        if rest.startswith(f"{sid}/") and (alone or room in ("in", "out", "sessions")):
            plain = gzip.decompress(data) if room == "blocks" and data else data
            found += [key] * (text.encode() in plain)
    snapshot = f"sessions/{sid}/snapshot.json"
    if snapshot in objects:
        document = document_of(snapshot, objects[snapshot], sid)
        if text in json.dumps(history_of(objects, sid, document)):
            found.append(f"{snapshot} and what it names")
    return found
