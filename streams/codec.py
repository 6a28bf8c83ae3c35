"""Records ⇄ the bytes of a segment, version 1 (FORMAT.md).

A segment is JSON lines: a header, then one line per record. The header says which ids follow, who wrote
them, and what they continue; `crc` is `zlib.crc32` of every byte after the header line.

    {"v":1,"log":"out","first":42,"last":44,…,"nonce":"…","prev":"…","lease":15,"crc":1,"hcrc":2}
    {"id":42,"ts":…,"control":"turn-start",…}
    {"id":43,"ts":…,"chunk":{…,"delta":"Hello"},"cuts":[3,5]}

`hcrc`, always last and optional to a reader, is `zlib.crc32` of the header line up to the comma before
it: without it a bit that flips inside `nonce` or `epoch` would pass for truth.

Decoding is the hot path of a boot. All lines are parsed in one call, as one JSON array, and one loop
checks what the rest of the engine then takes for granted: that ids have no holes, and that cuts go up
to the end of their text. (That each cut is a whole number is looked at where it is used, in `unpack`;
here it would cost a third of the whole.) Whatever does not hold is Corrupt, with the key and the byte
where it was seen. An empty object is what a deletion left: absent.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any, NoReturn
from zlib import crc32

import orjson

from streams import claims, keys
from streams.errors import Corrupt, Gap, NewerVersion
from streams.keys import Log
from streams.packing import encode_line, last_id, text_field
from streams.records import MAX_SEGMENT, VERSION, Header, Record, Segment

_HCRC = b',"hcrc":'
_INTS = frozenset({int})
_NONE = type(None)
_HEADER: dict[str, tuple[type, ...]] = {
    "v": (int,),
    "log": (str,),
    "first": (int,),
    "last": (int,),
    "nonce": (str,),
    "crc": (int,),
    "epoch": (int, _NONE),
    "run": (str, _NONE),
    "prev": (str, _NONE),
    "lease": (int, _NONE),
}
"""The fields of a header, and the types that each may have; None where it may be left out."""
_SOUND = frozenset(product(*_HEADER.values()))


def encode_segment(
    log: Log,
    records: list[Record],
    *,
    nonce: str,
    epoch: int | None = None,
    run: str | None = None,
    prev: str | None = None,
    lease: int | None = None,
    rewritten: str | None = None,
) -> bytes:
    """The bytes of a segment of these records, which are in order and have no hole between their ids.
    `rewritten`: a random text, where this takes the place of the same one with other content.

    Raises TooLarge or InvalidValue as `encode_line` does, ValueError when the ids do not go on.
    """
    lines = []
    expect = records[0]["id"]
    for record in records:
        if record["id"] != expect:
            raise ValueError(f"record {record['id']} stands where {expect} is due")
        expect = last_id(record) + 1
        lines.append(encode_line(record))
    first = records[0]["id"]
    return frame(
        log,
        first,
        expect - 1,
        lines,
        nonce=nonce,
        epoch=epoch,
        run=run,
        prev=prev,
        lease=lease,
        rewritten=rewritten,
    )


def frame(
    log: Log,
    first: int,
    last: int,
    lines: list[bytes],
    *,
    nonce: str,
    epoch: int | None = None,
    run: str | None = None,
    prev: str | None = None,
    lease: int | None = None,
    rewritten: str | None = None,
    compact: bool | None = None,
) -> bytes:
    """The bytes of a segment whose records are encoded already and cover the ids `first` to `last`.
    `compact`: a compaction has been through all that stands below it."""
    body = b"\n".join([*lines, b""])
    fields = {
        "v": VERSION,
        "log": log,
        "first": first,
        "last": last,
        "epoch": epoch,
        "run": run,
        "nonce": nonce,
        "prev": prev,
        "lease": lease,
        "rewritten": rewritten,
        "compact": compact,
        "crc": crc32(body),
    }
    head = orjson.dumps({name: value for name, value in fields.items() if value is not None})[:-1]
    return b"%b%b%d}\n%b" % (head, _HCRC, crc32(head), body)


def decode_segment(data: bytes, *, key: str = "", modified_ms: int | None = None) -> Segment | None:
    """A segment from its bytes; None for an empty object, which is what a deletion leaves, and for a claim.

    `key`, where it is a segment's, must name the same log and first id as the header does.
    Raises NewerVersion for a format version above ours, Corrupt for everything that does not hold.
    """
    if len(data) < claims.LEAST and (not data or claims.last_of(data) is not None):
        return None
    if len(data) > MAX_SEGMENT:
        _corrupt(key, 0, f"it takes {len(data)} bytes, more than any segment")
    end = data.find(b"\n") + 1
    if end == 0:
        _corrupt(key, 0, "its header line is cut off")
    header = _decode_header(data[: end - 1], key)
    body = data[end:]
    if crc32(body) != header.crc:
        _corrupt(key, end, "its records do not match the checksum in its header")
    if not (key.endswith(f"-{header.first}.jsonl") and key.startswith(header.log)):
        place = keys.parse_segment(key)
        if place is not None and (place[0], place[2]) != (header.log, header.first):
            _corrupt(key, 0, f"its header says {header.log}:{header.first}")
    if header.log == "in" and header.first != header.last:
        _corrupt(key, 0, "an in segment holds one record")
    records = _decode_lines(body, end, key)
    _check_ids(records, header, body, end, key)
    return Segment(header, records, key, modified_ms, len(data))


def read_records(lines: Iterable[bytes | str], *, log: Log, name: str = "input") -> list[Record]:
    """Records from JSON lines without frames, as a person or a tool hands them over.

    Headers of segments and blank lines may stand between them, so concatenated segments are read too
    (their checksums are not looked at). Raises Corrupt naming `name`, with the byte offset of the bad
    line, and Gap where an id is missing.
    """
    records: list[Record] = []
    offset = 0
    expect = 0
    for line in lines:
        raw = line.encode("utf-8", "surrogatepass") if isinstance(line, str) else line
        record = _parse(raw, name, offset) if raw.strip() else {}
        if "id" in record:
            _check_record(record, name, offset)
            if expect and record["id"] > expect:
                missing = (expect, record["id"] - 1)
                raise Gap(
                    f"{name}: records {missing[0]} to {missing[1]} are missing", log=log, missing=missing
                )
            if expect and record["id"] < expect:
                _corrupt(name, offset, f"record {record['id']} comes after record {expect - 1}")
            expect = last_id(record) + 1
            records.append(record)
        elif record and "crc" not in record:
            _corrupt(name, offset, "a record without an id")
        offset += len(raw)
    return records


def _parse(raw: bytes, name: str, offset: int) -> Record:
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        _corrupt(name, offset, str(error))
    if type(value) is not dict:
        _corrupt(name, offset, "a line that is no object")
    return value


def _decode_header(line: bytes, key: str) -> Header:
    fields = _parse(line, key, 0)
    version = fields.get("v")
    if type(version) is int and version > VERSION:
        raise NewerVersion(
            f"{key} has format version {version}; this release reads up to {VERSION}: upgrade",
            key=key,
            offset=0,
        )
    if version != VERSION or type(version) is not int:
        _corrupt(key, 0, "its first line is no header")
    hcrc = fields.get("hcrc")
    if "hcrc" in fields and (type(hcrc) is not int or crc32(line[: line.rfind(_HCRC)]) != hcrc):
        _corrupt(key, 0, "its header does not match its own checksum")
    header = Header._make(map(fields.get, _HEADER))
    problem = _problem(header) if tuple(map(type, header)) in _SOUND else _of_wrong_type(fields)
    if problem:
        _corrupt(key, 0, f"its header has a bad {problem}")
    return header


def _problem(header: Header) -> str:
    """The name of the first header field that cannot be, or ""."""
    if header.log not in ("in", "out"):
        return "log"
    if not header.nonce:
        return "nonce"
    return "" if 1 <= header.first <= header.last <= keys.MAX else "range of ids"


def _of_wrong_type(fields: Record) -> str:
    return next(name for name, kinds in _HEADER.items() if type(fields.get(name)) not in kinds)


def _decode_lines(body: bytes, start: int, key: str) -> list[Record]:
    """Every line as an object. JSON never holds a raw line end, so lines may be joined by commas."""
    if body[-1:] != b"\n":
        _corrupt(key, start, "its last line is cut off")
    lines = 1
    try:
        if body.find(b"\n") == len(body) - 1:
            records: list[Record] = [orjson.loads(body)]
        else:
            joined = body[:-1].replace(b"\n", b",\n")
            lines = len(joined) - len(body) + 2  # what grew are the commas; faster than counting line ends
            records = orjson.loads(b"[" + joined + b"]")
    except orjson.JSONDecodeError:
        records = []
    if len(records) != lines:
        # Something is wrong: find out where, slowly.
        offset = start
        for line in body[:-1].split(b"\n"):
            _parse(line, key, offset)
            offset += len(line) + 1
        _corrupt(key, start, "its lines cannot be parsed together")
    return records


def _check_ids(records: list[Record], header: Header, body: bytes, start: int, key: str) -> None:
    """Ids go from first to last without a hole, and cuts cut the text that is there."""
    expect = header.first
    try:
        for record in records:
            i = record["id"]
            if i != expect or type(i) is not int:
                break
            if "cuts" in record:
                cuts = record["cuts"]
                chunk = record["chunk"]
                text = chunk["delta"] if "delta" in chunk else chunk["inputTextDelta"]
                if type(text) is not str or cuts[-1] != len(text) or cuts[0] < 0 or cuts != sorted(cuts):
                    break
                expect += len(cuts)
            else:
                expect += 1
        else:
            if expect != header.last + 1:
                _corrupt(key, start, f"its records end at {expect - 1} and its header says {header.last}")
            return
    except (KeyError, TypeError, AttributeError, IndexError):
        pass
    _blame(header.first, body, start, key)


def _blame(expect: int, body: bytes, start: int, key: str) -> NoReturn:
    """Find the line that the quick check stumbled over."""
    offset = start
    for line in body[:-1].split(b"\n"):
        record = _parse(line, key, offset)
        _check_record(record, key, offset)
        if record["id"] != expect:
            _corrupt(key, offset, f"record {record['id']} stands where {expect} is due")
        expect = last_id(record) + 1
        offset += len(line) + 1
    _corrupt(key, start, "its ids do not hold together")


def _check_record(record: Record, key: str, offset: int) -> None:
    """One record by itself: an id, and cuts that are true."""
    if type(record.get("id")) is not int or record["id"] < 1:
        _corrupt(key, offset, "a record without a whole number for its id")
    if "cuts" not in record:
        return
    cuts: Any = record["cuts"]
    chunk = record.get("chunk")
    field = text_field(chunk)
    if chunk is None or field is None or type(cuts) is not list or not cuts or set(map(type, cuts)) != _INTS:
        _corrupt(key, offset, f"record {record['id']} has cuts and nothing to cut")
    if cuts[0] < 0 or cuts != sorted(cuts) or cuts[-1] != len(chunk[field]):
        _corrupt(key, offset, f"the cuts of record {record['id']} do not fit its text")


def _corrupt(key: str, offset: int, problem: str) -> NoReturn:
    raise Corrupt(f"{key or 'a segment'} is corrupt at byte {offset}: {problem}", key=key, offset=offset)
