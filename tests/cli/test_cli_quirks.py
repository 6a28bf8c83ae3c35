"""Servers with the quirks of known stores, over HTTP: what `doctor --deep` says of each, and that the engine
does just that through each driver."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs

import pytest
from cli_runs import run

import snapshotter
from snapshotter.cli import check

SCHEMES = ["s3", "minio", "s3+obstore"]
Refusal = tuple[str, str]  # status line, S3 code


def ignores_conditions(environ: dict[str, Any]) -> Refusal | None:
    """As localbucket, nanio, s3rver and Garage 1 do with one or both."""
    if environ["REQUEST_METHOD"] == "PUT":
        for name in ("HTTP_IF_NONE_MATCH", "HTTP_IF_MATCH"):
            environ.pop(name, None)
    return None


def refuses_conditions(environ: dict[str, Any]) -> Refusal | None:
    """As Backblaze B2 does."""
    asked = environ["REQUEST_METHOD"] == "PUT" and {"HTTP_IF_NONE_MATCH", "HTTP_IF_MATCH"} & environ.keys()
    return ("501 Not Implemented", "NotImplemented") if asked else None


def wants_unquoted(environ: dict[str, Any]) -> Refusal | None:
    """As Ceph RGW does before its ETags are read with their quotes."""
    match = environ.get("HTTP_IF_MATCH")
    if match is None or environ["REQUEST_METHOD"] != "PUT":
        return None
    if match.startswith('"'):
        return "412 Precondition Failed", "PreconditionFailed"
    environ["HTTP_IF_MATCH"] = f'"{match}"'
    return None


def lists_as_a_directory(environ: dict[str, Any]) -> Refusal | None:
    """As S3's directory buckets do: prefixes are folders, and no listing starts after a key."""
    query = parse_qs(environ.get("QUERY_STRING", ""))
    if "list-type" not in query:
        return None
    (prefix,) = query.get("prefix", [""])
    odd = "start-after" in query or (prefix and not prefix.endswith("/"))
    return ("400 Bad Request", "InvalidRequest") if odd else None


@contextmanager
def serving(locked_moto: Any, quirk: Callable[[dict[str, Any]], Refusal | None]) -> Iterator[str]:
    """The endpoint of a server with this quirk."""

    def wrap(app: Any) -> Any:
        def quirky(environ: dict[str, Any], start_response: Any) -> Any:
            refusal = quirk(environ)
            if refusal is None:
                return app(environ, start_response)
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            body = f"<Error><Code>{refusal[1]}</Code></Error>".encode()
            start_response(
                refusal[0], [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))]
            )
            return [body]

        return quirky

    server = locked_moto.locked_server(wrap=wrap)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def works(url: str, **options: Any) -> bool:
    """Whether the engine takes a message, answers it and has it afterwards; False where it says that this is
    no store for it."""
    with snapshotter.open(url, **options) as db:
        try:
            db.send("s", "hi")
        except snapshotter.Unsupported:
            return False
        with db.boot("s") as session:
            for turn in session.turns():
                with turn:
                    turn.write({"type": "start"})
                    turn.write({"type": "text-start", "id": "t"})
                    turn.write({"type": "text-delta", "id": "t", "delta": "Hello"})
                    turn.write({"type": "text-end", "id": "t"})
                    turn.write({"type": "finish"})
        return [message["role"] for message in db.history("s")][-2:] == ["user", "assistant"]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    ("quirk", "verdict", "says"),
    [
        (ignores_conditions, "unfenced", "allow_unfenced"),
        (refuses_conditions, "refused", "refuses If-None-Match as such"),
        (wants_unquoted, "fenced", "never write over each other"),
        (lists_as_a_directory, "refused", "does not list all keys in ascending byte order"),
    ],
)
def test_a_quirk_is_found_and_the_engine_does_what_is_said(
    quirk, verdict, says, scheme, moto_server, locked_moto, monkeypatch
) -> None:
    monkeypatch.setattr(check, "_OBJECTS", 24)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", moto_server.keys.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", moto_server.keys.secret_key)
    path = f"quirks-{os.urandom(4).hex()}"
    with serving(locked_moto, quirk) as endpoint:
        # moto keeps its buckets for the process, so this one stands behind every server of it.
        url = f"{scheme}://{moto_server.bucket}/{path}?endpoint={endpoint}&region=us-east-1"
        if scheme == "minio":
            url = f"minio://{endpoint.removeprefix('http://')}/{moto_server.bucket}/{path}"
        told = run("doctor", "--deep", "--racers", "2", "--rounds", "2", "--json", url)
        found = told.json
        assert (found["verdict"], found["left"]) == (verdict, [])
        assert told.code == (0 if verdict == "fenced" else 1)
        assert says in found["why"]
        assert found["capabilities"]["etag"] == {
            "wants_unquoted": "unquoted",
            "refuses_conditions": "none",
        }.get(quirk.__name__, "as-given")
        assert works(url) is (verdict == "fenced")
        assert works(url, allow_unfenced=True) is (verdict != "refused")
        assert run("send", url, "by-hand", "Hi.").code == (0 if verdict == "fenced" else 6)
        allowed = run("--allow-unfenced", "send", url, "by-hand", "Hi again.")
        assert allowed.code == (6 if verdict == "refused" else 0)
        if verdict != "refused":
            assert run("--allow-unfenced", "rebuild", "--write", "--jobs", "1", url).code == 0
