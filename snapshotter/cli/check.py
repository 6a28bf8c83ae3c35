"""`verify` and `doctor`: can what is stored be trusted, and can the store."""

from __future__ import annotations

import click

from snapshotter import open as open_database
from snapshotter.catalogue import all_sessions
from snapshotter.verify import Verdict
from snapshotter.verify import verify as verify_session

from .examine import examine
from .output import count, emit, json_option, milliseconds, progress, say, tell_empty, url_argument
from .problems import PROBLEM


@click.command(
    short_help="Check sessions for integrity and for the law.",
    epilog="\b\nExample:\n  snapshotter verify ./data\n"
    "  snapshotter verify s3://bucket/agents chat-42 chat-43 --json | jq 'select(.ok | not)'",
)
@url_argument
@click.argument("sessions", metavar="[SESSION]…", nargs=-1)
@json_option
@click.pass_context
def verify(ctx: click.Context, url: str, sessions: tuple[str, ...], as_json: bool) -> None:
    """Check sessions (default: all) for integrity, and for the law that their history rests on.

    Every object has to decode (header, checksum, ids), both logs have to go on without a hole, and the whole
    log, the snapshot, and a boot from snapshot and tail have to come to the same history. Nothing is written.
    """
    with open_database(url) as db:
        names = list(sessions) or list(all_sessions(db))
        if not names:
            tell_empty(db, "there are no sessions")
        verdicts = []
        with progress(names, "verifying") as each:
            for name in each:
                verdicts.append(verify_session(db, name))
                if as_json:
                    emit(verdicts[-1].to_json())
    if not as_json:
        for verdict in verdicts:
            _tell(verdict)
        bad = sum(not verdict.ok for verdict in verdicts)
        say(f"{count(len(verdicts), 'session')}, {count(bad, 'with a problem', 'with problems')}")
    if not all(verdict.ok for verdict in verdicts):
        ctx.exit(PROBLEM)


def _tell(verdict: Verdict) -> None:
    mark = click.style("ok ", fg="green") if verdict.ok else click.style("BAD", fg="red", bold=True)
    say(f"{mark} {verdict.session}  {count(verdict.segments, 'segment')}, {count(verdict.records, 'record')}")
    for finding in (*verdict.problems, *verdict.notes):
        where = f" [{finding.key}]" if finding.key and finding.key not in finding.detail else ""
        say(f"      {finding.code}: {finding.detail}{where}")


@click.command(
    short_help="Can this store be trusted?",
    epilog="\b\nExample:\n  snapshotter doctor 's3://bucket/agents?endpoint=http://127.0.0.1:9000'\n"
    "  snapshotter doctor ./data --json | jq .latency_ms",
)
@url_argument
@json_option
@click.pass_context
def doctor(ctx: click.Context, url: str, as_json: bool) -> None:
    """Try whether the store at URL keeps what the engine needs.

    Credentials, bucket, conditional create and replace under a real race, exact bytes, the order of listings,
    and how fast it answers. Writes a few objects below probe/ and removes them; what was found is kept in
    capabilities.json.
    """
    found = examine(url)
    if as_json:
        emit(found.to_json())
    else:
        say(found.url)
        for check in found.checks:
            mark = click.style("ok ", fg="green") if check.ok else click.style("BAD", fg="red", bold=True)
            if not check.ok and not check.required:
                mark = click.style("!  ", fg="yellow")
            say(f"{mark} {check.check}{f': {check.detail}' if check.detail else ''}")
            if not check.ok:
                say(f"      {check.means}")
        for kind, taken in found.latency_ms.items():
            say(f"    {kind:<5} {milliseconds(taken)} (median)")
        say("this store can be trusted" if found.ok else "this store is not to be trusted as it is")
    ctx.exit(found.exit_code)
