"""Races: the same conditions with several callers at one moment."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial

from streams.buckets.base import Bucket, Written
from streams.errors import PreconditionFailed, Unreachable

from .checking import Connect, Traits, check, race


@check
def one_racer_creates(connect: Connect, traits: Traits) -> None:
    buckets = [connect() for _ in range(traits.racers)]
    for number in range(traits.rounds):
        key = f"r/{number}"
        puts = [
            partial(bucket.put, key, f"racer {n}".encode(), if_absent=True)
            for n, bucket in enumerate(buckets)
        ]
        _one_winner(race(puts), buckets[0], key)


@check
def one_racer_replaces(connect: Connect, traits: Traits) -> None:
    buckets = [connect() for _ in range(traits.racers)]
    etag = buckets[0].put("r/1", b"start", if_absent=True).etag
    for number in range(traits.rounds):
        puts = [
            partial(bucket.put, "r/1", f"{number} by {n}".encode(), if_match=etag)
            for n, bucket in enumerate(buckets)
        ]
        etag = _one_winner(race(puts), buckets[0], "r/1").etag


@check
def one_racer_creates_what_was_deleted(connect: Connect, traits: Traits) -> None:
    """A deleted key is free again, and for one only."""
    buckets = [connect() for _ in range(traits.racers)]
    for number in range(min(traits.rounds, 10)):
        buckets[0].put("r/1", b"before")
        buckets[-1].delete("r/1")
        puts = [
            partial(bucket.put, "r/1", f"{number} by {n}".encode(), if_absent=True)
            for n, bucket in enumerate(buckets)
        ]
        _one_winner(race(puts), buckets[0], "r/1")


def _one_winner(results: Sequence[Written | Exception], bucket: Bucket, key: str) -> Written:
    """The write that won. Raises Unreachable where an unanswered one may have: a 409 says neither."""
    won = [(n, r) for n, r in enumerate(results) if isinstance(r, Written)]
    unsettled = [r for r in results if isinstance(r, Unreachable)]
    strange = [r for r in results if not isinstance(r, Written | PreconditionFailed | Unreachable)]
    assert not strange, f"a racer met {strange[0]!r}"
    if not won and unsettled:
        raise unsettled[0]
    assert len(won) == 1, f"{len(won)} of {len(results)} racers won"
    winner, written = won[0]
    blob = bucket.get(key)
    assert blob is not None
    if not blob.data.endswith(f" {winner}".encode()) and unsettled:
        raise unsettled[0]
    assert blob.data.endswith(f" {winner}".encode()), f"racer {winner} won, but {blob.data!r} is stored"
    return written


@check
def an_object_is_seen_whole_or_not_at_all(connect: Connect, traits: Traits) -> None:
    writer, reader = connect(), connect()
    bodies = [bytes([65 + n]) * (200_000 + n) for n in range(4)]
    done = threading.Event()

    def write() -> None:
        try:
            for number in range(min(traits.rounds, 50)):
                writer.put("w/1", bodies[number % 4])
                writer.put(f"w/new-{number}", bodies[number % 4], if_absent=True)
        finally:
            done.set()

    def read() -> None:
        number = 0
        while not done.is_set():
            for key in ("w/1", f"w/new-{number}"):
                blob = reader.get(key)
                assert blob is None or blob.data in bodies, f"{key}: {len(blob.data)} torn bytes"
                number += blob is not None and key != "w/1"

    for result in race([write, read]):
        if isinstance(result, Exception):
            raise result
