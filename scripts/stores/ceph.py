"""Ceph's object gateway over the smallest cluster there is: one monitor, one store in memory, no manager.

The programs are Debian's (`apt-get install radosgw ceph-mon ceph-osd`); they run as this user, on 127.0.0.1,
without authentication between each other, and everything of theirs lies in one folder. The gateway itself
checks signatures.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from .running import NoServer, minded

_PROGRAMS = ("ceph", "ceph-mon", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin")
_SECONDS = 60  # for each step
_ATTEMPTS = 5
_CONFIGURATION = """
[global]
fsid = {fsid}
mon initial members = a
mon host = v1:127.0.0.1:{monitor}
public addr = 127.0.0.1
cluster addr = 127.0.0.1
ms bind msgr2 = false
auth cluster required = none
auth service required = none
auth client required = none
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon allow pool size one = true
mon max pg per osd = 2000
run dir = {folder}
admin socket = {folder}/$name.asok
crash dir = {folder}
log file = {folder}/$name.log
mon data = {folder}/mon
osd data = {folder}/osd
osd objectstore = memstore
memstore device bytes = 2147483648
rgw data = {folder}/rgw
rgw frontends = beast endpoint=127.0.0.1:{gateway} tcp_nodelay=1
"""


@contextmanager
def running(
    folder: Path, gateway: int, monitor: int, access_key: str, secret_key: str
) -> Iterator[tuple[str, Callable[[], None]]]:
    """A gateway on the port `gateway`; yields its version and a check that raises NoServer where it ended."""
    lacking = [name for name in _PROGRAMS if shutil.which(name) is None]
    if lacking:
        raise NoServer(f"no {lacking[0]}; apt-get install --no-install-recommends radosgw ceph-mon ceph-osd")
    configuration = folder / "ceph.conf"
    fsid, osd = str(uuid.uuid4()), str(uuid.uuid4())
    configuration.write_text(
        _CONFIGURATION.format(fsid=fsid, monitor=monitor, gateway=gateway, folder=folder)
    )
    for name in ("mon", "osd"):
        (folder / name).mkdir()

    def run(program: str, *arguments: object) -> str:
        command = [program, *map(str, arguments)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=_SECONDS, cwd=folder
            )
        except subprocess.TimeoutExpired:
            raise NoServer(f"{' '.join(command)} did not come back") from None
        if done.returncode:
            raise NoServer(f"{' '.join(command)}: {done.stderr.strip()[-400:]}")
        return done.stdout

    known = ("--conf", configuration)
    version = re.search(r"\d+\.\d+\.\d+", run("radosgw", "--version"))
    run(
        "monmaptool",
        "--create",
        "--addv",
        "a",
        f"[v1:127.0.0.1:{monitor}]",
        "--fsid",
        fsid,
        folder / "monmap",
    )
    run("ceph-mon", "--id", "a", *known, "--mkfs", "--monmap", folder / "monmap")
    with ExitStack() as stack:
        stack.enter_context(minded(["ceph-mon", "--id", "a", *known, "-f"], folder))
        run("ceph", *known, "--connect-timeout", 30, "osd", "new", osd)
        run("ceph-osd", "--id", 0, *known, "--mkfs", "--osd-uuid", osd)
        _start_osd(stack, folder, known, run)
        keys = (f"--access-key={access_key}", f"--secret-key={secret_key}")
        run(
            "radosgw-admin",
            *known,
            "user",
            "create",
            "--uid=snapshotter",
            "--display-name=snapshotter",
            *keys,
        )
        # The pools are there now; two that make them at once get into each other's way.
        check = stack.enter_context(minded(["radosgw", "--name", "client.rgw", *known, "-f"], folder))
        yield version[0] if version else "of unknown version", check


def _start_osd(stack: ExitStack, folder: Path, known: tuple[object, ...], run: Callable[..., str]) -> None:
    """Start the store and wait until the monitor has it. One that speaks to the monitor before it has the
    monitor's map is told "wrong fsid", and ends; then it is started again."""
    for _ in range(_ATTEMPTS):
        check = stack.enter_context(minded(["ceph-osd", "--id", "0", *map(str, known), "-f"], folder))
        end = time.monotonic() + _SECONDS
        with suppress(NoServer):
            while time.monotonic() < end:
                check()
                if json.loads(run("ceph", *known, "osd", "stat", "--format", "json"))["num_up_osds"]:
                    return
    raise NoServer(f"ceph-osd does not come up; see {folder}/osd.0.log")
