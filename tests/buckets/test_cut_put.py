"""A sender that is killed between the head of its PUT and the body: the object must not be there.

SeaweedFS keeps an empty object then, unless the request says what its body has to be. A session whose newest
segment is empty would be taken for damaged until a person looked at it.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import pytest

from streams.buckets.minio import MinioBucket
from streams.buckets.obstore import ObstoreBucket
from streams.buckets.s3 import S3Bucket
from streams.errors import Unreachable


@contextmanager
def cutting_off_bodies(endpoint: str) -> Iterator[str]:
    """The URL of a relay that passes on the head of each request and no more, and hears the answer out."""
    there = urlsplit(endpoint)
    listener = socket.create_server(("127.0.0.1", 0))

    def relay(here: socket.socket) -> None:
        with here, socket.create_connection((there.hostname, there.port)) as server:
            head = b""
            while b"\r\n\r\n" not in head:
                head += here.recv(65536)
            server.sendall(head.partition(b"\r\n\r\n")[0] + b"\r\n\r\n")
            server.shutdown(socket.SHUT_WR)
            with suppress(ConnectionResetError):
                while server.recv(65536):
                    pass

    def serve() -> None:
        while True:
            try:
                here, _ = listener.accept()
            except OSError:
                return
            relay(here)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


@pytest.mark.parametrize("driver", [S3Bucket, MinioBucket, ObstoreBucket])
@pytest.mark.parametrize("condition", [{"if_absent": True}, {}])
def test_a_put_whose_body_never_came_leaves_nothing(
    driver: Any, condition: dict[str, bool], seaweed: Any
) -> None:
    with cutting_off_bodies(seaweed.url) as url:
        bucket = driver(seaweed.bucket, "cut", endpoint=url, keys=lambda: seaweed.keys)
        key = f"{driver.__name__}-{len(condition)}"
        with pytest.raises(Unreachable):
            bucket.put(key, b"the body", nonce="n", **condition)
        bucket.close()
    direct = seaweed.minio("cut")
    assert direct.get(key) is None
    direct.close()
