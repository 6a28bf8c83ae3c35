"""Nothing stays behind of many sessions, however they were left: no thread, file, connection or object."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from chat_samples import SID, Place, saying, write_all
from endpoints import DRIVERS, Endpoint

import snapshotter
from benchmarks.load import gauge
from benchmarks.load.handle import Dead, Handle
from snapshotter import Fenced, aio
from snapshotter.database import Database
from streams.buckets import file
from streams.buckets.base import Bucket
from streams.buckets.memory import MemoryBucket

CYCLES = 200
WARM = 10
STRAY = 200  # objects: caches of the interpreter, and of libraries; one session is some thousand
AT_ONCE = snapshotter.ChatRecovery(max_backoff=0)


class Threads:
    """Those that began since; other tests may have left some that are about to end."""

    def __init__(self) -> None:
        self._before = set(threading.enumerate())

    def of(self, kind: str) -> list[threading.Thread]:
        found = set(threading.enumerate()) - self._before
        return [thread for thread in found if thread.name.startswith(f"{kind}-")]

    def ended(self, kind: str) -> bool:
        """Whether all threads of this kind come to their end."""
        for thread in self.of(kind):
            thread.join(30)
        return not self.of(kind)


@pytest.mark.parametrize("end", ["taken over", "silent"])
def test_a_turn_that_was_left_without_a_word_is_not_watched_for_ever(end: str) -> None:
    threads, place = Threads(), Place()
    place.send("u1")
    session = place.db.boot(SID)
    turn = next(session.turns())
    turn.write({"type": "start"})
    turn.flush()
    assert len(threads.of("watch")) == len(threads.of("flush")) == 1
    del session, turn
    if end == "taken over":
        place.answer(takeover=True)
        place.clock.advance(60)  # the heartbeat that is due meets another writer
    else:
        place.clock.advance(16 * 60)  # nobody has said a word: the lease is kept no longer
    assert threads.ended("flush")
    for _ in range(600):
        if not threads.of("watch"):
            break
        gc.collect()  # which finds nothing while the watcher is just looking at the turn
        place.clock.advance(5)
        for thread in threads.of("watch"):
            thread.join(0.05)
    assert not threads.of("watch")


ON_LINUX = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="/proc is Linux's")

# -- many sessions ------------------------------------------------------------------------------------------


def answered(db: Database, name: str) -> None:
    db.send(name, "hi")
    with db.boot(name) as session:
        for turn in session.turns():
            with turn:
                write_all(turn, saying("hello"))


def killed(bucket: Bucket, name: str) -> None:
    handle = Handle(bucket)
    db = Database(handle, recovery=AT_ONCE)
    db.send(name, "hi")
    session = db.boot(name)
    turn = next(session.turns())
    turn.write({"type": "start"})
    handle.cut(name)
    with pytest.raises(Dead):
        turn.flush()
    session.close()


def fenced(db: Database, name: str) -> None:
    db.send(name, "hi")
    with db.boot(name) as session:
        turn = next(session.turns())
        turn.write({"type": "start"})
        turn.flush()
        with db.boot(name, takeover=True) as heir:
            for other in heir.turns():
                with other:
                    write_all(other, saying("hello"))
        with suppress(Fenced):
            turn.write({"type": "start-step"})
            turn.flush()
            raise AssertionError("an older worker wrote on")


def cycle(bucket: Bucket, number: int) -> None:
    """A session of its own in a database of its own, left in one of several ways, and read."""
    name = f"s{number}"
    with Database(bucket, recovery=AT_ONCE) as db:
        (answered, lambda _db, name: killed(bucket, name), fenced)[number % 3](db, name)
        assert db.history(name, limit=1)
        assert next(db.follow(name, timeout=0.0)).id == 1  # and the follower is left
        assert db.peek(name).id == name


def left(what: Callable[[int], None], cycles: int = CYCLES) -> gauge.Reading:
    """What is more after so many times than after the first ten."""
    for number in range(WARM):
        what(number)
    before = gauge.settled(gauge.now())
    for number in range(WARM, cycles):
        what(number)
    after = gauge.settled(before)
    names = before.plain()
    return gauge.Reading(**{name: getattr(after, name) - getattr(before, name) for name in names})


def check(more: gauge.Reading) -> None:
    assert max(more.threads, more.files, more.connections) <= 0
    assert more.objects < STRAY


@ON_LINUX
def test_nothing_stays_behind_of_many_sessions() -> None:
    check(left(lambda number: cycle(MemoryBucket(), number)))


@ON_LINUX
def test_nothing_stays_behind_of_many_sessions_in_one_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "_REMEMBERED", 20)
    bucket = file.FileBucket(tmp_path)
    check(left(lambda number: cycle(bucket, number), CYCLES // 3))


@ON_LINUX
def test_nothing_stays_behind_of_many_async_doors() -> None:
    async def work(name: str) -> None:
        async with aio.AsyncDatabase(Database(MemoryBucket())) as db:
            await db.send(name, "hi")
            async with await db.boot(name) as session:
                async for turn in session.turns():
                    async with turn:
                        async for _ in turn.tee(saying("hello")):
                            pass

    check(left(lambda number: asyncio.run(work(f"s{number}"))))


@ON_LINUX
@pytest.mark.parametrize("driver", DRIVERS)
def test_nothing_stays_behind_of_a_closed_driver(driver: str, moto_server: Endpoint) -> None:
    def once(number: int) -> None:
        bucket = getattr(moto_server, driver)(f"leaks-{driver}")
        if number % 10 == 0:
            answered(Database(bucket, recovery=AT_ONCE), f"s{number}")
        assert bucket.get("never-there") is None
        bucket.close()

    more = left(once, 3 * WARM)
    assert max(more.threads, more.files, more.connections) <= 0
