"""The small Protocol behind which every store stands.

A bucket does one request per call and never retries: retries, deadlines and the resolution of
unanswered writes belong to `streams.store`, because a driver that re-sends a conditional write
reports its own success as a lost race.

The contract, which the shipped conformance suite checks for every backend:

* Keys are relative to the URL's path, of the safe alphabet that `streams.keys` builds.
* `get` and `head` return None for "no such key" and for nothing else.
* `put(if_absent=True)`: of any number of racing callers exactly one succeeds; the others get
  PreconditionFailed. `put(if_match=etag)` replaces only the version with this ETag; an absent key or
  another version is PreconditionFailed. Without either it overwrites (allowed for the probe alone).
* A successful put is durable and visible to every later call.
* `copy`, where `copies` says that there is one, is such a create, of the version of the source that has the
  ETag given: it makes the same bytes and the same nonce, or it changes nothing. So one that lands late can
  do no more than what was asked for.
* `list` shows keys in ascending byte order, strictly after `after`, at most `limit` of them.
* A request whose outcome is not known (time-out, cut connection, 409, 5xx, a short body) raises
  Unreachable; a request to slow down raises Throttled.
* ETags are opaque strings: what `get`, `head`, `list` or `put` returned is what `if_match` takes.
* Safe to share between threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from streams.errors import Corrupt


@dataclass(frozen=True, slots=True)
class Blob:
    """An object as read. Times are the store's, epoch milliseconds; None where it does not tell."""

    data: bytes
    etag: str
    nonce: str | None
    modified_ms: int | None
    date_ms: int | None


class Broken(Blob):
    """An object whose bytes are not to be believed: whoever asks for them gets the `problem` raised. It waits
    until then, so that each reader takes it as any other object that it cannot decode: goes on without it,
    tells it, or replaces it under its ETag."""

    __slots__ = ("problem",)
    problem: Corrupt

    def __init__(self, problem: Corrupt, read: Blob) -> None:
        super().__init__(b"", read.etag, read.nonce, read.modified_ms, read.date_ms)
        object.__setattr__(self, "problem", problem)

    def __repr__(self) -> str:
        return f"<Broken: {self.problem}>"

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__("problem" if name == "data" else name)
        if name == "data":
            raise found
        return found


@dataclass(frozen=True, slots=True)
class Head:
    """An object's metadata as read."""

    size: int
    etag: str
    nonce: str | None
    modified_ms: int | None
    date_ms: int | None


@dataclass(frozen=True, slots=True)
class Written:
    """A successful put: the new ETag and the store's date of the answer (epoch ms, None if not told)."""

    etag: str
    date_ms: int | None


@dataclass(frozen=True, slots=True)
class Entry:
    """One listed object. `modified_ms` has the store's resolution, often whole seconds."""

    key: str
    size: int
    etag: str
    modified_ms: int | None


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a listing. `more`: ask again with `after` = `resume`."""

    entries: tuple[Entry, ...]
    more: bool
    resume: str
    date_ms: int | None


class Bucket(Protocol):
    """One root in one store."""

    @property
    def url(self) -> str:
        """The URL as a person may see it: no secret in it."""
        ...

    @property
    def room(self) -> int:
        """Longest key, in bytes, that may still be appended to this root."""
        ...

    @property
    def trusted(self) -> bool:
        """True where conditional writes are known to hold (memory, file, AWS), so no probe is needed."""
        ...

    @property
    def copies(self) -> bool:
        """True where `copy` may be asked for. Where the bucket is `trusted` it is known to be a create; else
        the probe has to find that."""
        ...

    def get(self, key: str) -> Blob | None: ...

    def head(self, key: str) -> Head | None: ...

    def put(
        self,
        key: str,
        data: bytes,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        nonce: str = "",
    ) -> Written:
        """Write the object. `nonce` travels as object metadata and comes back from `get` and `head`."""
        ...

    def copy(self, source: str, key: str, etag: str) -> bool:
        """Create `key` with what stands at `source`, whose bytes do not come this way; False where nothing
        stands there. Raises PreconditionFailed where `key` is taken, or the source is not the version `etag`;
        Unsupported where the bucket does not copy."""
        ...

    def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Page: ...

    def delete(self, key: str) -> None:
        """Delete the object; deleting an absent key is no error."""
        ...

    def close(self) -> None: ...
