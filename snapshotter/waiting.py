"""Waiting for a session that a living worker holds.

Fencing makes two workers safe; waiting keeps them from paying twice. An open turn whose lease has not run
out may have a living worker, so a boot waits until it closes its turn or goes stale, and then gives up with
Busy: the queue delivers the message again. A turn that was interrupted is taken up again only after a pause
that grows with each fault; until then the session counts as busy, too, and the observer is told so once,
whether the boot then waits or gives up.

A holder is judged by the store's dates, and also by what this boot saw itself: whoever said nothing new for
its whole lease while we looked is gone, whatever the dates say. Where they say nothing, since the clock was
set back and the last word is of the future, a boot that was not told how long to wait waits for so long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streams import log, probe
from streams.store import Store

from .core.budget import Limits
from .holding import LOOK_EVERY, Silence, Wait
from .loading import Hydrator, Loaded, load
from .recovering import busy, pause_of
from .recovery import ChatRecovery, Hooks
from .watched import of


def wait_for(
    store: Store,
    session_id: str,
    sid: str,
    *,
    receipt: int | None,
    patience: tuple[float, float],
    takeover: bool,
    learn: Callable[[probe.Capabilities], None] | None,
    recovery: ChatRecovery,
    limits: Limits | None = None,
    hydrate: Hydrator | None = None,
    window: int | None = None,
) -> Loaded:
    """Read the session; while a living worker holds it, or it is too soon for the next attempt, look again.

    `patience`: seconds to wait, and at most where no date tells whether the holder lives; `learn` is told
    what the probe found, which is read along where it is given; `limits` stand in place of `recovery`'s;
    `window` as in `load`. Raises Busy, and what `load` raises.
    """
    clock = store.clock
    notes: list[dict[str, Any]] = []

    def note(code: str, why: str) -> None:
        notes.append({"code": code, "id": 0, "detail": why})

    hooks = Hooks(recovery, session_id, note, of(store))
    told: set[tuple[str, int]] = set()  # incidents and attempts whose pause was found
    wait, watched = Wait(clock, patience), Silence(clock)
    while True:
        loaded = load(
            store, sid, receipt=receipt, capabilities=learn is not None, hydrate=hydrate, window=window
        )
        if loaded.capabilities is not None and learn is not None:
            learn(loaded.capabilities)
        loaded.watched = watched.seconds(loaded.position)
        holder = None if takeover else loaded.holder(clock.now_ms())
        holder = holder or pause_of(loaded, limits or recovery.limits, clock.now_ms())
        if holder is None:
            loaded.notes += notes
            return loaded
        found = holder.incident
        if found is not None and (found.id, found.attempt) not in told:
            told.add((found.id, found.attempt))
            hooks.emit("scheduled", found, retry_after=holder.retry_after)
        if loaded.is_ahead(clock.now_ms()):
            wait.lengthen(holder.retry_after)
        left = wait.left
        if left <= 0:
            raise busy(session_id, holder)
        _sleep_while_held(store, sid, loaded, min(left, holder.retry_after))


def _sleep_while_held(store: Store, sid: str, loaded: Loaded, seconds: float) -> None:
    """Sleep, but only as long as the holder says nothing new: one small listing a second."""
    clock = store.clock
    end = clock.monotonic() + seconds
    while (left := end - clock.monotonic()) > 0:
        clock.sleep(min(LOOK_EVERY, left))
        listing = log.newest(store, "out", sid, 1)
        if listing.entries and listing.entries[0].first > loaded.position.id:
            return
