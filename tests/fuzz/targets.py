"""What reads bytes from outside, each as one plain function of bytes, with its law.

A target returns when the engine kept its promise and raises when it did not. The promise: an error that is
raised is one of the tree in `streams.errors`; what is accepted can be worked with (unpacked, shown, stored
again); the same bytes say the same thing twice. The property tests and the coverage-guided fuzzer
(`scripts/fuzz.py`) run the same functions.

Those with a store behind them are in `store_targets.py`; `TARGETS` names all, each with real bytes to begin
from. `CUT` stands between the two documents of a target that takes two.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson
import seeds
from mutations import fields_of, sealed
from store_targets import command, commands, damages, described, shown, store

from snapshotter import Receipt, classify_resume, for_model, repair, sanitize, shorten
from snapshotter.cli.chunks import Chunks
from snapshotter.cli.output import dumps
from snapshotter.core.contract import fold_case
from snapshotter.core.partial_json import ABSENT, parse_partial
from snapshotter.core.reconcile import merge_orphan, news, reconcile, upsert_incoming_message
from snapshotter.core.replay import replay
from snapshotter.core.snapshot import decode, encode, restore
from snapshotter.core.values import clean, loads
from snapshotter.errors import InvalidValue, StreamError
from streams import keys, probe
from streams.buckets.url import open_bucket
from streams.codec import decode_segment, frame, read_records
from streams.packing import count, unpack
from streams.records import Header

CUT = b"\n\x1e\n"
_ENV = {"OBJECT_STORE_ACCESS_KEY_ID": "k", "OBJECT_STORE_SECRET_ACCESS_KEY": "s"}
_MOST_IDS = 100_000  # unpacked in a target; what a run of many empty deltas may claim costs no memory before


@dataclass(frozen=True)
class Target:
    """A function of bytes that raises where a law is broken, and what to begin from."""

    run: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]


# -- segments ----------------------------------------------------------------------------------------------


def segment(data: bytes) -> None:
    """A stored segment: typed, or whole."""
    with suppress(StreamError):
        _read_segment(data)


def body(data: bytes) -> None:
    """Lines under a header that fits them, so that what is in them is reached, and not its checksum alone."""
    lines = [line for line in data.split(b"\n") if line]
    with suppress(StreamError):
        total = sum(_ids_of(line) for line in lines)
        first = next(iter(fields_of(line).get("id") for line in lines), 1)
        first = first if type(first) is int and 1 <= first <= keys.MAX else 1
        _read_segment(frame("out", first, max(first, first + total - 1), lines, nonce="n"))


def _ids_of(line: bytes) -> int:
    cuts = fields_of(line).get("cuts")
    return len(cuts) if isinstance(cuts, list) else 1


def _read_segment(data: bytes) -> None:
    found = decode_segment(data)
    if found is None:
        assert not data
        return
    header = found.header
    covered = sum(count(record) for record in found.records)
    assert covered == header.last - header.first + 1
    with suppress(StreamError):  # a cut that is no whole number is told where it is used
        if covered <= _MOST_IDS:
            ids = [record["id"] for stored in found.records for record in unpack(stored)]
            assert ids == list(range(header.first, header.last + 1))
    again = decode_segment(_framed(header, data))
    assert again is not None
    assert printed(again.records) == printed(found.records)


def _framed(header: Header, data: bytes) -> bytes:
    """The same segment, written anew."""
    lines = data.split(b"\n")[1:-1]
    return frame(header.log, header.first, header.last, lines, nonce=header.nonce, prev=header.prev)


def loose_records(data: bytes) -> None:
    """Record lines without frames."""
    with suppress(StreamError):
        read_records(data.split(b"\n"), log="out")


# -- documents ---------------------------------------------------------------------------------------------


def snapshot(data: bytes) -> None:
    """A snapshot as it is, and with its checksum made right."""
    for document in (data, sealed(data)):
        with suppress(StreamError):
            _read_snapshot(document)


def _read_snapshot(data: bytes) -> None:
    document = decode(data)
    fold = restore(document)
    described(fold)
    stored = encode(fold, "n", 1)
    assert encode(restore(decode(stored)), "n", 1) == stored


def capabilities(data: bytes) -> None:
    with suppress(StreamError):
        found = probe.decode(data)
        probe.require(found, allow_unfenced=True)
        assert probe.decode(found.encode()) == found


def receipt(data: bytes) -> None:
    with suppress(StreamError):
        found = Receipt.parse(_text(data))
        assert Receipt.parse(str(found)) == found


# -- the reducer -------------------------------------------------------------------------------------------


def fold(data: bytes) -> None:
    """Records of both logs, in before out, as a boot reads them: any two foldings agree."""
    incoming, _, outgoing = data.partition(CUT)
    with suppress(StreamError):
        ins, outs = _records(incoming), _records(outgoing)
        told = fold_case(ins, outs)
        assert printed(fold_case(_records(incoming), _records(outgoing))) == printed(told)
        if "error" not in told:
            assert told["cursor"]["out"] >= max((r["id"] for r in outs), default=0)


def printed(value: Any) -> bytes | None:
    """The value as a command prints it; None for what nests as no printer goes."""
    try:
        return dumps(value)
    except InvalidValue:
        return None


def _records(data: bytes) -> list[dict[str, Any]]:
    """The lines that a codec lets through, numbered anew, so that holes are not all that is ever met."""
    found: list[dict[str, Any]] = []
    number = 1
    for line in data.split(b"\n"):
        record = {**fields_of(line), "id": number}
        with suppress(StreamError):
            raw = dumps(record)
            checked = decode_segment(frame("out", number, number + _ids_of(raw) - 1, [raw], nonce="n"))
            if checked is not None and record.keys() > {"id"}:
                found += checked.records
                number += _ids_of(raw)
    return found


def chunks(data: bytes) -> None:
    """A stream of chunks: recovery never raises, strict raises what it says, both give a message that JSON
    holds."""
    given = []
    with suppress(StreamError):
        given = [loads(line) for line in data.split(b"\n") if line.strip()]
    with suppress(InvalidValue):
        seen = replay({"chunks": given})
        assert seen.keys() == {"message", "report"}
        orjson.dumps(clean(seen["message"]))
    for strict in (False, True):
        with suppress(InvalidValue):
            json.dumps(replay({"chunks": given}, strict=strict))


def stream(data: bytes) -> None:
    """JSON lines or server-sent events, as a command reads them from a pipe."""
    with suppress(StreamError):
        for chunk in Chunks(data.splitlines(keepends=True) if b"\r" not in data else data.split(b"\n")):
            assert isinstance(chunk, dict)


def partial_input(data: bytes) -> None:
    """A tool's input that is still arriving."""
    value = parse_partial(_text(data))
    if value is not ABSENT:
        orjson.dumps(value)


# -- messages of a client or of a host -----------------------------------------------------------------------


def history(data: bytes) -> None:
    """Messages as a client or another framework hands them over."""
    with suppress(StreamError):
        found = clean(loads(data))
        if isinstance(found, list):
            _classified(found)
            kept = [message for message in found if isinstance(message, dict)]
            _repaired(kept)
            _reconciled(kept)


def _classified(found: list[Any]) -> None:
    with suppress(StreamError):
        kind = classify_resume(found).kind
        json.dumps(for_model(found, kind))


def _repaired(kept: list[dict[str, Any]]) -> None:
    once = repair(kept)
    assert repair(once.messages).messages == once.messages
    with suppress(StreamError):  # an id that alone is larger
        for message in shorten(sanitize(once.messages), 512):
            assert len(orjson.dumps(message)) <= 512


def _reconciled(kept: list[dict[str, Any]]) -> None:
    half = len(kept) // 2
    stored, incoming = kept[:half], kept[half:]
    json.dumps([reconcile(incoming, stored), news(incoming, stored), reconcile(kept, kept)])
    for message in incoming[:2]:
        json.dumps(upsert_incoming_message(stored, message))
        json.dumps([merge_orphan(message, other) for other in stored[:2]])


def value(data: bytes) -> None:
    """Any JSON from a user."""
    with suppress(StreamError):
        kept = clean(loads(data))
        assert loads(orjson.dumps(kept)) == kept


# -- names -------------------------------------------------------------------------------------------------


def name(data: bytes) -> None:
    """A session id, an encoded one, a listed key."""
    text = _text(data)
    with suppress(StreamError):
        sid = keys.encode_sid(text)
        assert keys.decode_sid(sid) == text
        assert keys.parse_snapshot(keys.snapshot(sid)) == sid
        assert keys.parse_segment(keys.segment("in", sid, 1)) == ("in", sid, 1)
    with suppress(StreamError):
        assert keys.encode_sid(keys.decode_sid(text), len(text) + 1024) == text
    place = keys.parse_segment(text)
    assert place is None or keys.segment(*place) == text
    turn = keys.parse_checkpoint(text)
    assert turn is None or keys.checkpoint(*turn) == text
    sid = keys.parse_snapshot(text)  # type: ignore[assignment]
    assert sid is None or keys.snapshot(sid) == text
    content = keys.parse_content(text)
    assert content is None or text.startswith(f"{content[0]}/{content[1]}/{content[2]}")


def url(data: bytes) -> None:
    """A store URL. (Buckets behind it are opened, and nothing is sent; s3 and file have their own tests.)"""
    text = _text(data)
    if not text.startswith(("s3", "file")):
        with suppress(StreamError):
            open_bucket(text, env=_ENV).close()


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _urls() -> list[bytes]:
    return [
        b"minio://localhost:9000/bucket/path?secure=0&region=eu",
        b"minio://[::1]:9000/bucket",
        b"memory://name/prefix",
        b"memory://a%20b/../c?x=1#f",
        b"minio://user:pw@host:99999/b",
    ]


def _names() -> list[bytes]:
    odd = ["a/b", "..%2Fvictim", "é \U0001f3d4", "a%2Fb", "checkpoints/s/9999999999999998-1.json"]
    return [*(text.encode() for text in odd), *(key.encode() for key in seeds.objects())]


def _folded() -> list[bytes]:
    ins, outs = seeds.records("in"), seeds.records("out")
    return [b"\n".join(ins) + CUT + b"\n".join(outs), b"\n".join(ins[:1]) + CUT + b"\n".join(outs[:8])]


def _plain() -> list[Any]:
    asked = [{"id": "t1", "function": {"name": "f", "arguments": "{}"}}]
    return [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "", "tool_calls": asked, "stop": "tool_use"},
        {"role": "tool", "tool_call_id": "t1", "content": "ok"},
    ]


TARGETS: dict[str, Target] = {
    "segment": Target(segment, seeds.segments),
    "body": Target(body, lambda: [data.partition(b"\n")[2] for data in seeds.segments()]),
    "loose_records": Target(loose_records, seeds.segments),
    "snapshot": Target(snapshot, seeds.snapshots),
    "capabilities": Target(
        capabilities,
        lambda: [probe.Capabilities(True, True, True, True, "unquoted", 1).encode(), b'{"version":2}'],
    ),
    "receipt": Target(receipt, lambda: [b'{"session": "s", "id": 7}']),
    "fold": Target(fold, _folded),
    "chunks": Target(chunks, lambda: [seeds.lines(seeds.ANSWER), *seeds.recordings()[:4]]),
    "stream": Target(stream, seeds.recordings),
    "partial_input": Target(partial_input, lambda: [b'{"a":[1,-2.5e3,tru', b'{"k":"\\u00e9\\ud83c', b"[[[{"]),
    "history": Target(history, lambda: [json.dumps(m).encode() for m in (seeds.messages(), _plain())]),
    "value": Target(value, lambda: [b'{"a":[1,2.5,"\\u2028",null],"b":{"c":18446744073709551615}}']),
    "name": Target(name, _names),
    "url": Target(url, _urls),
    "store": Target(store, damages),
    "shown": Target(shown, damages),
    "command": Target(command, commands),
}
