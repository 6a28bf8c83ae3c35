"""`delete`, `export`, `import`, `fork`, `redact`: one session."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from snapshotter.errors import Corrupt, NewerVersion
from snapshotter.maintenance import Done, import_
from snapshotter.maintenance import delete as delete_session
from snapshotter.maintenance import export as export_session
from snapshotter.maintenance import fork as fork_session
from snapshotter.maintenance import redact as redact_session
from snapshotter.maintenance.moving import LIMIT

from .maintain import in_words
from .output import aside, count, emit, json_option, open_database, say, session_argument, shown, url_argument

_NO_EXPORT = "give a whole file that `snapshotter export URL SESSION FILE` wrote; nothing was stored"
_DRY_RUN = click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")


@click.command(
    short_help="Delete a session and its content for good.",
    epilog="\b\nExample:\n  snapshotter delete ./data chat-42 --dry-run\n"
    "  snapshotter delete ./data chat-42 --yes",
)
@url_argument
@session_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@_DRY_RUN
@json_option
def delete(url: str, session: str, yes: bool, dry_run: bool, as_json: bool) -> None:
    """Delete SESSION: its content is overwritten at once, and no late worker brings it back.

    A worker that is at work is fenced. What the bucket's own versioning keeps is the bucket's. Empty objects
    stay until `gc` finds them old enough; the id can be used again after an explicit create.
    """
    if not (yes or dry_run):
        _confirm(f"Delete session {session!r} for good?")
    with open_database(url) as db:
        done = delete_session(db, session, dry_run=dry_run)
    _tell(done, as_json)


@click.command(
    short_help="Write a session to one file.",
    epilog="\b\nExample:\n  snapshotter export ./data chat-42 chat-42.zip",
)
@url_argument
@session_argument
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@json_option
def export(url: str, session: str, file: Path, as_json: bool) -> None:
    """Write SESSION to FILE, a zip archive of its stored objects with their checksums.

    FILE must not exist yet. A worker may be at work meanwhile.
    """
    if str(file) == "-":
        raise click.UsageError("an export is written to a file and not to standard output: name a file")
    with open_database(url) as db:
        done = export_session(db, session, file)
    if as_json:
        emit({**done.to_json(), "file": str(file)})
        return
    say(f"{session}: {count(done.written, 'object')} in {file}")
    if done.why:
        aside(done.why)


@click.command(
    "import",
    short_help="Read a session from a file that export wrote.",
    epilog="\b\nExample:\n  snapshotter import s3://bucket/agents chat-42.zip",
)
@url_argument
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=LIMIT >> 20,
    show_default=True,
    metavar="MIB",
    help="What its objects may take together, unpacked; they are held in memory.",
)
@_DRY_RUN
@json_option
def import_session(url: str, file: Path, limit: int, dry_run: bool, as_json: bool) -> None:
    """Write the session that FILE holds into the root at URL, under its own id.

    Everything is checked first: checksums, and that the session verifies. One that exists is never changed.
    """
    try:
        with open_database(url) as db:
            done = import_(db, file, dry_run=dry_run, limit=limit << 20)
    except Corrupt as error:
        if error.key == str(file) and not isinstance(error, NewerVersion):
            error.add_note(_NO_EXPORT)
        raise
    _tell(done, as_json)


@click.command(
    short_help="Begin a new session where another stands, or stood.",
    epilog="\b\nExample:\n  snapshotter fork ./data chat-42 chat-42-b --turn 3",
)
@url_argument
@click.argument("source")
@click.argument("target")
@click.option("--turn", type=click.IntRange(min=1), help="Where SOURCE stood after this turn; default: now.")
@_DRY_RUN
@json_option
def fork(url: str, source: str, target: str, turn: int | None, dry_run: bool, as_json: bool) -> None:
    """Make TARGET a new session with the history and state of SOURCE.

    Nothing is shared: what is stored apart is copied, by the store itself where it can. What is owed in
    SOURCE, and a turn that is open, stay behind.
    """
    with open_database(url) as db:
        done = fork_session(db, source, target, turn=turn, dry_run=dry_run)
    _tell(done, as_json)


@click.command(
    short_help="Erase one message from everything that is stored.",
    epilog="\b\nExample:\n  snapshotter redact ./data chat-42 --message u7 --yes\n"
    "  snapshotter redact ./data chat-42 --message u7 --dry-run",
)
@url_argument
@session_argument
@click.option("--message", "message_id", help="The id of the message.")
@click.option(
    "--value",
    help="The message that has this large value. Its name is that of the object below values/SESSION/,"
    " without .json.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--takeover", is_flag=True, help="Do not wait for a worker: it is known to be dead.")
@_DRY_RUN
@json_option
def redact(
    url: str,
    session: str,
    message_id: str | None,
    value: str | None,
    yes: bool,
    takeover: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Erase a message of SESSION: from both logs, snapshot, blocks, values and checkpoints.

    Its place says [redacted]. A worker that holds it in memory is fenced. Forks, exports, what other messages
    repeat of it, and what the bucket's own versioning keeps are not reached.
    """
    if not (yes or dry_run):
        _confirm(f"Erase {message_id or value!r} of session {session!r} for good?")
    with open_database(url) as db:
        done = redact_session(db, session, message_id, value=value, takeover=takeover, dry_run=dry_run)
    _tell(done, as_json)


def _confirm(question: str) -> None:
    """Ask a person; where there is none to be asked, refuse."""
    if not _is_terminal():
        raise click.UsageError("nobody is there to be asked: give --yes, or --dry-run to see what would go")
    click.confirm(shown(question), abort=True, err=True)


def _is_terminal() -> bool:
    return sys.stdin.isatty()


def _tell(done: Done, as_json: bool) -> None:
    if as_json:
        emit(done.to_json())
        return
    say(f"{done.session}  {'would ' if done.dry_run else ''}{in_words(done)}")
