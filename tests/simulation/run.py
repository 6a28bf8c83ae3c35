"""Run worlds from a shell: `python tests/simulation/run.py --seeds 1000`. Exit code 1 if a promise broke.

Prints how much was simulated, and for each world that failed its seed, what was broken, and the schedule that
is left when everything that does not matter is left out. `--shrink 0` leaves that away.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import click
from plan import plan_of
from shrink import shrink, told
from upkeeping import kept
from world import run_seed

BATCH = 50


@dataclass
class Tally:
    """What a batch of worlds came to. `failed`: (seed, its violations)."""

    worlds: int = 0
    calls: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)
    fates: Counter[str] = field(default_factory=Counter)
    profiles: Counter[str] = field(default_factory=Counter)
    failed: list[tuple[int, list[str]]] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.worlds += other.worlds
        self.calls += other.calls
        for name in ("faults", "seen", "fates", "profiles"):
            getattr(self, name).update(getattr(other, name))
        self.failed += other.failed


def run_batch(seeds: range) -> Tally:
    """Run these worlds, one after another."""
    tally = Tally()
    for seed in seeds:
        report = run_seed(seed)
        tally.worlds += 1
        tally.calls += report.calls
        tally.faults += report.faults
        tally.seen += report.seen
        tally.fates += report.fates
        tally.profiles[report.profile] += 1
        if report.violations:
            tally.failed.append((seed, [str(violation) for violation in report.violations]))
    return tally


def batches(first: int, count: int, jobs: int) -> Iterator[Tally]:
    """The worlds in batches, over so many processes."""
    ranges = [range(at, min(at + BATCH, first + count)) for at in range(first, first + count, BATCH)]
    if jobs == 1:
        yield from map(run_batch, ranges)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap_unordered(run_batch, ranges)


@click.command()
@click.option("--seeds", default=1000, show_default=True, help="How many worlds.")
@click.option("--from", "first", default=0, show_default=True, help="The first seed.")
@click.option("--jobs", default=1, show_default=True, help="Processes at once.")
@click.option("--minutes", type=float, help="Stop after this time.")
@click.option("--shrink", "shrunk", default=3, show_default=True, help="Make so many failures small.")
def main(seeds: int, first: int, jobs: int, minutes: float | None, shrunk: int) -> None:
    """Simulate worlds and judge them."""
    began = time.monotonic()
    total = Tally()
    with click.progressbar(length=seeds, label="worlds", file=sys.stderr) as bar:
        for tally in batches(first, seeds, jobs):
            total.add(tally)
            bar.update(tally.worlds)
            if minutes is not None and time.monotonic() - began > minutes * 60:
                break
    tell(total, time.monotonic() - began)
    for seed, violations in sorted(total.failed):
        click.echo(f"\nseed {seed}: {len(violations)} violations, the first:\n  {violations[0]}")
    for seed, _ in sorted(total.failed)[:shrunk]:
        plan = kept(plan_of(seed))
        without, report = shrink(lambda left_out, seed=seed: run_seed(seed, without=left_out))
        click.echo(f"\nseed {seed}, made small ({plan.profile}, {plan.weather}):")
        for line in told(plan, without, report):
            click.echo(f"  {line}")
        click.echo(f"  → {report.violations[0]}")
    sys.exit(bool(total.failed))


def tell(total: Tally, seconds: float) -> None:
    """The counts, for a person."""

    def listed(counts: Counter[str]) -> str:
        return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))

    rate = seconds / max(total.worlds, 1) * 1000
    click.echo(
        f"schedules    {total.worlds:,} in {seconds:.0f} s, {rate:.1f} ms each: {listed(total.profiles)}"
    )
    click.echo(f"store calls  {total.calls:,}")
    click.echo(f"faults       {sum(total.faults.values()):,}: {listed(total.faults)}")
    click.echo(f"fates        {listed(total.fates)}")
    click.echo(f"journal      {listed(total.seen)}")
    click.echo(f"violations   in {len(total.failed)} schedules")


if __name__ == "__main__":
    main()
