"""What the stored records of a session say of its history.

Written from FORMAT.md and SEMANTICS.md alone, as `pieces` is, which reads the bytes. `Shelf` is the little
that a history can be judged by: the user messages in order, and between them the words with which each
completed answer ended.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pieces import Broken, Log, Piece, Record, filled, history_of, inputs_of, log_of, pieces_of

WORD = re.compile(r"([\w-]+)~([\w-]+)\.(\d+|fin)")
SEALED = ("completed", "error", "aborted", "exhausted")


@dataclass
class Answer:
    """An assistant message: its id, and the last words of the answers that it holds."""

    message: str
    fins: list[str] = field(default_factory=list)


@dataclass
class Turn:
    """A turn as the out log tells it."""

    number: int
    inputs: list[int]
    mode: str
    message: str
    run: str
    attempts: int = 1
    status: str | None = None
    reason: str | None = None
    words: set[str] = field(default_factory=set)
    """Every word that it streamed, dropped attempts included."""
    fins: set[str] = field(default_factory=set)
    """The last words of those answers that no later attempt has dropped."""
    after: list[list[int]] = field(default_factory=list)
    """Inputs that were spent while it was open."""


class Shelf:
    """User messages (their ids) and answers, in the order of the history."""

    def __init__(self, inputs: Mapping[int, Record]) -> None:
        self.inputs = inputs
        self.rows: list[str | Answer] = []
        self.placed: set[str] = set()

    @property
    def users(self) -> list[str]:
        return [row for row in self.rows if isinstance(row, str)]

    @property
    def fins(self) -> list[str]:
        return [word for row in self.rows if isinstance(row, Answer) for word in row.fins]

    def answer(self, message: str) -> Answer | None:
        return next((r for r in self.rows if isinstance(r, Answer) and r.message == message), None)

    def take(self, numbers: Iterable[int]) -> None:
        """A turn-start, or an input-applied, names these inputs."""
        heirs: dict[str, str] = {}
        for number in sorted(numbers):
            record = self.inputs[number]
            if record["kind"] == "regenerate":
                self._cut(record.get("messageId"))
            elif record["kind"] == "edit":
                target, message = record["messageId"], record["message"]["id"]
                replaced = heirs.get(target, target)
                self._edit(replaced, message)
                # Whoever edits one of them again means what stands there now.
                heirs |= {name: message for name, heir in heirs.items() if heir == replaced}
                heirs |= {target: message, replaced: message}
            elif record["kind"] == "message" and record["message"]["role"] == "user":
                self.add(record["message"]["id"])

    def add(self, message: str) -> None:
        if message not in self.placed:
            self.placed.add(message)
            self.rows.append(message)

    def _edit(self, target: str, message: str) -> None:
        if message in self.placed:
            return
        if target in self.rows:
            del self.rows[self.rows.index(target) :]
        self.add(message)

    def _cut(self, message: str | None) -> None:
        found = self.answer(message) if message else None
        if found is not None:
            del self.rows[self.rows.index(found) :]

    def copy(self) -> Shelf:
        other = Shelf(self.inputs)
        other.rows = [Answer(r.message, list(r.fins)) if isinstance(r, Answer) else r for r in self.rows]
        other.placed = set(self.placed)
        return other


@dataclass
class Story:
    """What both logs of a session say. `shelves`: the history by out id, wherever no turn was open."""

    inputs: dict[int, Record]
    turns: list[Turn] = field(default_factory=list)
    applied: set[int] = field(default_factory=set)
    """Inputs that are done with: their turn closed, or they were spent."""
    settled: set[int] = field(default_factory=set)
    """Those of them that no turn may take again: all but what an interrupted turn had taken."""
    claims: int = 0
    last: int = 0
    open: Turn | None = None
    ends: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Segment's last id → its nonce and first id."""
    shelves: dict[int, tuple[Shelf, frozenset[int]]] = field(default_factory=dict)
    """Segment's last id → the history there and the applied inputs."""
    shelf: Shelf = field(init=False)
    problems: list[str] = field(default_factory=list)
    log: Log = field(default_factory=lambda: Log([]))
    known: set[str] = field(default_factory=set)
    """The last words in the history of the checkpoint that a trimmed log stands behind."""
    excused: set[int] = field(default_factory=set)
    """Inputs that were done before the log begins, or before the session began anew."""
    closed: bool = False
    deleted: bool = False

    def __post_init__(self) -> None:
        self.shelf = Shelf(self.inputs)

    @property
    def repeats(self) -> set[int]:
        """Inputs that say again, under the same key or message id, what one of the 31 before them says: done
        with their first, never named; and what says that some are redacted, of which none is a copy then."""
        found, barred = set(), set()
        for number, record in sorted(self.inputs.items()):
            known = [n for n in range(number - 31, number) if n in self.inputs and n not in barred]
            if record["kind"] == "redaction":
                found.add(number)
                barred |= {named for named, _ in record["inputs"]}
            elif "redacted" in record:
                found |= {number} - {record["redacted"]}
                barred.add(number)
            elif "key" in record or record["kind"] == "message":
                found |= {number} if _said(record) in [_said(self.inputs[n]) for n in known] else set()
        return found


def _said(record: Record) -> Record:
    """What an input says: a message itself, of anything else the body and its key."""
    if "message" in record and record["kind"] == "message":
        return {"message": record["message"]}
    return {name: value for name, value in record.items() if name not in ("id", "ts")}


def story_of(objects: Mapping[str, bytes], sid: str, *, tidied: bool = False) -> Story:
    """Raises Broken where a log does not hold together; what a single writer must not do is in `problems`.
    `tidied`: somebody tidies up, so the logs may be merged, trimmed or deleted (see `pieces`)."""
    log = log_of(objects, sid) if tidied else Log(pieces_of(objects, "out", sid))
    story = Story(inputs_of(objects, sid, log.floor), log=log)
    if log.base is not None:
        _begin(story, log, history_of(objects, sid, log.base))
    for piece in log.pieces:
        merged = tidied and piece.says("turn-complete")  # the segments of several runs, perhaps
        for record in piece.records:
            _tell(story, filled(objects, sid, record), piece, merged)
        story.last = piece.last
        story.ends[story.last] = (piece.head["nonce"], piece.first)
        if story.open is None:
            story.shelves[story.last] = (story.shelf.copy(), frozenset(story.applied))
    return story


def _begin(story: Story, log: Log, history: list[Record]) -> None:
    """A trimmed log: what its checkpoint says comes first."""
    base = log.base
    assert base is not None
    for message in history:
        if message["role"] == "user":
            story.shelf.add(message["id"])
        else:
            fins = [word for words in words_of(message) for word in words if word.endswith(".fin")]
            story.shelf.rows.append(Answer(message["id"], fins))
            story.known.update(fins)
    story.applied = {*range(1, log.floor + 1), *base["inApplied"]}
    story.settled, story.excused = set(story.applied), set(story.applied)
    story.last = int(base["lastOutEventId"])
    story.closed = base["closed"]
    story.ends[story.last] = (base["lastOutNonce"], int(base["lastOutFirst"]))
    story.shelves[story.last] = (story.shelf.copy(), frozenset(story.applied))
    newest = next((r for p in log.below for r in p.records if r.get("control") == "turn-start"), None)
    if newest is not None and not set(newest["inputs"]) <= set(story.inputs):
        raise Broken(log.below[0].key, f"what {newest['inputs']} was is not there any more")


def _tell(story: Story, record: Record, piece: Piece, merged: bool) -> None:
    control = record.get("control")
    turn = story.open
    if control in ("turn-start", "input-applied") and not set(record["inputs"]) <= set(story.inputs):
        raise Broken(piece.key, f"{record['id']} names inputs that the in log lacks")
    if control == "turn-start":
        _start(story, record)
    elif control == "turn-complete":
        if turn is None or record["turn"] != turn.number:
            story.problems.append(f"{record['id']}: ends turn {record['turn']}, which is not open")
            return
        _close(story, turn, record)
    elif control == "input-applied":
        spent = [n for n in record["inputs"] if n not in story.applied]
        if turn is None:
            story.shelf.take(spent)
        else:  # as if it were spent right behind the turn's end
            turn.after.append([n for n in spent if n not in turn.inputs])
        story.applied.update(record["inputs"])
        story.settled.update(record["inputs"])
    elif control == "fence" and record["why"] == "boot":
        story.claims += 1
    elif control in ("session-closed", "session-deleted") or control == "fence":
        _end(story, record)
    elif "chunk" in record:
        if turn is None:
            story.problems.append(f"{record['id']}: a chunk of no turn")
        elif turn.run != piece.head["run"] and not merged:
            story.problems.append(f"{record['id']}: a chunk of {piece.head['run']} in a turn of {turn.run}")
        else:
            words = record["chunk"].get("delta", "").split()
            turn.words.update(words)
            turn.fins.update(word for word in words if word.endswith(".fin"))


def _end(story: Story, record: Record) -> None:
    """The session is closed or deleted, or begins anew."""
    if record.get("why") == "edit":
        return
    story.closed = record["control"] == "session-closed"
    if story.closed:
        return
    story.deleted = record["control"] == "session-deleted"
    story.open, story.shelf = None, Shelf(story.inputs)
    story.excused.update(range(1, record.get("for", 0) + 1))
    story.applied.update(story.excused)
    story.settled.update(story.applied)


def _start(story: Story, record: Record) -> None:
    turn = story.open
    if turn is not None:
        if record["turn"] != turn.number or record["attempt"] != turn.attempts + 1:
            story.problems.append(f"{record['id']}: turn {record['turn']} begins inside turn {turn.number}")
        turn.attempts, turn.run, turn.message = record["attempt"], record["run"], record["messageId"]
        if record["mode"] == "retry":  # it keeps what is settled, behind which an answer's last word stands
            turn.fins.clear()
        if not set(record["inputs"]) <= set(turn.inputs):
            story.problems.append(f"{record['id']}: another attempt takes other inputs")
        return
    turn = Turn(record["turn"], record["inputs"], record["mode"], record["messageId"], record["run"])
    story.problems += [
        f"{record['id']}: input {number} was done before" for number in turn.inputs if number in story.settled
    ]
    shelf = story.shelf
    shelf.take(turn.inputs)
    if shelf.answer(turn.message) is None:
        shelf.rows.append(Answer(turn.message))
    story.open = turn
    story.turns.append(turn)


def _close(story: Story, turn: Turn, record: Record) -> None:
    turn.status, turn.reason, story.open = record["status"], record.get("reason"), None
    story.applied.update(turn.inputs)
    if turn.status in SEALED:
        story.settled.update(turn.inputs)
    answer = story.shelf.answer(turn.message)
    if answer is not None and turn.status == "completed":
        answer.fins += sorted(turn.fins)
    for spent in turn.after:
        story.shelf.take(spent)


def words_of(message: Record) -> Iterator[list[str]]:
    """The words of each text of an assistant message."""
    for part in message["parts"]:
        if part["type"] == "text":
            yield part["text"].split()


def outputs_of(messages: Iterable[Record]) -> Iterator[Any]:
    """Every final output of a tool."""
    for message in messages:
        for part in message["parts"]:
            if part.get("state") == "output-available" and not part.get("preliminary"):
                yield part["output"]
