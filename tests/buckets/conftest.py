"""A scripted server, and each driver in turn on a bucket behind it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from streams.buckets import minio, obstore, s3, signed
from streams.buckets.base import Bucket
from streams.buckets.remote import Keys

from .opening import DRIVERS, SECRET, open_driver
from .stub import Stub, serving


@pytest.fixture
def stub() -> Iterator[Stub]:
    with serving() as stub:
        yield stub


@pytest.fixture(params=list(DRIVERS))
def driver(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def handed_out() -> list[Keys]:
    """The keys that the provider hands out, the last one again and again."""
    return [Keys("AKIRST", SECRET)]


@pytest.fixture
def bucket(driver: str, stub: Stub, handed_out: list[Keys]) -> Iterator[Bucket]:
    opened = open_driver(
        driver, stub.url, lambda: handed_out.pop(0) if len(handed_out) > 1 else handed_out[0]
    )
    yield opened
    opened.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buckets that are opened from here on wait for an answer no longer than a moment."""
    for module in (s3, minio, obstore, signed):
        monkeypatch.setattr(module, "READ_SECONDS", 0.3)
