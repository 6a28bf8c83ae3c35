"""A booted session: what was found, and the loop of a worker.

The session holds the fold and, from its first write on, the log's single writer. Everything it writes
goes through the same reducer that a boot runs. Between two turns it does what needs no model: it seals
what only lacks its turn-complete, writes off what is spent, closes the session when asked.

A worker that loses the place of a claim reads the session again and plans anew, never with the old plan:
the winner may be at work, or have answered already. One that loses its place in the middle of a turn is
fenced and stops.

A session, and its turns, belong to one thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from streams import keys
from streams.clock import Clock
from streams.errors import Busy, Closed, Fenced, InvalidValue, Refused, StreamError, TooLarge
from streams.packing import encode_record
from streams.records import Cursor, Record
from streams.store import Store
from streams.writer import Flush, Writer

from .claiming import Claim
from .core import moves
from .core.blocks import DEFAULT, Sizes
from .core.budget import Incident
from .core.calls import Message
from .core.copies import Copies
from .core.fold import Fold
from .core.modelview import model_view
from .core.queue import Item
from .core.resume import Policies, check_policies
from .core.revive import Plan
from .found import log
from .hosting.recovering import Choosing, RecoveryHook
from .incoming import dated_input
from .keeping import Keeper
from .loading import Loaded
from .recovering import Recovering, pause_of
from .recovery import ChatRecovery
from .scribe import SILENCE, Scribe
from .signals import guarded
from .spans import TurnSpan, settling
from .turn import Turn, why_of

if TYPE_CHECKING:
    from streams.stats import RequestStats

    from .spans import BootSpan

_RELEASE_MARGIN = 2.0  # seconds before a deadline, or a tenth of it, in which the turn is released
_REPLANS = 8
_ASK = 1.0  # seconds between two looks for further inputs


def working_time(deadline: float) -> float:
    """Seconds until a session lets go: a little before its deadline, since that has to reach the store."""
    return deadline - min(_RELEASE_MARGIN, deadline / 10)


class Session(Scribe):
    """One session, as a boot found it. Use it as a context manager; iterate `turns()` to work on it. `ends`:
    when it lets go of an open turn, by the clock's monotonic time."""

    def __init__(
        self,
        session_id: str,
        sid: str,
        store: Store,
        loaded: Loaded,
        reload: Callable[[], Loaded],
        *,
        durability: str = "stream",
        ends: float | None = None,
        client_tools: list[str] | None = None,
        tool_policies: Policies | None = None,
        cause: str | None = None,
        recovery: ChatRecovery | None = None,
        on_recovery_boot: RecoveryHook | None = None,
        overlap: str = "queue",
        claim: Claim | None = None,
        before_write: Callable[[], None] = lambda: None,
        etags: Callable[[], str] = lambda: "as-given",
        sizes: Sizes = DEFAULT,
    ) -> None:
        self.id = session_id
        self.sid = sid
        self.store = store
        self.clock: Clock = store.clock
        self.durability = durability
        self.run = f"r-{self.clock.token()}" if claim is None else claim.run
        self.current: Turn | None = None
        self.boot_span: BootSpan | None = None
        self._reload = reload
        self._deadline = ends
        self._client_tools = client_tools
        check_policies(tool_policies)
        self._tool_policies = tool_policies
        self._cause = cause
        self._before_write = before_write
        self._etags = etags
        self.sizes = sizes
        self._writer: Writer | None = None
        self._epoch = 0
        self._claiming = False
        self._apart_bytes = 0
        self._over = False
        self._notes: list[dict[str, Any]] = []
        self._copies = Copies()
        self.recovery = recovery or ChatRecovery()
        self._recovering = Recovering(self, self.recovery, cause)
        self._choosing = Choosing(self, on_recovery_boot, overlap, cause)
        self._take(loaded)
        if claim is not None:
            self._take_claim(claim)
        self.booted: RequestStats = store.stats.snapshot()

    def _take_claim(self, claim: Claim) -> None:
        """Go on with the claim that this boot made before it loaded. Its pause is over."""
        began = self.clock.monotonic()
        self._writer, self._epoch, self._age = claim.writer, claim.epoch, math.inf
        self.busy = None
        claim.lease = self._lease
        claim.may_beat = lambda: (
            self._may_beat() or (self._claims and self.clock.monotonic() < began + SILENCE)
        )

    def _take(self, loaded: Loaded) -> None:
        self.fold: Fold = loaded.fold
        self.fold.strict = True  # from here on it is a live turn that is written, not an old one replayed
        self._position: Cursor = loaded.position
        self._keeper = Keeper(self.store, self.sid, loaded, self.sizes, self._etags)
        self._readable = loaded.readable
        self._date_ms = loaded.date_ms
        self._notes += loaded.notes
        for line in loaded.notes:
            self.log_note(line["code"], line["detail"])
        now, self._taken_at = self.clock.now_ms(), self.clock.monotonic()
        self._age = math.inf if loaded.is_ahead(now) else loaded.age(now)  # no date puts the next attempt off
        self._released = False
        pause = pause_of(loaded, self.recovery.limits, self.clock.now_ms())
        self.busy = loaded.holder(self.clock.now_ms()) or pause
        self._writer = None
        self._apart_bytes = 0
        self._choosing.read_again()
        self._looked = loaded.listed or (loaded.just_sent and self._choosing.one_by_one)
        self._hydrated = loaded.hydrated
        self._checkpoint: tuple[bytes, int] | None = None
        if loaded.held and self.fold.open is None and self.fold.claim is None and not self.fold.budget.claims:
            document = self._encode_cursor(loaded.position)
            self._checkpoint = None if document is None else (document, loaded.position.id)
        self.plan: Plan
        self.replan()

    # -- the worker's loop --------------------------------------------------------------------------

    def turns(self, wait: float = 0.0) -> Iterator[Turn]:
        """The turns to work on: the interrupted one first, then each owed item. Each is claimed already.

        After every turn the in log is looked at again, so an input that arrived meanwhile is never left to
        nobody. With nothing owed it stays `wait` seconds for further inputs. The loop ends when a turn was
        released: the next worker, or the next boot, goes on with it.

        Raises Busy, Fenced, Unknown (do not acknowledge the queue message), Closed.
        """
        for step in self.steps(wait):
            if isinstance(step, Turn):
                yield step
            elif step:
                self.clock.sleep(step)

    def steps(self, wait: float = 0.0) -> Iterator[Turn | float | None]:
        """As `turns`, for whoever waits in a way of their own: a number is the seconds to wait before the
        next step, which then only reads; None: go on, the next step may claim a turn."""
        if self.fold.deleted:
            raise Closed(f"session {self.id!r} is deleted; only an explicit create opens it again")
        if self.fold.closed and self.fold.inputs.owed():
            raise Closed(f"session {self.id!r} is closed; what came in after that is not answered")
        if self._released:
            self._take(self._reload())  # what the attempt has cost is read from the log, as others do
        while not self.deadline_passed():
            turn = self._next_turn()
            if turn is None:
                if not (yield from self._await_input(wait)):
                    return
                yield None
                continue
            yield turn
            if turn.open:
                turn.release()
                raise Refused(
                    "the turn was not ended before the next one was asked for: write it inside `with turn:`,"
                    " or call complete, fail, abort or release; it was released"
                )
            self._recovering.ended(turn)
            if turn.status == "released":
                self._released = True
                return

    def _next_turn(self) -> Turn | None:
        """Do what needs no model, until a turn is claimed; None when nothing is owed."""
        for _ in range(_REPLANS):
            try:
                while True:
                    turn, again = self._step()
                    if not again:
                        return turn
            except Fenced:
                log.info(
                    "session %s: another worker was first; reading again",
                    self.id,
                    extra={"event": "overtaken", "session": self.id, "epoch": self._epoch},
                )
                self._take(self._reload())
        raise Busy(f"session {self.id!r}: other workers are faster each time", retry_after=5.0)

    def _step(self) -> tuple[Turn | None, bool]:
        """One step of the loop: a turn, or nothing; and whether there may be more to do before a turn."""
        if not self._looked:
            self._look_again()
        self.replan()
        plan = self.plan
        step = moves.next_step(plan)
        if step == "seal":
            return self._finish(moves.sealing(self.fold, plan))
        if step in ("resume", "item"):
            bodies, keep = self._recovering.instead(step)
            if bodies is not None:
                return self._give_up(bodies)
            choice = self._choosing.choose(step)
            item = choice.item
            if choice.ends:
                return self._finish(choice.between)
            if item is not None and item.kind == "close":
                return self._finish(moves.ending(self.fold, plan, item))
            if item is not None and item.kind == "action" and not choice.between:
                return Turn(self, item, TurnSpan(self, item.kind), claimed=False), False
            return self.claim(item, keep=keep, between=choice.between), False
        return self._finish(moves.spending(plan)) if step == "spend" else (None, False)

    def _finish(self, bodies: list[dict[str, Any]]) -> tuple[None, bool]:
        with settling(self.store, bodies):
            self.end_segment(bodies)
        return None, True

    def _give_up(self, bodies: list[dict[str, Any]]) -> tuple[None, bool]:
        try:
            return self._finish(bodies)
        except StreamError as error:
            self._recovering.failed(error)
            raise

    def claim(
        self, item: Item | None, *, keep: bool = True, between: list[dict[str, Any]] | None = None
    ) -> Turn:
        """Open a turn, durably, and hand it out. Once it is open, `close` can release it. `keep` and
        `between` as in `moves.opening`."""
        with guarded():
            span = TurnSpan(self, self.resume.kind if item is None else item.kind)
            with span.claiming():
                self.open_turn(item, keep=keep, between=between)
                return Turn(self, item, span, claimed=True)

    def opening(self, item: Item | None, **options: Any) -> list[dict[str, Any]]:
        """The records that open the next attempt of the open turn, or a new turn for an item."""
        *before, start = self.reaching(
            lambda: moves.opening(
                self.fold,
                self.plan,
                item,
                run=self.run,
                message_id=f"msg_{self.clock.token()}",
                cause=self._cause if item is None else None,
                client_tools=self._client_tools,
                **options,
            )
        )
        return [*before, self._fitting(start)]

    def _fitting(self, start: dict[str, Any]) -> dict[str, Any]:
        """The turn-start without those copies of the request that make it too large: the input has the body,
        and a session must not stand still for ever because of one request."""
        for name in ("body", "clientTools"):
            try:
                encode_record(keys.MAX, self.clock.now_ms(), start)
            except (TooLarge, InvalidValue):  # a foreign body may nest too deeply to be written again
                if name in start:
                    self.note("request-not-copied", f"{name} does not fit into the turn-start")
                start = {field: value for field, value in start.items() if field != name}
        return start

    def open_turn(self, item: Item | None, **options: Any) -> None:
        """Write what `opening` says."""
        bodies = self.opening(item, **options)
        self._claiming = True
        try:
            self.commit(bodies, flush=Flush.NOW)
        finally:
            self._claiming = False

    def _await_input(self, wait: float) -> Generator[float, None, bool]:
        """Look for further inputs for `wait` seconds, yielding the pauses; True when there were any."""
        end = self.clock.monotonic() + wait
        pause = 0.0
        while wait > 0:
            yield pause
            if self._look_again():
                return True
            left = end - self.clock.monotonic()
            if left <= 0 or self.deadline_passed():
                return False
            pause = min(_ASK, left)
        return False

    def _look_again(self) -> bool:
        """Read the inputs that came meanwhile, up to a message that the next turn answers and that came just
        now; True when there were any. What may come behind that is read after its turn, or by its watcher: to
        ask for one input more, which is mostly not there, would be a request for each turn."""
        found = False
        while (read := dated_input(self.store, self.sid, self.fold.inputs.last + 1)) is not None:
            record, just_sent = read
            self.fold.feed(record)
            found = True
            if just_sent and self._choosing.one_by_one:
                self.replan()
                if moves.next_step(self.plan) == "item" and self.plan.pending[0].kind == "message":
                    return True
        self._looked = True
        self.replan()
        return found

    def take_in(self, records: Iterable[Record]) -> None:
        """Inputs that the turn's watcher has read."""
        for record in records:
            self.fold.feed(record)

    @property
    def incident(self) -> Incident:
        """What the turn to take up, or the first owed item, has cost so far, and whether the next boot goes
        on with it or gives it up (`should_keep_recovering` is not asked)."""
        return self._recovering.judge(self.fold, self.plan)

    @property
    def age(self) -> float:
        """Seconds since the last word of the log that was read, by the store's clock."""
        return self._age + self.clock.monotonic() - self._taken_at

    def model_view(self, answer: list[Message], resumed: str | None = None) -> list[Message]:
        """The messages for the model; `answer` is what the open turn's attempt began with, `resumed` the kind
        of resumption."""
        return model_view(self.fold, answer, resumed, self._tool_policies, self._recovering.repaired)

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close("cancelled" if error is None else why_of(error), error)
