"""What the edits of some mutants call: the wrong thing to do, spelled out."""

from __future__ import annotations

import copy
from typing import Any
from zlib import crc32

import orjson

from snapshotter.core import snapshot
from streams import log, packing
from streams.buckets.base import Bucket, Written
from streams.errors import Corrupt, Unreachable
from streams.packing import Packer
from streams.records import Header


def append_elsewhere(writer: Any, batch: Any) -> None:
    """A lost place? There are others: write the batch behind whatever stands there now."""
    end = log.read_all(writer._store, "out", writer._sid).last
    packer = Packer(end.id + 1, writer._delta_of)
    for record in (r for line in batch.packer.lines() for r in packing.unpack(orjson.loads(line))):
        packer.add(record.pop("ts"), {name: value for name, value in record.items() if name != "id"})
    with writer._cond:
        batch.packer, writer._durable = packer, end
    writer._write(batch)


def put_with_retries(bucket: Bucket, key: str, data: bytes, **condition: Any) -> Written:
    """A driver that knows better: it repeats a create that was not answered."""
    try:
        return bucket.put(key, data, **condition)
    except Unreachable:
        return bucket.put(key, data, **condition)


def whole_lines(header: Header, body: bytes) -> tuple[Header, bytes]:
    """What a short read left, as if it had been all."""
    if crc32(body) == header.crc:
        return header, body
    last, end = header.first - 1, 0
    for line in body[: body.rfind(b"\n") + 1].splitlines(keepends=True):
        try:
            last, end = packing.last_id(orjson.loads(line)), end + len(line)
        except ValueError:
            break
    if not end:
        raise Corrupt("nothing is left")
    body = body[:end]
    return header._replace(last=last, crc=crc32(body)), body


def save_ahead(session: Any, bodies: list[dict[str, Any]]) -> None:
    """The snapshot of what is about to be written."""
    ahead, now = copy.deepcopy(session.fold), session.clock.now_ms()
    for number, body in enumerate(bodies, session.writer.next_id):
        ahead.cursor = number - 1
        ahead.apply({"id": number, "ts": now, **body})
    if ahead.open is None and ahead.claim is None and session._readable:
        session._keeper.save_document(snapshot.encode(ahead, "", now, session=session.sid), ahead.cursor)


def keep_plan(session: Any) -> None:
    """Behind the winner's records, with the plan and the history of before."""
    session._position = session._reload().position
    session.fold.cursor = session._position.id
    session._writer = None
