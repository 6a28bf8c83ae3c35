"""Those who tidy up: what they do to a session, and what they tell the judge (see `lives`).

Whatever can happen beside other people is no error of theirs: that somebody is at work, that the session is
not there or there already. Everything else that is raised is told.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, Protocol

from pieces import remains
from plan import Deed

from snapshotter.database import Database
from snapshotter.maintenance import Keep, Rules, compact, delete, export, fork, gc, maintain, redact, trim
from snapshotter.rebuilding import Options
from snapshotter.rebuilding.folding import Work
from streams.errors import Refused, Retryable
from streams.testing.simulation import World

KINDS = ("upkeep", "compact", "trim", "gc", "delete", "create", "fork", "redact", "export", "rebuild")
RULES = Rules(minimum_age=3600.0)
_FENCE = b'"control":"session-deleted"'
Tell = Callable[..., None]


class Place(Protocol):
    """Where they do it: what is stored there, and the world's time."""

    world: World

    def objects(self) -> dict[str, bytes]: ...


class Keeper:
    """One process that tidies up. `store` shows what is stored, for the judge. `damage`: bytes may be bad."""

    def __init__(self, db: Database, name: str, tell: Tell, store: Place, *, damage: bool) -> None:
        self._db = db
        self._damage = damage
        self._store = store
        self._now = lambda: store.world.now
        self._tell = lambda what, **fields: tell(name, what, **fields)

    def run(self, deed: Deed) -> None:
        act = getattr(self, "_" + deed.kind)
        try:
            act(deed.session, deed)
        except Retryable as error:
            self._tell("upkeep-failed", session=deed.session, op=deed.kind, type=type(error).__name__)
        except Exception as error:
            self._failed(deed.session, error)

    def _failed(self, session: str, error: Exception) -> None:
        if self._damage and isinstance(error, Refused):
            return  # what does not verify is not touched
        typed = type(error).__module__.startswith(("streams", "snapshotter"))
        kind = type(error).__name__
        self._tell("error", session=session, type=kind, typed=typed, detail=repr(error), upkeep=True)

    def _upkeep(self, session: str, deed: Deed) -> None:
        keep = Keep(turns=deed.options["keep"]) if deed.options.get("keep") else None
        for kept in maintain(self._db, [session], keep=keep, rules=RULES):
            if kept.error is not None and not isinstance(kept.error, Retryable):
                self._failed(session, kept.error)
            for done in kept.done:
                changed = done.written + done.deleted
                self._tell("upkeep", session=session, op=done.operation, changed=changed)

    def _compact(self, session: str, _: Deed) -> None:
        compact(self._db, session, rules=RULES)

    def _trim(self, session: str, deed: Deed) -> None:
        trim(self._db, session, keep=Keep(turns=deed.options.get("keep", 1)), rules=RULES)

    def _gc(self, session: str, _: Deed) -> None:
        gc(self._db, session, rules=RULES)

    def _delete(self, session: str, _: Deed) -> None:
        """Delete; whoever wants it back creates it."""
        since, before, grave = self._now(), self._out(session), self._grave(session)
        self._tell("deleting", session=session)
        try:
            delete(self._db, session, rules=RULES)
        except Refused:  # there is no such session
            self._tell("spared", session=session)
            return
        remains = self._below_fence(session, before, grave)
        self._tell("deleted", session=session, since=since, remains=remains)

    def _out(self, session: str) -> list[str]:
        """The keys of the out log, newest first."""
        return sorted(key for key in self._store.objects() if key.startswith(f"out/{session}/"))

    def _grave(self, session: str) -> str:
        """The segment by which the session is deleted now; "" where it is not."""
        stored = self._store.objects()
        told = [
            key for key in self._out(session) if b'"why":"create"' in stored[key] or _FENCE in stored[key]
        ]
        return told[0] if told and _FENCE in stored[told[0]] else ""

    def _below_fence(self, session: str, before: list[str], grave: str) -> list[str]:
        """What a deletion should have emptied: out segments below its fence, but the empty ones. `before`:
        those that stood there when it began. Its fence is the one that stood there then (`grave`), else the
        first that came since (a create that brings it to its end may have written another), else the newest.
        A segment that came since, below the newest of those, is what a sleeper left in a place that a trim or
        gc had freed: nobody reads it, and gc takes it away."""
        stored, out = self._store.objects(), self._out(session)
        fences = [at for at, key in enumerate(out) if _FENCE in stored[key]]
        trimmed = any(data and key.startswith(f"checkpoints/{session}/") for key, data in stored.items())
        if not fences:  # opened again meanwhile, it may have been trimmed above it
            return [] if trimmed else ["no fence"]
        own = max([at for at in fences if out[at] not in before], default=fences[0])
        own = out.index(grave) if grave in out else own
        freed = [key for key in out if key not in before and before and key > before[0]]
        return [key for key in out[own + 1 :] if stored[key] and key not in freed]

    def _create(self, session: str, _: Deed) -> None:
        try:
            self._db.create(session, state={"born": 1})
        except Refused:
            return
        self._tell("created", session=session)

    def _fork(self, session: str, deed: Deed) -> None:
        since = self._now()
        self._tell("forking", session=deed.target, source=session)
        try:
            fork(self._db, session, deed.target)
        except Refused:
            return
        self._tell("forked", session=deed.target, source=session, since=since)

    def _redact(self, session: str, deed: Deed) -> None:
        self._tell("redacting", session=session, token=deed.token)
        alone = deed.options.get("alone", False)
        try:
            redact(self._db, session, deed.token)
        except Refused:  # a turn is open, or it is not there
            return
        except Retryable:
            if not alone:  # else nobody was in its way
                raise
        left = remains(self._store.objects(), session, deed.text, alone=alone)
        self._tell("redacted", session=session, token=deed.token, remains=left)

    def _export(self, session: str, _: Deed) -> None:
        try:
            done = export(self._db, session, io.BytesIO())
        except Refused:
            return
        self._tell("exported", session=session, why=done.why)

    def _rebuild(self, session: str, deed: Deed) -> None:
        options = Options(mode=deed.options.get("mode", "compare"), sizes=self._db._sizes)
        result = Work(self._db, session, options).start().finish(lambda parcels: parcels, _unused)
        told: dict[str, Any] = {"status": result.status, "detail": f"{result.error}: {result.detail}"}
        told["differences"] = list(result.differences)
        if result.status == "failed" and result.error in ("Unreachable", "Throttled", "Vanished", "Unknown"):
            told["status"] = "newer"  # it may be run again
        self._tell("rebuilt", session=session, **told)


def _unused(*_: object) -> None:
    """Nothing is exported."""
