"""The snapshot: a checkpoint of the fold, as one JSON document.

It is taken at a segment's end with no turn open and no claim behind the last turn-complete. It is never
the fence: a stale one is an older checkpoint of the same log, and a boot comes to the same history from
it. A reader accepts any version up to its own and refuses a newer one; fields that another writer left
out count as empty.
"""

from __future__ import annotations

from typing import Any

import orjson

from streams.errors import Corrupt, NewerVersion, Refused

from .chain import Chain
from .fold import Fold
from .inputs import InputLog

VERSION = 1


def encode(fold: Fold, nonce: str, saved_at: int, *, hydrated: bool = False) -> bytes:
    """The fold's snapshot document. `nonce` is that of the last out segment, `saved_at` epoch ms. `hydrated`:
    somebody else owns the history, and the document is a cursor only.

    The caller makes sure that the fold stands at a segment's end with no turn open.
    """
    # The first fields are those that `tally` reads without the rest.
    document = {
        "version": VERSION,
        "savedAt": saved_at,
        "lastOutEventId": str(fold.cursor),
        "lastOutNonce": nonce,
        "lastInEventId": str(fold.inputs.applied_upto),
        "inApplied": fold.inputs.snapshot_applied(),
        "epoch": fold.epoch,
        "turn": fold.turn,
        "run": fold.run,
        "messages": [] if hydrated else fold.chain.messages,
        "lastOutTimestamp": fold.timestamp,
        "keys": fold.inputs.rows(),
        "lastTurn": fold.last_turn,
        "unfinished": fold.unfinished,
        "state": fold.state,
        "context": fold.context,
        "closed": fold.closed,
        "deleted": fold.deleted,
    }
    if hydrated:
        document["hydrated"] = True
    return orjson.dumps(document)


def decode(data: bytes, *, key: str = "snapshot.json", hydrated: bool = False) -> dict[str, Any]:
    """The document of a stored snapshot. Raises Corrupt, NewerVersion naming both versions, or, unless the
    reader is `hydrated` (it needs no messages, or has them from elsewhere), Refused for a cursor only.
    """
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise Corrupt(
            f"snapshot {key} is not JSON ({error}); it was left as it is", key=key, offset=error.pos
        ) from error
    if not isinstance(document, dict) or not isinstance(document.get("version"), int):
        raise Corrupt(f"snapshot {key} is no snapshot document; it was left as it is", key=key, offset=0)
    if document["version"] > VERSION:
        raise NewerVersion(
            f"snapshot {key} has version {document['version']}, this release reads up to {VERSION}:"
            " upgrade snapshotter; nothing was changed",
            key=key,
            offset=0,
        )
    missing = _stored_elsewhere(document)
    if missing:
        raise NewerVersion(
            f"snapshot {key} refers to {missing}, which this release does not read: upgrade snapshotter;"
            " nothing was changed",
            key=key,
            offset=0,
        )
    if document.get("hydrated") and not hydrated:
        raise Refused(
            f"snapshot {key} is a cursor only, its history belongs to a hydrate hook: open the database with"
            " hydrate=…; nothing was changed"
        )
    problem = _problem(document)
    if problem:
        raise Corrupt(f"snapshot {key}: {problem}; it was left as it is", key=key, offset=0)
    return document


_SHAPES: dict[str, type | tuple[type, ...]] = {
    "messages": list,
    "inApplied": list,
    "keys": list,
    "unfinished": list,
    "state": dict,
    "epoch": int,
    "turn": int,
    "run": str,
    "lastTurn": dict,
    "context": dict,
}


def _stored_elsewhere(document: dict[str, Any]) -> str | None:
    """What of the history is not in the document itself, in words; None where all of it is."""
    if document.get("blocks"):
        return "sealed blocks"
    messages = document.get("messages")
    if isinstance(messages, list) and any(
        type(m) is dict and "ref" in m and "role" not in m for m in messages
    ):
        return "messages stored apart"
    return None


def _problem(document: dict[str, Any]) -> str | None:
    for name, kind in _SHAPES.items():
        if document.get(name) is not None and not isinstance(document[name], kind):
            return f"field {name!r} has the wrong type"
    for name in ("lastOutEventId", "lastInEventId"):
        if not str(document.get(name) or "0").isdecimal():
            return f"field {name!r} is not a record id"
    if not all(isinstance(message, dict) for message in document.get("messages") or ()):
        return "a message is not an object"
    if not all(isinstance(n, int) for n in document.get("inApplied") or ()):
        return "field 'inApplied' holds something that is not an id"
    for row in document.get("keys") or ():
        if not (isinstance(row, list) and len(row) == 3 and isinstance(row[0], int)):
            return "a row of 'keys' is not [id, key, hash]"
    return None


def restore(document: dict[str, Any], *, strict: bool = False) -> Fold:
    """A fold that stands where the snapshot was taken."""
    fold = Fold(strict=strict)
    fold.chain = Chain(document.get("messages") or ())
    fold.cursor = int(document.get("lastOutEventId") or 0)
    fold.timestamp = document.get("lastOutTimestamp") or 0
    fold.inputs = InputLog(
        int(document.get("lastInEventId") or 0), document.get("inApplied") or (), document.get("keys") or ()
    )
    fold.epoch = document.get("epoch") or 0
    fold.run = document.get("run") or ""
    fold.turn = document.get("turn") or 0
    fold.last_turn = document.get("lastTurn")
    fold.unfinished = list(document.get("unfinished") or ())
    fold.state = document.get("state") or {}
    fold.context = document.get("context")
    fold.closed = document.get("closed") is True
    fold.deleted = document.get("deleted") is True
    return fold
