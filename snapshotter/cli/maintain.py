"""`maintain`, `compact`, `trim`, `gc`: upkeep of sessions, of all of them unless some are named."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import click

from snapshotter.catalogue import all_ids
from snapshotter.maintenance import Done, Keep, Kept, Rules, each
from snapshotter.maintenance import compact as compact_session
from snapshotter.maintenance import gc as gc_session
from snapshotter.maintenance import trim as trim_session
from snapshotter.maintenance.upkeep import Step, compact_where_possible

from .output import count, emit, json_option, open_database, painted, say, url_argument
from .problems import PROBLEM
from .selecting import Chosen, selection, threads_option

_AGE = click.option(
    "--minimum-age",
    "hours",
    type=click.FloatRange(min=1),
    default=6.0,
    show_default=True,
    help="Hours, at least 1: nothing younger, by the store's own clock, is touched.",
)
_NOTHING = {
    "compact": "each closed turn is one object already, or no turn has followed it yet",
    "trim": "the logs hold no more than what is to be left",
    "gc": "there is no garbage",
}
_DRY_RUN = click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    for decorate in (json_option, _DRY_RUN, _AGE, threads_option, selection):
        command = decorate(command)
    return url_argument(command)


def _keep_options(command: Callable[..., Any]) -> Callable[..., Any]:
    turns = click.option(
        "--keep-turns",
        type=click.IntRange(min=1),
        default=None,
        help="Leave the newest so many turns in the logs.",
    )
    days = click.option(
        "--keep-days", type=click.FloatRange(min=0), default=None, help="Leave what is younger than this."
    )
    size = click.option(
        "--keep-bytes", type=click.IntRange(min=0), default=None, help="Leave the newest so many bytes."
    )
    return turns(days(size(command)))


def _keep(turns: int | None, days: float | None, size: int | None) -> Keep | None:
    if turns is None and days is None and size is None:
        return None
    return Keep(turns or 1, (days or 0.0) * 86400, size or 0)


@click.command(
    short_help="Do what is due: trim, compact, gc.",
    epilog="\b\nExample:\n  snapshotter maintain s3://bucket/agents --keep-days 30\n"
    "  snapshotter maintain s3://bucket/agents --since 48h --jobs 16\n"
    "  snapshotter maintain ./data --dry-run --json | jq 'select(.error)'",
)
@_options
@_keep_options
def maintain(
    keep_turns: int | None,
    keep_days: float | None,
    keep_bytes: int | None,
    **given: Any,
) -> None:
    """Do what is due to sessions (default: all): compact closed turns, remove garbage, and with one of the
    --keep options trim the logs first.

    Safe beside workers, and beside another maintenance. What goes wrong in one session is told, and the
    others are maintained; the exit code is 1 then.
    """
    keep = _keep(keep_turns, keep_days, keep_bytes)
    trimming: list[Step] = [] if keep is None else [partial(trim_session, keep=keep)]
    _run([*trimming, compact_where_possible, gc_session], **given)


@click.command(
    short_help="Make one object of each closed turn.",
    epilog="\b\nExample:\n  snapshotter compact ./data chat-42",
)
@_options
def compact(**given: Any) -> None:
    """Merge the segments of each closed turn into one object, so that reading a log takes fewer requests.

    Nothing of the history changes. Refused where the store does not replace an object under If-Match.
    """
    _run([compact_session], **given)


@click.command(
    short_help="Delete from the logs what the snapshot covers.",
    epilog="\b\nExample:\n  snapshotter trim ./data chat-42 --keep-turns 10\n"
    "  snapshotter trim s3://bucket/agents --keep-days 90 --dry-run",
)
@_options
@_keep_options
def trim(
    keep_turns: int | None,
    keep_days: float | None,
    keep_bytes: int | None,
    **given: Any,
) -> None:
    """Delete the beginning of both logs, as far as the snapshot covers it.

    The history stays whole, and the session boots as before; what is lost is to rebuild it from the logs
    alone. A checkpoint is written first, and a session that does not verify is left as it is.
    """
    keep = _keep(keep_turns, keep_days, keep_bytes)
    if keep is None:
        raise click.UsageError("say what to leave: --keep-turns, --keep-days or --keep-bytes")
    _run([partial(trim_session, keep=keep)], **given)


@click.command(
    short_help="Remove what nobody names any more.",
    epilog="\b\nExample:\n  snapshotter gc ./data --dry-run",
)
@_options
def gc(**given: Any) -> None:
    """Delete blocks and values that nothing names, checkpoints but the newest, and what deletions emptied."""
    _run([gc_session], **given)


def _run(
    steps: Sequence[Step],
    *,
    url: str,
    chosen: Chosen,
    jobs: int,
    hours: float,
    dry_run: bool,
    as_json: bool,
) -> None:
    ctx = click.get_current_context()
    named = chosen.sessions is not None
    rules = Rules(hours * 3600)
    with open_database(url) as db:
        names = chosen.of(db, all_ids)
        with click.progressbar(
            length=len(names), label=ctx.command.name, file=sys.stderr, hidden=not sys.stderr.isatty()
        ) as bar:

            def progress(kept: Kept) -> None:
                bar.update(1)
                if as_json:
                    emit(kept.to_json())

            found = each(
                db, names, steps, rules=rules, dry_run=dry_run, progress=progress, named=named, jobs=jobs
            )
    if not as_json:
        _tell(found, dry_run, named=named)
    if any(kept.error is not None for kept in found):
        ctx.exit(PROBLEM)


def _tell(found: list[Kept], dry_run: bool, *, named: bool) -> None:
    """`named`: somebody asked for these sessions, and is told of each, also where nothing was due."""
    for kept in found:
        for done in kept.done:
            if named and not (done.written or done.deleted or done.why):
                done.why = _NOTHING[done.operation]
            if done.written or done.deleted or done.why:
                say(f"{kept.session}  {in_words(done)}")
        if kept.error is not None:
            say(f" {kept.session}  {kept.error}", mark=painted("BAD", fg="red", bold=True))
    bad = sum(kept.error is not None for kept in found)
    total = Done("", "would have" if dry_run else "in all", dry_run)
    for one in (done for kept in found for done in kept.done):
        total.written += one.written
        total.deleted += one.deleted
        total.freed += one.freed
    say(f"{count(len(found), 'session')}, {count(bad, 'with a problem', 'with problems')}; {in_words(total)}")


def in_words(done: Done) -> str:
    """`trim: 1 object written, 12 deleted, 4,096 bytes freed`."""
    told = f"{count(done.written, 'object')} written, {done.deleted:,} deleted, {done.freed:,} bytes freed"
    return f"{done.operation}: {told}{f' ({done.why})' if done.why else ''}"
