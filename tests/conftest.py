"""Servers and buckets for the tests.

Every backend runs the same suites: memory, file, and the S3 drivers against moto (an emulator in this
process), SeaweedFS (a real server, started by `scripts/s3_server.py`) and, where the environment names
one, any other endpoint:

    SNAPSHOTTER_TEST_ENDPOINT     http://host:port of a store whose bucket SNAPSHOTTER_TEST_BUCKET exists
    SNAPSHOTTER_TEST_ACCESS_KEY   SNAPSHOTTER_TEST_SECRET_KEY   its credentials
    SNAPSHOTTER_TEST_SERVERS      "required": a server that cannot be started fails the run

The summary at the end says which backends ran.
"""

from __future__ import annotations

import importlib.util
import itertools
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from endpoints import BACKENDS, ENDPOINT, TRAITS, Endpoint
from hypothesis import settings

from streams.buckets.base import Bucket
from streams.buckets.file import FileBucket
from streams.buckets.memory import MemoryBucket, Space
from streams.buckets.remote import Keys
from streams.testing.conformance import Traits

# How long an example takes says how busy the machine is, and nothing else.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

_ran: dict[str, int] = {}
_roots = itertools.count(1)


@dataclass(frozen=True)
class Backend:
    """One backend under test. `connect()` opens another bucket on one fresh, empty root."""

    name: str
    connect: Callable[[], Bucket]
    traits: Traits


@pytest.fixture(autouse=True)
def _logged() -> None:
    """Simulated worlds log thousands of expected warnings, and silence them in their process."""
    logging.getLogger("snapshotter").setLevel(logging.NOTSET)


@pytest.fixture(scope="session")
def locked_moto() -> ModuleType:
    """`scripts/stores/locked_moto.py`: moto behind a lock."""
    return script("stores/locked_moto")


@pytest.fixture(scope="session")
def moto_server(locked_moto: ModuleType) -> Iterator[Endpoint]:
    server = locked_moto.locked_server()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    endpoint = Endpoint(f"http://127.0.0.1:{server.server_port}", "moto-bucket", Keys("test", "test"))
    bucket = endpoint.s3()
    bucket._client.create_bucket(Bucket=endpoint.bucket)
    bucket.close()
    yield endpoint
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="session")
def start_seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    """Starts a real server that checks signatures, with users bound to these policies if any are given; see
    `scripts/s3_server.py`."""
    script = s3_server_script()
    started: list[Any] = []

    def start(policies: dict[str, dict[str, Any]] | None = None) -> Any:
        try:
            started.append(script.start(tmp_path_factory.mktemp("seaweed"), policies))
        except script.NoServer as error:
            if os.environ.get("SNAPSHOTTER_TEST_SERVERS") == "required":
                pytest.fail(f"SNAPSHOTTER_TEST_SERVERS=required, but: {error}")
            pytest.skip(f"SeaweedFS is not run: {error}")
        return started[-1]

    yield start
    for server in started:
        script.stop(server)


@pytest.fixture(scope="session")
def seaweed(start_seaweed: Callable[..., Any]) -> Endpoint:
    """A real server."""
    server = start_seaweed()
    return Endpoint(server.endpoint, s3_server_script().BUCKET, Keys(server.access_key, server.secret_key))


@pytest.fixture(scope="session")
def named_endpoint() -> Endpoint:
    """The endpoint that the environment names."""
    assert ENDPOINT
    keys = Keys(os.environ["SNAPSHOTTER_TEST_ACCESS_KEY"], os.environ["SNAPSHOTTER_TEST_SECRET_KEY"])
    return Endpoint(ENDPOINT, os.environ["SNAPSHOTTER_TEST_BUCKET"], keys)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    """Each backend in turn, on a root of its own."""
    name = str(request.param)
    opened: list[Bucket] = []
    connect = _connector(name, request, tmp_path)

    def remembered() -> Bucket:
        opened.append(connect())
        return opened[-1]

    yield Backend(name, remembered, TRAITS[name.rpartition("-")[2]])
    for bucket in opened:
        bucket.close()
    _ran[name] = _ran.get(name, 0) + 1


@pytest.fixture
def bucket_factory(backend: Backend) -> Callable[[], Bucket]:
    """`backend.connect`: another bucket on the same fresh root, for every backend in turn."""
    return backend.connect


def _connector(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Bucket]:
    if name == "memory":
        space = Space()
        return lambda: MemoryBucket(space=space)
    if name == "file":
        return lambda: FileBucket(tmp_path / "root")
    driver, _, server = name.partition("-")
    fixture = {"moto": "moto_server", "seaweed": "seaweed", "endpoint": "named_endpoint"}[server]
    endpoint: Endpoint = request.getfixturevalue(fixture)
    # Roots differ between runs too: a named endpoint keeps what was written.
    prefix = f"t/{os.getpid()}-{os.urandom(4).hex()}-{next(_roots)}"
    opened: Callable[[str], Bucket] = getattr(endpoint, driver)
    return lambda: opened(prefix)


def script(name: str) -> ModuleType:
    """A module of `scripts/`, by its path there; loaded once."""
    path = Path(__file__).parent.parent / "scripts" / f"{name}.py"
    module = path.stem
    if module not in sys.modules:
        spec = importlib.util.spec_from_file_location(module, path)
        assert spec
        assert spec.loader
        sys.modules[module] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[module])
    return sys.modules[module]


def s3_server_script() -> ModuleType:
    """`scripts/s3_server.py` as a module."""
    return script("s3_server")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """What a worker of pytest-xdist ran is told by the process that gave it the work."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["ran"] = _ran


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    for name, count in getattr(node, "workeroutput", {}).get("ran", {}).items():
        _ran[name] = _ran.get(name, 0) + count


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if not _ran:
        return
    told = ", ".join(f"{name} {_ran[name]}" if name in _ran else f"{name} NOT RUN" for name in BACKENDS)
    terminalreporter.write_line(f"buckets tested: {told}")
