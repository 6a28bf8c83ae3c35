"""The generated table of docs/stores.md: rows between two markers, one for each server and driver.

Drivers of a server that came to the same share a line, with their names in one cell.

A row that was not made anew stays as it is, with its date: a server that cannot be started here is no reason
to forget what was found elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

BEGIN = "<!-- compatibility: begin, written by scripts/compatibility.py -->"
END = "<!-- compatibility: end -->"
HEADER = (
    "server",
    "version",
    "driver",
    "the engine",
    "what it lacks",
    "a turn whose worker is killed",
    "date",
)
Row = tuple[str, ...]


class Malformed(Exception):
    """The page does not hold one table between its two markers."""


def rows_of(page: str) -> list[Row]:
    """The rows of the page's table, one for each server and driver. Raises Malformed."""
    before, begin, rest = page.partition(BEGIN)
    table, end, after = rest.partition(END)
    if not (begin and end) or BEGIN in after or END in before + after:
        raise Malformed("the page needs each marker once, the first one first")
    lines = [line for line in table.splitlines() if line]
    rows = [tuple(cell.strip() for cell in line.strip("|").split(" | ")) for line in lines]
    if rows and (rows[0] != HEADER or any(len(row) != len(HEADER) for row in rows)):
        raise Malformed("the table's columns are not what they should be")
    return [(*row[:2], driver, *row[3:]) for row in rows[2:] for driver in row[2].split(", ")]


def with_rows(page: str, fresh: Iterable[Row], order: Iterable[tuple[str, str]]) -> str:
    """The page with these rows in the place of those of the same server and driver, in this `order` of
    (server, driver). Rows that are in no order go. Raises Malformed."""
    known = {(row[0], row[2]): row for row in (*rows_of(page), *fresh)}
    rows = [known[place] for place in order if place in known]
    lines = ["| " + " | ".join(row) + " |" for row in (HEADER, ("---",) * len(HEADER), *_joined(rows))]
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    return "\n".join((f"{before}{BEGIN}", "", *lines, "", f"{END}{after}"))


def _joined(rows: list[Row]) -> list[Row]:
    """Neighbours that differ in the driver alone as one row."""
    groups = groupby(rows, key=lambda row: (row[:2], row[3:]))
    return [(*head, ", ".join(row[2] for row in same), *rest) for (head, rest), same in groups]


def rewrite(path: Path, fresh: Iterable[Row], order: Iterable[tuple[str, str]]) -> None:
    path.write_text(with_rows(path.read_text(encoding="utf-8"), fresh, order), encoding="utf-8")
