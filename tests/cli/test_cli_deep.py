"""`doctor --deep`: what it finds of honest and of lying stores, what the engine then does, what it leaves."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from cli_runs import run
from endpoints import SERVERS
from lying import (
    FoldsCase,
    ForgetsNonces,
    IgnoresConditions,
    IgnoresIfMatch,
    IgnoresStartAfter,
    KeepsDeleted,
    KeepsFraming,
    ListsEverything,
    LosesARange,
    RacyOnReuse,
    RefusesConditions,
    Remote,
    TakesNoIfMatch,
    TornLarge,
    Undated,
    Unsorted,
    WantsUnquoted,
)

import snapshotter
from snapshotter.cli import check, deep, examine
from snapshotter.cli.deep import BEARINGS
from snapshotter.cli.grounds import Grounds
from snapshotter.session import Session
from streams import probe
from streams.buckets.memory import MemoryBucket
from streams.buckets.sealed import SealedBucket
from streams.clock import SystemClock
from streams.encryption import Encryption
from streams.errors import AccessDenied, Unreachable, Unsupported
from streams.testing.conformance import CHECKS

QUICK = ("--racers", "2", "--rounds", "2")
LEFT = ["capabilities.json"]


class Hasty(SystemClock):
    def sleep(self, seconds):
        assert 0 <= seconds < 10


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`at(bucket)`: what every URL opens from here on."""

    monkeypatch.setattr(check, "_OBJECTS", 120)
    monkeypatch.setattr(examine, "SystemClock", Hasty)

    def give(bucket: Any) -> None:
        monkeypatch.setattr(examine, "open_bucket", lambda *_args, **_options: bucket)

    return give


def failed(found: Any) -> list[str]:
    return [finding["check"] for finding in found["contract"] if finding["state"] == "fails"]


def keys_of(bucket: MemoryBucket) -> list[str]:
    return [entry.key for entry in MemoryBucket.list(bucket, "").entries]


def test_every_check_has_its_bearing() -> None:
    assert BEARINGS.keys() == CHECKS.keys()
    guarantees = {"", "create", "replace", "exact", "listing", "plain", "copy"}
    assert {guarantee for guarantee, _ in BEARINGS.values()} == guarantees
    assert all(means for _, means in BEARINGS.values())


@pytest.mark.parametrize(
    ("kind", "verdict", "some", "lacks"),
    [
        (Remote, "fenced", [], ""),
        (IgnoresConditions, "unfenced", ["a_key_is_created_once", "one_racer_creates"], "create"),
        (IgnoresIfMatch, "fenced", ["only_the_named_version_is_replaced", "one_racer_replaces"], "replace"),
        (WantsUnquoted, "fenced", [], ""),
        (RefusesConditions, "refused", ["a_key_is_created_once"], "create"),
        (RacyOnReuse, "unfenced", ["one_racer_creates_what_was_deleted"], "create"),
        (IgnoresStartAfter, "refused", ["a_listing_is_ordered_bounded_and_resumable"], "listing"),
        (Unsorted, "refused", ["a_listing_is_ordered_bounded_and_resumable"], "listing"),
        (LosesARange, "refused", ["a_long_listing_misses_and_repeats_nothing"], "listing"),
        (ListsEverything, "refused", ["a_listing_keeps_to_its_prefix"], "listing"),
        (Undated, "fenced", ["the_store_dates_its_answers"], ""),
        (ForgetsNonces, "fenced", ["nonces_travel_with_the_object"], ""),
        (KeepsFraming, "refused", ["bytes_come_back_as_they_were"], "exact"),
        (TornLarge, "refused", ["large_bodies_come_back"], "exact"),
        (KeepsDeleted, "refused", ["deletes_are_final_and_repeatable"], "plain"),
        (FoldsCase, "refused", ["keys_are_taken_literally"], "plain"),
    ],
)
def test_a_store_gets_the_verdict_that_the_engine_then_carries_out(kind, verdict, some, lacks, at) -> None:
    bucket = kind()
    bucket.put("other/people-s", b"data")
    at(bucket)
    told = run("doctor", "--deep", "memory://x", *QUICK, "--json")
    found = told.json
    assert (found["verdict"], found["ok"]) == (verdict, verdict == "fenced")
    assert told.code == (0 if verdict == "fenced" else 1)
    assert set(some) <= set(failed(found))
    assert bool(failed(found)) is bool(some)
    lost = {
        name for name in ("create", "replace", "exact", "listing", "plain") if not found["capabilities"][name]
    }
    assert (lacks in lost) if lacks else not lost
    assert (found["requests"]["requests"] > 500) is not (kind is RefusesConditions)
    assert "other/people-s" in keys_of(bucket)
    if kind is not KeepsDeleted:
        assert keys_of(bucket) == [*(LEFT if kind is not KeepsFraming else []), "other/people-s"]
        assert found["left"] == []

    def works(**options: Any) -> bool:
        """Whether the engine takes a message, answers it, and has it afterwards."""
        db = snapshotter.Database(bucket, **options)
        try:
            db.send("s", "hi")
        except Unsupported:
            return False
        with db.boot("s") as session:
            answer(session)
        return [message["role"] for message in db.history("s")][-2:] == ["user", "assistant"]

    assert works() is (verdict == "fenced")
    assert works(allow_unfenced=True) is (verdict != "refused")


def answer(session: Session) -> None:
    for turn in session.turns():
        with turn:
            for chunk in (
                {"type": "start"},
                {"type": "text-start", "id": "t"},
                {"type": "text-delta", "id": "t", "delta": "Hello"},
                {"type": "text-end", "id": "t"},
                {"type": "finish"},
            ):
                turn.write(chunk)


def test_what_it_says_to_a_person(at) -> None:
    at(IgnoresConditions())
    told = run("doctor", "--deep", "memory://x", *QUICK)
    assert told.code == 1
    assert "BAD a key is created once: the condition was ignored" in told.out
    assert "two workers can win one place" in told.out
    assert re.search(r"^ +[\d,]+ requests \(.*PUT.*LIST.*\) in [\d.]+ s$", told.out, re.M)
    assert "unfenced: works only with `allow_unfenced=True` (`snapshotter --allow-unfenced …`)." in told.out
    at(Undated())
    told = run("doctor", "--deep", "memory://x", *QUICK)
    assert told.code == 0
    assert "!   the store dates its answers" in told.out
    assert "-   a checksum is taken: not applicable" in told.out
    assert "fenced: works: " in told.out
    assert "  but whether another worker is alive is judged by this machine's clock" in told.out
    assert "trusted as it is" not in told.out


def test_if_match_that_never_held_is_not_asked_for_again(at) -> None:
    at(TakesNoIfMatch())
    found = run("doctor", "--deep", "memory://x", *QUICK, "--json").json
    assert found["verdict"] == "fenced"
    assert found["capabilities"]["etag"] == "none"
    skipped = {f["check"] for f in found["contract"] if f["state"] == "not applicable"}
    assert skipped == {
        "only_the_named_version_is_replaced",
        "every_etag_serves_as_a_condition",
        "one_racer_replaces",
        "a_checksum_is_taken",
    }


def test_a_store_that_is_trusted_unasked_is_spoken_of_as_that(at) -> None:
    bucket = Unsorted()
    bucket.trusted = True
    at(bucket)
    found = run("doctor", "--deep", "memory://x", *QUICK, "--json")
    assert (found.code, found.json["verdict"]) == (1, "refused")
    assert "would write to it: do not use it" in found.json["why"]


def test_what_was_found_deep_is_not_forgotten_by_a_short_look(at) -> None:
    bucket = RacyOnReuse()
    at(bucket)
    assert run("doctor", "memory://x").code == 0
    assert run("doctor", "--deep", "memory://x", *QUICK).code == 1
    short = run("doctor", "memory://x", "--json")
    assert short.code == 1
    assert [c["check"] for c in short.json["checks"] if not c["ok"]] == ["conditional create"]
    bucket.deleted.clear()
    bucket.__class__ = Remote  # the store is mended
    assert run("doctor", "memory://x").code == 1
    assert run("doctor", "--deep", "memory://x", *QUICK).code == 0
    assert run("doctor", "memory://x").code == 0


def test_names_that_are_not_kept_are_told_by_a_short_look_too(at) -> None:
    at(FoldsCase())
    assert run("doctor", "memory://x").code == 0
    assert run("doctor", "--deep", "memory://x", *QUICK).code == 1
    told = run("doctor", "memory://x")
    assert told.code == 1
    assert "BAD plain objects" in told.out


class Hiccups(Remote):
    """Answers nothing on keys with this in them, so often."""

    def __init__(self, key, times):
        super().__init__()
        self.key, self.times = key, times

    def put(self, key, data, **condition):
        if self.key in key and self.times:
            self.times -= 1
            raise Unreachable("cut")
        return super().put(key, data, **condition)


@pytest.mark.parametrize(
    ("key", "times", "verdict", "code"),
    [
        ("/a_key_is_created_once", 1, "fenced", 0),
        ("/a_key_is_created_once", -1, "open", 5),
        ("/a_key_is_no_folder", -1, "fenced", 0),
    ],
)
def test_what_was_not_answered_is_asked_again_and_proves_nothing(key, times, verdict, code, at) -> None:
    bucket = Hiccups(key, times)
    at(bucket)
    found = run("doctor", "--deep", "memory://x", *QUICK, "--json")
    assert (found.code, found.json["verdict"]) == (code, verdict)
    silent = [f["check"] for f in found.json["contract"] if f["state"] == "not answered"]
    assert silent == ([key[1:]] if times < 0 else [])
    assert found.json["capabilities"]["create"]
    assert failed(found.json) == []
    assert keys_of(bucket) == LEFT


class Undeletable(Remote):
    def delete(self, key):
        if "keys_are_taken" in key:
            raise AccessDenied("403")
        super().delete(key)


def test_what_could_not_be_removed_is_named(at) -> None:
    bucket = Undeletable()
    at(bucket)
    found = run("doctor", "--deep", "memory://x", *QUICK, "--json")
    left = [key for key in keys_of(bucket) if key not in LEFT]
    assert len(left) == 9
    assert found.json["left"] == left
    assert found.err.splitlines() == [f"(could not be removed: {key})" for key in left]


class Interrupts(Remote):
    """A signal while objects of the long listing are being written by many threads; and while cleaning."""

    def __init__(self, number, again):
        super().__init__()
        self.count, self.number, self.again = 0, number, again
        self.grounds: list[Grounds] = []
        self.lock = threading.Lock()

    def put(self, key, data, **condition):
        if "long_listing" in key:
            with self.lock:
                self.count += 1
                if self.count == 60:
                    os.kill(os.getpid(), self.number)
            if self.count >= 60:
                assert self.grounds[0]._stopped.wait(60)
        return super().put(key, data, **condition)

    def delete(self, key):
        with self.lock:
            if self.again and "long_listing" in key:
                self.again = False
                os.kill(os.getpid(), self.number)
        super().delete(key)


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_the_writing_and_what_was_written_is_removed(
    number, code, again, at, monkeypatch
) -> None:
    bucket = Interrupts(number, again)

    def made(*args):
        bucket.grounds.append(Grounds(*args))
        return bucket.grounds[0]

    monkeypatch.setattr(deep, "Grounds", made)
    at(bucket)
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    found = run("doctor", "--deep", "memory://x", *QUICK)
    assert found.code == code
    assert 60 <= bucket.count < 120
    stands = [key for key in keys_of(bucket) if key not in LEFT]
    told = re.findall(r"could not be removed: (.+)\)", found.err)
    assert set(stands) <= set(told)
    if not again:
        assert stands == told == []
    assert probe.decode(bucket.get(probe.KEY).data).deep is False, "nothing follows from half an examination"
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before


def test_beside_the_main_thread_no_signal_is_caught(at) -> None:
    at(Remote())
    before = signal.getsignal(signal.SIGTERM)
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(run("doctor", "--deep", "memory://x", *QUICK).code))
    thread.start()
    thread.join()
    assert codes == [0]
    assert signal.getsignal(signal.SIGTERM) is before


def test_without_assertions_nothing_is_judged(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-O", "-m", "snapshotter", "doctor", "--deep", str(tmp_path / "r")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 6
    assert "python -O" in done.stderr


def test_an_encrypted_root_is_examined_as_it_is_used(at) -> None:
    bucket = Remote()
    at(SealedBucket(bucket, Encryption(key=lambda _id: ("k", b"k" * 32))))
    assert run("doctor", "--deep", "memory://x", *QUICK, "--json").json["verdict"] == "fenced"
    assert keys_of(bucket) == LEFT


def test_the_reference_bucket_lacks_nothing() -> None:
    found = run("doctor", "--deep", f"memory://deep-{os.urandom(4).hex()}", *QUICK, "--json")
    assert (found.code, found.json["verdict"], found.json["losses"]) == (0, "fenced", [])
    assert failed(found.json) == []


def test_a_folder_is_left_without_folders(tmp_path: Path) -> None:
    root = tmp_path / "root"
    found = run("doctor", "--deep", root, *QUICK, "--json")
    assert (found.code, found.json["verdict"], found.json["left"]) == (0, "fenced", [])
    assert set(failed(found.json)) == {"nonces_travel_with_the_object", "long_names_are_kept"}
    assert sorted(path.name for path in root.iterdir()) == [".snapshotter", "capabilities.json", "probe"]
    assert list((root / "probe").iterdir()) == []


@pytest.mark.parametrize("scheme", ["s3", "minio", "s3+obstore"])
@pytest.mark.parametrize("server", SERVERS)
def test_real_servers_work_fenced(scheme, server, request, monkeypatch) -> None:
    monkeypatch.setattr(check, "_OBJECTS", 120)
    endpoint = request.getfixturevalue(
        {"moto": "moto_server", "endpoint": "named_endpoint"}.get(server, server)
    )
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", endpoint.keys.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", endpoint.keys.secret_key)
    path = f"deep-{os.urandom(4).hex()}"
    url = f"{scheme}://{endpoint.bucket}/{path}?endpoint={endpoint.url}&region=us-east-1"
    if scheme == "minio":
        url = f"minio://{endpoint.url.removeprefix('http://')}/{endpoint.bucket}/{path}"
    found = run("doctor", "--deep", url, "--rounds", "4", "--racers", "2", "--json")
    assert (found.code, found.json["verdict"], found.json["left"]) == (0, "fenced", [])
    lacks = {"seaweed": {"folders_are_listed_in_byte_order"}, "endpoint": {"long_names_are_kept"}}
    assert set(failed(found.json)) == lacks.get(server, set())
    (summed,) = [f for f in found.json["contract"] if f["check"] == deep.CHECKSUM]
    assert summed["state"] == "ok"
    bucket = endpoint.s3(path)
    assert [entry.key for entry in bucket.list("").entries] == LEFT
    bucket.close()
