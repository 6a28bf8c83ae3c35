"""The group of all commands, and the one place where an error becomes an exit code.

A command's module is imported when the command is asked for. Commands raise what the library raises; what
a person or a program sees of it is decided here: one line `error: …` on stderr (with a `hint:` where one
helps), or with `--json` one object on stdout, and never a traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from keyword import iskeyword
from typing import Any, NoReturn

import click

from snapshotter import __version__

from .logs import FORMATS, show_logs
from .problems import DEFECT, REFUSED, failure_of

_COMMANDS = {
    "demo": "demonstrate",
    "send": "work",
    "create": "work",
    "record": "work",
    "approve": "ask",
    "stop": "ask",
    "edit": "ask",
    "regenerate": "ask",
    "close": "ask",
    "boot": "look",
    "history": "look",
    "log": "look",
    "ls": "look",
    "due": "due",
    "verify": "check",
    "doctor": "check",
    "policy": "policy",
    "rebuild": "rebuild",
    "maintain": "maintain",
    "compact": "maintain",
    "trim": "maintain",
    "gc": "maintain",
    "delete": "maintain_one",
    "export": "maintain_one",
    "import": "maintain_one",
    "fork": "maintain_one",
    "redact": "maintain_one",
    "replay": "cases",
    "fold": "cases",
    "classify": "cases",
    "incident": "incident",
}

_HELP = """Durable sessions for chat agents, in a bucket.

URL names a root: s3://bucket/path, minio://host:port/bucket/path, file:///path or just a path that begins
with / ./ ../ or ~. Credentials and endpoints come from the usual AWS variables, or from
OBJECT_STORE_BASE_URL, OBJECT_STORE_ACCESS_KEY_ID, OBJECT_STORE_SECRET_ACCESS_KEY and OBJECT_STORE_REGION.

\b
Example:
  snapshotter demo
  snapshotter send ./data chat-42 "hi"
  snapshotter record ./data chat-42 answer.jsonl
  snapshotter history ./data chat-42

\b
Exit codes:
  0  ok
  1  verify, due or rebuild found a problem, or doctor: this store is not to be trusted
  2  wrong usage, or input that is refused; of a stream, what came before it stays
  3  gap: records are missing
  4  corrupt: stored data cannot be read
  5  try again: busy, fenced, unreachable, or not known whether it was written
  6  misconfigured: bucket, credentials, endpoint, or a store that lacks a guarantee
  70 a defect of this program (SNAPSHOTTER_TRACEBACK=1 shows where)
  130, 141, 143 ended by Ctrl-C, by the end of a pipe, by SIGTERM; an open turn was released
"""


class _Root(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        module = _COMMANDS.get(cmd_name)
        if module is None:
            return None
        name = f"{cmd_name}_session" if iskeyword(cmd_name) else cmd_name.replace("-", "_")
        command = getattr(import_module(f"{__package__}.{module}"), name)
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Whoever read our output has gone, as in `… | head`; nothing more can be said to them.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(141)

    def main(  # type: ignore[override]  # click's overloads; this one never returns
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        given = list(sys.argv[1:] if args is None else args)
        as_json = "--json" in given[: given.index("--")] if "--" in given else "--json" in given
        extra["standalone_mode"] = False
        try:
            code = super().main(given or ["--help"], prog_name or "snapshotter", **extra)
        except Exception as error:
            # The last line of defence: a user sees no traceback.
            failure = failure_of(error)
            if failure.exit_code == DEFECT and os.environ.get("SNAPSHOTTER_TRACEBACK"):
                raise
            failure.show(as_json=as_json)
            sys.exit(failure.exit_code)
        sys.exit(REFUSED if not given else code if isinstance(code, int) else 0)


@click.group(
    cls=_Root, help=_HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="snapshotter", message="%(prog)s %(version)s")
@click.option(
    "--log-format",
    type=click.Choice(FORMATS),
    help="Show on stderr what is logged: boots, turns, recoveries, what was reported.",
)
@click.option(
    "--allow-unfenced",
    is_flag=True,
    help="Write to a store without conditional create, too. Then nothing keeps two workers of a session, or"
    " two senders, apart: what one of them was told is stored may be lost.",
)
@click.pass_context
def cli(ctx: click.Context, log_format: str | None, allow_unfenced: bool) -> None:  # noqa: ARG001 - is_unfenced
    """See _HELP."""
    if log_format is not None:
        show_logs(ctx, log_format)
