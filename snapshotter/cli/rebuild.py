"""`rebuild`: the histories of a root from its logs alone."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from snapshotter.errors import Refused
from snapshotter.rebuilding import LOCAL, Result, Summary, dask, ray
from snapshotter.rebuilding import rebuild as rebuild_all

from .output import (
    count,
    emit,
    is_unfenced,
    json_option,
    open_database,
    painted,
    say,
    store_url,
    url_argument,
)
from .problems import PROBLEM
from .selecting import Chosen, selection

_SHOWN = 10  # differences of one session that a person is shown


def _store(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    return None if value is None else store_url(value)


@click.command(
    short_help="Rebuild histories from the logs alone.",
    epilog="\b\nExample:\n  snapshotter rebuild ./data\n"
    "  snapshotter rebuild s3://bucket/agents --write --journal run.jsonl --jobs 8\n"
    "  snapshotter rebuild s3://bucket/agents --since 24h --export parquet ./tables",
)
@url_argument
@click.option("--compare", is_flag=True, help="Compare with the snapshots (default).")
@click.option("--write", is_flag=True, help="Write snapshots back, never over a newer one.")
@click.option(
    "--export",
    "export",
    type=(click.Choice(["jsonl", "parquet"]), str),
    metavar="FORMAT DEST",
    help="Write the histories as jsonl or parquet into a folder or a bucket.",
)
@selection
@click.option("--replace-unreadable", is_flag=True, help="With --write: also over damaged snapshots.")
@click.option("--jobs", type=click.IntRange(min=1), help="Processes; by default one for each core.")
@click.option(
    "--dask", "dask_address", metavar="ADDRESS", help="Run on a Dask scheduler, as tcp://host:8786."
)
@click.option(
    "--ray",
    "ray_address",
    metavar="[ADDRESS]",
    is_flag=False,
    flag_value=LOCAL,
    help="Run on a Ray cluster; without an address on one that is started here.",
)
@click.option("--chunk", type=click.IntRange(min=1), help="Sessions of one task; by default up to 25.")
@click.option("--journal", type=click.Path(dir_okay=False, path_type=Path), help="Note here what is done.")
@click.option("--resume", is_flag=True, help="Go on where the run of this journal stopped.")
@json_option
def rebuild(
    url: str,
    chosen: Chosen,
    compare: bool,
    write: bool,
    export: tuple[str, str] | None,
    dask_address: str | None,
    ray_address: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Rebuild the histories of sessions (default: all) from their logs alone.

    Snapshots are compared with what the logs give, and every difference is told; or written back; or the
    histories are exported. Workers may be at work meanwhile: of each log counts what was durable when the run
    began. What goes wrong in one session is told, and the others are rebuilt; the exit code is 1 then.
    """
    if compare + write + (export is not None) > 1:
        raise click.UsageError("one of --compare, --write and --export, and no two of them")
    if options["replace_unreadable"] and not write:
        raise click.UsageError("--replace-unreadable needs --write: nothing else replaces snapshots")
    mode = "write" if write else "compare"
    if export is not None:
        mode, options["format"], options["dest"] = "export", export[0], store_url(export[1])
    if options["resume"] and options["journal"] is None:
        raise Refused("--resume needs the --journal of the run that stopped")
    with (
        _interruptible(options["journal"]),
        _executor(dask_address, ray_address) as executor,
        _told(as_json) as progress,
    ):
        summary = rebuild_all(
            url,
            allow_unfenced=is_unfenced(),
            mode=mode,  # type: ignore[arg-type]  # one of the three
            sessions=chosen.sessions,
            prefix=chosen.prefix,
            since=chosen.since,
            executor=executor,
            progress=progress,
            **options,
        )
    if not summary.sessions:
        with open_database(url) as db:
            chosen.tell_none(db)
    if as_json:
        emit({"summary": summary.to_json()})
    else:
        _sum_up(summary)
    if not summary.ok:
        click.get_current_context().exit(PROBLEM)


@contextmanager
def _interruptible(journal: Path | None) -> Iterator[None]:
    """Ctrl-C says how the run can go on."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(
            f"the same command with --journal {journal} --resume goes on there"
            if journal is not None
            else "a run with --journal FILE goes on where it was interrupted, with --resume"
        )
        raise


@contextmanager
def _executor(dask_address: str | None, ray_address: str | None) -> Iterator[Any]:
    """Where the tasks run; None for processes of this machine."""
    if dask_address is not None and ray_address is not None:
        raise Refused("--dask or --ray, not both")
    if dask_address is not None:
        with dask(dask_address) as executor:
            yield executor
    elif ray_address is not None:
        with ray(ray_address) as executor:
            yield executor
    else:
        yield None


@contextmanager
def _told(as_json: bool) -> Iterator[Callable[[Sequence[Result], int], None]]:
    """Tells results as they come: as JSON one line each, else the problems; on a terminal with a bar on
    stderr, its rate and the time that is left."""
    began = time.monotonic()
    shown = sys.stderr.isatty()
    done = 0

    def rate(_item: Any) -> str:
        return f"{done / max(time.monotonic() - began, 0.001):,.0f}/s"

    with click.progressbar(
        length=0, label="rebuilding", file=sys.stderr, hidden=not shown, show_pos=True, item_show_func=rate
    ) as bar:

        def progress(results: Sequence[Result], total: int) -> None:
            nonlocal done
            done += len(results)
            bar.length = total
            bar.update(len(results), results)
            for result in results:
                if as_json:
                    emit(result.to_json())
                elif not result.ok:
                    _tell(result)

        yield progress


def _tell(result: Result) -> None:
    mark = painted("BAD", fg="red", bold=True)
    if result.status == "failed":
        say(f" {result.session}  {result.error}: {result.detail}", mark=mark)
        return
    if result.status == "absent":
        say(f" {result.session}  there is no such session", mark=mark)
        return
    told = f"{count(result.different, 'difference')} at out record {result.stored}"
    say(f" {result.session}  {told}", mark=mark)
    for difference in result.differences[:_SHOWN]:
        ours, theirs = (difference.get(name, "absent") for name in ("rebuilt", "stored"))
        say(f"      {difference['path']}: the logs give {ours}, stored is {theirs}")
    if result.different > _SHOWN:
        say(f"      … and {result.different - _SHOWN:,} more (--json shows {len(result.differences):,})")


def _sum_up(summary: Summary) -> None:
    told = ", ".join(f"{number:,} {status}" for status, number in sorted(summary.statuses.items()))
    say(f"{count(summary.sessions, 'session')}: {told or 'nothing to do'}")
    if summary.resumed:
        say(f"{count(summary.resumed, 'session')} done by an earlier run, which all numbers include")
    sums, own = summary.sums, summary.sessions - summary.resumed
    rate = f", {own / max(summary.seconds, 0.001):,.1f} sessions a second" if own else ""
    say(
        f"{count(sums['messages'], 'message')}, {count(sums['records'], 'record')}, "
        f"{count(sums['segments'], 'segment')}; {count(sums['requests'], 'request')}, "
        f"{sums['bytes']:,} bytes; {summary.seconds:.1f} s{rate}"
    )
    if any(result.replaceable for result in summary.problems):
        say(
            "hint: where a snapshot cannot be read and the logs are whole, --write --replace-unreadable "
            "writes a new one in its place",
            err=True,
        )
