"""Maintenance of a session whose history belongs to a host's hook: the logs are trimmed as ever, and what
only the host can take away is refused before anything is written."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from blocky import LARGE, TINY
from chat_samples import AT_ONCE, SID, Place, saying, user
from upkeep import HOURS

from snapshotter import Database
from snapshotter.maintenance import Keep, gc, redact, trim
from snapshotter.verify import verify
from streams.buckets.memory import MemoryBucket
from streams.errors import Refused


class Host:
    """An application that stores its own messages."""

    def __init__(self) -> None:
        self.place = Place(sizes=TINY)
        self.messages: dict[str, dict[str, Any]] = {}

    def db(self) -> Database:
        bucket = MemoryBucket(self.place.clock, space=self.place.space)
        return Database(bucket, self.place.clock, recovery=AT_ONCE, sizes=TINY, hydrate=self._hydrate)

    def turn(self, name: str) -> None:
        db, message = self.db(), user(name, f"{LARGE} {name}")
        db.send(SID, message)
        self.messages[name] = message
        with db.boot(SID) as session:
            for turn in session.turns():
                with turn:
                    for chunk in saying(f"answer to {name} " * 9):
                        turn.write(chunk)
                    self.messages[turn.message_id] = turn.message
        self.place.clock.advance(24 * HOURS)

    def _hydrate(self, _: str) -> list[dict[str, Any]]:
        return [copy.deepcopy(message) for message in self.messages.values()]


@pytest.fixture
def host() -> Host:
    found = Host()
    for number in range(1, 5):
        found.turn(f"u{number}")
    return found


def test_it_is_trimmed_again_and_again(host: Host) -> None:
    for number in range(5, 8):
        assert trim(host.db(), SID, keep=Keep(turns=1)).deleted
        assert verify(host.db(), SID).ok
        gc(host.db(), SID)
        host.turn(f"u{number}")
        assert len(host.db().history(SID)) == 2 * number


def test_a_hole_in_its_log_is_a_gap_all_the_same(host: Host) -> None:
    segments = sorted(host.place.stored("out/"), reverse=True)
    del host.place.space.objects[segments[2]]
    host.place.space.order.remove(segments[2])
    assert "gap" in [problem.code for problem in verify(host.db(), SID).problems]


def test_a_redaction_is_refused_and_nothing_is_written(host: Host) -> None:
    before = host.place.stored("")
    with pytest.raises(Refused, match="belongs to a hydrate hook"):
        redact(host.db(), SID, "u1", takeover=True)
    assert host.place.stored("") == before
