"""Aborting what runs, by name, from anywhere.

Each request gets a signal, made when it is first asked for. Aborting is final, carries a reason, and is
told to whoever listens. A signal from outside (the request that a sub-agent works for) can be linked to a
request: when it aborts, so does the request, with its reason. Links are detached when the request ends, or
a signal that outlives many requests would collect them.

A stop that has to survive this process is an input: `db.stop`. An abort ends the work in this process only.
Safe to use from any thread.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable
from contextlib import aclosing, suppress
from typing import Any, TypeVar

from snapshotter.watchdog import Watched, watch_async
from streams.clock import Clock

T = TypeVar("T")
log = logging.getLogger("snapshotter")


class Signal:
    """Whether something was aborted, and why."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._aborted = threading.Event()
        self._listeners: dict[object, Callable[[Any], None]] = {}
        self.reason: Any = None

    @property
    def aborted(self) -> bool:
        return self._aborted.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Block until it is aborted, or until `timeout` seconds have passed; whether it is aborted."""
        return self._aborted.wait(timeout)

    def abort(self, reason: Any = None) -> None:
        """Abort. Only the first call counts."""
        with self._lock:
            if self.aborted:
                return
            self.reason = reason
            self._aborted.set()
            listeners = list(self._listeners.values())
            self._listeners.clear()
        for listener in listeners:
            try:
                listener(reason)
            except Exception:
                log.exception("a listener of an abort failed", extra={"event": "abort-listener-failed"})

    def on_abort(self, listener: Callable[[Any], None]) -> Callable[[], None]:
        """Call `listener(reason)` once, when it is aborted: at once where it is. Returns what detaches it.

        In asyncio: `signal.on_abort(lambda _: loop.call_soon_threadsafe(task.cancel))`.
        """
        mark = object()
        with self._lock:
            if not self.aborted:
                self._listeners[mark] = listener
                return lambda: self._detach(mark)
        listener(self.reason)
        return lambda: None

    def _detach(self, mark: object) -> None:
        with self._lock:
            self._listeners.pop(mark, None)

    def listeners(self) -> int:
        """How many listen; for tests of what forgets to detach."""
        with self._lock:
            return len(self._listeners)


class Aborts:
    """The signals of the requests in this process, by id."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._signals: dict[str, Signal] = {}

    def signal(self, request: str) -> Signal:
        """The request's signal; made now if there is none."""
        with self._lock:
            return self._signals.setdefault(request, Signal())

    def existing(self, request: str) -> Signal | None:
        """The request's signal, if there is one."""
        with self._lock:
            return self._signals.get(request)

    def cancel(self, request: str, reason: Any = None) -> bool:
        """Abort a request; False when none of this id is known."""
        found = self.existing(request)
        if found is not None:
            found.abort(reason)
        return found is not None

    def remove(self, request: str) -> None:
        """Forget a request that has ended."""
        with self._lock:
            self._signals.pop(request, None)

    def cancel_all(self, reason: Any = None) -> None:
        """Abort every request, and forget them."""
        with self._lock:
            signals = list(self._signals.values())
            self._signals.clear()
        for signal in signals:
            signal.abort(reason)

    def link(self, request: str, outside: Signal | None) -> Callable[[], None]:
        """Abort the request when `outside` aborts; at once where it has. Returns what detaches the link: call
        it when the request has ended. With None nothing is linked."""
        if outside is None:
            return lambda: None
        return outside.on_abort(self.signal(request).abort)

    def __contains__(self, request: object) -> bool:
        with self._lock:
            return request in self._signals

    def __len__(self) -> int:
        with self._lock:
            return len(self._signals)


def until_aborted(chunks: Iterable[T], signal: Signal, *, clock: Clock | None = None) -> Watched[T]:
    """The chunks, until the signal aborts, also while the source is silent. They are read in a thread of
    their own (as `snapshotter.watch` does), so that an abort, and inside `turn.tee` a stall or the deadline,
    frees whoever waits for them; the thread of a source that hangs for ever stays, as a daemon. The source is
    closed in any case. What the turn makes of an abort is the host's to say: `if signal.aborted:
    turn.abort(str(signal.reason))`."""
    found = Watched(chunks, clock=clock)
    known = weakref.ref(found)  # a consumer may forget what it reads from; a signal may live long

    def leave(_reason: Any) -> None:
        left = known()
        if left is not None:
            left.close()

    found.on_close = signal.on_abort(leave)
    return found


async def until_aborted_async(chunks: AsyncIterable[T], signal: Signal) -> AsyncGenerator[T, None]:
    """As `until_aborted`, of an async iterable: a source that waits is cancelled."""
    loop = asyncio.get_running_loop()
    aborted: asyncio.Future[None] = loop.create_future()

    def settle() -> None:
        if not aborted.done():
            aborted.set_result(None)

    def tell(_reason: Any) -> None:
        with suppress(RuntimeError):  # its loop is closed: nobody waits there any more
            loop.call_soon_threadsafe(settle)

    detach = signal.on_abort(tell)
    try:
        async with aclosing(watch_async(chunks, until=aborted)) as found:
            async for chunk in found:
                if signal.aborted:
                    return
                yield chunk
    finally:
        detach()
        aborted.cancel()
