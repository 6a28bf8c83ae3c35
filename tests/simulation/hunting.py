"""How a broken engine is hunted: in worlds drawn from seeds, in small worlds, among damaged objects.

A hunt ends at the first violation. It says which rule was broken, and after how many schedules (of damaged
objects: readings) and requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import exhaustive
import tampering
from kept_stories import KEPT
from mutating import Mutant
from stories import STORIES
from world import run_seed

BEST = {
    "twice": ("no-fence", "snapshot-unconditional", "not-looked-again"),
    "one each": (
        "412-is-ours",
        "segment-overwritten",
        "input-overwritten",
        "cursor-from-newest-input",
        "old-plan",
    ),
    "tool": (
        "412-is-lost",
        "404-settles",
        "driver-retries",
        "unknown-is-written",
        "flush-returns-early",
        "commit-returns-early",
        "snapshot-before-commit",
        "tool-not-durable",
        "partial-dropped",
        "settled-tool-again",
        "answered-stays-owed",
    ),
    "slow": ("no-heartbeat", "lease-ignored", "claim-ignores-lease"),
    "lingering": ("finish-is-the-end", "dispatched-twice"),
    "stopped": ("receipt-is-enough", "stop-not-watched", "stop-forgotten", "spent-not-recorded"),
    "again": ("next-place-unread", "duplicate-answered", "duplicate-appended"),
    "edited": ("one-cursor", "edit-keeps-the-rest"),
    "tidied": ("sleeper-does-not-look",),
    "shown": ("input-not-reread",),
    "followed": ("unpack-off-by-one",),
    "doomed": ("budget-never-ends", "no-pause", "give-up-forgets"),
    "deadly": ("claim-not-counted",),
    "fast clock": ("gc-by-own-clock",),
    "slow gc": ("gc-reads-first",),
    "merged meanwhile": ("gc-opens-what-it-listed",),
    "sealed again": ("block-name-again",),
    "trimmed": ("trim-past-checkpoint",),
    "covered": ("trim-cuts-newest-turn",),
    "newest turn": ("compact-newest-turn",),
    "swept": ("fence-swept",),
    "sealed before": ("block-not-rewritten", "redact-forgets-segments"),
    "windowed": ("window-is-all",),
    "large": ("value-after-record",),
    "unseen": ("names-unseen-snapshot",),
    "deleted": ("delete-without-fence",),
    "redacted": ("redact-forgets-copies",),
    "copied": ("copy-not-looked-at-again",),
    "copied behind gc": ("gc-lists-copies-first",),
    "left below": ("below-a-fence-counts",),
    "owed": ("redacted-not-said",),
    "sent again": ("redaction-not-announced",),
    "damage": (
        "chain-unchecked",
        "gap-is-history",
        "input-gap-is-history",
        "segment-crc-unchecked",
        "header-crc-unchecked",
        "short-read-accepted",
        "unread-snapshot-overwritten",
        "corrupt-is-absent",
        "snapshot-crc-unchecked",
        "snapshot-over-log",
    ),
}
"""The hunt that catches each mutant soon. Seeds catch most of them, too, but others with each change of the
worlds that they draw."""

SEEDS = 150
STEP = 29


@dataclass(frozen=True)
class Caught:
    """`rule`: what was broken; "" for nothing. `where`: the hunt that found it."""

    where: str
    rule: str
    detail: str
    schedules: int
    calls: int


def best(mutant: str) -> str:
    """The hunt for this mutant."""
    (name,) = [name for name, mutants in BEST.items() if mutant in mutants]
    return name


def table(mutants: Iterable[Mutant], seeds: int = 0) -> Iterator[str]:
    """The mutants as the lines of a Markdown table; with `seeds`, also which of so many is the first that
    catches each."""
    more = bool(seeds)
    yield "| mutant | what it breaks | caught by the rule | in | schedules | requests |" + " seed |" * more
    yield "| --- | --- | --- | --- | ---: | ---: |" + " ---: |" * more
    for mutant in mutants:
        with mutant.patch():
            caught = hunt(best(mutant.name))
            first = next((seed for seed in range(seeds) if run_seed(seed).violations), "")
        rule = caught.rule or "**not caught**"
        numbers = [f"{caught.schedules:,}", f"{caught.calls:,}" if caught.calls else "", *[str(first)] * more]
        yield f"| {' | '.join([mutant.name, mutant.breaks, rule, caught.where, *numbers])} |"


def hunt(name: str) -> Caught:
    """One hunt: `seeds`, `damage`, or the name of a story, whose searches come one after another."""
    schedules = calls = 0
    for rule, detail, more, asked in _rounds(name):
        schedules, calls = schedules + more, calls + asked
        if rule:
            return Caught(name, rule, detail, schedules, calls)
    return Caught(name, "", "", schedules, calls)


def _rounds(name: str) -> Iterator[tuple[str, str, int, int]]:
    """(rule, detail, schedules, requests) of each part of a hunt."""
    if name == "seeds":
        for seed in range(SEEDS):
            report = run_seed(seed)
            first = report.violations[0] if report.violations else None
            yield first.rule if first else "", f"seed {seed}: {first}", 1, report.calls
        return
    if name == "damage":
        yield _damage()
        return
    for story in [*STORIES, *KEPT]:
        if story.name == name:
            found = exhaustive.explore(story)
            rule = found.broken.rule if found.broken else ""
            detail = f"{found.struck} {found.choices}: {found.broken}"
            yield rule, detail, found.search.total, found.calls


def _damage() -> tuple[str, str, int, int]:
    done: list[str] = []
    try:
        tampering.check_all(STEP, done)
    except exhaustive.Broke as broke:
        return broke.violation.rule, broke.violation.detail, len(done), 0
    return "", "", len(done), 0
