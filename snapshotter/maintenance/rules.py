"""What maintenance may touch, and when.

Two things could go wrong when a log object is deleted: a request that is still under way may arrive after
it, and a writer that was frozen may create the place again. Against the first stands the *minimum age*:
nothing younger is merged away or deleted, and no request lives that long. Against the second, writers look
at the log again when they slept (`streams.log.HALF_AGE_MS`), and so does maintenance.

An age is always the store's own: the date of its answer less the date of the object. A machine's clock
proves nothing. Where the store does not tell a date, nothing counts as old.

`Keep` says what trimming leaves: what any of its limits wants to keep is kept.
"""

from __future__ import annotations

from dataclasses import dataclass

from streams.errors import InvalidValue
from streams.log import HALF_AGE_MS, MINIMUM_AGE_MS, Vanished

DEFAULT_AGE = 6 * 3600.0
"""Seconds: the minimum age that is used where none is given."""


@dataclass(frozen=True, slots=True)
class Rules:
    """`minimum_age` in seconds. Raises InvalidValue below one hour, which no store's requests outlive."""

    minimum_age: float = DEFAULT_AGE

    def __post_init__(self) -> None:
        if not isinstance(self.minimum_age, int | float) or not self.minimum_age * 1000 >= MINIMUM_AGE_MS:
            raise InvalidValue(
                f"the minimum age is {self.minimum_age!r}: seconds are needed, {MINIMUM_AGE_MS // 1000} at"
                " least; a request that is under way could land after what it belongs to was deleted",
                path="minimum_age",
            )

    def is_old(self, modified_ms: int | None, date_ms: int | None) -> bool:
        """Whether an object of this date may be touched, at this date of the store (epoch ms)."""
        if modified_ms is None or date_ms is None:
            return False
        return date_ms - modified_ms >= self.minimum_age * 1000


@dataclass(frozen=True, slots=True)
class Keep:
    """What a trim leaves of the logs: the newest `turns` turns (one at least, whatever else is said), what is
    younger than `seconds`, and the newest `bytes` of the out log. Raises InvalidValue for what is no such
    number, and where nothing is said: a trim cannot be undone."""

    turns: int = 0
    seconds: float = 0.0
    bytes: int = 0

    def __post_init__(self) -> None:
        if (self.turns, self.seconds, self.bytes) == (0, 0, 0):
            raise InvalidValue(
                "say what to keep, as in Keep(turns=10) or Keep(seconds=30 * 86400)", path="turns"
            )
        for name in ("turns", "seconds", "bytes"):
            given = getattr(self, name)
            if isinstance(given, bool) or not isinstance(given, int | float) or not given >= 0:
                raise InvalidValue(f"keep.{name} is {given!r}: a number from 0 on is needed", path=name)

    @classmethod
    def checked(cls, given: object) -> Keep:
        """What was given as `keep`. Raises InvalidValue for anything else."""
        if isinstance(given, cls):
            return given
        raise InvalidValue(f"keep is {given!r}: give a Keep, as in Keep(turns=10)", path="keep")


class Awake:
    """Compares the store's date of a success with that of the last one, as every writer does."""

    def __init__(self, date_ms: int | None) -> None:
        self._date_ms = date_ms

    def check(self, date_ms: int | None) -> None:
        """Raise Vanished where more than half the lowest minimum age passed: what was read may be gone."""
        before, self._date_ms = self._date_ms, date_ms if date_ms is not None else self._date_ms
        if before is not None and date_ms is not None and abs(date_ms - before) > HALF_AGE_MS:
            raise Vanished("maintenance slept: what it read may be gone by now")
