"""The frozen values that logs are made of, and the limits they keep.

A record itself stays a plain JSON dict on the hot path: `{"id", "ts", …}` with one of `chunk` or
`control` (out log) or `kind` (in log). Millions of them pass through a rebuild; a class of their own would
cost more than everything else that is done with them. What stands around them is frozen here; segments and
their headers are tuples, which are made in a third of the time: a rebuild makes hundreds of thousands.

Order comes from ids alone. `ts` (epoch milliseconds) is carried and never sorted by.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from streams.keys import Log

VERSION = 1
"""The version of the segment format that this release writes, and the newest that it reads."""

LIMIT = 1_048_576
"""Most bytes of one encoded record, its line end not counted. At the limit is accepted."""

MAX_SEGMENT = 64 * 1024 * 1024
"""Most bytes of one segment. A larger object is not ours, and reading it could exhaust the memory."""

MAX_BATCH = MAX_SEGMENT // 2
"""Most bytes of records that have to share a segment. What else is buffered still fits beside them."""

Record = dict[str, Any]


class Header(NamedTuple):
    """A segment's first line. In segments have no `epoch`, `run`, `prev`, `lease` (seconds)."""

    v: int
    log: Log
    first: int
    last: int
    nonce: str
    crc: int
    epoch: int | None = None
    run: str | None = None
    prev: str | None = None
    lease: int | None = None


class Segment(NamedTuple):
    """A decoded segment. `records` are as stored (packed runs stay packed); treat them as frozen.

    `modified_ms` is the store's date of the object, epoch milliseconds, None where it does not tell.
    """

    header: Header
    records: list[Record]
    key: str = ""
    modified_ms: int | None = None
    size: int = 0


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in a log: the last id read, and the nonce of the segment it ends.

    `Cursor(0)` stands before the first record. Where the nonce is not known (""), the next segment's
    `prev` is not checked. `first` is that segment's first id, 0 where it is not known; a place is the same
    with it and without.
    """

    id: int = 0
    nonce: str = ""
    first: int = field(default=0, compare=False)
