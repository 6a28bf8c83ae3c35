"""Boot: requests, bytes, round trips and time until a worker knows what to do.

Turns of 6.1 kB (see `samples.peers_turn`), a store in memory that takes 25 ms for each request. The
tables are about one session as it grows, found in three states:

    idle          every input is answered
    owed          one input was sent since
    interrupted   one input was sent since, and its worker died after 200 deltas of the answer
"""

from __future__ import annotations

from contextlib import suppress
from itertools import islice

import snapshotter
from benchmarks.common import Table, median, rounds
from benchmarks.metered import SID, MeteredBucket, copied, grown
from benchmarks.samples import answer, question
from snapshotter import Receipt
from streams.buckets.memory import MemoryBucket, Space
from streams.clock import SystemClock

SIZES = (10, 100, 1000)
LATENCY = 0.025


class _Died(Exception):
    """Stands for a worker that is gone."""


def _owed(space: Space, turns: int) -> Receipt:
    return snapshotter.Database(MemoryBucket(space=space)).send(SID, question(turns + 1, 1000))


def _interrupted(space: Space, turns: int) -> Receipt:
    """A worker that is cut off from its store at once, as a dead one is."""
    receipt = _owed(space, turns)
    bucket = MeteredBucket(space, SystemClock())
    db = snapshotter.Database(bucket, durability="steps")

    def cut(*_: object, **__: object) -> None:
        raise _Died

    with suppress(_Died), db.boot(SID, receipt=receipt) as session:
        turn = next(session.turns())
        for chunk in islice(answer(turns + 1, 800), 202):
            turn.write(chunk)
        turn.flush()
        bucket.put = cut  # type: ignore[method-assign,assignment]
        session.current = None
    return receipt


def _boot(space: Space, receipt: Receipt | None, seconds: float) -> tuple[MeteredBucket, snapshotter.Session]:
    bucket = MeteredBucket(space, SystemClock(), seconds)
    # The pause before a further attempt is no part of what a boot costs.
    recovery = snapshotter.ChatRecovery(max_backoff=0)
    session = snapshotter.Database(bucket, recovery=recovery).boot(SID, receipt=receipt, takeover=True)
    return bucket, session


def run() -> list[Table]:
    table = Table(
        f"Boot of a session, {LATENCY * 1000:.0f} ms added to each request",
        ("turns", "found", "receipt", "GET", "LIST", "round trips", "kB read", "wall ms", "of it our own ms"),
        note="Our own: the same boot of a store that answers at once. The receipt is that of the last input.",
    )
    spaces = grown(SIZES)
    for turns in SIZES:
        states = {
            "idle": (spaces[turns], Receipt(SID, turns)),
            "owed": ((owed := copied(spaces[turns])), _owed(owed, turns)),
            "interrupted": ((dead := copied(spaces[turns])), _interrupted(dead, turns)),
        }
        for name, (space, receipt) in states.items():
            for given in (receipt, None):
                table.rows.append((turns, name, "yes" if given else "no", *_measure(space, given, name)))
    return [table]


def _measure(space: Space, receipt: Receipt | None, state: str) -> tuple[float, ...]:
    bucket, session = _boot(space, receipt, 0.0)
    kind = session.resume.kind
    assert (bool(session.pending), session.partial is not None) == {
        "idle": (False, False),
        "owed": (True, False),
        "interrupted": (False, True),
    }[state], kind
    bill = bucket.bill
    taken = rounds(
        {
            "slow": lambda: _boot(space, receipt, LATENCY),
            "own": lambda: _boot(space, receipt, 0.0),
        },
        5,
    )
    trips = session.booted.round_trips
    times = (median(taken["slow"]) * 1e3, median(taken["own"]) * 1e3)
    return bill.get, bill.list, trips, bill.read / 1e3, *times
