"""Sessions lived through the front door, as scripts of drawn choices, in stores of different layouts.

A script is a list of steps; the same one can be played with any sizes of blocks and any windows. What it does
depends on the history only through ids that it knows itself, so two plays ask for the same things.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
from chat_samples import AT_ONCE, SID, ask, call, die, result, saying, user

from snapshotter import Database, Refused
from snapshotter.core.blocks import DEFAULT, Sizes
from snapshotter.core.contract import describe
from snapshotter.errors import TooLarge
from snapshotter.session import Session
from snapshotter.shelf import inline
from streams.buckets.memory import MemoryBucket, Space
from streams.testing.clocks import FakeClock

PLAIN = replace(DEFAULT, inline=1 << 40, value=1 << 40)
TINY = Sizes(inline=700, tail=900, turns=3, small=2_500, large=9_000, value=400)

IDS, CALLS = 7, 11  # so few that ids are held already, and that answers find calls of long ago

Step = tuple[Any, ...]
Choose = Callable[[int], int]
_TOKEN = re.compile(rb"[0-9a-f]{24}")


def script(choose: Choose, length: int) -> list[Step]:
    """A list of steps."""
    steps: list[Step] = []
    for number in range(length):
        kind = choose(13)
        size = (3, 30, 300, 900)[choose(4)]
        if kind <= 4:
            steps.append(("send", f"u{number}", size, ("say", "say", "ask", "run", "die")[choose(5)]))
            if steps[-1][-1] == "ask" and choose(2):  # answered at once, before anything supersedes it
                steps += [("work",), ("grant",), ("work",)]
        elif kind == 5:
            steps.append(("edit", f"u{choose(number + 1)}", f"e{number}", size))
        elif kind == 6:
            steps.append(("regenerate", f"a{choose(IDS)}" if choose(2) else None))
        elif kind == 7:
            steps.append(("approve", f"ap{choose(CALLS)}", bool(choose(2))))
        elif kind == 8:
            op = ("put", "remove", "truncate-after", "replace", "clear")[choose(40) // 9]
            steps.append(("history", op, f"{'au'[choose(2)]}{choose(number + 1)}", size))
        elif kind == 9:
            steps.append(("context", f"{'au'[choose(2)]}{choose(number + 1)}", size))
        elif kind == 10:
            steps.append(("state", number))
        elif kind == 11:
            steps.append(("stop", f"u{number - choose(3)}" if choose(3) else None))
        else:
            steps.append(("result", f"c{choose(CALLS)}", size))
        if choose(3):
            steps.append(("work",))
    return [*steps, ("work",)]


@dataclass
class Play:
    """One play of a script. `window` says with what window each boot is made."""

    sizes: Sizes
    window: Callable[[], int | None]
    clock: FakeClock = field(default_factory=FakeClock)
    space: Space = field(default_factory=Space)
    plans: list[Any] = field(default_factory=list)
    answers: int = 0
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        bucket = MemoryBucket(self.clock, space=self.space)
        self.db = Database(bucket, self.clock, recovery=AT_ONCE, sizes=self.sizes)
        self.wants: dict[str, str] = {}

    def play(self, steps: list[Step]) -> None:
        for kind, *given in steps:
            getattr(self, f"_{kind}")(*given)

    # -- the world ----------------------------------------------------------------------------------

    def _send(self, message_id: str, size: int, wants: str) -> None:
        self.wants[message_id] = wants
        self.db.send(SID, user(message_id, message_id * size))

    def _edit(self, target: str, message_id: str, size: int) -> None:
        self.db.edit(SID, target, user(message_id, message_id * size))

    def _regenerate(self, target: str | None) -> None:
        self.db.regenerate(SID, target)

    def _approve(self, approval: str, approved: bool) -> None:
        self.db.approve(SID, approval, approved=approved)

    def _stop(self, message_id: str | None) -> None:
        self.db.stop(SID, message_id)

    def _grant(self) -> None:
        if self.asked:
            self.db.approve(SID, self.asked[-1], approved=True)

    def _result(self, call_id: str, size: int) -> None:
        self.db.tool_result(SID, call_id, "r" * size)

    # -- workers ------------------------------------------------------------------------------------

    def _boot(self) -> Session:
        return self.db.boot(SID, window=self.window(), takeover=True)

    def _history(self, op: str, named: str, size: int) -> None:
        fields: dict[str, Any] = {"message_id": named}
        if op in ("put", "replace"):
            message = user(named, "edited " * size)
            fields = {"message": message} if op == "put" else {"messages": [message, user("r1", "r" * size)]}
        elif op == "clear":
            fields = {}
        self._tried(lambda session: session.edit_history(op, **fields))

    def _context(self, upto: str, size: int) -> None:
        self._tried(lambda session: session.set_context(upto, [user("sum", "s" * size)]))

    def _state(self, number: int) -> None:
        self._tried(lambda session: session.set_state({"n": number}))

    def _tried(self, edit: Callable[[Session], None]) -> None:
        with self._boot() as session:
            try:
                edit(session)
            except TooLarge:
                raise
            except Refused:
                self.plans.append("refused")

    def _work(self) -> None:
        with self._boot() as session:
            for turn in session.turns():
                self.answers += 1
                wants = {self.wants.get(str(m.get("id"))) for m in turn.messages[-2:]}
                again = turn.kind == "tool-answers" and self.answers % 3 == 0
                if turn.attempt == 1 and ("die" in wants or again):
                    for chunk in self._said("cut"):
                        turn.write(chunk)
                    turn.flush()
                    die(session)
                    session.current = None
                    break
                with turn:
                    if turn.kind == "tool-answers":  # while a message of long ago is continued in its place
                        turn.edit_history("put", message=user(f"t{self.answers}", "beside"))
                    for chunk in self._said("ask" if "ask" in wants else "run" if "run" in wants else ""):
                        turn.write(chunk)
            assert [n for n in session._notes if n["code"] != "snapshot-unreadable"] == []
            self.plans.append(self._told(session))

    def _told(self, session: Session) -> Any:
        found = describe(session.fold, session.plan)
        return {name: found[name] for name in ("pending", "spent", "resume", "state", "cursor")}

    def _said(self, wants: str) -> Iterator[dict[str, Any]]:
        number = self.answers
        call_id = f"c{number % CALLS}"
        yield {"type": "start", "messageId": f"a{number % IDS}"}
        if wants == "ask":
            yield call(call_id)
            self.asked.append(f"ap{number % CALLS}")
            yield ask(call_id, self.asked[-1])
        elif wants:
            yield call(call_id)
            if wants == "run":
                yield result(call_id, "o" * (40 * (number % 25)))
        yield from list(saying(f"answer {number} " * (number % 40)))[1:]

    # -- what came of it ----------------------------------------------------------------------------

    def records(self) -> list[Any]:
        """All records of both logs, in their order, as a reader sees them."""
        found = [list(self.db.records(SID, log)) for log in ("out", "in")]
        return [ordered(records) for records in found]

    def document(self) -> Any:
        """The snapshot with the whole history in itself, and what its blocks look like from outside."""
        key = f"sessions/{SID}/snapshot.json"
        if key not in self.space.objects:
            return None
        document = orjson.loads(self.space.objects[key].data)
        rows = [{n: v for n, v in row.items() if n != "key"} for row in document.get("blocks", ())]
        whole = inline(self.db.store, SID, document)
        dropped = ("savedAt", "crc", "blocks")
        return rows, ordered({name: value for name, value in whole.items() if name not in dropped})

    def found(self, window: int | None = None) -> Any:
        """What a boot finds."""
        loaded = self.db.load(SID, window=window)
        plan = self.db._session(SID, SID, loaded).plan
        told = describe(loaded.fold, plan)
        return {name: value for name, value in told.items() if name != "report"}


def ordered(found: Any) -> Any:
    """With tokens named by the order in which they come: two plays draw them at different times."""
    names: dict[bytes, bytes] = {}

    def name(token: re.Match[bytes]) -> bytes:
        return names.setdefault(token[0], b"token-%d" % len(names))

    return orjson.loads(_TOKEN.sub(name, orjson.dumps(found)))
