"""The layout of a root: the only place where a key is built or parsed.

A session id may be any text. It becomes one path segment of safe ASCII (`encode_sid`), injectively, with
case kept and no Unicode folding, so that no id can reach another's objects, whatever is written in it:

    "a/b" -> "a%2Fb"      "a%2Fb" -> "a%252Fb"      "../victim" -> "..%2Fvictim"

Everything below takes the encoded form, named `sid`, and refuses anything else: a raw id that slipped
through is an error here and never a stray key. The table of keys is FORMAT.md's:

    sessions/<sid>/snapshot.json                    the snapshot
    in/<sid>/<MAX-first>-<first>.jsonl              a segment of the in log
    out/<sid>/<MAX-first>-<first>.jsonl             a segment of the out log
    blocks/<sid>/<sha256>-<nonce>.json.gz           a sealed run of settled messages
    values/<sid>/<sha256>-<nonce>.json              one large chunk or message
    checkpoints/<sid>/<MAX-turn>-<turn>.json        a snapshot that trimming keeps
    capabilities.json                               what the probe found

Counting down from MAX makes an ascending listing show the newest first. No key is another's parent.
Keys are relative to the root; a bucket adds its own path.
"""

from __future__ import annotations

import re
from typing import Literal

from streams.errors import InvalidId

Log = Literal["in", "out"]

FOLDERS = ("sessions", "in", "out", "blocks", "values", "checkpoints")
"""Each has one folder a session in it."""

MAX = 9_999_999_999_999_999
CAPABILITIES = "capabilities.json"

_DIGITS = len(str(MAX))
_SAFE = re.compile(r"[A-Za-z0-9_.-]+")
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")
_SEGMENT = r"[A-Za-z0-9_.-]*(?:%[0-9A-F]{2}[A-Za-z0-9_.-]*)*"
_SID = re.compile(_SEGMENT)
_NAME = re.compile(r"[0-9a-f]{64}-[A-Za-z0-9_-]{1,64}")
_NUMBERED = re.compile(rf"(in|out|checkpoints)/({_SEGMENT})/([0-9]{{16}})-(0|[1-9][0-9]{{0,15}})\.jsonl?")

# The longest key of a session is a block's: sha256 of 64, a nonce of 24 (`Clock.token`).
_LONGEST = len("blocks/") + len("/") + 64 + len("-") + 24 + len(".json.gz")


def encode_sid(session_id: str, room: int = 1024) -> str:
    """A session id as one safe path segment. `room`: longest key, in bytes, that the root can take.

    Raises InvalidId for an empty id, one of dots alone, one with lone surrogates, and one that is too long.
    """
    if not isinstance(session_id, str):
        raise InvalidId(f"a session id must be text, not {type(session_id).__name__}")
    if not session_id.strip("."):
        raise InvalidId(f"the session id {session_id!r} is empty or made of dots alone: choose another")
    try:
        sid = session_id if _SAFE.fullmatch(session_id) else _UNSAFE.sub(_percent, session_id)
    except UnicodeEncodeError as error:
        raise InvalidId(
            f"the session id has half a surrogate pair at index {error.start}: give whole characters"
        ) from None
    if len(sid) + _LONGEST > room:
        raise InvalidId(
            f"the session id takes {len(sid)} bytes once encoded, and there is room for {room - _LONGEST}: "
            "use a shorter one (for example its SHA-256)"
        )
    return sid


def encode_start(start: str) -> str:
    """How the segment of every session begins whose id begins with `start`; "" where that tells nothing.

    Raises InvalidId for a text with half a surrogate pair.
    """
    if not start.strip("."):
        return ""  # a segment of dots would lead elsewhere in some stores
    return encode_sid(start)


def decode_sid(sid: str) -> str:
    """The session id that `encode_sid` made this segment of. Raises InvalidId for any other text."""
    try:
        plain = re.sub(r"(?:%[0-9A-F]{2})+", _unpercent, sid)
        canonical = _UNSAFE.sub(_percent, plain)
    except UnicodeError:  # no UTF-8 behind the escapes, or half a surrogate pair beside them
        plain = canonical = ""
    # Only the canonical spelling counts, or two segments would name one session.
    if not plain.strip(".") or canonical != sid:
        raise InvalidId(f"{sid!r} is not an encoded session id")
    return plain


def session_of(sid: str | None) -> str | None:
    """The session id of a listed key's segment; None for one that `encode_sid` never made: no session's."""
    try:
        return None if sid is None else decode_sid(sid)
    except InvalidId:
        return None


def snapshot(sid: str) -> str:
    """The key of a session's snapshot."""
    return f"{sessions_prefix()}{_checked(sid)}/snapshot.json"


def segment(log: Log, sid: str, first: int) -> str:
    """The key of the segment whose first record has the id `first` (1 to MAX)."""
    return f"{log_prefix(log, sid)}{_countdown(first)}.jsonl"


def checkpoint(sid: str, turn: int) -> str:
    """The key of the checkpoint that trimming wrote after this turn; 0 is that of a fork."""
    return f"{checkpoints_prefix(sid)}{_countdown(turn, 0)}.json"


def block(sid: str, name: str) -> str:
    """The key of a block; `name` is `<sha256>-<nonce>`, as `content_name` makes it."""
    return f"{blocks_prefix(sid)}{_checked_name(name)}.json.gz"


def value(sid: str, name: str) -> str:
    """The key of a large value; `name` is `<sha256>-<nonce>`, as `content_name` makes it."""
    return f"{values_prefix(sid)}{_checked_name(name)}.json"


def content_name(sha256: str, nonce: str) -> str:
    """The name of a block or value: the hash proves the content, the nonce makes each sealing its own."""
    return _checked_name(f"{sha256}-{nonce}")


def sessions_prefix(start: str = "") -> str:
    """Where one flat listing shows every session that has a snapshot; `start` as from `encode_start`."""
    return f"sessions/{_checked(start) if start else ''}"


def log_prefix(log: Log, sid: str) -> str:
    """Where the segments of one log are listed, newest first."""
    return f"{log}/{_checked(sid)}/"


def blocks_prefix(sid: str) -> str:
    return f"blocks/{_checked(sid)}/"


def values_prefix(sid: str) -> str:
    return f"values/{_checked(sid)}/"


def checkpoints_prefix(sid: str) -> str:
    return f"checkpoints/{_checked(sid)}/"


def parse_segment(key: str) -> tuple[Log, str, int] | None:
    """(log, sid, first) of a segment's key, or None for any other key."""
    found = _parse_numbered(key, ".jsonl")
    if found is None or found[0] == "checkpoints" or not found[2]:
        return None
    return ("in" if found[0] == "in" else "out"), found[1], found[2]


def parse_checkpoint(key: str) -> tuple[str, int] | None:
    """(sid, turn) of a checkpoint's key, or None for any other key."""
    found = _parse_numbered(key, ".json")
    return (found[1], found[2]) if found is not None and found[0] == "checkpoints" else None


def parse_snapshot(key: str) -> str | None:
    """The sid of a snapshot's key, or None for any other key."""
    parts = key.split("/")
    if len(parts) != 3 or parts[0] != "sessions" or parts[2] != "snapshot.json":
        return None
    return parts[1] if _is_sid(parts[1]) else None


def parse_content(key: str) -> tuple[str, str, str] | None:
    """("blocks" or "values", sid, name) of such a key, or None for any other key."""
    parts = key.split("/")
    if len(parts) != 3 or parts[0] not in ("blocks", "values") or not _is_sid(parts[1]):
        return None
    name = parts[2].removesuffix(".json.gz" if parts[0] == "blocks" else ".json")
    return (parts[0], parts[1], name) if name != parts[2] and _NAME.fullmatch(name) else None


def _parse_numbered(key: str, suffix: str) -> tuple[str, str, int] | None:
    found = _NUMBERED.fullmatch(key)
    if found is None or not key.endswith(suffix) or not found[2].strip("."):
        return None
    number = int(found[4])
    return (found[1], found[2], number) if int(found[3]) == MAX - number else None


def _countdown(number: int, least: int = 1) -> str:
    if not least <= number <= MAX:
        raise ValueError(f"numbers go from {least} to {MAX}, not {number}")
    return f"{MAX - number:0{_DIGITS}d}-{number}"


def _percent(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode())


def _unpercent(found: re.Match[str]) -> str:
    return bytes.fromhex(found[0].replace("%", "")).decode()


def _is_sid(sid: str) -> bool:
    return _SID.fullmatch(sid) is not None and sid.strip(".") != ""


def _checked(sid: str) -> str:
    if not _is_sid(sid):
        raise InvalidId(f"{sid!r} is not an encoded session id: pass it through encode_sid first")
    return sid


def _checked_name(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise InvalidId(f"{name!r} is not of the form <sha256>-<nonce>")
    return name
