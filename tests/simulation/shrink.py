"""A world that fails, made small: leave out deeds, fates and faults while it still fails the same way.

What is left out changes what comes after it, so a smaller world is run and judged anew each time. Halves are
tried first, then quarters and so on (Zeller's delta debugging), until no single thing can be left out.
"""

from __future__ import annotations

from collections.abc import Callable

from plan import Plan
from world import Item, Report

Run = Callable[[frozenset[Item]], Report]


def shrink(run: Run, *, tries: int = 400) -> tuple[frozenset[Item], Report]:
    """What can be left out of a failing world, and what then happens. `run(without)` runs it; `tries` bounds
    how often. Raises ValueError for a world that does not fail."""
    found = run(frozenset())
    if not found.violations:
        raise ValueError("this world does not fail")
    rule = found.violations[0].rule
    without: frozenset[Item] = frozenset()
    pieces = 2
    while tries > 0:
        items = [item for item in dict.fromkeys(found.items) if item not in without]
        size = max(1, len(items) // pieces)
        for start in range(0, len(items), size):
            tries -= 1
            candidate = without | frozenset(items[start : start + size])
            report = run(candidate)
            if any(violation.rule == rule for violation in report.violations):
                without, found = candidate, report
                break
        else:
            if size == 1:
                break
            pieces *= 2
    return without, found


def told(plan: Plan, without: frozenset[Item], report: Report) -> list[str]:
    """The schedule that is left, for a person."""
    lines = []
    for index, deed in enumerate(plan.deeds):
        if ("deed", index) in without:
            continue
        fate = deed.fate if ("fate", index) in report.items and ("fate", index) not in without else None
        what = f"{deed.at:8.2f} s  {deed.kind} {deed.session} {deed.token} {deed.text or deed.target}"
        lines.append(
            what.rstrip() + (f"  {deed.options}" if deed.options else "") + (f"  {fate}" if fate else "")
        )
    lines += [
        f"fault: request {item[2]} of {item[1]}: {item[3]}" for item in report.items if item[0] == "fault"
    ]
    return lines
