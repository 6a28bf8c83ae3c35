"""Where tasks run: this process, processes of this machine, or a cluster that is there already.

None of them is a scheduler of ours. A task is `submit(function, *arguments)` → Future, as in
`concurrent.futures`; Dask brings such an executor, Ray such futures. Each is imported when it is asked for.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from streams.errors import Misconfigured

LOCAL = "local"
"""As the address of a Ray cluster: one is started on this machine, for this run."""


class Inline(Executor):
    """Runs each task at once, in the caller's thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - it is the future's to raise
            future.set_exception(error)
        return future


def processes(jobs: int) -> ProcessPoolExecutor:
    """Processes of this machine, each begun afresh: a fork would copy locks that threads hold."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(jobs, mp_context=context, initializer=_end_with_parent)


def _end_with_parent() -> None:
    """In a new process: end when the one that began it has, also where that was killed. A pool's processes
    would wait for ever for its next task: each of them holds the other end of the queue as well."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, name="rebuild-parent", daemon=True).start()


@contextmanager
def dask(address: str) -> Iterator[Executor]:
    """The workers of a Dask scheduler, such as tcp://host:8786. This package has to be installed there."""
    cluster = _package("distributed", "dask distributed")
    # Not pure: the same task asked for again is to be done again.
    with (
        cluster.Client(address, set_as_default=False) as client,
        client.get_executor(pure=False) as executor,
    ):
        yield executor


@contextmanager
def ray(address: str) -> Iterator[Executor]:
    """The workers of a Ray cluster (`auto`, or ray://host:10001), or of one started here (LOCAL)."""
    cluster = _package("ray", "ray")
    cluster.init(
        address=None if address == LOCAL else address,
        include_dashboard=False if address == LOCAL else None,
        log_to_driver=False,
        configure_logging=False,
    )
    try:
        yield _Ray(cluster)
    finally:
        cluster.shutdown()


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
