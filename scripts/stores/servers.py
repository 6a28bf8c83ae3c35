"""The register: how each server is started, at which version, and where it comes from."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib.metadata import version as version_of
from pathlib import Path

import s3_server
from s3_server import find_weed, free_ports

from . import ceph
from .installing import node_home, python_home
from .running import Running, minded, until_it_works

ACCESS_KEY, SECRET_KEY = "snapshotter", "snapshotter-secret"
_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Store:
    """A server of the register. `name` is what people call it, `source` where it comes from; `start` takes an
    empty folder for its data."""

    name: str
    source: str
    start: Callable[[Path], AbstractContextManager[Running]]


@contextmanager
def _moto(folder: Path) -> Iterator[Running]:
    (port,) = free_ports(1)
    with minded([sys.executable, _HERE / "locked_moto.py", str(port)], folder) as check:
        yield until_it_works(Running(version_of("moto"), port, ACCESS_KEY, SECRET_KEY), check)


@contextmanager
def _seaweed(folder: Path) -> Iterator[Running]:
    told = subprocess.run([find_weed(), "version"], capture_output=True, text=True, check=True).stdout
    server = s3_server.start(folder / "data")
    try:
        yield Running(told.split()[2], server.ports[0], server.access_key, server.secret_key)
    finally:
        s3_server.stop(server)


@contextmanager
def _ministack(folder: Path) -> Iterator[Running]:
    program = python_home("ministack", "1.5.33") / "ministack"
    (port,) = free_ports(1)
    # Without BIND_HOST it listens to the whole network.
    with minded([program], folder, {"BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(port)}) as check:
        yield until_it_works(Running("1.5.33", port, "test", "test"), check)


@contextmanager
def _localbucket(folder: Path) -> Iterator[Running]:
    program = python_home("localbucket", "1.2.1") / "localbucket"
    (port,) = free_ports(1)
    with minded([program, "--host", "127.0.0.1", "--port", str(port), folder / "data"], folder) as check:
        yield until_it_works(Running("1.2.1", port, ACCESS_KEY, SECRET_KEY), check)


@contextmanager
def _nanio(folder: Path) -> Iterator[Running]:
    program = python_home("nanio", "0.1.7") / "nanio"
    (port,) = free_ports(1)
    command = [program, "serve", "--host", "127.0.0.1", "--port", str(port), "--data-dir", folder / "data"]
    keys = {"NANIO_ACCESS_KEY": ACCESS_KEY, "NANIO_SECRET_KEY": SECRET_KEY}
    with minded(command, folder, keys) as check:
        yield until_it_works(Running("0.1.7", port, ACCESS_KEY, SECRET_KEY), check)


@contextmanager
def _tiny(folder: Path) -> Iterator[Running]:
    program = python_home("tiny-object-storage", "0.1.1") / "tos-server"
    (port,) = free_ports(1)
    command = [program, "--host", "127.0.0.1", "--port", str(port), "--data-dir", folder / "data"]
    with minded([*command, "--log-dir", folder / "logs", "--no-reload"], folder) as check:
        yield until_it_works(Running("0.1.1", port, ACCESS_KEY, SECRET_KEY), check)


@contextmanager
def _s3rver(folder: Path) -> Iterator[Running]:
    program = node_home("s3rver", "3.7.1") / "s3rver"
    (port,) = free_ports(1)
    command = [program, "--address", "127.0.0.1", "--port", str(port), "--directory", folder / "data"]
    # It makes its listing's tokens with a cipher that newer versions of node leave out.
    legacy = {"NODE_OPTIONS": "--openssl-legacy-provider"}
    with minded([*command, "--no-vhost-buckets"], folder, legacy) as check:
        yield until_it_works(Running("3.7.1", port, "S3RVER", "S3RVER"), check)


@contextmanager
def _ceph(folder: Path) -> Iterator[Running]:
    (port, *others) = free_ports(2)
    with ceph.running(folder, port, others[0], ACCESS_KEY, SECRET_KEY) as (version, check):
        yield until_it_works(Running(version, port, ACCESS_KEY, SECRET_KEY), check)


STORES = {
    "moto": Store("moto, behind a lock", "PyPI, of the tests", _moto),
    "seaweed": Store("SeaweedFS", "PyPI, of the tests", _seaweed),
    "ceph": Store("Ceph RGW", "Debian", _ceph),
    "ministack": Store("ministack", "PyPI", _ministack),
    "localbucket": Store("localbucket", "PyPI", _localbucket),
    "nanio": Store("nanio", "PyPI", _nanio),
    "tiny": Store("tiny-object-storage", "PyPI", _tiny),
    "s3rver": Store("s3rver", "npm", _s3rver),
}


def started(name: str, folder: Path) -> AbstractContextManager[Running]:
    """The server of this name, with its data in a folder that is made for it. Raises NoServer."""
    folder = folder.absolute() / f"{name}-{os.getpid()}"
    folder.mkdir(parents=True)
    return STORES[name].start(folder)
