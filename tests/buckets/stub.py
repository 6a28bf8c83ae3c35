"""A stub HTTP server whose answers a test scripts, one per request."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal


@dataclass(frozen=True)
class Answer:
    """`cut` declares 100 bytes and closes after `body`; `drop` closes with no answer; `hang` keeps silent."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    how: Literal["whole", "cut", "drop", "hang"] = "whole"


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    def header(self, name: str) -> str:
        """One header, however the driver spells its name."""
        return {key.lower(): value for key, value in self.headers.items()}[name]


def error(status: int, code: str) -> Answer:
    """An S3 error answer. Its message holds what must never be repeated."""
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>AKSECRET</Message></Error>"
    return Answer(status, body.encode(), {"Content-Type": "application/xml"})


def found(body: bytes = b"data", **headers: str) -> Answer:
    return Answer(200, body, {"ETag": '"e1"', "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT", **headers})


class Stub:
    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.answers: list[Answer] = []
        self.asked: list[Asked] = []
        self.stop = threading.Event()
        self.more = threading.Condition()

    def heard(self, count: int) -> list[Asked]:
        """What was asked, once it is so many: a client may give up before its request is read here."""
        with self.more:
            self.more.wait_for(lambda: len(self.asked) >= count, 30)
        return self.asked


@contextmanager
def serving(tls: ssl.SSLContext | None = None) -> Iterator[Stub]:
    class Handler(BaseHTTPRequestHandler):
        def handle_one_request(self) -> None:
            self.raw_requestline = self.rfile.readline(65537)
            if not self.raw_requestline or not self.parse_request():
                self.close_connection = True
                return
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            with stub.more:
                stub.asked.append(Asked(self.command, self.path, dict(self.headers), body))
                stub.more.notify_all()
            self.reply(stub.answers.pop(0))

        def reply(self, answer: Answer) -> None:
            self.close_connection = True
            if answer.how == "hang":
                stub.stop.wait(30)
            if answer.how in ("hang", "drop"):
                return
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            length = 100 if answer.how == "cut" else len(answer.body)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    stub = Stub(server.server_port)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        server.handle_error = lambda *_: None  # a client that hangs up on the handshake
        stub.url = f"https://localhost:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield stub
    stub.stop.set()
    server.shutdown()
    thread.join()
    server.server_close()
