"""What a rebuild is asked for, and what it tells: plain values that travel between processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import orjson

from snapshotter.core.blocks import DEFAULT, Sizes
from snapshotter.sameness import ABSENT, Difference

Mode = Literal["compare", "write", "export"]
Format = Literal["jsonl", "parquet"]

MODES: tuple[Mode, ...] = ("compare", "write", "export")
FORMATS: tuple[Format, ...] = ("jsonl", "parquet")

STATUSES = (
    *("same", "different", "written", "exported", "newer", "unsaved"),
    *("unchecked", "hydrated", "deleted", "absent", "failed"),
)
PROBLEMS = ("different", "failed", "absent")

LISTED = 200
"""Differences of one session that are told one by one; the others are counted."""
_LONGEST = 200  # characters of a value that a difference shows


@dataclass(frozen=True, slots=True)
class Options:
    """What each task of one run is told.

    `until_ms`: the run's cut-off by the store's clock (epoch ms): of each log only what was durable then
    counts. `replace_unreadable`: a stored snapshot that cannot be read is written over, too. `dest`: a store
    URL, where `mode` is export. `sizes`: of what is written (see `core.blocks`). `allow_unfenced`: as of
    `open`.
    """

    mode: Mode = "compare"
    until_ms: int | None = None
    replace_unreadable: bool = False
    format: Format = "jsonl"
    dest: str = ""
    sizes: Sizes = DEFAULT
    allow_unfenced: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one session.

    `status`
        same        what is stored is what the logs give (of `write`: nothing had to be written)
        different   it is not; `differences` says where (the first 200), `different` how many there are
        written     the snapshot was written back (`different` counts what it mended at the same place)
        exported    its rows were written
        newer       a newer snapshot stands there than this rebuild came to; it was left
        unsaved     there is no snapshot, and no turn has ended of which there should be one (`write`), or
                    none was saved yet (`compare`)
        unchecked   the snapshot is older than what the logs begin with, a checkpoint or a deletion
        hydrated    somebody else owns the history; nothing is compared or written
        deleted     a tombstone stands there
        absent      nothing at all is stored of it
        failed      `error` (a code word) and `detail` say why

    `base`: `first` where the logs were read from their first record, `deletion` where they begin with the
    session's deletion, else `checkpoint`. `cursor`: the out id that was rebuilt up to, `inputs` the newest
    input read, `stored` the snapshot's cursor, None where there was none. `bytes` and `requests` are what
    this cost, both ways. `replaceable`: of one that failed, its snapshot alone is at fault, and its logs are
    whole: `write` with `replace_unreadable` replaces it.
    """

    session: str
    status: str
    base: str = "first"
    cursor: int = 0
    inputs: int = 0
    stored: int | None = None
    turns: int = 0
    messages: int = 0
    segments: int = 0
    records: int = 0
    bytes: int = 0
    requests: int = 0
    different: int = 0
    differences: tuple[dict[str, Any], ...] = ()
    error: str = ""
    detail: str = ""
    replaceable: bool = False

    @property
    def ok(self) -> bool:
        return self.status not in PROBLEMS

    def to_json(self) -> dict[str, Any]:
        """All that says something, as JSON."""
        found = {
            name: value
            for name, value in asdict(self).items()
            if value not in ("", (), None) and value is not False
        }
        return {**found, "differences": list(self.differences)} if self.differences else found

    @classmethod
    def of(cls, row: Any) -> Result:
        """From what `to_json` made. Raises ValueError for anything else."""
        whole = isinstance(row, dict) and {"session", "status"} <= row.keys()
        if not whole or any(type(value) is not _KINDS.get(name) for name, value in row.items()):
            raise ValueError("no result of a session")
        told = row.get("differences", [])
        known = row["status"] in STATUSES and (row["status"] == "failed") == ("error" in row)
        if not known or not all(isinstance(one, dict) and isinstance(one.get("path"), str) for one in told):
            raise ValueError("no result of a session")
        return cls(**{**row, "differences": tuple(told)})


_KINDS = {name: type(value) for name, value in asdict(Result("", "", stored=0)).items()}
_KINDS["differences"] = list


_SUMMED = ("turns", "messages", "segments", "records", "bytes", "requests", "different")


@dataclass(slots=True)
class Summary:
    """What a run came to. `resumed`: sessions that an earlier run of the same journal had done; they are
    counted with the others. `problems`: the results that are not ok, in the order they came, without their
    differences, which are told as they come. `until_ms`: the cut-off. `seconds`: of this run."""

    mode: Mode
    until_ms: int | None
    sessions: int = 0
    resumed: int = 0
    seconds: float = 0.0
    statuses: Counter[str] = field(default_factory=Counter)
    sums: Counter[str] = field(default_factory=Counter)
    problems: list[Result] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.problems

    def add(self, results: Iterable[Result]) -> None:
        for result in results:
            self.sessions += 1
            self.statuses[result.status] += 1
            for name in _SUMMED:
                self.sums[name] += getattr(result, name)
            if not result.ok:
                self.problems.append(replace(result, differences=()))

    def to_json(self) -> dict[str, Any]:
        return {
            "mode": self.mode,
            "ok": self.ok,
            "until_ms": self.until_ms,
            "sessions": self.sessions,
            "resumed": self.resumed,
            "seconds": round(self.seconds, 3),
            "statuses": dict(self.statuses),
            **{name: self.sums[name] for name in _SUMMED},
            "problems": [
                {"session": r.session, "status": r.status, "error": r.error, "detail": r.detail}
                for r in self.problems
            ],
        }


def told(difference: Difference) -> dict[str, Any]:
    """A difference as JSON; what one of the two has not is left out."""
    found = {"path": difference.path}
    for name, value in (("rebuilt", difference.one), ("stored", difference.other)):
        if value is not ABSENT:
            found[name] = _short(value)
    return found


def _short(value: Any) -> str:
    try:
        text = orjson.dumps(value).decode()
    except orjson.JSONEncodeError:  # nests too deeply
        text = f"a {type(value).__name__}"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
