"""A host with many sessions makes many requests at once: their connections are kept for the next ones."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from streams.buckets.remote import Keys

from .opening import DRIVERS, open_driver

AT_ONCE = 100
PATIENCE = 30.0


class Meeting(ThreadingHTTPServer):
    """Answers a request once there are `AT_ONCE` of them. `connected`: connections in all."""

    daemon_threads = True
    request_queue_size = 2 * AT_ONCE

    def __init__(self) -> None:
        self.connected = 0
        self.met = threading.Barrier(AT_ONCE)
        super().__init__(("127.0.0.1", 0), _Handler)

    def process_request(self, request: object, client_address: object) -> None:
        self.connected += 1
        super().process_request(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Meeting

    def do_GET(self) -> None:
        self.server.met.wait(PATIENCE)
        body = b"<Error><Code>NoSuchKey</Code></Error>"
        head = (
            f"HTTP/1.1 404 Not Found\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self.wfile.write(head.encode() + body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def meeting() -> Iterator[Meeting]:
    with Meeting() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield server
        server.met.abort()
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("driver", DRIVERS)
def test_the_connections_of_many_requests_at_once_are_used_again(driver: str, meeting: Meeting) -> None:
    bucket = open_driver(driver, f"http://127.0.0.1:{meeting.server_port}", lambda: Keys("a", "s"))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for _ in range(3):
            assert list(pool.map(bucket.get, ["key"] * AT_ONCE)) == [None] * AT_ONCE
    bucket.close()
    # A driver of its own threads may take a moment to put one back.
    assert AT_ONCE <= meeting.connected < 1.5 * AT_ONCE
