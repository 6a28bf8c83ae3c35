"""The demonstration: real streams recorded, a worker killed in the middle of an answer, another carries on.

It runs on any store. The first worker is a process of its own (`python -m snapshotter record`), so the kill
is a real one: no destructor runs, no buffer is flushed. The "model" is a recording of a real agent, played
as if it streamed now. Every outcome is compared with what it should be, and the story tells each of these
checks; nothing is taken on trust because it looked right.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from shutil import which
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from streams.clock import Clock, SystemClock
from streams.errors import Refused

from .core.contract import fold_records
from .core.replay import replay
from .core.revive import revive
from .database import Database
from .database import open as open_database
from .receipt import Receipt
from .recovery import ChatRecovery
from .session import Session
from .verify import verify

Chunk = dict[str, Any]
Message = dict[str, Any]

RECORDINGS = Path(__file__).parent / "recordings"
_AT_ONCE = ChatRecovery(max_backoff=0)  # nobody wants to watch the pause after a death
SESSION = "trip"
_KILL_AFTER = 120  # records of the answer that are durable when the first worker dies
_DELAY = 0.008  # seconds between two chunks of the worker that is killed
_PATIENCE = 60.0  # seconds until a worker that does not get there is ended


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that had to be so."""

    what: str
    ok: bool
    detail: str = ""


@dataclass(slots=True)
class Outcome:
    """How the demonstration went. `url` is the root that this run has left."""

    url: str
    session: str = SESSION
    checks: list[Check] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return bool(self.checks) and all(check.ok for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        return {"ok": self.ok, **asdict(self)}


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded stream. `about` holds what it says of itself: name, user, and message for a continuation."""

    about: dict[str, Any]
    chunks: list[Chunk]

    def message(self) -> Message:
        """The message that a client shows once the stream is over."""
        shown: Message = replay({"chunks": self.chunks, "message": self.about.get("message")})["message"]
        return shown


def recording(name: str) -> Recording:
    """A recording that is shipped with the package."""
    lines = (RECORDINGS / f"{name}.jsonl").read_text("utf-8").split("\n")
    about, *chunks = [json.loads(line) for line in lines if line]
    return Recording(about, chunks)


def run(
    url: str,
    *,
    kill: bool = True,
    say: Callable[[str], None] = lambda _line: None,
    clock: Clock | None = None,
) -> Outcome:
    """Run the demonstration below the root `url`, in a part of its own; `say` gets the story's lines.

    With `kill=False` the first worker is asked to stop (SIGTERM) and releases its turn. Raises Refused for
    a memory:// root, which another process cannot see, and what the store raises.
    """
    if url.startswith("memory:"):
        raise Refused("the demo needs a store that two processes share: give a folder or a bucket")
    outcome = Outcome(_own_part(url, clock or SystemClock()))
    with open_database(outcome.url, durability="live", clock=clock, recovery=_AT_ONCE) as db:
        story = _Story(db, outcome, say)
        story.record_turns()
        receipt = story.ask("guide")
        story.lose_a_worker(kill)
        story.carry_on(receipt, kill)
        story.check_log()
        story.send_twice()
        story.leave()
    return outcome


def _own_part(url: str, clock: Clock) -> str:
    parts = urlsplit(url)
    path = f"{parts.path.rstrip('/')}/run-{clock.now_ms()}-{clock.token()[:6]}"
    if parts.scheme == "file":
        Path(unquote(path)).mkdir(parents=True)
    return urlunsplit(parts._replace(path=path))


class _Story:
    """The steps, in order, and the checks of each."""

    def __init__(self, db: Database, outcome: Outcome, say: Callable[[str], None]) -> None:
        self._db = db
        self._outcome = outcome
        self._say = say
        self._step = 0
        self._seen_durable = 0

    def _title(self, text: str) -> None:
        self._step += 1
        self._say("")
        self._say(f"{self._step}. {text}")

    def _check(self, what: str, ok: bool, detail: str = "") -> None:
        self._outcome.checks.append(Check(what, ok, "" if ok else detail))
        self._say(f"   {'✓' if ok else '✗'} {what}{f' – {detail}' if detail and not ok else ''}")

    # -- 1: turns -----------------------------------------------------------------------------------

    def record_turns(self) -> None:
        self._say(f"Everything below happens in {self._outcome.url}")
        self._title("Turns of a real agent are recorded, each in a fresh worker")
        self._turn(self.ask("forecast"), "forecast", "reasoning, two calls at once, three steps")
        self._turn(self.ask("book"), "book", "a call that waits for a person's approval")
        call = self._db.peek(SESSION).messages[-1]["parts"][-1]
        receipt = self._db.approve(SESSION, call["approval"]["id"])
        self._turn(receipt, "book-approved", "the approval arrives, the same message goes on")

    def ask(self, name: str) -> Receipt:
        return self._db.send(SESSION, recording(name).about["user"], key=f"ask-{name}")

    def _turn(self, receipt: Receipt, name: str, about: str) -> None:
        played = recording(name)
        with self._db.boot(receipt=receipt) as session:
            _work(session, lambda _session: iter(played.chunks))
        stored = self._db.history(SESSION)[-1]
        self._check(f"{about}: stored as a client shows it", stored == played.message(), f"got {stored}")

    # -- 2: a worker dies -----------------------------------------------------------------------------

    def lose_a_worker(self, kill: bool) -> None:
        how = "killed (SIGKILL)" if kill else "told to stop (SIGTERM)"
        self._title(f"A worker process streams a long answer and is {how} in the middle")
        goal = self._db.peek(SESSION).cursor["out"] + _KILL_AFTER
        command = [sys.executable, "-P", "-m", "snapshotter", "record", self._outcome.url, SESSION]
        command += [str(RECORDINGS / "guide.jsonl"), "--delay", str(_DELAY), "--durability", "live", "--json"]
        worker = subprocess.Popen(  # noqa: S603 - our own command
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", env=_environment()
        )
        watchdog = threading.Timer(_PATIENCE, worker.kill)
        watchdog.start()
        try:
            durable = self._await_durable(worker, goal)
            worker.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
            _, told = worker.communicate()
        finally:
            watchdog.cancel()
            with suppress(ProcessLookupError):
                worker.kill()
            worker.wait()
        self._seen_durable = durable
        expected = -signal.SIGKILL if kill else 143
        self._check(
            f"process {worker.pid} is gone; its last word was that record {durable} is durable",
            worker.returncode == expected and durable >= goal,
            f"exit code {worker.returncode}: {told.strip()}",
        )

    def _await_durable(self, worker: subprocess.Popen[str], goal: int) -> int:
        durable = 0
        assert worker.stdout is not None
        for line in worker.stdout:
            durable = json.loads(line).get("durable_id", durable)
            if durable >= goal:
                break
        return durable

    # -- 3: the next one --------------------------------------------------------------------------------

    def carry_on(self, receipt: Receipt, kill: bool) -> None:
        self._title("A second worker boots the session")
        busy = self._db.peek(SESSION).busy
        if kill:
            left = f"{busy.retry_after:.0f} s" if busy is not None else "no time"
            self._say(f"   Its lease lets the first one live for {left} more; we saw it die, and take over.")
            self._check("until then nobody else would have been let in", busy is not None)
        else:
            self._check("the first one has let go: nobody has to wait", busy is None)
        with self._db.boot(receipt=receipt, takeover=kill) as session:
            self._show(session)
            partial = session.partial
            text = _text(partial) if partial is not None else ""
            whole = _text(recording("guide").message())
            self._check(
                "all that was told to be durable is there", session.cursor["out"] >= self._seen_durable
            )
            self._check("the unfinished answer is a piece of the real one", 0 < len(text) < len(whole))
            self._check("… and begins as it does, to the letter", whole.startswith(text))
            self._finish(session, text)

    def _show(self, session: Session) -> None:
        cost, resume = session.booted, session.resume
        partial = f"{len(_text(session.partial)):,} characters" if session.partial else "none"
        self._say(f"   history   {len(session.messages)} messages, the unfinished answer spliced onto them")
        self._say(f"   partial   {partial}")
        self._say(f"   pending   {len(session.pending)} further inputs")
        self._say(f"   resume    {resume.kind} (turn {resume.turn}, attempt {resume.attempt} was cut off)")
        self._say(
            f"   cost      {cost.requests} requests in {cost.round_trips} round trips, "
            f"{cost.bytes_read:,} bytes read"
        )

    def _finish(self, session: Session, text: str) -> None:
        """The model is asked again; it streams the recording, or what is missing of it."""
        continues = session.resume.kind == "continue_response"
        chunks = recording("guide").chunks
        statuses = _work(session, lambda _s: iter(_from(chunks, len(text)) if continues else chunks))
        answers = [m for m in self._db.history(SESSION) if m["role"] == "assistant"]
        expected = recording("guide").message()
        same = _text(answers[-1]) == _text(expected) if continues else answers[-1] == expected
        done = statuses == [("completed", 2)]
        self._check("the turn is finished by its second attempt", done, str(statuses))
        self._check("the answer is whole, and there once", same and len(answers) == 3, f"got {answers[-1]}")

    # -- 4 to 6: what remains -----------------------------------------------------------------------------

    def check_log(self) -> None:
        self._title("The log alone is asked for the history")
        incoming = list(self._db.records(SESSION, "in"))
        outgoing = list(self._db.records(SESSION, "out"))
        rebuilt = revive(fold_records(incoming, outgoing)).messages
        self._check(
            f"{len(incoming)} records in and {len(outgoing)} out rebuild the same {len(rebuilt)} messages",
            rebuilt == self._db.history(SESSION),
        )
        verdict = verify(self._db, SESSION)
        self._check(
            f"{verdict.segments} segments are whole; snapshot, log and boot agree",
            verdict.ok and verdict.rebuildable,
            str(verdict.problems),
        )

    def send_twice(self) -> None:
        self._title("The same message is sent twice, as an impatient client does")
        before = len(self._db.history(SESSION))
        first, second = self.ask("quote"), self.ask("quote")
        self._check("both get the same receipt", second.id == first.id and second.duplicate)
        for receipt in (first, second):
            with self._db.boot(receipt=receipt) as session:
                _work(session, lambda _session: iter(recording("quote").chunks))
        added = [message["role"] for message in self._db.history(SESSION)[before:]]
        self._check("it stands in the history once, and is answered once", added == ["user", "assistant"])

    def leave(self) -> None:
        url = shlex.quote(self._outcome.url)
        self._title("Look into it")
        for command in (f"history {url} {SESSION}", f"boot {url} {SESSION}", f"log {url} {SESSION} out"):
            self._say(f"   {_program()} {command}")
        self._say(f"   {_program()} verify {url}")
        failed = [check.what for check in self._outcome.checks if not check.ok]
        self._say("")
        self._say(f"{len(self._outcome.checks)} checks, {len(failed) or 'none'} failed.")


def _environment() -> dict[str, str]:
    """Ours, and so that the worker runs this very package, whatever folder we are in."""
    path = [str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}


def _program() -> str:
    """How a person calls the command line here."""
    script = Path(sys.executable).with_name("snapshotter")
    if which("snapshotter") is not None:
        return "snapshotter"
    if not script.exists():
        return f"{sys.executable} -m snapshotter"
    return str(script.relative_to(Path.cwd()) if script.is_relative_to(Path.cwd()) else script)


def _work(session: Session, model: Callable[[Session], Iterator[Chunk]]) -> list[tuple[str | None, int]]:
    """A worker's loop; returns the status and the attempt of each turn."""
    done = []
    for turn in session.turns():
        attempt = turn.attempt
        with turn:
            for _chunk in turn.tee(model(session)):
                pass  # a real worker forwards it to its client here
        done.append((turn.status, attempt))
    return done


def _text(message: Message) -> str:
    return "".join(part["text"] for part in message["parts"] if part["type"] == "text")


def _from(chunks: list[Chunk], length: int) -> Iterator[Chunk]:
    """The stream of a model that was shown the first `length` characters of its text and goes on."""
    for chunk in chunks:
        if chunk["type"] == "text-delta" and length:
            rest = chunk["delta"][length:]
            length -= len(chunk["delta"]) - len(rest)
            if not rest:
                continue
            chunk = {**chunk, "delta": rest}
        yield chunk
