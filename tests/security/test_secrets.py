"""Credentials show in no error, no log, no repr and no output, whatever a store answers."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from buckets.stub import Answer, Stub, serving
from click.testing import CliRunner

import snapshotter
import snapshotter.maintenance
from snapshotter.cli.app import cli
from snapshotter.cli.problems import failure_of
from streams.buckets import remote
from streams.buckets.base import Bucket
from streams.buckets.url import open_bucket
from streams.errors import StreamError
from streams.store import Retries

ROOT = Path(__file__).parents[2]
ACCESS, SECRET, TOKEN = "AKIAHIDDENACCESS", "hidden/secret+value", "hidden-session-token"
SECRETS = (ACCESS, SECRET, TOKEN)
# A store that says back what it was sent, in every place where a driver may pick it up.
TOLD = f"{ACCESS} {SECRET} {TOKEN}"
URLS = {
    "s3": "s3://bucket/root?endpoint={}&region=us-east-1",
    "obstore": "s3+obstore://bucket/root?endpoint={}&region=us-east-1",
    "minio": "minio://{}/bucket/root?region=us-east-1",
}
ENVIRONMENTS = {
    "aws": {
        "AWS_ACCESS_KEY_ID": ACCESS,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_SESSION_TOKEN": TOKEN,
    },
    "own": {"OBJECT_STORE_ACCESS_KEY_ID": ACCESS, "OBJECT_STORE_SECRET_ACCESS_KEY": SECRET},
}


def refused(status: int, code: str) -> Answer:
    body = (
        f"<Error><Code>{code}</Code><Message>{TOLD}</Message><AWSAccessKeyId>{ACCESS}</AWSAccessKeyId>"
        f"<StringToSign>{TOLD}</StringToSign><Resource>{TOLD}</Resource><RequestId>{TOLD}</RequestId></Error>"
    )
    return Answer(status, body.encode(), {"Content-Type": "application/xml", "x-amz-request-id": TOKEN})


ANSWERS = {
    **{f"code {code}": refused(403, code) for code in remote._BY_CODE},
    **{f"status {status}": refused(status, "") for status in (*remote._BY_STATUS, 400, 500, 503)},
    "an unknown code": refused(400, "Unknown"),
    "a page": Answer(200, f"<html>{TOLD}</html>".encode(), {"Content-Type": "text/html", "ETag": TOKEN}),
    "no xml": Answer(500, TOLD.encode()),
    "a redirect": Answer(307, b"", {"Location": f"http://127.0.0.1:1/?X-Amz-Security-Token={TOKEN}"}),
    "no tls": Answer(400, f"Client sent an HTTP request to an HTTPS server. {TOLD}".encode()),
    "cut": Answer(200, TOLD.encode(), how="cut"),
    "drop": Answer(how="drop"),
}
VERBS: dict[str, Callable[[Bucket], Any]] = {
    "get": lambda bucket: bucket.get("in/s/1"),
    "head": lambda bucket: bucket.head("in/s/1"),
    "put": lambda bucket: bucket.put("in/s/1", b"x", if_absent=True, nonce="n"),
    "replace": lambda bucket: bucket.put("in/s/1", b"x", if_match='"e"', nonce="n"),
    "copy": lambda bucket: bucket.copy("in/s/1", "in/t/1", '"e"'),
    "list": lambda bucket: bucket.list("in/s/"),
    "delete": lambda bucket: bucket.delete("in/s/1"),
}


@pytest.fixture
def stub() -> Iterator[Stub]:
    with serving() as stub:
        yield stub


def url_of(driver: str, stub: Stub) -> str:
    return URLS[driver].format(stub.url.removeprefix("http://") if driver == "minio" else stub.url)


def shown(error: BaseException) -> list[str]:
    """All that anybody is shown of an error, its own causes apart."""
    failure = failure_of(error)
    return [str(error), repr(error), str(vars(error)), failure.message, str(failure.to_json())]


def clean(texts: list[str]) -> bool:
    return not any(secret in text for secret in SECRETS for text in texts)


@pytest.mark.parametrize("driver", URLS)
@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_no_answer_of_a_store_brings_a_secret_to_light(
    driver: str, environment: str, stub: Stub, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="snapshotter")
    bucket = open_bucket(url_of(driver, stub), env=ENVIRONMENTS[environment])
    failed = 0
    for answer in ANSWERS.values():
        for verb, ask in VERBS.items():
            stub.answers = [answer] * 4
            try:
                ask(bucket)
            except StreamError as error:
                failed += 1
                texts = [*shown(error), "".join(traceback.format_exception(error))]
                assert clean(texts), (answer, verb, [t for t in texts if not clean([t])])
    assert failed > 5 * len(ANSWERS)
    assert clean([repr(bucket), bucket.url, caplog.text])
    bucket.close()


def test_a_users_own_session_shows_no_more(stub: Stub) -> None:
    session = boto3.Session(ACCESS, SECRET, TOKEN, region_name="us-east-1")
    for driver in URLS:
        for given in (session, lambda: session):
            bucket = open_bucket(url_of(driver, stub), session=given, env={})
            stub.answers = [refused(403, "ExpiredToken")] * 4
            with pytest.raises(StreamError) as caught:
                bucket.get("a")
            assert clean([*shown(caught.value), "".join(traceback.format_exception(caught.value))])
            assert clean([repr(bucket), bucket.url])
            bucket.close()


def test_a_proxys_password_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, f"http://user:{SECRET.replace('/', '')}@127.0.0.1:1")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    for driver, url in URLS.items():
        endpoint = "store.invalid" if driver == "minio" else "http://store.invalid"
        suffix = "&secure=0" if driver == "minio" else ""
        bucket = open_bucket(url.format(endpoint) + suffix, env=ENVIRONMENTS["aws"])
        with pytest.raises(StreamError) as caught:
            bucket.get("a")
        told = "".join(traceback.format_exception(caught.value))
        assert SECRET.replace("/", "") not in told + str(shown(caught.value)), driver
        bucket.close()


# -- the engine, and the command line -------------------------------------------------------------------


@pytest.mark.parametrize("driver", URLS)
def test_no_door_of_a_database_tells_a_secret(
    driver: str, stub: Stub, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="snapshotter")
    bucket = open_bucket(url_of(driver, stub), env=ENVIRONMENTS["aws"])
    db = snapshotter.Database(bucket, retries=Retries(attempts=1))
    doors: list[Callable[[], Any]] = [
        lambda: db.send("s", "hi"),
        lambda: db.boot("s"),
        lambda: db.boot("s", claim=True),
        lambda: db.history("s"),
        lambda: list(db.sessions()),
        lambda: list(db.follow("s", timeout=0)),
        lambda: db.create("s"),
        lambda: snapshotter.maintenance.delete(db, "s"),
        lambda: snapshotter.maintenance.maintain(db),
        lambda: snapshotter.maintenance.fork(db, "s", "t"),
    ]
    for answer in (refused(403, "SignatureDoesNotMatch"), refused(503, "SlowDown"), ANSWERS["drop"]):
        for door in doors:
            stub.answers = [answer] * 20
            with pytest.raises(StreamError) as caught:
                door()
            assert clean([*shown(caught.value), "".join(traceback.format_exception(caught.value))])
    assert clean([repr(db), db.url, caplog.text])
    db.close()


COMMANDS = (
    ("send", "{}", "s", "hi"),
    ("boot", "{}", "s"),
    ("history", "{}", "s"),
    ("ls", "{}"),
    ("verify", "{}", "s"),
    ("doctor", "{}"),
    ("maintain", "{}"),
    ("delete", "{}", "s", "--yes"),
    ("rebuild", "{}", "s", "--jobs", "1"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_no_command_prints_a_secret(command: tuple[str, ...], stub: Stub) -> None:
    """Of its own process, where a traceback would be asked for, too."""
    stub.answers = [refused(403, "InvalidAccessKeyId")] * 20
    args = [part.format(url_of("obstore", stub)) for part in command]
    done = subprocess.run(
        [sys.executable, "-m", "snapshotter", *args],
        env={"PATH": os.environ["PATH"], "SNAPSHOTTER_TRACEBACK": "1", **ENVIRONMENTS["aws"]},
        cwd=os.fspath(ROOT),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (1, 6)
    assert done.stdout + done.stderr
    assert clean([done.stdout, done.stderr])


WITH_SECRETS = (
    f"s3://{ACCESS}:{TOKEN}@bucket/p",
    f"minio://{ACCESS}:{TOKEN}@host:9000/bucket/p",
    f"s3+obstore://bucket/p?secret_key={TOKEN}",
    f"s3://bucket/p?endpoint=http://{ACCESS}:{TOKEN}@host",
    f"minio://host:{TOKEN}/bucket/p",
    f"s3://bucket/p#{TOKEN}",
    f"{TOKEN}@{ACCESS}://bucket",
)


@pytest.mark.parametrize("url", WITH_SECRETS)
def test_a_url_with_a_secret_is_refused_at_every_door_and_not_repeated(url: str, tmp_path: Path) -> None:
    place, journal = (tmp_path / "root").as_uri(), tmp_path / "journal"
    for args in (
        ("send", url, "s", "hi"),
        ("ls", url, "--json"),
        ("doctor", url),
        ("policy", "reader", url),
        ("rebuild", url, "--jobs", "1"),
        ("rebuild", place, "--jobs", "1", "--export", "jsonl", url, "--journal", str(journal)),
        ("demo", "--root", url),
    ):
        ran = CliRunner().invoke(cli, list(args))
        assert ran.exit_code in (1, 2), (args, ran.output)
        assert clean([ran.output, repr(ran.exception)]), args
    assert not journal.exists()


def test_nothing_that_is_handed_out_shows_a_secret(moto_server: Any) -> None:
    keys = remote.Keys(ACCESS, SECRET, TOKEN)
    bucket = open_bucket(
        f"s3://{moto_server.bucket}/secrets?endpoint={moto_server.url}", env=ENVIRONMENTS["aws"]
    )
    with snapshotter.Database(bucket) as db:
        receipt = db.send("s", "hi")
        with db.boot(receipt=receipt) as session:
            seen: list[Any] = [session, session.resume, session.booted]
            for turn in session.turns():
                with turn:
                    seen.append(turn)
        seen += [keys, db, db.store, bucket, receipt, db.store.stats.snapshot()]
    assert clean([text for each in seen for text in (repr(each), str(each))])
