"""Where a drill stores: a folder, or a real server of its own, and what can be done to it.

    fill / free     the disk below is full, and has room again. That needs a small filesystem of its own
                    (tmpfs), so the right to mount; `why_not_full` says why there is none
    kill / revive   the server is killed and started again with its data (servers alone)
    stall / go_on   the server is stopped, and continued: what it was sent lands late (servers alone)

Linux alone, as signals to stopped processes and tmpfs are.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from streams.buckets.url import open_bucket
from streams.clock import SystemClock
from streams.store import Store

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import s3_server  # noqa: E402 - a script, and no package
from make_bucket import make_bucket  # noqa: E402

MEGABYTE = 1 << 20


class Place:
    """A folder as a store: `url`, `env` open it. Close it, or use it with `with`."""

    served = False

    def __init__(self, folder: Path, *, megabytes: int = 24) -> None:
        self.disk = folder / "disk"
        self.disk.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(self.disk)],
            capture_output=True,
            text=True,
            check=False,
        )
        self.why_not_full = done.stderr.strip() if done.returncode else ""
        self.env: dict[str, str] = {}
        self.url = (self.disk / "root").as_uri()

    def fill(self) -> None:
        """Take all the room there is."""
        with contextlib.suppress(OSError), (self.disk / "filler").open("ab", buffering=0) as file:
            for size in (MEGABYTE, 4096):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(size))

    def free(self) -> None:
        (self.disk / "filler").unlink(missing_ok=True)

    def calm(self) -> None:
        """Everything works from here on."""
        self.free()

    def objects(self, sessions: Iterable[str]) -> dict[str, bytes]:
        """All that is stored of these sessions, whose ids need no encoding, as it is."""
        store = Store(open_bucket(self.url, env=self.env), SystemClock())
        found: dict[str, bytes] = {}
        for prefix in (f"{kind}/{session}/" for session in sessions for kind in ("in", "out", "sessions")):
            for entry in store.entries(prefix):
                blob = store.get(entry.key)
                assert blob is not None
                found[entry.key] = blob.data
        store.close()
        return found

    def close(self) -> None:
        if not self.why_not_full:
            subprocess.run(["umount", "--lazy", str(self.disk)], check=True)

    def __enter__(self) -> Place:
        open_bucket(self.url, env=self.env).close()  # the driver is imported once, here, for all children
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()


class ServedPlace(Place):
    """A SeaweedFS of its own, through the driver `s3` or `minio`. Raises NoServer where there is none."""

    served = True

    def __init__(self, folder: Path, driver: str, *, megabytes: int = 512) -> None:
        super().__init__(folder, megabytes=megabytes)
        try:
            self._server = s3_server.start(self.disk / "server")
        except BaseException:
            super().close()
            raise
        keys = {"ACCESS_KEY_ID": self._server.access_key, "SECRET_ACCESS_KEY": self._server.secret_key}
        self.env = {f"AWS_{name}": value for name, value in keys.items()}
        host = self._server.endpoint.removeprefix("http://")
        s3 = f"s3://{s3_server.BUCKET}/drill?endpoint={self._server.endpoint}&region=us-east-1"
        self.url = s3 if driver == "s3" else f"minio://{host}/{s3_server.BUCKET}/drill"

    def kill(self) -> None:
        s3_server.kill(self._server)

    def revive(self) -> None:
        """Start it again; whether it works yet is not waited for."""
        self._server = s3_server.respawn(self._server)

    def free(self) -> None:
        """And do what its operator would: one that met a full disk may take no more writes for minutes, and
        where it cut a volume's index short it would not find the volume any more after its next start."""
        super().free()
        self.kill()
        fix = [s3_server.find_weed(), "fix", self._server.folder]
        subprocess.run(fix, capture_output=True, check=True)
        self.revive()

    def stall(self) -> None:
        os.killpg(self._server.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.killpg(self._server.pid, signal.SIGCONT)

    def calm(self) -> None:
        self.go_on()
        server = self._server
        make_bucket(server.endpoint, s3_server.BUCKET, server.access_key, server.secret_key)

    def close(self) -> None:
        s3_server.stop(self._server)
        super().close()


def why_no_server() -> str:
    """Empty where a server can be started."""
    try:
        s3_server.find_weed()
    except s3_server.NoServer as error:
        return str(error)
    return ""


def place_for(store: str, folder: Path) -> Place:
    """`file`, `s3` or `minio`, below a folder that exists."""
    return Place(folder) if store == "file" else ServedPlace(folder, store)
