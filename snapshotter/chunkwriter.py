"""Chunks on their way into the log: checked, applied to the fold, buffered.

Nearly all chunks are plain deltas of an open part and take a short way. The others are cleaned, checked
against the stream's rules and the size limit before anything changes, so that a refused chunk leaves the
turn as it was.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from streams.errors import InvalidValue
from streams.packing import Carry
from streams.records import LIMIT
from streams.writer import Flush

from .core.chunks import (
    DELTAS,
    FINISH_REASONS,
    FLUSH_POINTS,
    ChunkError,
    fields_of,
    is_end_marker,
    is_urgent,
    validate,
)
from .core.copies import own
from .core.values import clean, reason_text, to_plain
from .values import encoded

if TYPE_CHECKING:
    from .session import Session

Chunk = dict[str, Any]

_LONG_DELTA = 65_536  # characters; a longer one goes the careful way, whose size is checked first
_PIECE = LIMIT // 8  # characters, which take six bytes each at most
_EXTRA = ("file", "source-", "data-")
_RESULTS = frozenset({"tool-output-available", "tool-output-error", "tool-output-denied"})
_TEXT_ENDS = frozenset({"text-end", "reasoning-end"})
_INPUT_ENDS = frozenset({"tool-input-available", "tool-input-error"})
_STREAM_ENDS = _TEXT_ENDS | _INPUT_ENDS | {"finish-step", "finish"}


class ChunkWriter:
    """Writes the chunks of one turn. `streaming`: a text grows; `calls`: the tool calls at work; `idle`:
    seconds since the last chunk; `written`: chunks that it was given, without end markers; `dropped`: those
    that only repeated what was settled."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._carry = Carry()
        self._last = session.clock.monotonic()
        self.calls: set[str] = set()
        self.streaming = False
        self.written = 0
        self.dropped = 0

    @property
    def idle(self) -> float:
        return self._session.clock.monotonic() - self._last

    def write(self, chunk: Any) -> tuple[Chunk | None, bool]:
        """Write one chunk; (the chunk to forward, whether it has to be flushed before anything goes on)."""
        self.written += 1
        if type(chunk) is dict and len(chunk) == 3:
            kind = chunk.get("type")
            names = DELTAS.get(kind) if type(kind) is str else None
            if names is not None:
                part, text = chunk.get(names[0]), chunk.get(names[1])
                if type(part) is str and type(text) is str and len(text) < _LONG_DELTA:
                    written = self._write_delta(chunk, (kind, part), names[1], text)
                    if written is not None:
                        return written, False
        return self._write_other(chunk)

    def is_large(self, chunk: Any) -> bool:
        """True for a chunk that is stored apart, which takes a request of its own."""
        if (
            type(chunk) is dict
            and sum(map(len, filter(_is_text, chunk.values()))) > self._session.sizes.value
        ):
            return True
        kind = chunk.get("type") if type(chunk) is dict else None
        if type(kind) is str and kind in DELTAS:
            return False
        try:
            return len(encoded(to_plain(chunk))) > self._session.sizes.value
        except InvalidValue:
            return False  # refused before anything is written

    def end_all_halves(self) -> None:
        """At the turn's end: what halves of surrogate pairs are left."""
        for part in self._carry.parts:
            delta, ident = str(part[0]), part[1]  # type: ignore[index]
            names = DELTAS[delta]
            self._end_half((delta, ident), {"type": delta, names[0]: ident}, names[1])

    def _write_delta(self, chunk: Chunk, part: tuple[Any, str], name: str, text: str) -> Chunk | None:
        """The hot path: a plain delta of an open part. None: it is not one, and nothing was done."""
        turn = self._session.fold.open
        assert turn is not None
        if not turn.acc.takes(chunk):
            return None
        mended = self._carry.delta(part, text)
        if mended is not text:
            chunk = {**chunk, name: mended}
        self._session.fold.chunk(0, chunk)
        self.streaming = True
        self._session.writer.append({"chunk": chunk})
        self._last = self._session.clock.monotonic()
        return chunk

    def _write_other(self, chunk: Any) -> tuple[Chunk | None, bool]:
        if is_end_marker(chunk) or is_end_marker(plain := _plain(chunk)):
            self.written -= 1
            return None, False
        chunk = _known_reason(clean(plain))
        session, turn = self._session, self._session.fold.open
        assert turn is not None
        validate(chunk, self.written - 1)  # before anything below looks into it
        kind = chunk["type"]
        number, given = session.writer.next_id, chunk.get("messageId")
        if kind == "start":
            chunk = {**chunk, "messageId": session.fold.start_id(chunk, number)}
        body, large = session.stored({"chunk": chunk})  # too large: before anything changes
        self._end_halves(kind, chunk)
        turn.acc.at = self.written - 2  # what it refuses is named by its place among those written, too
        if not session.fold.chunk(number, own(chunk)):  # what the caller has may be changed by its model loop
            self.dropped += 1
            return None, False
        if kind == "start" and given:
            turn.alias[given] = chunk["messageId"]
        self._note(kind, chunk)
        barrier = kind in FLUSH_POINTS or (kind in _RESULTS and chunk.get("preliminary") is not True)
        soon = barrier or is_urgent(chunk) or (kind == "finish-step" and session.durability == "steps")
        # What ends the stream is nearly always followed by the turn's end at once: one segment for both.
        flush = Flush.BRIEF if kind in ("finish", "abort") else Flush.SOON if soon else Flush.LATER
        session.writer.append(body, flush=Flush.NOW if large else flush)
        session.confirm(large)
        self._last = session.clock.monotonic()
        return chunk, barrier

    def _end_halves(self, kind: str, chunk: Chunk) -> None:
        """Half a surrogate pair that never found its other half is stored before its part ends, and before a
        delta that is not a plain one. A reset-step takes it away with its part."""
        if kind == "reset-step":
            self._carry = Carry()
        elif kind in DELTAS:
            name, field = DELTAS[kind]
            self._end_half((kind, chunk[name]), {"type": kind, name: chunk[name]}, field)
        elif kind in _TEXT_ENDS:
            delta = kind.replace("-end", "-delta")
            self._end_half((delta, chunk.get("id")), {"type": delta, "id": chunk.get("id")}, "delta")
        elif kind in _INPUT_ENDS:
            call, delta = chunk.get("toolCallId"), "tool-input-delta"
            self._end_half((delta, call), {"type": delta, "toolCallId": call}, "inputTextDelta")

    def _end_half(self, part: tuple[str, Any], body: Chunk, name: str) -> None:
        tail = self._carry.end(part)
        with suppress(ChunkError):  # its part may be gone: another message has begun
            if tail and self._session.fold.chunk(0, {**body, name: tail}):
                self._session.writer.append({"chunk": {**body, name: tail}})

    def _note(self, kind: Any, chunk: Chunk) -> None:
        """What the lease and the watcher want to know: does text stream, is a tool at work."""
        if kind in _STREAM_ENDS:
            self.streaming = False
        elif kind in ("text-start", "reasoning-start", "tool-input-start"):
            self.streaming = True
        if kind == "tool-input-available":
            self.calls.add(chunk["toolCallId"])
        elif kind in _RESULTS and chunk.get("preliminary") is not True:
            self.calls.discard(chunk["toolCallId"])


def _is_text(value: Any) -> bool:
    return type(value) is str


def _plain(chunk: Any) -> Chunk:
    if isinstance(chunk, str):
        raise InvalidValue("a chunk is a dict or a model, not a str; `text_chunks(…)` makes chunks of texts")
    return to_plain(chunk)


def _known_reason(chunk: Chunk) -> Chunk:
    """Older SDKs and other emitters end with reasons of their own (`unknown`, `end_turn`). A client of today
    refuses those, and a paid answer must not be lost to its last chunk: they count as `other`."""
    reason = chunk.get("finishReason")
    if chunk.get("type") == "finish" and isinstance(reason, str) and reason not in FINISH_REASONS:
        return {**chunk, "finishReason": "other"}
    return chunk


def is_unknown(chunk: Any) -> bool:
    """True for a chunk of a type that this version does not know."""
    kind = _field(chunk, "type")
    return isinstance(kind, str) and fields_of(kind) is None


def is_progress(chunk: Any) -> bool:
    """True for what a tool shows before its result."""
    return _field(chunk, "type") == "tool-output-available" and _field(chunk, "preliminary") is True


def is_extra(chunk: Any) -> bool:
    """True for what stands by itself in an answer: nothing else of the stream rests on it."""
    return str(_field(chunk, "type")).startswith(_EXTRA)


def in_pieces(chunk: Any) -> list[Chunk]:
    """A delta whose text is too long, as several; nothing for any other chunk."""
    plain = to_plain(chunk)
    name = DELTAS.get(str(plain.get("type")), ("", ""))[1]
    text = plain.get(name)
    if type(text) is not str or len(text) <= _PIECE:
        return []
    return [{**plain, name: text[at : at + _PIECE]} for at in range(0, len(text), _PIECE)]


def _field(chunk: Any, name: str) -> Any:
    return chunk.get(name) if isinstance(chunk, dict) else getattr(chunk, name, None)


def storable(chunk: Any, error: Exception) -> Chunk | None:
    """What stands for a chunk that cannot be stored, in a stream that is passed on: a tool's result becomes
    an error that says why, so that the call is settled and never run again; of an error its text is kept, up
    to 8 KiB. None where nothing can."""
    kind = _field(chunk, "type")
    if kind not in ("tool-output-available", "tool-output-error") or isinstance(error, ChunkError):
        return None
    plain = to_plain(chunk)
    said = f"the tool ran, but its result cannot be stored: {error}"
    text = said if kind == "tool-output-available" else plain.get("errorText", "")
    return {
        "type": "tool-output-error",
        "toolCallId": plain.get("toolCallId"),
        "errorText": reason_text(text),
    }
