"""An HTTP proxy before the store: it counts requests, bytes and round trips, and adds latency to each
request.

It passes on what it gets, `Host` included, so signatures hold. Only `Expect: 100-continue` is answered by
itself, as a store would: the client waits for it with the body in hand. Bytes are those of bodies. The
latency passes before a request is sent on; what a body takes to be sent is not lengthened.

A *round trip* is counted from the times: the most requests of which each began after the one before it had
been answered. Twenty requests at once are one; twenty that a pool of ten makes are two.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

_PIECE = 1 << 18
_HEAD_LIMIT = 1 << 20


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its answer: seconds of a clock that never goes back, bytes of both bodies."""

    kind: str
    began: float
    ended: float
    sent: int
    received: int


@dataclass(frozen=True, slots=True)
class Cost:
    """What some exchanges come to."""

    kinds: dict[str, int]
    sent: int
    received: int
    round_trips: int

    @property
    def requests(self) -> int:
        return sum(self.kinds.values())

    @classmethod
    def of(cls, exchanges: Sequence[Exchange]) -> Cost:
        kinds = dict(sorted(Counter(exchange.kind for exchange in exchanges).items()))
        sent, received = sum(e.sent for e in exchanges), sum(e.received for e in exchanges)
        return cls(kinds, sent, received, depth([(e.began, e.ended) for e in exchanges]))


def depth(spans: Sequence[tuple[float, float]]) -> int:
    """How many of these spans at most lie one after the other."""
    found, free = 0, float("-inf")
    for began, ended in sorted(spans, key=lambda span: span[1]):
        if began >= free:
            found, free = found + 1, ended
    return found


class Proxy:
    """Runs in a thread of its own. `latency`: seconds for each request, from now on."""

    def __init__(self, upstream: str) -> None:
        parts = urlsplit(upstream)
        self._host, self._port = parts.hostname, parts.port
        self.latency = 0.0
        self.endpoint = ""
        self._exchanges: list[Exchange] = []
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._ready = threading.Event()

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def take(self) -> Cost:
        """The cost of what went through since the last call."""
        with self._lock:
            taken, self._exchanges = self._exchanges, []
        return Cost.of(taken)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        serving = asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_HEAD_LIMIT)
        server = self._loop.run_until_complete(serving)
        self.endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _serve(self, client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        """One connection of a client, on one connection to the store."""
        store, forth = await asyncio.open_connection(self._host, self._port, limit=_HEAD_LIMIT)
        try:
            while await self._exchange(client, back, store, forth):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # either side has hung up
        finally:
            forth.close()
            back.close()

    async def _exchange(
        self,
        client: asyncio.StreamReader,
        back: asyncio.StreamWriter,
        store: asyncio.StreamReader,
        forth: asyncio.StreamWriter,
    ) -> bool:
        """One request; False when the connection ends with it."""
        first, fields, head = _parsed(await client.readuntil(b"\r\n\r\n"), without="expect")
        began = time.perf_counter()
        if self.latency:
            await asyncio.sleep(self.latency)
        if "expect" in fields:
            back.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        method, target, _ = first.split(" ", 2)
        forth.write(head)
        sent = await _body(client, forth, fields, absent="content-length" not in fields)
        sent = int(fields.get("x-amz-decoded-content-length", sent))
        status, answer, head = _parsed(await store.readuntil(b"\r\n\r\n"))
        back.write(head)
        bare = method == "HEAD" or status.split(" ", 2)[1] in ("204", "304")
        received = await _body(store, back, answer, absent=bare)
        exchange = Exchange(_kind(method, target), began, time.perf_counter(), sent, received)
        with self._lock:
            self._exchanges.append(exchange)
        return "close" not in (answer.get("connection", "").lower(), fields.get("connection", "").lower())


def _parsed(data: bytes, without: str = "") -> tuple[str, dict[str, str], bytes]:
    """First line, fields by their names in small letters, and the head as it is passed on."""
    first, *lines = data[:-4].decode("latin-1").split("\r\n")
    kept, fields = [first], {}
    for line in lines:
        name, _, value = line.partition(":")
        fields[name.lower()] = value.strip()
        if name.lower() != without:
            kept.append(line)
    return first, fields, "\r\n".join([*kept, "", ""]).encode("latin-1")


async def _body(
    source: asyncio.StreamReader, sink: asyncio.StreamWriter, fields: dict[str, str], *, absent: bool
) -> int:
    """Pass a body on; its bytes. Without a length, and not in chunks, it is what comes until the end."""
    size = 0
    if fields.get("transfer-encoding", "").lower() == "chunked":
        while True:
            line = await source.readuntil(b"\r\n")
            length = int(line.split(b";")[0], 16)
            sink.write(line + await source.readexactly(length + 2))
            await sink.drain()
            size += length
            if not length:
                return size
    if absent:
        return 0
    left = int(fields["content-length"]) if "content-length" in fields else None
    while left is None or size < left:
        data = await source.read(_PIECE if left is None else min(_PIECE, left - size))
        if not data:
            break
        sink.write(data)
        await sink.drain()
        size += len(data)
    await sink.drain()
    return size


def _kind(method: str, target: str) -> str:
    """PUT, GET, HEAD …; LIST for a GET of the bucket itself."""
    path = urlsplit(target).path.strip("/")
    return "LIST" if method == "GET" and "/" not in path else method
