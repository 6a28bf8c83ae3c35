"""The readers of a database: histories, records as they become durable, the catalogue.

None boots a session or writes anything. Of a long history no more is read than what is asked for takes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from streams import keys
from streams.store import Store

from . import blocks, following, histories
from .core.blocks import Block
from .core.calls import Message
from .core.fold import Fold
from .following import Event, Follower
from .loading import Loaded
from .values import Shelved


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """One line of the catalogue: when the snapshot was last written (epoch ms) and its size in bytes."""

    id: str
    modified_ms: int | None
    size: int


class Readers(ABC):
    """The part of `Database` that shows sessions."""

    store: Store

    @abstractmethod
    def sid(self, session_id: str) -> str:
        """The session id as one path segment."""

    @abstractmethod
    def load(self, session_id: str, *, window: int | None = None) -> Loaded:
        """Read a session, as it is stored now; of a long history no more than the window."""

    @abstractmethod
    def _own_store(self) -> Store:
        """A store with counters of its own."""

    def history(
        self, session_id: str, *, limit: int | None = None, before: str | None = None
    ) -> list[Message]:
        """The messages as a client would see them now, an unfinished answer included; answers and user
        messages that no worker has taken yet are laid over. `before` (a message id) and `limit` page
        backwards; of a long history no more is read than that takes.

        Raises Refused when `before` is not in the history.
        """

        def read(window: int | None) -> Fold:
            return self.load(session_id, window=window).fold

        def fetch(wanted: list[Block]) -> list[list[Message]]:
            sid = self.sid(session_id)
            return Shelved(self.store, sid).lists(blocks.read(self.store, sid, wanted))

        return histories.read_page(read, fetch, limit, before)

    def follow(
        self,
        session_id: str,
        *,
        after: int | Mapping[str, int] = 0,
        timeout: float | None = None,
        poll: float = 0.5,
    ) -> Follower[Event]:
        """Events as they become durable: records of both logs, unpacked, each log in its order.

        `after` is the last out id known, or `{"out": n, "in": m}`. Ends after `timeout` seconds of silence.
        """
        return following.follow(self._own_store(), self.sid(session_id), after, timeout, poll)

    def records(
        self,
        session_id: str,
        which: keys.Log,
        *,
        after: int = 0,
        follow: bool = False,
        timeout: float | None = None,
        poll: float = 0.5,
    ) -> Follower[dict[str, Any]]:
        """The records of one log (`in` or `out`), unpacked; with `follow` also those to come."""
        return following.records(
            self._own_store(), self.sid(session_id), which, after, timeout if follow else 0.0, poll
        )

    def sessions(self, *, prefix: str = "", since: int | None = None) -> Iterator[SessionInfo]:
        """The sessions that have a snapshot, by id, one flat listing. `since`: changed then or later
        (epoch ms, by the store's clock). A long session's snapshot is not written after every turn (see
        FORMAT.md): its date may be that of up to 16 turns, or 24 KB of log, ago."""
        for entry in self.store.entries(keys.sessions_prefix(keys.encode_start(prefix))):
            session_id = keys.session_of(keys.parse_snapshot(entry.key))
            if session_id is None:
                continue
            changed = since is None or entry.modified_ms is None or entry.modified_ms >= since
            if changed and session_id.startswith(prefix):
                yield SessionInfo(session_id, entry.modified_ms, entry.size)
