"""Histories as tables: one row a message, one row a session, for DuckDB, polars, or whatever reads Parquet.

    <dest>/messages/part-<name>.jsonl       or .parquet
    <dest>/sessions/part-<name>.jsonl

A task writes one part of each table, named after its sessions, or several where that were too large. So a
task that is done again writes over its own parts, and no row is there twice. Another run cuts its tasks
otherwise, so a new one begins in a place without parts (`check_unused`). `dest` is a store of its own (any
URL that can be opened, a folder most often), never in the root that is read, by whatever scheme or path it
is named (`check_apart`).

The columns are those of the two schemas below; docs/rebuild.md says what each means. What has no fixed
shape (parts, metadata, state) is JSON text. Times are UTC: timestamps in Parquet, ISO 8601 in JSON lines.

Memory: the rows of one part, encoded, 32 MiB of them at most: JSON lines as they are, Parquet compressed,
with the rows of one group beside it.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

import orjson

from snapshotter.comparing import Side
from snapshotter.core.calls import Message, parts_of
from snapshotter.core.revive import revive
from streams.buckets.url import open_bucket
from streams.clock import SystemClock
from streams.errors import InvalidValue, Misconfigured, Refused
from streams.store import Store

from .results import Format, Result

Row = dict[str, Any]

MESSAGES = ("session", "position", "id", "role", "text", "tools", "parts", "metadata", "unfinished")
SESSIONS = (
    "session",
    "turn",
    "status",
    "finish_reason",
    "messages",
    "open",
    "resume",
    "owed",
    "closed",
    "epoch",
    "cursor",
    "inputs",
    "base",
    "last_at",
    "state",
)
TABLES = ("messages", "sessions")

_ROW_GROUP = 10_000
_GROUP_BYTES = 8 * 1024 * 1024
_PART_BYTES = 32 * 1024 * 1024


def check_apart(root: str, dest: str) -> None:
    """Raise Refused where an export to `dest` would write into the root; both are store URLs. Raises what
    opening `dest` does, but Misconfigured: drivers and keys may be those of the tasks' processes alone."""
    with suppress(Misconfigured):
        bucket = open_bucket(dest)
        dest = bucket.url
        bucket.close()
    store, path = _place(root)
    other, into = _place(dest)
    inside = into[: len(path)] == path or path[: len(into) + 1] in [(*into, table) for table in TABLES]
    if store == other and inside:
        raise Refused(f"an export to {dest} would be written into the root {root}: name a place beside it")


def check_unused(dest: str) -> None:
    """Raise Refused where parts stand at `dest`: sessions would be there twice beside those of this run.
    Raises what listing does, but Misconfigured, as `check_apart`."""
    with suppress(Misconfigured):
        clock = SystemClock()
        store = Store(open_bucket(dest, clock=clock), clock)
        try:
            there = [table for table in TABLES if store.list(f"{table}/part-", limit=1).entries]
        finally:
            store.close()
        if there:
            raise Refused(
                f"{dest} holds parts of an export already ({', '.join(there)}): name another place, remove "
                "them, or resume the journal of the run that wrote them"
            )


def tidy(dest: str) -> None:
    """Where `dest` is a folder that holds nothing but an export, remove the lock files that its bucket left
    there. It makes them anew where it needs them, and nobody else writes these parts."""
    parts = urlsplit(dest)
    folder = Path(unquote(parts.path))
    with suppress(OSError):  # housekeeping; the folder may be another machine's
        if parts.scheme == "file" and {path.name for path in folder.iterdir()} == {".snapshotter", *TABLES}:
            for lock in folder.glob(".snapshotter/*.lock"):
                lock.unlink()
            (folder / ".snapshotter").rmdir()


def _place(url: str) -> tuple[str, tuple[str, ...]]:
    """The store that a URL names, and the path in it. One bucket is one store, whichever driver opens it."""
    parts = urlsplit(url)
    path = parts.path
    if parts.scheme == "file":
        return "file", Path(unquote(path)).resolve().parts
    if parts.scheme == "memory":
        return f"memory {parts.netloc}", tuple(filter(None, path.split("/")))
    host = parts.netloc
    if parts.scheme != "minio":
        host, path = urlsplit(dict(parse_qsl(parts.query)).get("endpoint", "")).netloc, f"{host}/{path}"
    found = urlsplit(f"//{host}")
    name = "localhost" if found.hostname in ("127.0.0.1", "::1") else found.hostname or "amazonaws.com"
    name = "amazonaws.com" if name.endswith(".amazonaws.com") else name
    port = "" if found.port in (None, 80, 443) else f":{found.port}"
    return f"{name}{port}", tuple(filter(None, path.split("/")))


class _Part(Protocol):
    """The rows of one table of one task."""

    def add(self, row: Row) -> None: ...
    def size(self) -> int: ...
    def data(self) -> bytes: ...


class Export:
    """The parts that one task writes, of two tables. Raises Misconfigured where pyarrow is needed and not
    installed."""

    def __init__(self, dest: str, kind: Format, sessions: Sequence[str]) -> None:
        self._dest = dest
        self._kind = kind
        self._name = hashlib.sha256(orjson.dumps(list(sessions))).hexdigest()[:16]
        self._part: Callable[[str], _Part] = _Lines if kind == "jsonl" else _parquet()
        self._parts: dict[str, _Part] = {table: self._part(table) for table in TABLES}
        self._written = dict.fromkeys(TABLES, 0)

    def add(self, side: Side, result: Result) -> None:
        """The rows of one session, as it stands. Raises InvalidValue, and what writing a part does."""
        plan = side.ask(revive)
        fold = side.fold

        def rows() -> Iterator[Row]:
            unfinished = set(fold.unfinished)
            messages = enumerate(side.messages(plan.messages))
            return (_message(result.session, n, m, unfinished) for n, m in messages)

        # What cannot be told of a session shows before any of it is. A short one's rows are made once.
        made = None if fold.chain.partial else list(rows())
        count = len(made) if made is not None else sum(1 for _ in rows())
        last = fold.last_turn or {}
        row = {
            "session": result.session,
            "turn": fold.turn,
            "status": last.get("status"),
            "finish_reason": _text(last.get("finishReason")),
            "messages": count,
            "open": fold.open is not None,
            "resume": plan.resume.kind,
            "owed": len(plan.pending),
            "closed": fold.closed,
            "epoch": fold.epoch,
            "cursor": result.cursor,
            "inputs": result.inputs,
            "base": result.base,
            "last_at": _time(fold.timestamp),
            "state": _json(fold.state),
        }
        for own in rows() if made is None else made:
            self._parts["messages"].add(own)
            if self._parts["messages"].size() >= _PART_BYTES:
                with self._opened() as store:
                    self._put(store, "messages")
        self._parts["sessions"].add(row)

    def write(self) -> None:
        """Write what is left of both, over the parts of an earlier attempt."""
        with self._opened() as store:
            for table in TABLES:
                self._put(store, table)
                more = f"{table}/part-{self._name}-"
                own = {self._key(table, number) for number in range(self._written[table])}
                for entry in list(store.entries(more)):
                    if entry.key not in own:
                        store.delete(entry.key)

    def _put(self, store: Store, table: str) -> None:
        key = self._key(table, self._written[table])
        store.put(key, self._parts[table].data(), nonce=store.clock.token())
        self._written[table] += 1
        self._parts[table] = self._part(table)

    def _key(self, table: str, number: int) -> str:
        return f"{table}/part-{self._name}{f'-{number + 1}' if number else ''}.{self._kind}"

    @contextmanager
    def _opened(self) -> Iterator[Store]:
        clock = SystemClock()
        store = Store(open_bucket(self._dest, clock=clock), clock)
        try:
            yield store
        finally:
            store.close()


def _message(session: str, position: int, message: Message, unfinished: set[str]) -> Row:
    parts = parts_of(message)
    return {
        "session": session,
        "position": position,
        "id": _text(message.get("id")),
        "role": _text(message.get("role")),
        "text": "".join(part["text"] for part in parts if _is_text(part)),
        "tools": [name for part in parts if (name := _tool(part)) is not None],
        "parts": _json(message.get("parts")),
        "metadata": None if message.get("metadata") is None else _json(message["metadata"]),
        "unfinished": message.get("id") in unfinished,
    }


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)


def _tool(part: Any) -> str | None:
    """The name of the tool that a part calls."""
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "dynamic-tool":
        return _text(part.get("toolName"))
    return kind.removeprefix("tool-") if isinstance(kind, str) and kind.startswith("tool-") else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _time(epoch_ms: int) -> datetime | None:
    """None where no record told a time, or one that no calendar has."""
    try:
        return datetime.fromtimestamp(epoch_ms / 1000, UTC) if epoch_ms > 0 else None
    except (OverflowError, ValueError, OSError):
        return None


def _json(value: Any) -> str:
    """JSON text, also of what only a wider library takes: what another writer left may nest deeply. Raises
    InvalidValue for what nests too deeply for both."""
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError:
        pass
    try:
        return json.dumps(value, separators=(",", ":"))
    except RecursionError:
        raise InvalidValue("a message nests too deeply to be exported") from None


class _Lines:
    """JSON lines."""

    def __init__(self, _table: str) -> None:
        self._file = io.BytesIO()

    def add(self, row: Row) -> None:
        self._file.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_UTC_Z))

    def size(self) -> int:
        return self._file.tell()

    def data(self) -> bytes:
        return self._file.getvalue()


def _parquet() -> Callable[[str], _Part]:
    """The writer of Parquet parts. pyarrow is imported by whoever asks for it."""
    try:
        pa, pq = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ModuleNotFoundError as error:
        raise Misconfigured("an export as Parquet needs pyarrow: pip install pyarrow") from error
    kinds = {
        **dict.fromkeys(("position", "messages", "turn", "owed", "epoch", "cursor", "inputs"), pa.int64()),
        **dict.fromkeys(("unfinished", "open", "closed"), pa.bool_()),
        "tools": pa.list_(pa.string()),
        "last_at": pa.timestamp("ms", tz="UTC"),
    }
    columns = {"messages": MESSAGES, "sessions": SESSIONS}

    class Parquet:
        def __init__(self, table: str) -> None:
            fields = [(name, kinds.get(name, pa.string())) for name in columns[table]]
            self._schema = pa.schema(fields)
            self._file = io.BytesIO()
            self._writer = pq.ParquetWriter(self._file, self._schema, compression="zstd")
            self._waiting: list[Row] = []
            self._bytes = 0

        def add(self, row: Row) -> None:
            self._waiting.append(row)
            self._bytes += len(row.get("parts") or "")
            if len(self._waiting) >= _ROW_GROUP or self._bytes >= _GROUP_BYTES:
                self._flush()

        def _flush(self) -> None:
            self._writer.write_table(pa.Table.from_pylist(self._waiting, schema=self._schema))
            self._waiting, self._bytes = [], 0

        def size(self) -> int:
            return self._file.tell()

        def data(self) -> bytes:
            self._flush()
            self._writer.close()
            return self._file.getvalue()

    return Parquet
