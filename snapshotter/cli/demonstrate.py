"""`demo`: the whole story in a few seconds."""

from __future__ import annotations

import click

from snapshotter.demo import run

from .output import emit, json_option, say, store_url
from .problems import PROBLEM


@click.command(
    short_help="Kill a worker in the middle of an answer and see the next carry on.",
    epilog="\b\nExample:\n  snapshotter demo\n"
    "  snapshotter demo --root 's3://bucket/demo?endpoint=http://127.0.0.1:9000'",
)
@click.option(
    "--root", default="./demo-data", show_default=True, help="Folder or store URL; each run has its own part."
)
@click.option("--no-kill", is_flag=True, help="Let the first worker release its turn in place of a SIGKILL.")
@json_option
@click.pass_context
def demo(ctx: click.Context, root: str, no_kill: bool, as_json: bool) -> None:
    """Record real streams, kill a worker in the middle of an answer, and let the next one carry on.

    What is stored stays there to look into; the commands for that are printed at the end. Each outcome is
    checked, and the exit code says whether all were as they should be.
    """
    url = store_url(root if "://" in root or root.startswith(("/", ".", "~")) else f"./{root}")
    outcome = run(url, kill=not no_kill, say=(lambda _line: None) if as_json else say)
    if as_json:
        emit(outcome.to_json())
    if not outcome.ok:
        ctx.exit(PROBLEM)
