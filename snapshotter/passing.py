"""Streams that a turn passes on: each chunk of a model is written, and handed to the caller.

The caller waits for the model under the eye of the turn's watcher, which can end that wait: when the turn is
stopped, when its deadline comes, when the model stalls. How far each stream has come decides how the turn
ends: an answer of which nobody read the end is not a complete one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from types import TracebackType
from typing import Any

from streams.errors import InvalidValue, TooLarge

from .chunkwriter import Chunk, in_pieces, is_extra, is_progress, is_unknown, storable
from .core.chunks import ChunkError
from .core.values import to_plain
from .errors import Deadline, Stalled
from .turnfacts import TurnFacts
from .watchdog import close_quietly, stalled

_END = object()
MADE, BEGUN, FAILED, DONE = "made", "begun", "failed", "done"


def too_late() -> Deadline:
    """The error for a turn whose deadline has come."""
    return Deadline("the deadline has passed; the turn was released")


class Stream:
    """How far one stream has come: made, begun (and left there, where its turn ends), failed by an error that
    its reader saw, or done. Used with `with` while it is read."""

    def __init__(self) -> None:
        self.state = MADE

    def __enter__(self) -> None:
        self.state = BEGUN

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.state = DONE
        elif issubclass(kind, Exception):
            self.state = FAILED


class Passing(TurnFacts):
    """The side of a `Turn` that passes streams on."""

    _error: BaseException | None

    def __init__(self) -> None:
        self._streams: list[Stream] = []
        self._interrupt: Callable[[], object] | None = None
        self._on_stop = False
        self._pull_began = 0.0

    @abstractmethod
    def write_nowait(self, chunk: Any) -> tuple[Chunk | None, bool]: ...

    @abstractmethod
    def release(self, why: str = "cancelled", error: BaseException | str | None = None) -> None: ...

    def tee(self, chunks: Iterable[Any]) -> Generator[Chunk, None, None]:
        """Write each chunk and hand it on, for the caller to forward: as a dict, also where a pydantic model
        was given, since it may have changed (a `start` bears the turn's message id). An end marker is not
        handed on. Ends early when the turn is stopped; the source is closed in any case.

        A stream that was paid for is not thrown away for one odd chunk: one of a type that is not known yet,
        and a file, a source, data or progress of a tool (`preliminary`) that cannot be stored (too large, no
        JSON), are handed on and not stored; a tool's result that cannot be stored becomes an error of that
        call, and an error whose text is too long is cut. All of it is reported. A delta that is too long is
        stored as several. Everything else raises as `write` does.

        A plain iterable that blocks cannot be interrupted: the deadline releases the turn for others at once,
        but a stop, and this loop, wait until the source says something. An async one (`AsyncTurn.tee`) is
        cancelled.

        A stream that is left before its end makes the turn end as aborted; so does one that failed, unless
        another one was begun in its place. One that was never begun when the block is left releases the turn,
        and leaving raises Refused.
        """
        return self._tee(chunks, self.new_stream())

    def new_stream(self) -> Stream:
        """A further stream is passed on; it stands in the place of one that failed."""
        self._streams = [stream for stream in self._streams if stream.state != FAILED]
        self._streams.append(Stream())
        return self._streams[-1]

    def _tee(self, chunks: Iterable[Any], stream: Stream) -> Generator[Chunk, None, None]:
        with stream:
            try:
                source = iter(chunks)
                while (chunk := self._pull(source, chunks)) is not _END and not self.stopped:
                    out, barrier = self.pass_on(chunk)
                    if barrier:
                        self._session.writer.flush()
                    if out is not None:
                        yield out
            finally:
                close = getattr(chunks, "close", None)
                if close is not None:
                    close()

    def pass_on(self, chunk: Any) -> tuple[Chunk | None, bool]:
        """As `write_nowait`, for a stream that is passed on: see `tee`."""
        try:
            return self.write_nowait(chunk)
        except (ChunkError, TooLarge, InvalidValue) as error:
            broken = isinstance(error, ChunkError)  # else it is sound, and cannot be stored
            if isinstance(error, TooLarge) and (pieces := in_pieces(chunk)):
                barriers = [self.write_nowait(piece)[1] for piece in pieces]
                return to_plain(chunk), any(barriers)
            if is_unknown(chunk) or (not broken and (is_progress(chunk) or is_extra(chunk))):
                what = "progress" if is_progress(chunk) else "chunk"
                code = "unknown-chunk" if is_unknown(chunk) else f"{what}-not-stored"
                self._session.note(code, f"{error}; handed on, not stored")
                return to_plain(chunk), False
            instead = storable(chunk, error)
            if instead is None:
                raise
            self._session.note("result-not-stored", str(error))
            return self.write_nowait(instead)

    # -- waiting for the model ----------------------------------------------------------------------

    def _pull(self, source: Iterator[Any], chunks: Any) -> Any:
        """The source's next chunk, or _END, under the eye of the watcher. Raises Stalled, Deadline."""
        try:
            self.begin_pull(partial(close_quietly, chunks))
            return _END if self.stopped else next(source, _END)
        finally:
            self.end_pull()

    def begin_pull(self, interrupt: Callable[[], object], *, on_stop: bool = False) -> None:
        """From now on the caller waits for the model; `interrupt` ends that where it can be ended. `on_stop`:
        also when the turn is stopped, since nothing that may still come is lost by it. Whoever pulls looks at
        `stopped` after this: a stop that came just before interrupts nothing."""
        self._pull_began, self._on_stop = self._session.clock.monotonic(), on_stop
        self._interrupt = interrupt

    def end_pull(self) -> None:
        """The model has said something. Raises Stalled or Deadline when that was too late."""
        self._interrupt = None
        if isinstance(self._error, Stalled | Deadline):
            raise self._error

    def stalls(self) -> bool:
        """For the watcher: True when the model has been silent for too long, and nothing is at work. The turn
        is released then, and the stream closed."""
        timeout = self._session.recovery.stall_timeout
        if timeout <= 0 or self._interrupt is None or self.at_work:
            return False
        if self._session.clock.monotonic() - self._pull_began <= timeout:
            return False
        self._break_off("stall", stalled(timeout))
        return True

    def expire(self) -> None:
        """For the watcher: the deadline has come."""
        self._break_off("deadline", too_late())

    def stop_pull(self) -> None:
        """For the watcher: a stop has come; the wait for the model ends."""
        interrupt = self._interrupt
        if interrupt is not None and self._on_stop:
            interrupt()

    def _break_off(self, why: str, error: Stalled | Deadline) -> None:
        """Release the turn, and end the wait for the model, which raises the error then."""
        interrupt = self._interrupt
        if interrupt is not None and not self._ended:
            self._error = error
            interrupt()
        self.release(why, error)
