"""From an exception to what a person reads, what a program reads, and an exit code.

What helps goes by the error's kind; a command that knows better, since it knows which of its arguments was
wrong, says so in a note on the error (`add_note`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

import click

from snapshotter import errors

from .output import emit, painted, say

PROBLEM, REFUSED, GAP, CORRUPT, RETRY, MISCONFIGURED, DEFECT = 1, 2, 3, 4, 5, 6, 70

# The first that fits decides.
_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (errors.Gap, GAP),
    (errors.Damaged, CORRUPT),
    (errors.Retryable, RETRY),
    (errors.Misconfigured, MISCONFIGURED),
    (errors.StreamError, REFUSED),
    (OSError, REFUSED),
)
_LOOK = "`snapshotter verify URL SESSION` names every object that is missing or cannot be read"
_KEYS = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or OBJECT_STORE_ACCESS_KEY_ID and "
    "OBJECT_STORE_SECRET_ACCESS_KEY), then `snapshotter doctor URL`"
)
_HINTS: tuple[tuple[type[BaseException], str], ...] = (
    (errors.Busy, "wait, or give --takeover where you know that the other worker is dead"),
    (errors.Fenced, "nothing is lost; run the command again to see how the session stands"),
    (errors.Unknown, "send again with the same --id or --key: it is stored once"),
    (errors.Unreachable, "check the endpoint and the network; `snapshotter doctor URL` tries them"),
    (errors.BucketMissing, "create it first: snapshotter never creates a bucket"),
    (errors.CredentialsExpired, _KEYS),
    (errors.Unsupported, "`snapshotter doctor URL` says which guarantee is missing"),
    (errors.NewerVersion, "upgrade snapshotter"),
    (errors.Damaged, _LOOK),
)
_DETAILS = ("log", "missing", "key", "offset", "retry_after", "first", "path", "size", "limit", "rule", "at")


class CutShort(Exception):
    """Input that was refused part-way, at `line` (from 1) of a stream, for the reason `why`; the turn that it
    was written into is released."""

    def __init__(self, why: errors.StreamError, line: int) -> None:
        super().__init__(str(why))
        self.why = why
        self.line = line


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong: a code word, a sentence, an exit code, and details for a program."""

    code: str
    message: str
    exit_code: int
    hint: str | None = None
    details: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {"error": self.code, "message": self.message, **self.details}

    def show(self, *, as_json: bool) -> None:
        if as_json:
            emit(self.to_json())
            return
        say(mark=painted(f"error: {self.message}", fg="red"), err=True)
        if self.hint:
            say(f"hint: {self.hint}", err=True)


def failure_of(error: BaseException) -> Failure:
    """What an exception comes to; one that is nobody's mistake but ours is a `defect`."""
    if isinstance(error, click.Abort):
        # It stands for a KeyboardInterrupt, whose notes say what now.
        hint = next(iter(getattr(error.__cause__, "__notes__", ())), None)
        return Failure("interrupted", "interrupted", 130, hint)
    if isinstance(error, click.ClickException):
        return Failure("usage", _one_line(error.format_message()), REFUSED, _usage(error))
    if isinstance(error, CutShort):
        return _cut_short(error)
    for kind, exit_code in _CODES:
        if isinstance(error, kind):
            by_kind = (text for known, text in _HINTS if isinstance(error, known))
            hint = next(iter((*getattr(error, "__notes__", ()), *by_kind)), None)
            details = {name: getattr(error, name) for name in _DETAILS if hasattr(error, name)}
            return Failure(code_word(error), _one_line(str(error)), exit_code, hint, _plain(details))
    return Failure(
        "defect",
        _one_line(f"a defect of snapshotter: {type(error).__name__}: {error}"),
        DEFECT,
        "please report it; SNAPSHOTTER_TRACEBACK=1 shows where it happened",
    )


def _cut_short(error: CutShort) -> Failure:
    why, line = failure_of(error.why), f"line {error.line}"
    return replace(
        why,
        message=why.message if why.message.startswith(f"{line}:") else f"{line}: {why.message}",
        hint="nothing of this line was stored, what came before it is; the turn was released, so the next "
        "`record`, or any worker, goes on with it",
        details={**why.details, "line": error.line, "status": "released"},
    )


def code_word(error: BaseException) -> str:
    """`BucketMissing` → `bucket-missing`."""
    name = "file" if isinstance(error, OSError) else type(error).__name__
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()


def _usage(error: click.ClickException) -> str | None:
    context = getattr(error, "ctx", None)
    if context is not None and isinstance(error, click.NoSuchOption):
        program = context.find_root()
        for known in program.command.params:
            if error.option_name in known.opts and not known.is_eager and isinstance(known, click.Option):
                given = error.option_name if known.is_flag else f"{error.option_name} …"
                return f"write it before the command: `snapshotter {given} {context.info_name} …`"
    return f"`{context.command_path} --help` shows how, with an example" if context is not None else None


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _plain(details: dict[str, Any]) -> dict[str, Any]:
    """Without what says nothing, and with JSON's own types."""
    kept = {name: value for name, value in details.items() if value not in (None, "")}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in kept.items()}
