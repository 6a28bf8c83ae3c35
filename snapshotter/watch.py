"""The watcher of an open turn: has somebody asked to stop it, has its deadline come, does the model hang?

The next input's key is known by name, so asking costs one GET: once a second while text streams, every
five seconds while a tool is at work. What arrives is kept for the turn to take in at its end; a fault of
the store is no reason to disturb the turn, the next look comes soon.

A watcher keeps no turn alive. One that nobody holds any more, since its worker left it without a word, is not
watched: the thread ends at its next look, and the session goes with it.
"""

from __future__ import annotations

import logging
import weakref
from typing import TYPE_CHECKING

from streams.errors import StreamError
from streams.records import Record

from .core.queue import answered, concerns
from .incoming import next_input

if TYPE_CHECKING:
    from .session import Session
    from .turn import Turn

log = logging.getLogger("snapshotter")

ASK = 1.0
ASK_IN_TOOL = 5.0


class Watch:
    """Runs beside one turn, from its claim to its end."""

    def __init__(self, session: Session, turn: Turn) -> None:
        self._session = weakref.ref(session)
        self._turn = weakref.ref(turn)
        self._next = session.fold.inputs.last + 1
        open_turn = session.fold.open
        self._seen = open_turn.seen if open_turn is not None else 0
        self._answered = session.reaching(lambda: answered(session.fold))
        self._arrived: list[Record] = []
        self._stops: list[int] = []
        self._cond = session.clock.waiter()
        self._done = False
        self.stopped = False

    def start(self, session: Session) -> None:
        session.clock.spawn(self._run, f"watch-{session.id}")

    def finish(self) -> tuple[list[Record], list[int]]:
        """Stop watching; returns the inputs that arrived, and those of them that stop this turn."""
        with self._cond:
            self._done = True
            self._cond.notify_all()
            return list(self._arrived), list(self._stops)

    def _run(self) -> None:
        while (pause := self._pause()) is not None:
            with self._cond:
                if not self._done:
                    self._cond.wait(pause)
                if self._done:
                    return
            if not self._look():
                return

    def _watched(self) -> tuple[Session, Turn] | None:
        """Whom to watch, for as long as the caller holds them; None once nobody else does."""
        session, turn = self._session(), self._turn()
        return None if session is None or turn is None else (session, turn)

    def _pause(self) -> float | None:
        """Seconds until the next look; None where there will be none."""
        watched = self._watched()
        if watched is None:
            return None
        session, turn = watched
        ask = ASK_IN_TOOL if turn.at_work else ASK
        left = session.deadline_left()
        return ask if left is None else max(0.0, min(ask, left))

    def _look(self) -> bool:
        """Look once; False where that was the last time."""
        watched = self._watched()
        if watched is None:
            return False
        session, turn = watched
        if session.deadline_passed():
            turn.expire()
            return False
        if turn.stalls():
            return False
        self._ask(session, turn)
        return True

    def _ask(self, session: Session, turn: Turn) -> None:
        try:
            while not self._done:
                record = next_input(session.store, session.sid, self._next)
                with self._cond:
                    if self._done or record is None:
                        return
                    self._take(turn, record)
        except StreamError as error:
            fields = {"event": "stop-not-asked", "session": session.id}
            log.debug("asking for stops of %s: %s", session.id, error, extra=fields)

    def _take(self, turn: Turn, record: Record) -> None:
        self._arrived.append(record)
        self._next = record["id"] + 1
        if record.get("kind") == "stop" and concerns(self._answered, record, self._seen):
            self._stops.append(record["id"])
            self.stopped = True
            turn.stop_pull()
