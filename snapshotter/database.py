"""The door: sessions in one root of one store.

`open(url)` gives a Database. Senders and readers use it directly and never boot a session; a worker boots
one. A Database is safe to share between threads; what it hands out (sessions, turns, iterators) belongs to
one thread each.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from streams.buckets.base import Bucket
from streams.buckets.memory import MemoryBucket
from streams.buckets.serverside import ServerSide
from streams.buckets.url import open_bucket
from streams.clock import Clock, SystemClock
from streams.encryption import Encryption, of_environment, sealed
from streams.errors import Fenced, InvalidId, InvalidValue, Refused
from streams.store import Retries, Store

from . import sending
from .claiming import Claiming
from .core.blocks import DEFAULT, Sizes
from .core.budget import Limits
from .core.calls import Message
from .core.resume import Policies
from .ground import Ground
from .hooks import checked
from .hosting.door import HostDoor
from .hosting.hydrating import Hydrate, NotDurable
from .hosting.hydrating import asked as hydrated
from .hosting.recovering import RecoveryHook
from .loading import Loaded, load
from .readers import Readers
from .receipt import Receipt
from .recovery import ChatRecovery, cause_text
from .scribe import POLICIES
from .senders import Senders
from .session import Session, working_time
from .spans import BootSpan
from .telemetry import DEFAULT as TELEMETRY
from .telemetry import Telemetry
from .waiting import wait_for


def open(  # noqa: A001 - `snapshotter.open` is meant to read like the built-in
    url: str | os.PathLike[str] | None,
    *,
    session: Any = None,
    durability: str = "stream",
    allow_unfenced: bool = False,
    stable_timeout: float | None = None,
    recovery: ChatRecovery | None = None,
    on_recovery_boot: RecoveryHook | None = None,
    hydrate: Hydrate | None = None,
    encryption: Encryption | None = None,
    server_side: ServerSide | None = None,
    telemetry: Telemetry | None = TELEMETRY,
    env: Mapping[str, str] | None = None,
    clock: Clock | None = None,
) -> Database:
    """Open the root that a URL names: `s3://bucket/path`, `minio://host:port/bucket/path`, `file:///path`,
    `memory://name`. Nothing is requested yet.

    `session` is a `boto3.Session` with your credentials. `durability` is how soon a chunk is safe: `stream`
    (1 to 5 s, tool calls at once), `live` (0.2 s) or `steps` (tool calls and step ends only).
    `allow_unfenced` accepts a store without conditional create: then only you keep two workers apart.
    `recovery`: when an interrupted turn is given up, and who is told (see `ChatRecovery`).
    `stable_timeout`: seconds that a boot waits for a living worker before it raises Busy; by default that of
    `recovery`, 25 s: a stream's lease of 15 s and the 7 s of slack, with a margin.

    `on_recovery_boot`: a host's own plan for an interrupted turn (see `RecoveryBoot`). `hydrate`: a host's
    own history; `hydrate(session_id)` returns its messages. Without a store (`url` None) nothing outlives
    this process, and a warning, NotDurable, says so.

    `encryption`: encrypt every object with keys of your own (see `Encryption`); by default as the
    environment says: SNAPSHOTTER_KEY_FILE or SNAPSHOTTER_KEY_COMMAND, or not at all. `server_side`: what an
    S3 store is asked to do with the bytes (see `ServerSide`); by default what URL and environment say.
    `telemetry`: what OpenTelemetry is told, where the application has configured it (see `Telemetry`); None
    for nothing.

    Raises InvalidId for a URL that is not understood, Misconfigured where a driver, credentials or keys lack.
    """
    clock = clock or SystemClock()
    if isinstance(url, os.PathLike):
        url = Path(url).absolute().as_uri()
    if url is not None and not isinstance(url, str):
        raise InvalidId(f"a store's URL is a text, or the path of a folder, not {type(url).__name__}")
    if url is None:
        lost = "interrupted answers are not recovered" if hydrate else "conversations will not survive"
        warnings.warn(f"no store is given: {lost} this process", NotDurable, stacklevel=2)
        bucket = sealed(MemoryBucket(clock), encryption)
    else:
        encryption = of_environment(env) if encryption is None else encryption
        bucket = open_bucket(
            url, session=session, clock=clock, env=env, encryption=encryption, server_side=server_side
        )
    return Database(
        bucket,
        clock,
        durability=durability,
        allow_unfenced=allow_unfenced,
        stable_timeout=stable_timeout,
        recovery=recovery,
        on_recovery_boot=on_recovery_boot,
        hydrate=hydrate,
        telemetry=telemetry,
    )


class Database(Ground, Senders, Readers, HostDoor):
    """Sessions in one root. Close it, or use it with `with`."""

    def __init__(
        self,
        bucket: Bucket,
        clock: Clock | None = None,
        *,
        durability: str = "stream",
        allow_unfenced: bool = False,
        stable_timeout: float | None = None,
        recovery: ChatRecovery | None = None,
        on_recovery_boot: RecoveryHook | None = None,
        hydrate: Hydrate | None = None,
        retries: Retries | None = None,
        sizes: Sizes = DEFAULT,
        telemetry: Telemetry | None = TELEMETRY,
    ) -> None:
        if durability not in POLICIES:
            raise Refused(f"unknown durability {durability!r}: stream, live or steps")
        super().__init__(bucket, clock, allow_unfenced=allow_unfenced, retries=retries, telemetry=telemetry)
        self.durability = durability
        if recovery is not None and not isinstance(recovery, ChatRecovery):
            raise InvalidValue(f"recovery is {recovery!r:.80}: a ChatRecovery is needed", path="recovery")
        self.recovery = recovery or ChatRecovery()
        self._stable_timeout = self.recovery.stable_timeout if stable_timeout is None else stable_timeout
        self._on_recovery_boot = checked(on_recovery_boot, "on_recovery_boot")
        self._hydrate = checked(hydrate, "hydrate")
        self._sizes = sizes

    # -- senders ------------------------------------------------------------------------------------

    def _append(self, session_id: str, record: dict[str, Any]) -> Receipt:
        sid = self.sid(session_id)
        self._ensure()
        number, duplicate = sending.append(self.store, sid, record, self._sizes.value)
        return Receipt(session_id, number, duplicate)

    def create(
        self, session_id: str, *, messages: list[Message] | None = None, state: dict[str, Any] | None = None
    ) -> None:
        """Create a session with an existing history, once.

        One that was deleted is opened again. A deletion that is under way, or was broken off, is brought to
        its end first, and what was sent to the deleted session goes, too: what is sent from here on is
        compared with nothing of that.

        Raises Refused when it exists already, InvalidValue for a message that is none."""
        sid = self.sid(session_id)
        self._ensure()
        while True:
            loaded = self._emptied(session_id)
            with self._session(session_id, sid, loaded) as session, suppress(Fenced):
                # Fenced by another one, it exists; or it was deleted once more.
                return sending.create(session, messages or [], state)

    def _emptied(self, session_id: str) -> Loaded:
        """The session as it stands; of one that is deleted once the in log says nothing any more, so that
        neither a sender nor the log takes what comes for a copy of what is gone."""
        from .maintenance.deleting import bring_to_end

        loaded, known = self.load(session_id), -1
        while loaded.fold.deleted and loaded.fold.inputs.last != known:
            known = loaded.fold.inputs.last
            bring_to_end(self, session_id, known)
            loaded = self.load(session_id)  # in any case: another may have brought it to its end meanwhile
        return loaded

    # -- workers ------------------------------------------------------------------------------------

    def boot(
        self,
        session_id: str | None = None,
        *,
        receipt: Receipt | str | dict[str, Any] | None = None,
        deadline: float | None = None,
        takeover: bool = False,
        stable_timeout: float | None = None,
        client_tools: list[str] | None = None,
        tool_policies: Policies | None = None,
        cause: str | None = None,
        overlap: str = "queue",
        claim: bool = False,
        delivery: int = 1,
        window: int | None = None,
    ) -> Session:
        """Boot a session for work: read it, wait for a living worker to end or to go stale.

        With the `receipt` of the input that woke this worker the in log need not be listed, and the session
        id may be left out. `deadline`: seconds, from this call on, until the platform kills this process; the
        boot waits no longer, and the open turn is released then. `takeover`: do not wait, the platform knows
        that the other worker is dead; the pause before a further attempt is kept all the same.
        `client_tools`: names of tools that a client runs, for inputs that do not say. `tool_policies`: what
        becomes of a tool's call that was cut off, `interrupted` (the default: the model is told that it may
        have run), `rerun` or `reattach` (your tool loop finds it not yet run, or with its progress).
        `cause`: why the worker before died, if known: a text, of which 8 KiB are kept. One is known here,
        `out_of_memory`: it is the reason, should the turn be given up for its deaths.
        `overlap`: whether user messages that are owed together get an answer each (`queue`), one together
        (`merge`), or only the newest one does (`latest`).

        `claim`: say so in the log before anything is loaded, so that a death while loading counts; what kills
        again and again is then sealed unloaded. `delivery`: how often the queue has delivered this message;
        from the second time on it implies `claim`.

        `window`: read no more of a long history than so many of its newest messages (and 64 at least).
        `session.messages`, and what the model is shown, are those then, after older ones whose calls still
        wait. What is needed besides is read when it is; what is written is the same. Where the database has
        an `on_recovery_boot` or a `hydrate` hook, which sees the whole history, it is read whole.

        Without a claim nothing is written before the first turn. Raises Busy (do not acknowledge the queue
        message), Damaged, Misconfigured, Unreachable.
        """
        if type(delivery) is not int or delivery < 1:
            raise Refused(f"delivery is {delivery!r}: a count from 1 on is needed")
        if deadline is not None and not isinstance(deadline, int | float):
            raise InvalidValue(f"deadline is {deadline!r}: seconds are needed", path="deadline")
        if window is not None and (type(window) is not int or window < 0):
            raise InvalidValue("window is a number of messages, 0 or more", path="window")
        if client_tools is not None:
            client_tools = sending.tool_names(client_tools)
        if cause is not None:
            cause = cause_text(cause)
        if session_id is None:
            if receipt is None:
                raise Refused("boot needs a session id or a receipt")
            session_id = Receipt.parse(receipt).session
        given = self._receipt(session_id, receipt)
        return self.wait_for(
            session_id,
            number=given.id if given is not None else None,
            stable_timeout=stable_timeout,
            takeover=takeover,
            deadline=deadline,
            client_tools=client_tools,
            tool_policies=tool_policies,
            cause=cause,
            overlap=overlap,
            on_recovery_boot=self._on_recovery_boot,
            claim=claim or delivery > 1,
            window=window if self._on_recovery_boot is None else None,
        )

    def wait_for(
        self,
        session_id: str,
        *,
        number: int | None = None,
        stable_timeout: float | None = None,
        takeover: bool = False,
        limits: Limits | None = None,
        claim: bool = False,
        window: int | None = None,
        **options: Any,
    ) -> Session:
        """As `boot`, which is what workers use. `number`: the id of an input that is known to be there."""
        sid, store = self.sid(session_id), self._own_store()
        wait = self._stable_timeout if stable_timeout is None else stable_timeout
        deadline = options.pop("deadline", None)
        ends = None if deadline is None else self.clock.monotonic() + working_time(deadline)

        def patience() -> tuple[float, float]:
            """Seconds to wait for a holder: by default, and where no date tells whether it lives."""
            left = math.inf if ends is None else max(0.0, ends - self.clock.monotonic())
            return min(wait, left), left if stable_timeout is None else min(wait, left)

        def read(number: int | None = None) -> Loaded:
            return wait_for(
                store,
                session_id,
                sid,
                receipt=number,
                patience=patience(),
                takeover=takeover,
                learn=self._learner(),
                recovery=self.recovery,
                limits=limits,
                hydrate=self._hydrator(session_id),
                window=window,
            )

        cause = options.get("cause")
        options["ends"] = ends
        with BootSpan(store, session_id) as span:
            if not claim:
                return span.found(self._session(session_id, sid, read(number), store, read, **options))
            claiming = Claiming(
                store,
                session_id,
                sid,
                self.recovery,
                number,
                patience(),
                takeover,
                cause,
                self._ensure,
            )
            return span.found(self._claimed(claiming, read, window, **options))

    def _claimed(
        self, claiming: Claiming, read: Callable[[], Loaded], window: int | None, **options: Any
    ) -> Session:
        """The session that `claiming` claims before it is loaded; `read` is how it is read again."""
        store, session_id, sid, number = claiming.store, claiming.session, claiming.sid, claiming.number
        hydrate = self._hydrator(session_id)
        try:
            loaded, claimed = claiming.load(
                lambda: load(store, sid, receipt=number, hydrate=hydrate, window=window)
            )
            return self._session(session_id, sid, loaded, store, read, claim=claimed, **options)
        except BaseException:
            claiming.leave()  # nobody is there to close a session that was not handed out
            raise

    def load(
        self,
        session_id: str,
        receipt: int | None = None,
        store: Store | None = None,
        window: int | None = None,
    ) -> Loaded:
        """The session as it is stored now: the state that its logs make, and who holds it. `window` as in
        `boot`."""
        store, hydrate = store or self._own_store(), self._hydrator(session_id)
        return load(store, self.sid(session_id), receipt=receipt, hydrate=hydrate, window=window)

    def _hydrator(self, session_id: str) -> Callable[[], list[Message]] | None:
        """The hook that owns this session's history; None where the log does."""
        hook = self._hydrate
        return None if hook is None else partial(hydrated, hook, session_id)

    def peek(
        self,
        session_id: str,
        *,
        receipt: Receipt | str | dict[str, Any] | None = None,
        window: int | None = None,
    ) -> Session:
        """What the next worker (with this receipt, and window) would get, without waiting and without taking
        the session over: `busy` says whether somebody is at work. Nothing is written."""
        given = self._receipt(session_id, receipt)
        sid = self.sid(session_id)
        store = self._own_store()
        loaded = self.load(session_id, given.id if given is not None else None, store, window)
        return self._session(session_id, sid, loaded, store)

    @staticmethod
    def _receipt(session_id: str, receipt: Receipt | str | dict[str, Any] | None) -> Receipt | None:
        given = Receipt.parse(receipt) if receipt is not None else None
        if given is not None and given.session != session_id:
            raise Refused(f"the receipt is of session {given.session!r}, not {session_id!r}")
        return given

    def _session(
        self,
        session_id: str,
        sid: str,
        loaded: Loaded,
        store: Store | None = None,
        reload: Any = None,
        **options: Any,
    ) -> Session:
        store = store or self._own_store()
        return Session(
            session_id,
            sid,
            store,
            loaded,
            reload or (lambda: self.load(session_id, store=store)),
            durability=self.durability,
            recovery=self.recovery,
            before_write=self._ensure,
            etags=self._etags,
            sizes=self._sizes,
            **options,
        )
