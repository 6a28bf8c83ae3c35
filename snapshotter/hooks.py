"""Functions of a host's that the engine calls: looked at when they are given, not when they are needed.

Hooks are called in the middle of a boot or a turn, by whichever thread is there, and nobody awaits what they
return. A coroutine function would never run, and the default would be used for ever; so it is refused where
it is handed over, and so is what cannot be called at all.
"""

from __future__ import annotations

import inspect
from typing import Any

from streams.errors import InvalidValue

_PLAIN = (
    "give a plain function: it is called in a worker's thread, where nobody awaits it; work for your event"
    " loop is handed over with asyncio.run_coroutine_threadsafe or loop.call_soon_threadsafe"
)


def checked(hook: Any, name: str) -> Any:
    """The same hook, or None. Raises InvalidValue, naming it, for what cannot be called, and for what would
    return a coroutine."""
    if hook is None:
        return None
    if not callable(hook):
        raise InvalidValue(f"{name} is {hook!r:.80}: a function is needed", path=name)
    called = hook if inspect.isroutine(hook) else getattr(hook, "__call__", hook)  # noqa: B004 - its code
    for code in (hook, called):
        if inspect.iscoroutinefunction(code) or inspect.isasyncgenfunction(code):
            raise InvalidValue(f"{name} is an async function: {_PLAIN}", path=name)
    return hook


def answer_of(found: Any, name: str) -> Any:
    """What a hook returned. Raises InvalidValue for something that would have to be awaited, which is closed:
    a plain function may return one all the same."""
    if not inspect.isawaitable(found):
        return found
    close = getattr(found, "close", None)
    if close is not None:
        close()
    raise InvalidValue(f"{name} returned something to await: {_PLAIN}", path=name)
