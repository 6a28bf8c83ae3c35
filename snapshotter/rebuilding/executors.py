"""Where tasks run: this process, processes of this machine, or a cluster that is there already.

None of them is a scheduler of ours. A task is `submit(function, *arguments)` → Future, as in
`concurrent.futures`; Dask brings such an executor, Ray such futures. Each is imported when it is asked for.

Ctrl-C on a terminal reaches every process that runs there. It is for the one that began the run, and the
others are told by it: they never see the signal, and end when one end of a pipe is closed.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from streams.errors import InvalidValue, Misconfigured, Unreachable

LOCAL = "local"
"""As the address of a Ray cluster: one is started on this machine, for this run."""

_PATIENCE = 10.0  # seconds that a cluster has to answer


class Inline(Executor):
    """Runs each task at once, in the caller's thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - it is the future's to raise
            future.set_exception(error)
        return future


class Processes(ProcessPoolExecutor):
    """Processes of this machine, each begun afresh: a fork would copy locks that threads hold. Where a `with`
    is left by an exception they end at once, whatever they are at.

    No SIGINT reaches them: what is begun while it is blocked has it blocked for good. One that comes
    meanwhile is this process's own, and waits. Do not cancel futures: a pool that breaks may stumble over
    one, and say so on stderr (Python 3.11)."""

    def __init__(self, jobs: int) -> None:
        context = multiprocessing.get_context("spawn")
        told, self._teller = context.Pipe(duplex=False)
        super().__init__(jobs, mp_context=context, initializer=_end_with_parent, initargs=(told,))

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return super().submit(fn, *args, **kwargs)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._teller.close()
        self.shutdown(cancel_futures=kind is not None)


def _end_with_parent(told: Connection) -> None:
    """In a new process: end when the one that began it closes its end of the pipe, or has ended, also where
    that was killed. A pool's processes would wait for ever for its next task: each of them holds the other
    end of the queue as well."""

    def follow() -> None:
        told.poll(None)
        os._exit(1)

    threading.Thread(target=follow, name="rebuild-parent", daemon=True).start()


@contextmanager
def dask(address: str) -> Iterator[Executor]:
    """The workers of a Dask scheduler, such as tcp://host:8786. This package has to be installed there.
    Raises InvalidValue for what is no address, Unreachable, and Misconfigured where Dask is not installed."""
    cluster = _package("distributed", "dask distributed")
    try:
        # A client that finds this out by itself is not to be got rid of for a minute.
        cluster.comm.get_address_host(address)
    except ValueError as error:
        raise _no_address(address, "a Dask scheduler: give one as tcp://host:8786") from error
    try:
        client = cluster.Client(address, set_as_default=False, timeout=_PATIENCE)
    except OSError as error:
        raise _unreachable("Dask scheduler", address) from error
    # Not pure: the same task asked for again is to be done again.
    with client, client.get_executor(pure=False) as executor:
        yield executor


@contextmanager
def ray(address: str) -> Iterator[Executor]:
    """The workers of a Ray cluster (`auto`, host:6379, or ray://host:10001), or of one started here (LOCAL).
    Raises InvalidValue for what is no address, Unreachable, and Misconfigured where Ray is not installed."""
    cluster = _package("ray", "ray")
    if address not in (LOCAL, "auto"):
        _check_answers(address)
    try:
        cluster.init(
            address=None if address == LOCAL else address,
            include_dashboard=False if address == LOCAL else None,
            log_to_driver=False,
            configure_logging=False,
        )
    except ConnectionError as error:
        raise _unreachable("Ray cluster", address) from error
    try:
        yield _Ray(cluster)
    finally:
        cluster.shutdown()


def _check_answers(address: str) -> None:
    """Raise InvalidValue where this is no address of a Ray cluster, Unreachable where nothing answers there:
    Ray would go on asking for minutes. Raise Misconfigured where ray:// needs more than is installed."""
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:  # no port, or none that can be
        host, port = None, None
    if host is None or port is None or parts.scheme not in ("", "ray"):
        raise _no_address(address, "a Ray cluster: give auto, host:6379 or ray://host:10001")
    if parts.scheme:
        _package("grpc", "'ray[client]'")
    try:
        socket.create_connection((host, port), _PATIENCE).close()
    except OSError as error:
        raise _unreachable("Ray cluster", address) from error


def _no_address(address: str, wanted: str) -> InvalidValue:
    return InvalidValue(f"{address!r} is no address of {wanted}")


def _unreachable(what: str, address: str) -> Unreachable:
    error = Unreachable(f"no {what} answers at {address}")
    error.add_note("look whether it runs there, and whether this machine may connect to that host and port")
    return error


def _package(name: str, packages: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise Misconfigured(f"this needs a package: pip install {packages}") from error


def _called(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What Ray runs: it takes functions by name only, and no partial ones."""
    return fn(*args, **kwargs)


class _Ray(Executor):
    """Ray's tasks as futures."""

    def __init__(self, cluster: Any) -> None:
        self._remote = cluster.remote(_called)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = self._remote.remote(fn, args, kwargs).future()
        return future
