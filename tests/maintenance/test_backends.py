"""Every kind of maintenance on every store: what they know of ETags, copies, dates and empty objects."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO

import pytest
from blocky import TINY
from chat_samples import first_turn, saying, user, write_all

from snapshotter.database import Database
from snapshotter.maintenance import Keep, Rules, compact, delete, export, fork, gc, import_, redact, trim
from snapshotter.verify import verify
from streams.buckets.base import Bucket
from streams.buckets.memory import MemoryBucket


@pytest.fixture
def db(bucket_factory: Callable[[], Bucket], monkeypatch: pytest.MonkeyPatch) -> Database:
    """A session of three turns, on a store whose objects all count as old."""
    monkeypatch.setattr(Rules, "is_old", lambda *_: True)
    made = Database(bucket_factory(), sizes=TINY)
    for number in range(3):
        made.send("s", user(f"u{number}", "a question " * 100))
        with made.boot("s") as session, first_turn(session) as turn:
            turn.write({"type": "start", "messageId": f"a{number}"})
            turn.flush()
            write_all(turn, list(saying(f"answer {number}"))[1:])
    return made


def is_whole(db: Database, session: str = "s") -> bool:
    return verify(db, session).problems == []


def test_a_session_lives_through_all_of_it(db: Database) -> None:
    seen = db.history("s")
    assert compact(db, "s").written == 2
    assert trim(db, "s", keep=Keep(turns=1)).deleted >= 2
    gc(db, "s")
    assert (db.history("s"), is_whole(db)) == (seen, True)
    fork(db, "s", "t")
    assert (db.history("t"), is_whole(db, "t")) == (seen, True)
    redact(db, "s", "u1")
    assert "a question" not in str(db.history("s")[2])
    assert is_whole(db)
    assert db.history("t") == seen
    file = BytesIO()
    export(db, "t", file)
    delete(db, "s")
    gc(db, "s")
    assert db.history("s") == []
    assert len(list(db.store.entries("out/s/"))) == 1
    db.create("s", messages=[user("new")])
    assert [m["id"] for m in db.history("s")] == ["new"]
    assert is_whole(db)
    other = Database(MemoryBucket())
    import_(other, file)
    assert other.history("t") == seen
