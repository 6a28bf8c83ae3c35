"""`verify` and `doctor`: can what is stored be trusted, and can the store."""

from __future__ import annotations

from functools import partial

import click

from snapshotter import Database
from snapshotter.catalogue import all_sessions
from snapshotter.errors import Retryable, Unreachable, WrongKey
from snapshotter.findings import Finding as Problem
from snapshotter.findings import Verdict
from snapshotter.verify import verify as verify_session
from streams.testing.conformance import Traits

from .deep import Contract, Finding
from .examine import Check, examine
from .output import (
    count,
    emit,
    json_option,
    milliseconds,
    open_database,
    painted,
    say,
    short,
    url_argument,
)
from .problems import PROBLEM
from .selecting import Chosen, at_once, selection, threads_option

_OK = painted("ok ", fg="green")
_BAD = painted("BAD", fg="red", bold=True)
_LACKING = "wrong-key"
_WARNING = painted("!  ", fg="yellow")


@click.command(
    short_help="Check sessions for integrity and for the law.",
    epilog="\b\nExample:\n  snapshotter verify ./data\n"
    "  snapshotter verify s3://bucket/agents chat-42 chat-43 --json | jq 'select(.ok | not)'",
)
@url_argument
@selection
@threads_option
@json_option
@click.pass_context
def verify(ctx: click.Context, url: str, chosen: Chosen, jobs: int, as_json: bool) -> None:
    """Check sessions (default: all) for integrity, and for the law that their history rests on.

    Every object has to decode (header, checksum, ids), both logs have to go on without a hole, and the whole
    log, the snapshot, and a boot from snapshot and tail have to come to the same history. Nothing is written.
    A session whose key is not at hand is one with a problem; where that is all of them, it is the command's.
    """
    with open_database(url) as db:
        names = chosen.of(db, all_sessions)
        verdicts: list[Verdict] = []
        with at_once(partial(_verdict, db), names, jobs, "verifying") as each:
            for verdict in each:
                verdicts.append(verdict)
                if as_json:
                    emit(verdict.to_json())
    lacking = [p.detail for verdict in verdicts for p in verdict.problems if p.code == _LACKING]
    if lacking and len(lacking) == len(names):
        raise WrongKey(lacking[0])
    if not as_json:
        for verdict in verdicts:
            _tell(verdict)
        bad = sum(not verdict.ok for verdict in verdicts)
        say(f"{count(len(verdicts), 'session')}, {count(bad, 'with a problem', 'with problems')}")
    if not all(verdict.ok for verdict in verdicts):
        ctx.exit(PROBLEM)


def _verdict(db: Database, session: str) -> Verdict:
    """That of one session. What concerns the whole store is raised."""
    try:
        return verify_session(db, session)
    except WrongKey as error:
        return Verdict(session, rebuildable=False, problems=[Problem(_LACKING, str(error))])
    except Unreachable:
        raise
    except Retryable as error:  # one session: others tidied it up, or no room to unpack it
        return Verdict(session, problems=[Problem("not-checked", str(error))])


def _tell(verdict: Verdict) -> None:
    told = f"{count(verdict.segments, 'segment')}, {count(verdict.records, 'record')}"
    say(f" {verdict.session}  {told}", mark=_OK if verdict.ok else _BAD)
    for finding in (*verdict.problems, *verdict.notes):
        where = f" [{finding.key}]" if finding.key and finding.key not in finding.detail else ""
        say(f"      {finding.code}: {finding.detail}{where}")


@click.command(
    short_help="Can this store be trusted?",
    epilog="\b\nExample:\n  snapshotter doctor 's3://bucket/agents?endpoint=http://127.0.0.1:9000'\n"
    "  snapshotter doctor --deep s3://bucket/agents\n"
    "  snapshotter doctor ./data --json | jq .latency_ms",
)
@url_argument
@click.option("--deep", is_flag=True, help="The whole contract: some thousands of requests, about a minute.")
@click.option("--racers", type=click.IntRange(2, 64), default=3, help="--deep: how many write at one moment.")
@click.option("--rounds", type=click.IntRange(1, 1000), default=25, help="--deep: how often they race.")
@json_option
@click.pass_context
def doctor(ctx: click.Context, url: str, deep: bool, racers: int, rounds: int, as_json: bool) -> None:
    """Try whether the store at URL keeps what the engine needs.

    Credentials, bucket, conditional create and replace under a real race, exact bytes, the order of listings,
    and how fast it answers. Writes a few objects below probe/ and removes them; what was found is kept in
    capabilities.json.

    With --deep, every check that this project's own stores have to pass, in a part of the bucket that is
    emptied afterwards (and on Ctrl-C; what could not be removed is named), and what the engine will do with
    this store.
    """
    traits = Traits(racers=racers, rounds=rounds, objects=_OBJECTS) if deep else None
    found = examine(url, deep=traits, tell=(lambda _: None) if as_json else _show)
    if as_json:
        emit(found.to_json())
    else:
        for kind, taken in found.latency_ms.items():
            say(f"    {kind:<5} {milliseconds(taken)} (median)")
        if found.contract is not None:
            _conclude(found.contract)
        else:
            say("this store can be trusted" if found.ok else "this store is not to be trusted as it is")
    ctx.exit(found.exit_code)


_OBJECTS = 1105  # of the long listing: more than one page


def _show(found: str | Check | Finding) -> None:
    """One answer, and what follows from it where it is a no; a text as it is."""
    if isinstance(found, str):
        say(found)
        return
    if isinstance(found, Finding):
        mark = {"ok": _OK, "not applicable": "-  "}.get(found.state, _BAD if found.guarantee else _WARNING)
        name = found.name if found.state in ("ok", "fails") else f"{found.name}: {found.state}"
        told, means = found.detail, found.means
    else:
        mark = _OK if found.ok else _BAD if found.required else _WARNING
        name, told, means = found.check, found.detail, "" if found.ok else found.means
    say(f" {name}{f': {short(told, 300)}' if told else ''}", mark=mark)
    if means:
        say(f"      {means}")


def _conclude(contract: Contract) -> None:
    cost = contract.requests
    kinds = {
        "PUT": cost.puts,
        "GET": cost.gets,
        "HEAD": cost.heads,
        "LIST": cost.lists,
        "DELETE": cost.deletes,
    }
    told = ", ".join(f"{number:,} {kind}" for kind, number in kinds.items() if number)
    say(f"    {count(cost.requests, 'request')} ({told}) in {contract.seconds:,.1f} s")
    colour = {"fenced": "green", "open": "yellow"}.get(contract.verdict, "red")
    say(f": {contract.why}", mark=painted(contract.verdict, fg=colour, bold=True))
    for loss in contract.losses if contract.verdict == "fenced" else ():
        say(f"  but {loss}")
