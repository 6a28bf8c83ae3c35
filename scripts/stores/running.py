"""A server that runs: where it listens, how it is reached by each driver, and how it is ended."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from make_bucket import REGION, NotReady, make_bucket
from s3_server import BUCKET, NoServer

__all__ = ["BUCKET", "NoServer", "Running", "minded", "until_it_works"]

_MINDER = Path(__file__).with_name("minder.py")
_SECONDS = 15


@dataclass(frozen=True)
class Running:
    """A server with a bucket (`BUCKET`) that takes a PUT and a GET."""

    version: str
    port: int
    access_key: str
    secret_key: str

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def url(self, driver: str, path: str) -> str:
        """The URL of a path in the bucket for this driver: `s3`, `s3+obstore` or `minio`."""
        if driver == "minio":
            return f"minio://127.0.0.1:{self.port}/{BUCKET}/{path}?region={REGION}"
        return f"{driver}://{BUCKET}/{path}?endpoint={self.endpoint}&region={REGION}"

    def environment(self) -> dict[str, str]:
        """This process's environment with the server's credentials, and no other store's."""
        kept = {
            k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "OBJECT_STORE_", "SNAPSHOTTER_"))
        }
        return {**kept, "AWS_ACCESS_KEY_ID": self.access_key, "AWS_SECRET_ACCESS_KEY": self.secret_key}


@contextmanager
def minded(
    command: list[str | Path], folder: Path, environment: Mapping[str, str] | None = None
) -> Iterator[Callable[[], None]]:
    """Run the command until the block ends, whichever way. Yields a check that raises NoServer once it has
    ended by itself. Its output goes to a file in `folder`, which is its home, too."""
    log = folder / f"{Path(command[0]).name}.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, _MINDER, *map(str, command)],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            cwd=folder,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(folder),
                "TMPDIR": str(folder),
                **(environment or {}),
            },
        )

    def check() -> None:
        if process.poll() is not None:
            told = log.read_text(errors="replace").strip()[-600:]
            raise NoServer(f"{Path(command[0]).name} ended with {process.returncode}: {told}")

    try:
        yield check
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(_SECONDS)


def until_it_works(server: Running, check: Callable[[], None]) -> Running:
    """Wait until it takes a PUT and a GET, and make the bucket. Raises NoServer."""
    try:
        make_bucket(server.endpoint, BUCKET, server.access_key, server.secret_key, check=check)
    except NotReady as error:
        raise NoServer(str(error)) from error
    return server
