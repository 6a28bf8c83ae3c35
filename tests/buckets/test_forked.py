"""A forked process and obstore, whose threads stay behind: no read waits for them forever."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import streams

from .stub import Stub, found, serving

CODE = """
import os, sys
from streams.buckets.url import open_bucket
from streams.errors import Misconfigured
bucket = open_bucket(sys.argv[1], env={"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"})
if sys.argv[2] == "read":
    bucket.get("a")
child = os.fork()
if child:
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
bucket.put("b", b"x", if_absent=True)
try:
    os._exit(0 if bucket.get("a").data == b"data" else 1)
except Misconfigured as error:
    os._exit(9 if "spawn" in str(error) else 1)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize(("before", "code"), [("read", 9), ("nothing", 0)])
def test_a_fork_of_a_process_that_has_read_is_refused_and_another_works(before: str, code: int) -> None:
    with serving() as stub:
        done = _forked(stub, before)
    assert done.returncode == code, done.stderr


def _forked(stub: Stub, before: str) -> subprocess.CompletedProcess[str]:
    stub.answers = [found()] * (before == "read") + [found(b""), found()]
    url = f"s3+obstore://bucket/root?endpoint={stub.url}"
    environment = {"PYTHONPATH": str(Path(str(streams.__file__)).parents[1])}
    command = [sys.executable, "-c", CODE, url, before]
    return subprocess.run(command, capture_output=True, env=environment, text=True, timeout=60)
