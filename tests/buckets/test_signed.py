"""Requests of our own: the signatures that AWS documents, and connections that are kept."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from streams.buckets import signed
from streams.buckets.remote import Keys
from streams.buckets.signed import NO_ANSWER, Wire

KEYS = Keys("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")


@pytest.mark.parametrize(
    ("method", "target", "query", "headers", "body", "signature"),
    [
        (
            *("GET", "/test.txt", "", {"range": "bytes=0-9"}, b""),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        (
            *("PUT", "/test%24file.text", ""),
            {"date": "Fri, 24 May 2013 00:00:00 GMT", "x-amz-storage-class": "REDUCED_REDUNDANCY"},
            b"Welcome to Amazon S3.",
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        ),
        (
            *("GET", "/", "max-keys=2&prefix=J", {}, b""),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
    ],
    ids=["get", "put", "list"],
)
def test_the_examples_of_the_aws_documentation(
    method, target, query, headers, body, signature, monkeypatch
) -> None:
    monkeypatch.setattr(time, "gmtime", lambda: time.struct_time((2013, 5, 24, 0, 0, 0, 4, 144, 0)))
    sent = dict(headers)
    Wire("https://examplebucket.s3.amazonaws.com", "us-east-1")._sign(KEYS, method, target, query, sent, body)
    assert sent["x-amz-date"] == "20130524T000000Z"
    assert sent["authorization"].endswith(f"Signature={signature}")


class Server:
    """Answers each request with its own request line; `calls` are the connections."""

    def __init__(self) -> None:
        self.calls: list[socket.socket] = []
        self.heads: list[bytes] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.thread = threading.Thread(target=self._accept, daemon=True)
        self.thread.start()

    def _accept(self) -> None:
        while True:
            try:
                call, _ = self.listener.accept()
            except OSError:
                return
            self.calls.append(call)
            threading.Thread(target=self._serve, args=(call,), daemon=True).start()

    def _serve(self, call: socket.socket) -> None:
        with call.makefile("rb") as lines:
            while line := lines.readline():
                head = line + b"".join(iter(lines.readline, b"\r\n"))
                self.heads.append(head)
                how = b"Connection: close\r\n" if b"/last " in line else b""
                call.sendall(b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n%b" % (how, len(line), line))
        call.close()

    def hang_up(self) -> None:
        for call in self.calls:
            call.shutdown(socket.SHUT_RDWR)


@contextmanager
def serving() -> Iterator[Server]:
    server = Server()
    yield server
    server.listener.shutdown(socket.SHUT_RDWR)
    server.listener.close()
    server.thread.join()
    for call in server.calls:
        call.close()


def test_a_connection_is_used_again() -> None:
    with serving() as server:
        wire = Wire(server.url, "r")
        for number in range(3):
            answer = wire.ask(KEYS, "GET", f"/b/{number}")
            assert answer.data.startswith(f"GET /b/{number} ".encode())
        assert len(server.calls) == 1
        wire.ask(KEYS, "GET", "/b/last")
        wire.ask(KEYS, "GET", "/b/1")
        assert len(server.calls) == 2, "the server said that it would close the first"
        wire.close()
        wire.ask(KEYS, "GET", "/b/1")
        assert len(server.calls) == 3
        wire.close()


def test_a_wire_that_is_forgotten_closes_its_connections() -> None:
    with serving() as server:
        wire = Wire(server.url, "r")
        wire.ask(KEYS, "GET", "/b/1")
        (kept,) = wire._idle
        del wire
        assert kept.sock is None


def test_a_connection_that_the_server_closed_is_not_used() -> None:
    with serving() as server:
        wire = Wire(server.url, "r")
        wire.ask(KEYS, "GET", "/b/1")
        (kept,) = wire._idle
        server.hang_up()
        assert kept.sock is not None
        signed.select.select([kept.sock], [], [])  # its end has arrived
        assert wire.ask(KEYS, "GET", "/b/2").status == 200
        assert len(server.calls) == 2
        wire.close()


def test_a_forked_process_leaves_its_parents_connections_alone(monkeypatch) -> None:
    with serving() as server:
        wire = Wire(server.url, "r")
        wire.ask(KEYS, "GET", "/b/1")
        (parents,) = wire._idle
        here = os.getpid()
        monkeypatch.setattr(signed.os, "getpid", lambda: here + 1)
        wire.ask(KEYS, "GET", "/b/2")
        assert len(server.calls) == 2
        assert parents not in wire._idle
        assert parents.sock is not None, "to close it is the parent's"
        parents.close()
        wire.close()


def test_no_more_connections_are_kept_than_may_be(monkeypatch) -> None:
    monkeypatch.setattr(signed, "CONNECTIONS", 1)
    with serving() as server:
        wire = Wire(server.url, "r")
        first, second = wire._take(), wire._take()
        wire._give(first)
        wire._give(second)
        assert wire._idle == [first]
        assert second.sock is None
        wire.close()


def test_names_are_escaped_once_and_queries_sorted() -> None:
    with serving() as server:
        wire = Wire(server.url, "r")
        wire.ask(KEYS, "GET", "/b/a%20b+c=d@e", query={"z": "a/b", "a": "ü &"})
        assert server.heads[0].startswith(b"GET /b/a%2520b%2Bc%3Dd%40e?a=%C3%BC%20%26&z=a%2Fb HTTP/1.1")
        wire.close()


def test_no_connection_is_no_answer() -> None:
    with serving() as server:
        pass
    with pytest.raises(NO_ANSWER):
        Wire(server.url, "r").ask(KEYS, "GET", "/b")
