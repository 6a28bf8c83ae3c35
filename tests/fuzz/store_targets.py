"""Targets with a store behind them: a session of which one object holds other bytes, read by every door of
the library and by the command line; and commands that are fed bytes. See `targets.py`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from typing import Any

import seeds
from chat_samples import SID, Place
from click.testing import CliRunner
from mutations import reframed, sealed

from snapshotter.cli.app import cli
from snapshotter.cli.output import dumps
from snapshotter.core.contract import describe
from snapshotter.core.revive import revive
from snapshotter.core.snapshot import decode
from snapshotter.errors import InvalidValue, StreamError
from snapshotter.verify import verify
from streams import keys
from streams.buckets.memory import MemoryBucket


def described(fold: Any) -> dict[str, Any]:
    """What a boot says of a fold, and that it can be printed."""
    told = describe(fold, revive(fold))
    with suppress(InvalidValue):  # nested as no printer goes
        dumps(told)
    return told


# -- a store -------------------------------------------------------------------------------------------------


def store(data: bytes) -> None:
    """One object of a session holds other bytes: every door says so in the tree's words, and nothing that was
    not understood is written over; with the old bytes back, everything is back."""
    key, damage = _damage(data)
    place = Place()
    fill(place.bucket.inner, seeds.objects())
    before = readings(place)
    place.bucket.inner.put(key, damage)
    readings(place)
    with suppress(StreamError):
        place.answer(takeover=True)
    assert place.space.objects[key].data == damage or _was_understood(place, key, damage)
    fill(place.bucket.inner, seeds.objects())
    assert readings(place) == before


def _damage(data: bytes) -> tuple[str, bytes]:
    """A key, and what is to stand there: `<which key><1: with checksums that fit>\\n<bytes>`."""
    names = sorted(seeds.objects())
    key = names[int.from_bytes(data[:1], "big") % len(names)]
    damage = data[3:]
    if data[1:2] == b"1":
        damage = sealed(damage) if key.startswith("sessions/") else reframed(damage)
    return key, damage


def damages() -> list[bytes]:
    names = sorted(seeds.objects())
    at = -ord("A") % len(names)
    return [
        b"%c%d\n%b" % (ord("A") + (number + at) % len(names), fits, seeds.objects()[key])
        for number, key in enumerate(names)
        for fits in (0, 1)
    ]


def fill(bucket: MemoryBucket, objects: dict[str, bytes]) -> None:
    """Exactly these objects, and no other."""
    for entry in bucket.list("").entries:
        bucket.delete(entry.key)
    for key, data in objects.items():
        bucket.put(key, data)


def _was_understood(place: Place, key: str, damage: bytes) -> bool:
    """Whether what was written over was a snapshot that could be read."""
    try:
        decode(damage, key=key, session=place.db.sid(SID))
    except StreamError:
        return False
    return key.startswith("sessions/")


def readings(place: Place) -> list[Any]:
    """What each reader says: its answer, or the type of its error."""
    db = place.db
    doors: list[Callable[[], Any]] = [
        lambda: db.history(SID),
        lambda: described(db.peek(SID).fold),
        lambda: [r for which in ("in", "out") for r in db.records(SID, which, timeout=0)],
        lambda: db.outcome(SID),
        lambda: [info.id for info in db.sessions()],
        lambda: [finding.code for finding in verify(db, SID).problems],
    ]
    return [_said(door) for door in doors]


def _said(door: Callable[[], Any]) -> Any:
    try:
        return door()
    except StreamError as error:
        return type(error)


# -- the command line ----------------------------------------------------------------------------------------

_SHOWN = (
    ("history",),
    ("boot",),
    ("boot", "--json"),
    ("log", "in"),
    ("log", "out"),
    ("verify",),
    ("send", "more"),
    ("approve", "ap1"),
    ("record", "--takeover", "--wait", "0"),
    ("history", "--json"),
)
_FED = (
    ("replay", "--json"),
    ("replay", "--strict"),
    ("classify",),
    ("fold", "--in", "-", "--out", os.devnull),
    ("fold", "--in", "-", "--out", os.devnull, "--json"),
    ("fold", "--in", os.devnull, "--out", "-"),
    ("fold", "--in", os.devnull, "--out", os.devnull, "--snapshot", "-"),
    ("incident", "--in", os.devnull, "--out", "-", "--now", "1"),
    ("record", "memory://fuzz", SID, "--takeover", "--wait", "0"),
    ("send", "memory://fuzz", "new", "-"),
)


class _Stdin(BytesIO):
    """A pipe, which has a name."""

    name = "<stdin>"


def shown(data: bytes) -> None:
    """What the commands make of a session of which one object holds other bytes."""
    key, damage = _damage(data)
    bucket = MemoryBucket(name="fuzz")
    fill(bucket, seeds.objects())
    bucket.put(key, damage)
    for name, *rest in _SHOWN:
        ran(name, "memory://fuzz", SID, *rest)


def command(data: bytes) -> None:
    """A command that is given these bytes: `<which command>\\n<bytes>`."""
    bucket = MemoryBucket(name="fuzz")
    fill(bucket, seeds.objects())
    bucket.delete(keys.snapshot(SID))
    ran(*_FED[int.from_bytes(data[:1], "big") % len(_FED)], stdin=data[2:])


def ran(*args: str, stdin: bytes = b"") -> int:
    """The exit code of a command, which is one of those that `--help` tells, and none of a defect."""
    result = CliRunner().invoke(cli, list(args), input=_Stdin(stdin))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert 0 <= result.exit_code <= 6, f"{args}: {result.exit_code}: {result.output[-500:]}"
    return result.exit_code


def commands() -> list[bytes]:
    ins, outs = b"\n".join(seeds.records("in")), b"\n".join(seeds.records("out"))
    chunks_of = b'{"chunks":%b}' % json.dumps(seeds.ANSWER).encode()
    history_of = json.dumps(seeds.messages()).encode()
    fed = [
        chunks_of,
        chunks_of,
        history_of,
        ins,
        ins,
        outs,
        *seeds.snapshots(),
        outs,
        *seeds.recordings()[:1],
    ]
    at = -ord("A") % len(_FED)
    return [b"%c\n%b" % (ord("A") + (n + at) % len(_FED), given) for n, given in enumerate([*fed, b"hi"])]
