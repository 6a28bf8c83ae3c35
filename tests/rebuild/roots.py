"""What the tests of rebuilding share: small corpora, and ways to damage and to read them."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from chat_samples import SID, saying, user

from snapshotter.database import Database
from snapshotter.database import open as open_database
from snapshotter.rebuilding import Options, Result
from snapshotter.rebuilding.working import rebuild_in
from snapshotter.shelf import inline
from streams import keys

TESTS = Path(__file__).parents[1]


def loaded(path: Path) -> ModuleType:
    """A file beside the tests, as a module."""
    if path.stem not in sys.modules:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[path.stem] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[path.stem])
    return sys.modules[path.stem]


make_corpus: Any = loaded(TESTS.parent / "scripts" / "make_corpus.py")


def corpus(url: str, sessions: int, seed: int = 1) -> list[str]:
    """Write a corpus; the ids of its sessions."""
    make_corpus.make(url, sessions, seed)
    return [make_corpus.name(number) for number in range(sessions)]


def documents(db: Database) -> dict[str, Any]:
    """Every stored snapshot by its session, its history in itself, without what may differ from one saving
    to the next."""
    dropped = ("savedAt", "crc", "lastOutTimestamp", "blocks")
    found = {}
    for info in db.sessions():
        blob = db.store.get(keys.snapshot(db.sid(info.id)))
        assert blob is not None
        document = inline(db.store, db.sid(info.id), json.loads(blob.data))
        found[info.id] = {name: value for name, value in document.items() if name not in dropped}
    return found


def forget(db: Database, session: str) -> None:
    """The snapshot is gone."""
    db.store.delete(keys.snapshot(db.sid(session)))


def one(db: Database, options: Options | None = None, session: str = SID) -> Result:
    """Rebuild one session of a database that is open."""
    (result,) = rebuild_in(db, options or Options(), [session])
    return result


def turns(db: Database, session: str, count: int, start: int = 1, text: str = "answer") -> None:
    """Ask, and answer, so many times."""
    for number in range(start, start + count):
        db.send(session, user(f"u{number}"))
        with db.boot(session, takeover=True) as booted:
            for turn in booted.turns():
                with turn:
                    for chunk in saying(f"{text} {number}"):
                        turn.write(chunk)


def folder(path: Path) -> Database:
    """A database in a folder."""
    return open_database(path.as_uri())
