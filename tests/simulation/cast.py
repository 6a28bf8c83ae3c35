"""Clients: they send until they know that it arrived, look, and answer what waits for a person.

What they do, and what comes of it, goes into the journal (see `checker`). Who has a world mixes this in.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from agent import CLIENT_TOOL, Worker
from plan import Deed

from snapshotter.database import Database
from streams.errors import Retryable, StreamError
from streams.testing.simulation import World


class Cast(ABC):
    """Everybody who is no worker. `receipts`: token → in id, of what was acknowledged."""

    world: World
    receipts: dict[str, int]

    @abstractmethod
    def tell(self, who: str, what: str, **fields: Any) -> None:
        """An event into the journal, and to the judge."""

    def act(self, db: Database, name: str, deed: Deed) -> None:
        if deed.kind == "look":
            self.look(db, name, deed.session)
        elif deed.kind == "answer":
            self._answer(db, name, deed.session)
        elif deed.kind == "regenerate":
            self._regenerate(db, name, deed)
        elif deed.kind in ("say", "again", "edit"):
            message = {"id": deed.token, "role": "user", "parts": [{"type": "text", "text": deed.text}]}
            if deed.kind == "edit":
                self._send(
                    db,
                    name,
                    deed,
                    "edit",
                    lambda: db.edit(deed.session, deed.target, message, key=deed.token),
                )
            else:
                self._send(db, name, deed, "message", lambda: db.send(deed.session, message))
        elif deed.kind == "action":
            self._send(
                db, name, deed, "action", lambda: db.action(deed.session, "count", deed.token, key=deed.token)
            )
        elif deed.kind == "close":
            self._send(db, name, deed, "close", lambda: db.close_session(deed.session, key=deed.token))
        else:
            self._send(db, name, deed, "stop", lambda: db.stop(deed.session, deed.target, key=deed.token))

    def _send(self, db: Database, name: str, deed: Deed, kind: str, send: Callable[[], Any]) -> bool:
        """Send, and again for as long as it is not known to be there; a client tires of it."""
        told = {"kind": kind, "token": deed.token, "session": deed.session}
        self.tell(name, "send", text=deed.text or None, target=deed.target or None, **told)
        for _ in range(4):
            try:
                receipt = send()
            except Retryable as error:
                self.tell(name, "send-failed", **told)
                db.clock.sleep(error.retry_after * 2 * db.clock.jitter())
            except StreamError as error:
                self._failed(name, deed.session, error)
                return False
            except Exception as error:
                self._failed(name, deed.session, error)
                return False
            else:
                self.receipts[deed.token] = receipt.id
                self.tell(name, "sent", id=receipt.id, **told)
                return True
        return False

    def _failed(self, name: str, session: str, error: Exception) -> None:
        typed = isinstance(error, StreamError)
        self.tell(name, "error", session=session, type=type(error).__name__, typed=typed, detail=repr(error))

    def look(self, db: Database, name: str, session: str, *, final: bool = False) -> list[dict[str, Any]]:
        """Read the history, as a client does. What could not be read is empty."""
        since = self.world.now
        try:
            messages = db.history(session)
        except Exception as error:
            self._failed(name, session, error)
            return []
        self.tell(name, "history", session=session, since=since, messages=messages, final=final)
        return messages

    def _answer(self, db: Database, name: str, session: str) -> bool:
        """A person answers whatever waits; True where something did."""
        found = False
        for message in self.look(db, name, session):
            for part in message["parts"]:
                state = part.get("state")
                if state == "approval-requested":
                    found = True
                    self._approve(db, name, session, part)
                elif state == "input-available" and part["type"] == f"tool-{CLIENT_TOOL}":
                    found = True
                    self._result(db, name, session, part)
        return found

    def _approve(self, db: Database, name: str, session: str, part: dict[str, Any]) -> None:
        approval = part["approval"]["id"]
        deed = Deed(0.0, "approve", session, f"approve-{approval}")
        self._send(db, name, deed, "approval", lambda: db.approve(session, approval, key=deed.token))

    def _result(self, db: Database, name: str, session: str, part: dict[str, Any]) -> None:
        call = part["toolCallId"]
        deed = Deed(0.0, "result", session, f"result-{call}")
        self._send(
            db, name, deed, "result", lambda: db.tool_result(session, call, {"page": call}, key=deed.token)
        )

    def _regenerate(self, db: Database, name: str, deed: Deed) -> None:
        asked, answer = "", ""
        for message in self.look(db, name, deed.session):
            if message["role"] == "user":
                asked = message["id"]
            elif asked == deed.target:
                answer = message["id"]
        if answer:
            self._send(
                db,
                name,
                deed,
                "regenerate",
                lambda: db.regenerate(deed.session, answer, key=deed.token),
            )

    def settle(self, db: Database, session: str, *, pace: float, final: bool) -> None:
        """Go on until nothing is owed and nothing waits."""
        for round_ in range(40):
            worker = Worker(db, session, f"last-{session}-{round_}", self.tell, None, pace)
            worker.run()
            if not worker.acknowledged:
                db.clock.sleep(60.0)
            elif not self._answer(db, "last", session):
                self.look(db, "last", session, final=final)
                return
        self.tell("last", "error", session=session, type="Unsettled", typed=False)
