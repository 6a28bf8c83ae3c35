"""`eventsourcing` over SQLite: a session as an aggregate, each message as an event of it.

`events` replays all of them; `snapshots` keeps one every four events, which is once a turn.
"""

from __future__ import annotations

from pathlib import Path
from uuid import UUID, uuid5

from eventsourcing.application import AggregateNotFoundError, Application
from eventsourcing.domain import Aggregate, event

from benchmarks import texts
from benchmarks.peers.driver import Driver

_SPACE = UUID(int=0)


class _Chat(Aggregate):
    @event("Started")
    def __init__(self) -> None:
        self.messages: list[dict[str, str]] = []

    @event("Said")
    def say(self, role: str, content: str) -> None:
        self.messages.append({"role": role, "content": content})

    @classmethod
    def create_id(cls) -> UUID:
        return uuid5(_SPACE, "s1")


class _Events(Application[UUID]):
    pass


class _Snapshots(Application[UUID]):
    snapshotting_intervals = {_Chat: 4}  # noqa: RUF012 - how the library has it


class _Driver(Driver):
    def __init__(self, variant: str, folder: str) -> None:
        self._kind = _Snapshots if variant == "snapshots" else _Events
        path = Path(folder) / f"eventsourcing-{variant}.sqlite"
        self._env = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(path)}

    def open(self, _turns: int) -> None:
        self._app = self._kind(env=self._env)

    def boot(self) -> int:
        try:
            self._chat: _Chat = self._app.repository.get(_Chat.create_id())
        except AggregateNotFoundError:
            self._chat = _Chat()
        return len(self._chat.messages)

    def turn(self, number: int) -> None:
        call = '{"tool": "search", "query": "x"}'
        said = [("user", texts.question(number)), ("assistant", call)]
        said += [("tool", texts.result(number)), ("assistant", texts.answer(number))]
        for role, content in said:
            self._chat.say(role, content)
            self._app.save(self._chat)


def make(variant: str, place: str) -> _Driver:
    return _Driver(variant, place)
