"""Ours, by each of its drivers. A variant is a driver's scheme, and `/window` for a boot of the last 64
messages.

The session grows in memory, on a clock that pauses between two turns (`benchmarks.flat`); its objects are
then written to the store as they are. All drivers read the same one. Where a place holds no session of the
wanted length yet, the first one that is asked to grow writes it.

Who sends and who answers are two: the sender, whose requests are known exactly (`flat.Growth.sender`), goes
straight to the store and is not counted here. What only they need is imported when they work: a cold process
that boots has nothing to pay for but the engine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import snapshotter
from benchmarks.peers.driver import Driver
from benchmarks.texts import QUESTION
from snapshotter import Turn
from streams import keys

if TYPE_CHECKING:
    from benchmarks.flat import Growth

_BUCKET = "snapshotter"
_WRITERS = 8
_SESSION = "s"
_WINDOW = 64


class _Ours(Driver):
    def __init__(self, variant: str, place: str) -> None:
        self._variant, self._place = variant, place
        self._scheme, _, window = variant.partition("/")
        self._window = _WINDOW if window else None
        self._turns = 0
        self._growth: Growth | None = None
        self._loop: Iterator[Turn] = iter(())
        self._receipt: snapshotter.Receipt | None = None

    @property
    def _url(self) -> str:
        endpoint, path = os.environ["AWS_ENDPOINT_URL"], f"{_BUCKET}/{self._place}/{self._turns}"
        if self._scheme == "minio":
            return f"minio://{urlsplit(endpoint).netloc}/{path}"
        return f"{self._scheme}://{path}?endpoint={endpoint}"

    def open(self, turns: int) -> None:
        self._turns = turns
        self._db = snapshotter.open(self._url)
        self._receipt = None

    def boot(self) -> int:
        """With the receipt of what was sent since, as a queue hands it over."""
        self._session = self._db.boot(_SESSION, window=self._window, receipt=self._receipt)
        self._loop = self._session.turns()
        return len(self._session.messages)

    def send(self, number: int) -> None:
        """Its id has the variant's name: all drivers answer in one session."""
        from benchmarks.samples import question

        message = {**question(number, QUESTION), "id": f"{self._variant}-{number}"}
        self._receipt = self._sender.send(_SESSION, message)

    def turn(self, _number: int) -> None:
        from benchmarks.samples import peers_turn

        turn = next(self._loop)
        with turn:
            for chunk in peers_turn(turn.number):
                turn.write(chunk)

    def end(self) -> None:
        """Looks whether something has come in."""
        if any(self._loop):
            raise AssertionError("an input that was not sent")

    def grow(self, _done: int, turns: int) -> None:
        self._sender = snapshotter.open(self._url)
        from concurrent.futures import ThreadPoolExecutor

        from streams.buckets.url import open_bucket

        bucket = open_bucket(self._url)
        if bucket.get(keys.snapshot(_SESSION)) is None:
            if self._growth is None:
                from benchmarks.flat import Growth

                self._growth = Growth()
            self._growth.grow(turns)
            objects = self._growth.space.objects
            with ThreadPoolExecutor(_WRITERS) as pool:
                list(pool.map(lambda key: bucket.put(key, objects[key].data), list(objects)))
        bucket.close()


def make(variant: str, place: str) -> _Ours:
    return _Ours(variant, place)
