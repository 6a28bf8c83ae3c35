"""Store URLs: what opens, what is refused, and where endpoints, regions and keys come from."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import traceback
from pathlib import Path
from types import SimpleNamespace

import pytest

import streams
from streams.buckets import url as url_module
from streams.buckets.file import FileBucket
from streams.buckets.memory import MemoryBucket
from streams.buckets.minio import MinioBucket
from streams.buckets.names import check_prefix
from streams.buckets.obstore import ObstoreBucket
from streams.buckets.remote import Keys
from streams.buckets.s3 import S3Bucket
from streams.buckets.url import open_bucket
from streams.errors import CredentialsExpired, InvalidId, Misconfigured
from streams.testing import FakeClock

ROOT = Path(__file__).parents[2]
AWS = {"AWS_ACCESS_KEY_ID": "AKAWS", "AWS_SECRET_ACCESS_KEY": "aws-secret"}
OWN = {
    "OBJECT_STORE_BASE_URL": "https://store.example.org/",
    "OBJECT_STORE_ACCESS_KEY_ID": "AKOWN",
    "OBJECT_STORE_SECRET_ACCESS_KEY": "own-secret",
    "OBJECT_STORE_REGION": "own-1",
}


def test_memory_is_one_store_per_name() -> None:
    clock = FakeClock()
    first = open_bucket("memory://url-test/a/b", clock=clock)
    assert isinstance(first, MemoryBucket)
    first.put("k", b"1")
    assert open_bucket("memory://url-test/a/b").get("k").data == b"1"
    assert open_bucket("memory://url-test").get("a/b/k").data == b"1"
    assert open_bucket("memory://other").get("a/b/k") is None
    assert open_bucket("memory://").get("a/b/k") is None
    assert first.url == "memory://url-test/a/b"


def test_file_takes_any_absolute_path(tmp_path: Path) -> None:
    root = tmp_path / "mein Ordner ü"
    bucket = open_bucket(root.as_uri())
    assert isinstance(bucket, FileBucket)
    bucket.put("k", b"1")
    assert (root / "k").read_bytes() == b"1"
    assert open_bucket(bucket.url).get("k").data == b"1"


def test_s3_and_minio_urls() -> None:
    env = {**AWS, "AWS_REGION": "eu-west-1"}
    plain = open_bucket("s3://my-bucket/packets/proj_1/prod", env=env)
    assert isinstance(plain, S3Bucket)
    assert (plain._root, plain.trusted, plain._region) == ("packets/proj_1/prod/", True, "eu-west-1")
    assert plain.room == 1024 - len("packets/proj_1/prod/")
    other = open_bucket("s3://b?endpoint=http://127.0.0.1:9000&region=r1", env=env)
    assert (other._endpoint, other._region, other._root, other.trusted) == (
        "http://127.0.0.1:9000",
        "r1",
        "",
        False,
    )
    minio = open_bucket("minio://127.0.0.1:9000/b/p/q", env=env)
    assert isinstance(minio, MinioBucket)
    assert (minio._endpoint.geturl(), minio._bucket, minio._root) == ("http://127.0.0.1:9000", "b", "p/q/")
    for url, scheme in (
        ("minio://store.example.org/b", "https"),
        ("minio://store.example.org/b?secure=0", "http"),
        ("minio://localhost:9000/b?secure=1", "https"),
        ("minio://[::1]:9000/b", "http"),
    ):
        assert open_bucket(url, env=env)._endpoint.scheme == scheme
    fast = open_bucket("s3+obstore://my-bucket/p", env=env)
    assert isinstance(fast, ObstoreBucket)
    assert (fast._endpoint, fast._root, fast.trusted) == ("https://s3.eu-west-1.amazonaws.com", "p/", True)
    china = open_bucket("s3+obstore://b?region=cn-north-1", env=env)
    assert china._endpoint == "https://s3.cn-north-1.amazonaws.com.cn"
    near = open_bucket("s3+obstore://b?endpoint=http://127.0.0.1:9000&region=r1", env=env)
    assert (near._endpoint, near._region, near.trusted) == ("http://127.0.0.1:9000", "r1", False)
    for bucket in (plain, other, minio, fast, near):
        assert open_bucket(bucket.url, env=env)._root == bucket._root, "a shown URL opens again"


@pytest.mark.parametrize(
    ("extra", "endpoint"),
    [
        ({}, "https://store.example.org"),
        ({"AWS_ENDPOINT_URL": "http://aws.example.org"}, "http://aws.example.org"),
        (
            {"AWS_ENDPOINT_URL": "http://aws.example.org", "AWS_ENDPOINT_URL_S3": "http://s3.example.org"},
            "http://s3.example.org",
        ),
    ],
)
def test_where_the_endpoint_comes_from(extra, endpoint) -> None:
    assert open_bucket("s3://b/p", env={**OWN, **extra})._endpoint == endpoint
    given = open_bucket("s3://b/p?endpoint=http://given.example.org", env={**OWN, **extra})
    assert given._endpoint == "http://given.example.org"


def test_keys_stay_with_their_endpoint() -> None:
    aws, own = Keys("AKAWS", "aws-secret"), Keys("AKOWN", "own-secret")
    both = {**AWS, **OWN, "AWS_REGION": "aws-1"}
    assert open_bucket("s3://b", env=both)._keys() == own
    assert open_bucket("s3://b", env=both)._region == "own-1"
    assert open_bucket("s3://b?endpoint=http://x.example.org", env=both)._keys() == aws
    assert open_bucket("s3://b?endpoint=http://x.example.org", env=both)._region == "aws-1"
    assert open_bucket("s3://b?endpoint=http://x.example.org", env=OWN)._keys() == own
    assert open_bucket("s3://b", env={**AWS, "AWS_SESSION_TOKEN": "t"})._keys() == Keys(
        "AKAWS", "aws-secret", "t"
    )
    assert url_module._keys({"AWS_PROFILE": "work", **OWN}, own=False) is None, "boto3 reads the profile"
    assert url_module._keys({"AWS_ACCESS_KEY_ID": "AKAWS"}, own=False) is None


def test_keys_are_read_again_when_asked_again() -> None:
    env = dict(AWS)
    bucket = open_bucket("s3://b", env=env)
    env["AWS_ACCESS_KEY_ID"] = "AKNEW"
    assert bucket._keys().access_key == "AKNEW"


def test_a_driver_that_takes_keys_takes_a_sessions() -> None:
    frozen = SimpleNamespace(access_key="AKSESSION", secret_key="s", token="t")
    session = SimpleNamespace(get_credentials=lambda: SimpleNamespace(get_frozen_credentials=lambda: frozen))
    assert open_bucket("minio://h.org/b", session=session, env=AWS)._keys() == Keys("AKSESSION", "s", "t")
    assert open_bucket("s3+obstore://b", session=session, env=AWS)._keys() == Keys("AKSESSION", "s", "t")
    assert open_bucket("minio://h.org/b", session=lambda: session, env={})._keys().access_key == "AKSESSION"
    with pytest.raises(CredentialsExpired):
        open_bucket("minio://h.org/b", session=SimpleNamespace(get_credentials=lambda: None), env=AWS)
    for url in ("minio://h.org/b", "s3+obstore://b"):
        with pytest.raises(CredentialsExpired, match="OBJECT_STORE_ACCESS_KEY_ID"):
            open_bucket(url, env={})


def test_a_default_protocol_stands_in_for_the_scheme() -> None:
    for protocol, kind in (("s3", S3Bucket), ("minio", MinioBucket), ("s3+obstore", ObstoreBucket)):
        bucket = open_bucket("bucket/pre/fix", env={**OWN, "OBJECT_STORE_DEFAULT_PROTOCOL": protocol})
        assert isinstance(bucket, kind)
        assert (bucket._bucket, bucket._root) == ("bucket", "pre/fix/")
    with pytest.raises(InvalidId, match="s3://"):
        open_bucket("bucket/pre/fix", env=OWN)
    with pytest.raises(InvalidId, match="OBJECT_STORE_BASE_URL"):
        open_bucket("minio:///bucket", env=AWS)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://x/y",
        "s3://",
        "s3:///prefix",
        "s3://b/a//b",
        "s3://b/..",
        "s3://b/a/../c",
        "s3://b/./c",
        "s3://b/a/%2e%2e/c",
        "s3://b/a%2Fb",
        "s3://b/with space",
        "s3://b/ü",
        "s3://b/a\nb",
        "s3://b/p#f",
        "s3://b%20c/p",
        f"s3://b/{'x' * 600}",
        "s3://b/p?endpoint=ftp://x",
        "s3://b/p?endpoint=nohost",
        "s3://b/p?endpoint=http://x/path",
        "s3://b/p?region",
        "s3://[bad/p",
        "s3+obstore://",
        "s3+obstore://b--usw2-az1--x-s3/p",
        "s3+obstore://b/p?secure=1",
        "s3+ftp://b/p",
        "minio://host:99999999/b",
        "minio://host:9000/",
        "minio://host:9000",
        "minio://host:9000/b?secure=maybe",
        "memory://name/../x",
        "memory://name?x=1",
        "file://relative/path",
        "file:///",
        "file:///a/../b",
        "file:///a/%2e%2e/b",
        "file:///a%00b",
    ],
)
def test_urls_that_cannot_be_are_refused(url) -> None:
    with pytest.raises(InvalidId) as caught:
        open_bucket(url, env=AWS)
    assert len(str(caught.value)) > 20


@pytest.mark.parametrize(
    "url",
    [
        "s3://AKHIDDEN:hunter2@b/p",
        "minio://AKHIDDEN:hunter2@host/b",
        "s3://b/p?secret_key=hunter2",
        "s3://b/p?access_key=AKHIDDEN&secret=hunter2",
        "s3://b/p?endpoint=http://AKHIDDEN:hunter2@host",
        "file://AKHIDDEN:hunter2@host/p",
        "s3://b/p?hunter2",
        "s3://b/p?hunter2=AKHIDDEN",
        "s3://AKHIDDEN:hunter2/p",
        "s3://b:31337/p",
        "s3+obstore://b:31337/p",
        "s3+obstore://AKHIDDEN:hunter2@b/p",
        "file://h:31337/p",
        "minio://AKHIDDEN:hunter2/b/p",
        "minio://host:hunter2/b",
        "minio://host/b?hunter2=1",
        "memory://name?hunter2",
        "b/p?hunter2=http://x",
        "hunter2@AKHIDDEN://x",
    ],
)
def test_secrets_in_a_url_are_refused_and_not_repeated(url) -> None:
    with pytest.raises(InvalidId) as caught:
        open_bucket(url, env=AWS)
    told = "".join(traceback.format_exception(caught.value)).lower()
    assert not any(secret in told for secret in ("hunter2", "akhidden", "31337"))


def test_a_prefix_keeps_its_plain_form() -> None:
    assert check_prefix("/a/b-c_d.e=f@g+h/") == "a/b-c_d.e=f@g+h"
    assert check_prefix("") == check_prefix("/") == ""


@pytest.mark.parametrize(
    ("url", "package"), [("s3://b", "boto3"), ("minio://h/b", "minio"), ("s3+obstore://b", "obstore")]
)
def test_a_missing_driver_says_what_to_install(url, package, monkeypatch) -> None:
    def missing(module: str) -> None:
        raise ModuleNotFoundError(name=package)

    monkeypatch.setattr(url_module, "import_module", missing)
    with pytest.raises(Misconfigured, match="pip install") as caught:
        open_bucket(url, env=AWS)
    asked = str(caught.value).rpartition("pip install ")[2].strip("'")
    assert asked.startswith(f"{package}>=")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert [asked] in extras.values()

    def broken(module: str) -> None:
        raise ModuleNotFoundError(name="something_else")

    monkeypatch.setattr(url_module, "import_module", broken)
    with pytest.raises(ModuleNotFoundError):
        open_bucket(url, env=AWS)


def test_no_driver_is_loaded_before_its_url_is_opened() -> None:
    code = (
        "import sys, streams.store, streams.buckets.url as u; u.open_bucket('memory://x'); "
        "drivers = 'boto3', 'botocore', 'minio', 'urllib3', 'obstore', 'tenacity'; "
        "print([name for name in drivers if name in sys.modules])"
    )
    environment = {"PYTHONPATH": str(Path(str(streams.__file__)).parents[1])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_no_more_of_a_driver_is_loaded_than_is_used() -> None:
    code = (
        "import sys, streams.buckets.url as u; env = dict(AWS_ACCESS_KEY_ID='a', AWS_SECRET_ACCESS_KEY='b'); "
        "u.open_bucket('s3://b', env=env); u.open_bucket('s3+obstore://b', env=env); "
        "print([name for name in ('boto3', 's3transfer', 'minio', 'ssl') if name in sys.modules])"
    )
    environment = {"PYTHONPATH": str(Path(str(streams.__file__)).parents[1])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, text=True)
    assert done.stdout == "['ssl']\n", done.stderr


@pytest.mark.parametrize(
    ("url", "name", "instead"),
    [
        ("s3://b/p?endpoint=http://127.0.0.1:9000&region=us-east-1/sub", "region", "s3://bucket/path?"),
        ("s3+obstore://b?checksum=sha256/sub", "checksum", "s3+obstore://bucket/path?"),
        ("minio://h.org/b/p?secure=0/sub", "secure", "minio://host:port/bucket/path?"),
    ],
)
def test_a_path_that_was_put_behind_the_query_is_told_as_that(url: str, name: str, instead: str) -> None:
    """As where a shell script appends a folder to a URL that ends in parameters."""
    with pytest.raises(InvalidId, match=re.escape(f"{name}= holds a '/'")) as told:
        open_bucket(url, env=AWS)
    assert f"the path goes before the '?', as in {instead}" in str(told.value)
    with pytest.raises(InvalidId, match="before its"):
        open_bucket("s3://b/p?endpoint=http://127.0.0.1:9000/sub", env=AWS)
