"""What `verify` tells of one session."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found. `code`: absent, corrupt, missing, newer-version, gap, chain, snapshot-ahead,
    law, message-missing (all problems); not-rebuildable, foreign-object, dead-segment, hydrated,
    stale-snapshot (notes).
    The command tells what `verify` raises of one session as wrong-key, and as not-checked. `key`: of an
    object, where it is about one."""

    code: str
    detail: str
    key: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(slots=True)
class Verdict:
    """What `verify` found. `records` counts those of both logs, unpacked. `rebuildable`: the logs alone
    give the whole history. `notes` are worth knowing and no fault."""

    session: str
    segments: int = 0
    records: int = 0
    rebuildable: bool = True
    problems: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.problems

    @property
    def hindering(self) -> list[Finding]:
        """The problems for which no log is trimmed, and no file of it taken: all but the message of an input
        that is owed. Its sender may have died before it was acknowledged, and it keeps no other."""
        return [problem for problem in self.problems if problem.code != "message-missing"]

    def lacks(self) -> bool:
        """Whether something that is named is not there."""
        return any(problem.code in ("missing", "message-missing") for problem in self.problems)

    def to_json(self) -> dict[str, Any]:
        found = asdict(self)
        for name in ("problems", "notes"):
            found[name] = [finding.to_json() for finding in getattr(self, name)]
        return {"session": found.pop("session"), "ok": self.ok, **found}
