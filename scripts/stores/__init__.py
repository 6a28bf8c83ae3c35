"""Servers that speak S3, each started here for a while, to find out what this project does with it.

    with started("ceph", folder) as server:      # 127.0.0.1 alone, with a bucket that works
        print(server.version, server.url("minio", "some/path"))

`STORES` is the register. What a server needs is installed once, in a virtual environment or an npm prefix of
its own below `~/.cache/snapshotter-stores`, at a version that is written down here; moto and SeaweedFS are
those of the tests, and Ceph is Debian's packages, which only the machine's owner installs. A server that
cannot be had raises `NoServer`, with what would help.

However the starting process ends, its servers end: each runs under a `minder`, which ends it when its own
standard input is closed (SeaweedFS, which `s3_server.py` runs, ends with this process but for a SIGKILL).
"""

from __future__ import annotations

from .running import NoServer, Running
from .servers import STORES, Store, started

__all__ = ["STORES", "NoServer", "Running", "Store", "started"]
