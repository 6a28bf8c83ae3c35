"""Real worker processes, killed at random moments; each time another one takes over.

Half of them die at a moment by the clock, which may be any step of the engine, and half at a row of their
journal, which is the middle of a turn however fast the machine is. What is counted are the latter.

The seed is printed; `SNAPSHOTTER_TEST_SEED` repeats a run's moments.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from crash_checker import check_journal, records_of
from crash_worker import EXIT_BUSY, SESSION

import snapshotter
from streams.buckets.url import open_bucket

SCRIPT = Path(__file__).with_name("crash_worker.py")
KILLED, TERMINATED = -signal.SIGKILL, 143
ROWS = 5  # that a turn writes into the journal before it is done


class Nursery:
    """One `crash_worker` process: it has one child at a time."""

    def __init__(self, url: str, journal: Path, env: dict[str, str]) -> None:
        root = str(Path(snapshotter.__file__).parent.parent)
        self._job = {"url": url, "journal": str(journal), "takeover": True, "signal": int(signal.SIGKILL)}
        self._job |= {"kill_after": None, "dies_at": None}
        self._process = subprocess.Popen(
            [sys.executable, str(SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **env, "PYTHONPATH": root},
            text=True,
        )

    def begin(self, **job: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({**self._job, **job}) + "\n")
        self._process.stdin.flush()

    def exit_code(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def run(self, **job: Any) -> int:
        self.begin(**job)
        return self.exit_code()

    def close(self) -> None:
        self._process.communicate()
        assert self._process.returncode == 0


@contextmanager
def nurseries(count: int, url: str, journal: Path, env: dict[str, str]) -> Iterator[list[Nursery]]:
    found = [Nursery(url, journal, env) for _ in range(count)]
    try:
        yield found
    finally:
        for nursery in found:
            nursery.close()


@pytest.fixture
def seed() -> int:
    found = int(os.environ.get("SNAPSHOTTER_TEST_SEED") or random.randrange(2**32))
    sys.stdout.write(f"SNAPSHOTTER_TEST_SEED={found}\n")  # pytest shows it with a failure
    return found


@pytest.fixture(params=["file", "seaweed-s3", "seaweed-minio"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, dict[str, str]]:
    """A fresh root's URL, and the environment that opens it."""
    if request.param == "file":
        return f"file://{tmp_path}/root", {}
    endpoint = request.getfixturevalue("seaweed")
    host = endpoint.url.removeprefix("http://")
    keys = endpoint.keys
    env = {"AWS_ACCESS_KEY_ID": keys.access_key, "AWS_SECRET_ACCESS_KEY": keys.secret_key}
    path = f"{endpoint.bucket}/kill-{os.getpid()}-{os.urandom(4).hex()}"
    s3 = f"s3://{path}?endpoint={endpoint.url}&region=us-east-1"
    return s3 if request.param == "seaweed-s3" else f"minio://{host}/{path}", env


def read_journal(path: Path) -> list[list[Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def send(db: snapshotter.Database, sent: list[str]) -> None:
    sent.append(f"m{len(sent) + 1}")
    db.send(SESSION, {"id": sent[-1], "role": "user", "parts": [{"type": "text", "text": "go"}]})


def test_workers_killed_at_random_moments(
    place: tuple[str, dict[str, str]], tmp_path: Path, seed: int
) -> None:
    url, env = place
    dice, sent, codes = random.Random(seed), list[str](), Counter[int]()
    rounds = 100 if url.startswith("file:") else 40
    with (
        snapshotter.open(url, env={**os.environ, **env}) as db,
        nurseries(1, url, tmp_path / "journal", env) as (nursery,),
    ):
        for _ in range(rounds // 2):
            send(db, sent)
            assert nursery.run(dies_at=dice.randint(1, ROWS)) == KILLED
            codes[nursery.run(kill_after=dice.uniform(0.0, 0.1))] += 1
        assert nursery.run() == 0
        check_journal(open_bucket(url, env=env), SESSION, sent, read_journal(tmp_path / "journal"))
    assert set(codes) <= {0, KILLED}


def test_workers_told_to_end_hand_over_at_once(tmp_path: Path, seed: int) -> None:
    """SIGTERM: the turn is released, so the next worker never finds the session busy."""
    url = f"file://{tmp_path}/root"
    dice, sent, codes = random.Random(seed), list[str](), Counter[int]()
    with snapshotter.open(url) as db, nurseries(1, url, tmp_path / "journal", {}) as (nursery,):
        polite = {"signal": int(signal.SIGTERM), "takeover": False}
        for _ in range(30):
            send(db, sent)
            assert nursery.run(dies_at=dice.randint(1, ROWS), **polite) == TERMINATED
            codes[nursery.run(kill_after=dice.uniform(0.02, 0.12), **polite)] += 1
        assert nursery.run(takeover=False) == 0
        check_journal(open_bucket(url), SESSION, sent, read_journal(tmp_path / "journal"))
    assert set(codes) <= {0, TERMINATED, -signal.SIGTERM}, f"{codes}; {EXIT_BUSY} is a busy session"
    outs = records_of(open_bucket(url), "out")[1]
    released = [record["why"] for record in outs if record.get("control") == "turn-release"]
    assert set(released) == {"signal"}
    assert 30 <= len(released) <= 30 + codes[TERMINATED]


def test_two_live_workers_call_the_model_once(tmp_path: Path) -> None:
    """A queue that delivers each message to both of two workers."""
    url = f"file://{tmp_path}/root"
    sent: list[str] = []
    with snapshotter.open(url) as db, nurseries(2, url, tmp_path / "journal", {}) as pair:
        for _ in range(8):
            send(db, sent)
            for nursery in pair:
                nursery.begin(takeover=False)
            assert [nursery.exit_code() for nursery in pair] == [0, 0]
        journal = read_journal(tmp_path / "journal")
        check_journal(open_bucket(url), SESSION, sent, journal)
    called = [row for row in journal if row[0] == "model"]
    assert called == [["model", n, 1, [n]] for n in range(1, 9)]


def test_two_workers_that_take_over_from_each_other(tmp_path: Path, seed: int) -> None:
    url = f"file://{tmp_path}/root"
    dice, sent, codes = random.Random(seed), list[str](), Counter[int]()
    with snapshotter.open(url) as db, nurseries(2, url, tmp_path / "journal", {}) as pair:
        for _ in range(25):
            send(db, sent)
            for nursery in pair:
                nursery.begin(kill_after=dice.uniform(0.0, 0.3))
            codes.update(nursery.exit_code() for nursery in pair)
        assert pair[0].run() == 0
        check_journal(open_bucket(url), SESSION, sent, read_journal(tmp_path / "journal"))
    assert set(codes) <= {0, KILLED, EXIT_BUSY}
