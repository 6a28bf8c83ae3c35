"""What the checks are made of: traits, the register, and small helpers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from streams.buckets.base import Bucket, Entry
from streams.errors import PreconditionFailed

T = TypeVar("T")
Connect = Callable[[], Bucket]


@dataclass(frozen=True, slots=True)
class Traits:
    """How to test one backend, and what it is known not to do.

    `racers` threads race `rounds` times. `objects` is the size of the long listing. `nonces`: object
    metadata is kept. `byte_order`: listings are in byte order across folders as well as within one.
    `long_keys`: keys may be as long as the bucket's `room` says, in one name of 900 bytes if need be.
    `copies`: the store copies by itself, as a create.
    """

    racers: int = 16
    rounds: int = 200
    objects: int = 2345
    nonces: bool = True
    byte_order: bool = True
    long_keys: bool = True
    copies: bool = True


Check = Callable[[Connect, Traits], None]
CHECKS: dict[str, Check] = {}


def check(function: Check) -> Check:
    """Enter the check under its name."""
    CHECKS[function.__name__] = function
    return function


def race(calls: Sequence[Callable[[], T]]) -> list[T | Exception]:
    """Start all calls at one moment; each result, or the exception it raised, in order."""
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], T]) -> T | Exception:
        barrier.wait()
        try:
            return call()
        except Exception as error:  # noqa: BLE001 - the check judges it
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def refused(call: Callable[[], Any]) -> None:
    """Assert that the call raises PreconditionFailed."""
    try:
        result = call()
    except PreconditionFailed:
        return
    raise AssertionError(f"the condition was ignored: {result!r}")


def fill(bucket: Bucket, keys: Sequence[str]) -> None:
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda key: bucket.put(key, key.encode()), keys))


def pages(bucket: Bucket, prefix: str, limit: int) -> list[list[Entry]]:
    """Every page of a listing, followed to its end."""
    found: list[list[Entry]] = []
    after, seen = "", {""}
    while True:
        page = bucket.list(prefix, after=after, limit=limit)
        assert len(page.entries) <= limit, f"{len(page.entries)} entries where at most {limit} were asked for"
        found.append(list(page.entries))
        if not page.more:
            return found
        assert page.resume not in seen, f"the listing comes back to {page.resume!r}"
        after = page.resume
        seen.add(after)


def names(bucket: Bucket, prefix: str, limit: int = 1000) -> list[str]:
    return [entry.key for page in pages(bucket, prefix, limit) for entry in page]


def segment_keys(count: int) -> list[str]:
    """Keys as the logs have them: newest first in byte order."""
    return [f"out/s/{9_999_999_999_999_999 - n}-{n}.jsonl" for n in range(count, 0, -1)]
