"""What a host asks of a database besides sending and working: outcomes, and a clear."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from snapshotter.core.budget import Limits
from snapshotter.loading import Loaded
from streams.clock import Clock

from .status import Outcome, is_recovering, outcome_of

if TYPE_CHECKING:
    from snapshotter.receipt import Receipt
    from snapshotter.session import Session


class HostDoor(ABC):
    """The part of `Database` that chat hosts use."""

    clock: Clock

    @abstractmethod
    def load(self, session_id: str, *, window: int | None = None) -> Loaded:
        """Read a session, as it is stored now; of a long history no more than the window."""

    @abstractmethod
    def stop(self, session_id: str, message_id: str | None = None, *, key: str | None = None) -> Receipt: ...

    @abstractmethod
    def wait_for(
        self,
        session_id: str,
        *,
        stable_timeout: float | None = None,
        takeover: bool = False,
        limits: Limits | None = None,
        window: int | None = None,
    ) -> Session:
        """The session, once no living worker holds it. Raises Busy."""

    def outcome(self, session_id: str) -> Outcome | None:
        """How the session's last turn ended, for somebody who was not there: its status, and the error that a
        person should be told. None before the first turn, and while a turn is open."""
        return outcome_of(self.load(session_id, window=0).fold)

    def recovering(self, session_id: str) -> bool:
        """Whether an interrupted turn is being taken up again, or about to be. Stale after 15 minutes."""
        return is_recovering(self.load(session_id, window=0), self.clock.now_ms())

    def clear(self, session_id: str, *, stable_timeout: float | None = None, takeover: bool = False) -> None:
        """Empty the history (see `Session.clear`). A turn that runs is asked to stop first, and waited for as
        a boot does; a pause before a further attempt is not waited for. Raises Busy."""
        loaded = self.load(session_id, window=0)
        if loaded.holder(self.clock.now_ms()) is not None and not takeover:
            self.stop(session_id)
        at_once = Limits(max_backoff=0.0)
        with self.wait_for(
            session_id, stable_timeout=stable_timeout, takeover=takeover, limits=at_once, window=0
        ) as session:
            session.clear()
