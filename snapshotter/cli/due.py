"""`due`: which sessions have work for a worker.

What a queue knows, asked of the store: for whoever has lost the queue, or wants to see that nothing is stuck.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from snapshotter import Database, Session
from snapshotter.catalogue import all_sessions
from snapshotter.core.moves import next_step
from snapshotter.errors import Misconfigured, StreamError, Unreachable, WrongKey

from .incident import next_in_words
from .output import count, emit, json_option, open_database, painted, say, tell_absent, url_argument, when
from .problems import PROBLEM, failure_of
from .selecting import Chosen, at_once, selection, threads_option

_BAD = painted("BAD", fg="red", bold=True)


@click.command(
    short_help="Which sessions have work for a worker.",
    epilog="\b\nExample:\n  snapshotter due s3://bucket/agents --since 24h\n"
    "  snapshotter due ./data --json | jq -r 'select(.next and .holder == null) | .session'",
)
@url_argument
@selection
@threads_option
@json_option
@click.pass_context
def due(ctx: click.Context, url: str, chosen: Chosen, jobs: int, as_json: bool) -> None:
    """Show which sessions (default: of all) have work for a worker: a turn that was interrupted, inputs that
    are owed, or some to write off.

    Of each what the next boot does, how many inputs are owed and since when, and whether a worker holds the
    session now. What waits for an answer of a person or a client is no work. Nothing is written. A session
    that cannot be read is told with its error; the exit code is 1 then.
    """
    told: list[dict[str, Any]] = []
    lacking: list[WrongKey] = []
    with open_database(url) as db:
        names = chosen.of(db, all_sessions)
        with at_once(partial(_peeked, db), names, jobs, "looking") as each:
            for name, found in zip(names, each, strict=True):
                if isinstance(found, StreamError):
                    line: dict[str, Any] | None = {"session": name, **failure_of(found).to_json()}
                    lacking += [found] if isinstance(found, WrongKey) else []
                else:
                    line = _work(found)
                    if chosen.sessions is not None:
                        tell_absent(db, found)
                if line is not None:
                    told.append(line)
                    if as_json:
                        emit(line)
    if lacking and len(lacking) == len(names):
        raise lacking[0]
    bad = sum("error" in line for line in told)
    if not as_json:
        for line in told:
            say(f"{line['session']}  {_in_words(line)}", mark=f"{_BAD} " if "error" in line else "")
        work, problems = len(told) - bad, count(bad, "with a problem", "with problems")
        say(f"{count(len(names), 'session')}, {work:,} with work for a worker, {problems}")
    if bad:
        ctx.exit(PROBLEM)


def _peeked(db: Database, session: str) -> Session | StreamError:
    """What the next worker would find, or why that cannot be told. What concerns the whole store is
    raised."""
    try:
        return db.peek(session, window=0)
    except WrongKey as error:
        return error
    except (Misconfigured, Unreachable):
        raise
    except StreamError as error:
        return error


def _work(found: Session) -> dict[str, Any] | None:
    """What there is to do in a session, as JSON; None where that is nothing."""
    fold, plan = found.fold, found.plan
    if next_step(plan) == "idle":
        return None
    does, wait = next_in_words(found, found.incident)
    owed = {number for item in plan.pending for number in item.ids}
    if fold.open is not None:
        owed |= {number for number in fold.open.inputs if not found.applied(number)}
    waiting = [fold.inputs.get(number) for number in owed or plan.spent]
    dates = [entry.record.get("ts") for entry in waiting if entry is not None]
    holder = found.busy if found.busy is not None and found.busy.incident is None else None
    return {
        "session": found.id,
        "next": does,
        "wait_s": wait,
        "owed": len(owed),
        "spent": len(plan.spent),
        "since_ms": min((date for date in dates if type(date) is int), default=None),
        "holder": None if holder is None else {"run": holder.run, "age": holder.age},
    }


def _in_words(line: dict[str, Any]) -> str:
    """The same for a person."""
    if "error" in line:
        return f"{line['error']}: {line['message']}"
    holder, does = line["holder"], line["next"]
    pause = line["wait_s"] if holder is None else 0
    said = [f"waits {pause:.0f} s, then {does}" if pause else does]
    since = "" if line["since_ms"] is None else f" since {when(line['since_ms'])}"
    if line["owed"]:
        said.append(f"{count(line['owed'], 'input')} owed{since}")
    if line["spent"]:
        said.append(f"{count(line['spent'], 'input')} to write off{'' if line['owed'] else since}")
    if holder is not None:
        said.append(f"run {holder['run']} holds it, and spoke {holder['age']:.1f} s ago")
    return "; ".join(said)
