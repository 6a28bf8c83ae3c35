"""`incident`: what the next boot will do about an interrupted turn, and why the last one was given up.

Of a session in a store, or of records in files. A store is asked by its own clock, as a boot asks it, and
nothing is written. Files say what another implementation's log, or a saved one, would come to at `--now`.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, BinaryIO

import click

from snapshotter import ChatRecovery, Session
from snapshotter.core.budget import Incident
from snapshotter.core.moves import next_step
from snapshotter.core.verdict import incident_case, incident_of
from snapshotter.errors import Gap, InvalidValue
from snapshotter.hosting.status import Outcome, outcome_of
from snapshotter.recovery import cause_text

from .cases import json_object, records
from .output import count, emit, field, json_option, named, open_database, store_url, tell_absent, when
from .problems import GAP

_OPTIONS = ("run", "cause", "keep", "limits")
_LIMITS = (
    "max_attempts",
    "stable_timeout",
    "stall_timeout",
    "no_progress_timeout",
    "max_recovery_work",
    "max_interrupted_attempts",
    "max_backoff",
)
_NEAR = 200  # records before the log's end in which a turn's end is looked for
_SECONDS, _MS = 10**8, 10**11  # 1973, in seconds and in milliseconds
_DOES = {
    "seal": "closes the turn, without a model call",
    "spend": "writes off what has no effect any more",
    "idle": "has nothing to do",
}


@click.command(
    short_help="What the next boot does about an interrupted turn, and why one was given up.",
    epilog="\b\nExample:\n  snapshotter incident ./data chat-42\n"
    "  snapshotter log ./data chat-42 in > in.jsonl\n"
    "  snapshotter log ./data chat-42 out > out.jsonl\n"
    "  snapshotter incident --in in.jsonl --out out.jsonl --now 1764000000000",
)
@click.argument("url", required=False)
@click.argument("session", required=False)
@click.option("--in", "incoming", type=click.File("rb"), help="Records of the in log, in place of a store.")
@click.option("--out", "outgoing", type=click.File("rb"), help="Records of the out log.")
@click.option("--now", type=int, help="With files: the time of the question, epoch milliseconds.")
@click.option("--options", help='JSON: {"run", "cause", "keep", "limits"}.')
@json_option
@click.pass_context
def incident(
    ctx: click.Context,
    url: str | None,
    session: str | None,
    incoming: BinaryIO | None,
    outgoing: BinaryIO | None,
    now: int | None,
    options: str | None,
    as_json: bool,
) -> None:
    """Show whether the next boot of SESSION goes on with an interrupted turn, what it has cost so far, and
    how the last turn ended.

    OPTIONS: `limits` are fields of your ChatRecovery, `cause` what is known of the last death, `run` the
    asker's own run, `keep` what should_keep_recovering answers (true, false or "raise").

    With --in, --out and --now the same of files: the verdict as JSON, {"decision":"go_on"|"give_up",
    "reason", "attempt" (the next), "interruptions", "strikes", "work", "idle_ms", "backoff_s"}; the backoff
    counts from the last record, and records later than --now do not count.
    """
    given = _given(options)
    limits = ChatRecovery(**given.get("limits", {}))
    files = (incoming, outgoing, now)
    if url is not None and session is not None and files == (None, None, None):
        _of_store(store_url(url), session, limits, given, as_json=as_json)
    elif url is None and incoming is not None and outgoing is not None and now is not None:
        outputs = records(outgoing)
        _check_now(now, outputs)
        result = incident_case(records(incoming), outputs, limits.limits, {**given, "now": now})
        emit(result)
        if result.get("error") == "gap":
            ctx.exit(GAP)
    else:
        raise click.UsageError("give URL and SESSION, or --in, --out and --now")


def _given(options: str | None) -> dict[str, Any]:
    """The options. Raises InvalidValue for a word that is not known, and for a value that makes no sense."""
    given = json_object(options) if options is not None else {}
    for name in given:
        if name not in _OPTIONS:
            raise InvalidValue(f"options.{name}: not known; there are {', '.join(_OPTIONS)}", path=name)
    limits = given.get("limits", {})
    if not isinstance(limits, dict):
        raise InvalidValue(f"limits: an object with some of {', '.join(_LIMITS)} is needed", path="limits")
    for name in limits:
        if name not in _LIMITS:
            raise InvalidValue(f"limits.{name}: not known; there are {', '.join(_LIMITS)}", path="limits")
    if given.get("keep", True) not in (True, False, "raise"):
        raise InvalidValue('keep: true, false or "raise" is needed', path="keep")
    if given.get("cause") is not None:
        cause_text(given["cause"])
    if not isinstance(given.get("run", ""), str):
        raise InvalidValue("run: a text is needed", path="run")
    return given


def _check_now(now: int, outputs: list[dict[str, Any]]) -> None:
    """Raises InvalidValue for a time before all records, about which nothing could be said."""
    times = [record["ts"] for record in outputs if type(record.get("ts")) is int]
    if times and now < min(times):
        seconds = "; it takes milliseconds, these look like seconds" if _SECONDS <= now < _MS else ""
        raise InvalidValue(
            f"--now {now} is before all records, which begin at {min(times)}{seconds}", path="now"
        )


# -- a session in a store ----------------------------------------------------------------------------------


def _of_store(url: str, session: str, config: ChatRecovery, given: dict[str, Any], *, as_json: bool) -> None:
    with open_database(url, recovery=config) as db:
        found = db.peek(session)
        tell_absent(db, found)
        outcome = outcome_of(found.fold)
        ended = _ended_at(db.records(session, "out", after=max(0, found.fold.cursor - _NEAR)), outcome)
    answer = given.get("keep", True)

    def keep(_incident: Incident) -> bool:
        return answer is not False

    judged = incident_of(
        found.fold,
        found.plan,
        limits=config.limits,
        run=given.get("run"),
        cause=given.get("cause"),
        keep=keep,
    )
    does, wait = next_in_words(found, judged)
    if as_json:
        told = None if outcome is None else {**asdict(outcome), "ended_ms": ended}
        # Where no attempt comes next there is nothing to judge.
        comes = next_step(found.plan) in ("resume", "item")
        verdict = {**judged.to_json(), "id": judged.id, "error": judged.error} if comes else None
        state = {"session": session, "deleted": found.fold.deleted, "next": does, "wait_s": wait}
        emit({**state, "incident": verdict, "outcome": told})
        return
    field("session", named(found))
    field("next boot", does if not wait else f"waits {wait:.0f} s, then {does}")
    if judged.attempt > 1 or judged.interruptions:
        field("attempts", f"{judged.attempt - 1} so far, {judged.interruptions} of them interrupted")
        field("cost", f"{judged.work} of work, {count(judged.strikes, 'attempt')} in a row without progress")
    if judged.error is not None:
        field("said", judged.error)
    tell_outcome(outcome, ended)


def next_in_words(found: Session, judged: Incident) -> tuple[str, float]:
    """What the next boot does first, in words, and how many seconds it has to wait before."""
    step, plan = next_step(found.plan), found.plan
    wait = 0.0 if found.busy is None else found.busy.retry_after
    if judged.gives_up:
        return f"gives the turn up: {judged.reason}", wait
    if step == "resume":
        return f"begins attempt {judged.attempt} ({plan.resume.kind})", wait
    if step == "item":
        return f"answers input {', '.join(map(str, plan.pending[0].ids))} ({plan.pending[0].kind})", wait
    if step == "idle" and plan.resume.kind == "waiting":
        return "waits for an answer of a person or a client", wait
    return _DOES[step], wait


def tell_outcome(outcome: Outcome | None, ended_ms: int | None = None) -> None:
    """How the last turn ended, in words; nothing before the first."""
    if outcome is None:
        return
    at = "" if ended_ms is None else f", {when(ended_ms)}"
    why = "" if outcome.reason is None else f": {outcome.reason}"
    field("last turn", f"{outcome.turn} {outcome.status}{why}{at}")
    if outcome.error is not None:
        field("told", outcome.error)
    if outcome.detail is not None:
        field("said", outcome.detail)


def _ended_at(newest: Any, outcome: Outcome | None) -> int | None:
    """When the last turn ended (epoch ms), from the end of the log; None where that no longer has it."""
    found = None
    try:
        for record in newest if outcome is not None else ():
            if record.get("control") == "turn-complete" and type(record.get("ts")) is int:
                found = record["ts"] if record.get("turn") == getattr(outcome, "turn", None) else found
    except Gap:
        return None
    return found
