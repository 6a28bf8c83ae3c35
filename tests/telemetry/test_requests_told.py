"""Requests as they are told: outcomes, attempts, sizes, places; and what is never told."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest
from chat_samples import SID, call, first_turn, result, saying, user, write_all
from opentelemetry.sdk.trace import ReadableSpan
from told import VERBS, Told, Watched

from snapshotter import ChatRecovery
from snapshotter.database import Database
from snapshotter.telemetry import Telemetry, Trace
from snapshotter.watched import WatchedBucket, watched_store
from streams.buckets.base import Blob, Broken, Bucket
from streams.buckets.memory import MemoryBucket
from streams.encryption import Encryption, Keyring, sealed
from streams.errors import AccessDenied, Corrupt, PreconditionFailed, Throttled, Unreachable
from streams.store import Retries
from streams.testing.clocks import FakeClock
from streams.testing.faults import Fault, FaultyBucket

METRICS = ("snapshotter.requests", "snapshotter.io", "db.client.operation.duration", "snapshotter.turns")
MARKER = "CONTENT-NOBODY-MAY-SEE"


def told_of(place: Watched, verb: str, key: str) -> list[dict[str, Any]]:
    return [
        dict(span.attributes or {})
        for span in place.told.named(verb)
        if key in str((span.attributes or {}).get("snapshotter.key"))
    ]


# -- outcomes and attempts -----------------------------------------------------------------------------


def test_each_attempt_is_a_request_and_says_which_one_it_is() -> None:
    place = Watched()
    place.send("u1")
    place.bucket.plan.append(Fault("get", key="snapshot.json", times=2))
    with place.db.boot(SID):
        attempts = told_of(place, "GET", "snapshot.json")
    assert [one["snapshotter.outcome"] for one in attempts] == ["unanswered", "unanswered", "absent"]
    assert [one.get("snapshotter.resend_count") for one in attempts] == [None, 1, 2]
    assert [one.get("error.type") for one in attempts] == ["Unreachable", "Unreachable", None]
    told = place.told
    assert told.count("snapshotter.retries") == 2
    assert told.count("snapshotter.requests", snapshotter__outcome="unanswered") == 2
    assert told.count("snapshotter.requests") == len(place.bucket.calls)


def test_a_reply_that_was_lost_is_told_as_what_the_store_said() -> None:
    """The write landed; repeating it meets its own object, and a HEAD finds that out."""
    place = Watched()
    place.send("u1")
    session = place.db.boot(SID)
    place.bucket.plan.append(Fault("put", key="out/", when="after"))
    with first_turn(session) as turn:
        write_all(turn, saying("hello"))
    first = told_of(place, "PUT", "9999999999999998-1")
    assert [one["snapshotter.outcome"] for one in first] == ["unanswered", "lost"]
    assert "error.type" not in first[-1]
    assert place.told.count("snapshotter.fenced") == 0


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (Throttled("slow down"), "throttled"),
        (Unreachable("no answer"), "unanswered"),
        (AccessDenied("no"), "refused"),
        (PreconditionFailed("taken"), "lost"),
        (OSError("disk"), "failed"),
    ],
)
def test_every_way_to_fail_has_a_word(error: Exception, outcome: str) -> None:
    told = Told()
    clock = FakeClock()

    def fail() -> Exception:
        return error

    bucket = FaultyBucket(MemoryBucket(clock), [Fault(times=0, error=fail)], clock=clock)
    store = watched_store(bucket, clock, Retries(attempts=1), told.telemetry)
    with told.tracer.start_as_current_span("caller"), pytest.raises(type(error)):
        store.bucket.delete("in/s/1")
    span = told.one("DELETE")
    assert (span.attributes or {})["snapshotter.outcome"] == outcome
    assert "error" not in outcome
    assert told.count("snapshotter.requests", snapshotter__outcome=outcome) == 1
    (point,) = told.points("db.client.operation.duration")
    kind = None if outcome == "lost" else type(error).__name__
    assert dict(point.attributes).get("error.type") == kind == (span.attributes or {}).get("error.type")


def test_an_object_that_was_tampered_with_is_told_as_damaged() -> None:
    class Tampered(MemoryBucket):
        def get(self, key: str) -> Blob | None:
            return Broken(Corrupt("altered"), Blob(b"", "e", None, None, None))

    told = Told()
    store = watched_store(Tampered(FakeClock()), FakeClock(), None, told.telemetry)
    with told.tracer.start_as_current_span("caller"):
        blob = store.get("sessions/s/snapshot.json")
    assert isinstance(blob, Broken)
    assert (told.one("GET").attributes or {})["snapshotter.outcome"] == "damaged"


def test_sizes_are_those_the_engine_sees_also_of_encrypted_objects() -> None:
    told, clock = Told(), FakeClock()
    bucket = sealed(MemoryBucket(clock), Encryption(key=Keyring(f"k {b64encode(bytes(32)).decode()}")))
    store = watched_store(bucket, clock, None, told.telemetry)
    with told.tracer.start_as_current_span("caller"):
        store.put("values/s/x", b"12345")
        store.get("values/s/x")
        store.list("values/")
    assert (told.one("PUT").attributes or {})["snapshotter.size"] == 5
    assert (told.one("GET").attributes or {})["snapshotter.size"] == 5
    assert (told.one("LIST").attributes or {})["db.response.returned_rows"] == 1
    assert told.count("snapshotter.io", network__io__direction="transmit") == 5
    assert told.count("snapshotter.io", network__io__direction="receive") == 5


# -- places --------------------------------------------------------------------------------------------


class Elsewhere(MemoryBucket):
    """A bucket in memory with the URL of another."""

    def __init__(self, url: str) -> None:
        super().__init__(FakeClock())
        self.url = url


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("memory:", {"db.system.name": "memory"}),
        ("file:///home/somebody/chats", {"db.system.name": "file"}),
        (
            "s3://bucket/a/b",
            {
                "db.system.name": "s3",
                "db.namespace": "bucket",
                "aws.s3.bucket": "bucket",
                "aws.s3.key": "a/b/in/s/1",
            },
        ),
        (
            "s3+obstore://bucket?endpoint=http://store.local:9000",
            {
                "db.system.name": "s3",
                "db.namespace": "bucket",
                "aws.s3.bucket": "bucket",
                "aws.s3.key": "in/s/1",
                "server.address": "store.local",
                "server.port": 9000,
            },
        ),
        (
            "minio://127.0.0.1:9000/bucket/a?secure=0",
            {
                "db.system.name": "minio",
                "db.namespace": "bucket",
                "aws.s3.bucket": "bucket",
                "aws.s3.key": "a/in/s/1",
                "server.address": "127.0.0.1",
                "server.port": 9000,
            },
        ),
        ("nonsense://[", {}),
    ],
)
def test_the_store_is_named_in_the_words_of_the_conventions(url: str, said: dict[str, Any]) -> None:
    told = Told()
    store = watched_store(Elsewhere(url), FakeClock(), None, told.telemetry)
    with told.tracer.start_as_current_span("caller"):
        store.get("in/s/1")
    found = dict(told.one("GET").attributes or {})
    known = {"db.operation.name": "GET", "snapshotter.key": "in/s/1", "snapshotter.outcome": "absent"}
    assert found == {**known, **(said or {"db.system.name": "other"})}


def test_over_every_store_each_request_is_a_span(backend: Any) -> None:
    told = Told()
    bucket = FaultyBucket(backend.connect())
    with Database(bucket, telemetry=told.telemetry) as db, told.tracer.start_as_current_span("worker"):
        receipt = db.send(SID, "hi")
        with db.boot(receipt=receipt) as session:
            for turn in session.turns():
                with turn:
                    write_all(turn, saying("hello"))
    asked = [(VERBS[call.verb], call.key) for call in bucket.calls]
    assert sorted(told.requests(told.one("worker"))) == sorted(asked) != []
    said = dict(told.named("GET")[0].attributes or {})
    driver = backend.name.partition("-")[0]
    assert said["db.system.name"] == {"obstore": "s3"}.get(driver, driver)
    remote = driver not in ("memory", "file")
    assert ("server.port" in said) == remote
    assert said.get("aws.s3.key", "").endswith(said["snapshotter.key"]) == remote


def test_the_watched_bucket_is_the_same_bucket() -> None:
    inner = MemoryBucket(FakeClock())
    bucket: Bucket = WatchedBucket(inner, Telemetry(), Trace(None, FakeClock()))
    assert (bucket.url, bucket.room, bucket.trusted) == (inner.url, inner.room, inner.trusted)
    assert bucket.copies is inner.copies is True


def test_a_copy_by_the_store_is_told_as_one() -> None:
    place = Watched()
    place.bucket.inner.put("a", b"data")
    store = watched_store(place.bucket, place.clock, None, place.told.telemetry)
    with place.told.tracer.start_as_current_span("application") as span:
        assert store.copy("a", "b", inside=True)
        assert store.copy("a", "b", inside=True)
    asked = " ".join(verb for verb, _ in place.told.requests(span))
    assert asked == "HEAD COPY HEAD COPY GET PUT HEAD GET", "what was refused took the way through here"
    assert [told["snapshotter.outcome"] for told in told_of(place, "COPY", "b")] == ["ok", "lost"]


# -- what is never told --------------------------------------------------------------------------------


def busy_life(place: Watched) -> None:
    """A session with this text wherever a person, a model or a host can put one."""
    place.db.send(SID, user("u1", MARKER), body={"secret": MARKER}, metadata={"m": MARKER}, key=f"k {MARKER}")
    place.db.action(SID, MARKER, {"to": MARKER})
    with pytest.raises(ValueError, match=MARKER), place.db.boot(SID, cause=MARKER) as session:
        for turn in session.turns():
            with turn:
                write_all(turn, [*saying(MARKER), call("c1", MARKER), result("c1", MARKER * 2000)])
                turn.stash({"at": MARKER})
                raise ValueError(MARKER)
    with place.db.boot(SID) as session:
        for turn in session.turns():
            with turn:
                turn.set_state({MARKER: MARKER})
                write_all(turn, [*saying(MARKER), {"type": "error", "errorText": MARKER}])
        session.edit_history("put", message=user("u9", MARKER))


def angry(_context: Any) -> bool:
    raise ValueError(MARKER)


def test_no_content_leaves_the_process() -> None:
    place = Watched(recovery=ChatRecovery(max_backoff=0, on_chat_recovery=angry))
    with place.told.tracer.start_as_current_span("worker"):
        busy_life(place)
    everything = place.told.everything()
    assert MARKER not in everything
    assert SID in everything
    for name in ("snapshotter.boot", "snapshotter.turn", "snapshotter.edit", "snapshotter.save"):
        assert place.told.named(name), name
    assert MARKER in json.dumps(place.db.history(SID))


def test_session_ids_can_be_left_out() -> None:
    place = Watched(Told(session_ids=False))
    secret = "somebody@example.org"
    with place.told.tracer.start_as_current_span("worker"):
        place.db.send(secret, "hi")
        with place.db.boot(secret) as session:
            for turn in session.turns():
                with turn:
                    write_all(turn, saying("hello"))
        list(place.db.sessions(prefix="somebody"))
    everything = place.told.everything()
    assert "somebody" not in everything
    assert "out/*/9999999999999998-1.jsonl" in everything
    assert "sessions/*" in everything
    assert "capabilities" not in everything


def test_requests_can_be_counted_only() -> None:
    place = Watched(Told(requests=False))
    place.send("u1")
    with place.told.tracer.start_as_current_span("worker"):
        place.answer()
    assert {span.name for span in place.told.spans} == {
        "worker",
        "snapshotter.boot",
        "snapshotter.turn",
        "snapshotter.save",
    }
    assert place.told.count("snapshotter.requests") == len(place.bucket.calls)
    boot: ReadableSpan = place.told.one("snapshotter.boot")
    assert (boot.attributes or {})["snapshotter.requests"] == 4


def test_metrics_hold_no_ids_and_no_keys() -> None:
    place = Watched()
    place.send("u1")
    place.answer()
    points = [point for metric in METRICS for point in place.told.points(metric)]
    assert len(points) > len(METRICS)
    assert not [point for point in points if SID in repr(dict(point.attributes))]


def test_a_store_that_is_not_watched_tells_nobody() -> None:
    place = Watched()
    db = Database(place.bucket, place.clock, telemetry=None)
    assert db.store.bucket is place.bucket
