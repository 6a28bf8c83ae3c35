"""Every way to damage one stored object of a small session, and what a reader makes of it.

A scene is a few turns, played without faults. Then one object is changed at a time: a bit flipped, cut off,
emptied, removed, put back in an older version, replaced by what another log has at the same place. Whoever
reads after that has to find the history as it was, or to say that something is damaged; nobody may be shown
another one. And a snapshot that could not be read has to stay as it is, whoever works on the session.

What no format could find is left out: the newest object of a log that is gone without a trace, an input
exchanged for another (inputs are no chain), a whole snapshot of another run under the same session's name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

from checker import Violation
from smallworld import SESSION, Broke
from stored import Broken, pieces_of

from snapshotter import Database
from snapshotter.core.calls import Message
from streams.buckets.base import Blob
from streams.buckets.memory import MemoryBucket, Space
from streams.errors import Damaged, StreamError
from streams.testing.simulation import World

SNAPSHOT = f"sessions/{SESSION}/snapshot.json"
_UNSEEN = 24  # bytes at a snapshot's end: a name of the checksum that is hit leaves a document without one

Objects = dict[str, bytes]


@dataclass(frozen=True)
class Scene:
    """What is stored. `before`: the snapshot a turn earlier; `other`: the objects of another run of it."""

    name: str
    objects: Objects
    before: bytes
    other: Objects


@dataclass(frozen=True)
class Harm:
    """One change; `data` None: the object is gone."""

    key: str
    what: str
    data: bytes | None


def scenes() -> Iterator[Scene]:
    """`settled`: three turns and a snapshot of all; `bare`: without one; `torn`: the third was cut off."""
    (first, early), (second, _) = _play("a", torn=False), _play("b", torn=False)
    (cut, cut_early), (other, _) = _play("a", torn=True), _play("b", torn=True)
    yield Scene("settled", first, early, second)
    yield Scene("bare", {key: data for key, data in first.items() if key != SNAPSHOT}, early, second)
    yield Scene("torn", cut, cut_early, other)


def _run(
    space: Space, seed: str, act: Callable[[Database], object], misread: tuple[str, int] | None = None
) -> None:
    """Let a process do something; raises what it ended with."""
    with World(parallel=False) as world:
        process = world.process("p", seed=seed)
        bucket = _Misreading(process, space=space)
        bucket.wrong = misread
        process.start(lambda: act(Database(bucket, process)))
        world.run()
        if process.error is not None:
            raise process.error


def _play(seed: str, *, torn: bool) -> tuple[Objects, bytes]:
    """The stored objects of a scene, and the snapshot after its first turn."""
    space, early = Space(), list[bytes]()

    def act(db: Database) -> None:
        for name in ("u1", "u2"):
            _answer(db, name)
            early.append(space.objects[SNAPSHOT].data)
        receipt = db.send(SESSION, _user("u3"))
        turn = next(db.boot(SESSION, receipt=receipt).turns())
        for chunk in _model(db.clock.token()):
            turn.write(chunk)
            turn.flush()
        if not torn:
            turn.complete()

    _run(space, seed, act)
    return {key: space.objects[key].data for key in space.order}, early[0]


def _user(name: str) -> Message:
    return {"id": name, "role": "user", "parts": [{"type": "text", "text": f"this is {name}"}]}


def _model(sign: str) -> Iterator[dict[str, str]]:
    yield {"type": "start"}
    yield {"type": "start-step"}
    yield {"type": "text-start", "id": "t"}
    for word in ("an ", "answer ", sign):
        yield {"type": "text-delta", "id": "t", "delta": word}
    yield {"type": "text-end", "id": "t"}
    yield {"type": "finish-step"}
    yield {"type": "finish", "finishReason": "stop"}


def _answer(db: Database, name: str, *, takeover: bool = False) -> None:
    receipt = db.send(SESSION, _user(name))
    with db.boot(SESSION, receipt=receipt, takeover=takeover) as session:
        for turn in session.turns():
            with turn:
                for chunk in _model(db.clock.token()):
                    turn.write(chunk)


def harms(scene: Scene, *, step: int) -> Iterator[Harm]:
    """Every change of every object; of bit flips one in each `step`th byte."""
    last_out = min(key for key in scene.objects if key.startswith("out/"))  # names count down
    for key, data in scene.objects.items():
        lines = [at + 1 for at, byte in enumerate(data) if byte == 0x0A]
        cuts = {at for a, b in pairwise([0, *lines, len(data)]) for at in (b, (a + b) // 2)}
        for at in sorted(cuts - {0, len(data)}):
            yield Harm(key, f"cut at byte {at}", data[:at])
        yield Harm(key, "emptied", b"")
        if key != last_out:
            yield Harm(key, "removed", None)
        if key.startswith("out/"):
            yield Harm(key, "exchanged", scene.other[key])
        if key == SNAPSHOT:
            yield Harm(key, "an older one", scene.before)
        for at in range(0, len(data), step):
            yield Harm(key, f"byte {at} flipped", _flipped(data, at))


def _flipped(data: bytes, at: int) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 1 << (at + at // 8) % 8
    return bytes(changed)


def check(scene: Scene, truth: list[Message], harm: Harm) -> None:
    """Read, then work on, the session with this harm done. Raises Broke."""
    objects = {key: data for key, data in scene.objects.items() if key != harm.key}
    space = _stored(objects if harm.data is None else {**objects, harm.key: harm.data})
    where = f"{scene.name}: {harm.key} {harm.what}"
    try:
        shown = Database(MemoryBucket(space=space)).history(SESSION)
    except Damaged:
        shown = truth
    if shown != truth:
        raise Broke(Violation("damage is never served as healthy", f"{where}: {shown}"))
    spoilt = harm.key == SNAPSHOT and harm.data is not None and harm.what != "an older one"
    if spoilt and not (scene.objects[harm.key][:-_UNSEEN] == harm.data[:-_UNSEEN]):
        with suppress(StreamError):
            _run(space, "later", lambda db: _answer(db, "u4", takeover=True))
        if space.objects[harm.key].data != harm.data:
            raise Broke(Violation("what could not be read is not overwritten", where))


def in_transit(scene: Scene) -> Iterator[Callable[[], None]]:
    """A worker goes on with the session, and one byte of an out segment's header is read wrong once: the log
    that it leaves has to be one chain. A check for each."""
    for key, data in scene.objects.items():
        if key.startswith("out/"):
            for at in range(data.index(b"\n")):
                yield partial(_misread, scene, key, at)


def _misread(scene: Scene, key: str, at: int) -> None:
    space = _stored(scene.objects)
    with suppress(StreamError):
        _run(space, "later", lambda db: _answer(db, "u4", takeover=True), misread=(key, at))
    objects = {name: space.objects[name].data for name in space.order}
    try:
        pieces_of(objects, "out", SESSION)
    except Broken as broken:
        raise Broke(
            Violation("the log is broken", f"{scene.name}: byte {at} of {key} was misread: {broken}")
        ) from broken


class _Misreading(MemoryBucket):
    """Reads one byte of one object wrong, the first time."""

    wrong: tuple[str, int] | None = None

    def get(self, key: str) -> Blob | None:
        found = super().get(key)
        if self.wrong is not None and found is not None and key == self.wrong[0]:
            found, self.wrong = replace(found, data=_flipped(found.data, self.wrong[1])), None
        return found


def _stored(objects: Objects) -> Space:
    space = Space()
    for key, data in objects.items():
        MemoryBucket(space=space).put(key, data)
    return space


def check_all(step: int, done: list[str]) -> None:
    """Every harm of every scene; `done` takes what was tried. Raises Broke at the first that goes wrong."""
    for scene in scenes():
        truth = Database(MemoryBucket(space=_stored(scene.objects))).history(SESSION)
        for harm in harms(scene, step=step):
            done.append(harm.what)
            check(scene, truth, harm)
    for reading in in_transit(scene):
        done.append("misread")
        reading()
