"""The reducer's second half: how inputs, history operations and compaction change the settled chain.

Order inside a turn-start (each step sees what the one before left):

1. tool answers move their calls forward;
2. a regenerate removes its target and all after it;
3. user messages are appended, edits replace their target and remove what followed it;
4. with a user message or an edit, each call before it that still waits, or is granted and not run, is
   closed: the person went on;
5. the assistant message opens: a new one, or in `continue` the stored one, in its place.

What is spent without a turn is placed like this, too, but opens and closes nothing. While a turn is open, a
user message or an edit that is spent waits for its close: as if it were spent right behind that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from streams.errors import Gap

from .apart import Unread
from .calls import Message, answer_call, calls_of, granted, locate, parts_of, supersede, waits
from .chain import free_id, id_of
from .inputs import Input
from .openturn import OpenTurn
from .tool_parts import is_settled

if TYPE_CHECKING:
    from .fold import Fold, Record


def check_named(fold: Fold, record: Record) -> None:
    """Raise Gap where a record names an input (`inputs`, `for`) that was not read. A claim's `for` is what
    its worker came for, by hearsay: nothing is taken from there, so it need not be there."""
    number = record.get("for") if "for" in record and record.get("why") != "boot" else 0
    number = number if type(number) is int else 0
    inputs = record.get("inputs")
    for named in inputs if type(inputs) is list else ():
        if type(named) is int and named > number:
            number = named
    if number > fold.inputs.last:
        missing = (fold.inputs.last + 1, number)
        raise Gap(f"in log: input {number} is named and not there", log="in", missing=missing)


def named_inputs(fold: Fold, record: Record) -> list[Input]:
    """The inputs that a record names and that may still have an effect, in the order of their ids.

    A duplicate stands for its first. What was applied counts only where the turn that took it was
    interrupted: the turn that follows may take it anew. Raises Unread for one whose message is not there.
    """
    found: dict[int, Input] = {}
    known = fold.inputs
    for number in record.get("inputs", ()):
        entry = known.get(number) if type(number) is int else None
        if entry is not None and entry.duplicate_of is not None:
            entry = known.get(entry.duplicate_of)
        if entry is not None and (not known.is_applied(entry.id) or entry.id in fold.placed):
            if entry.is_unread:
                raise Unread(entry.record)
            found[entry.id] = entry
    return [found[number] for number in sorted(found)]


# -- turn-start ---------------------------------------------------------------------------------------


def open_turn(fold: Fold, record: Record) -> OpenTurn:
    """Open a new turn, and return it. See the module's docstring for the order."""
    number = record["id"]
    entries = named_inputs(fold, record)
    turn = OpenTurn(
        turn=record.get("turn", fold.turn + 1),
        inputs=[entry.id for entry in entries],
    )
    turn.take(record)
    talk = [entry for entry in entries if entry.role in ("message", "edit")]
    if len(talk) < len(entries):
        fresh = [entry for entry in entries if entry.id not in fold.placed]
        for entry in fresh:
            if entry.role == "answer":
                apply_answer(fold, entry)
        for entry in fresh:
            if entry.role == "regenerate":
                _regenerate(fold, entry)
    for entry in talk:
        _place(fold, turn, entry)
    if talk:
        for position in fold.chain.unsettled():
            old = fold.chain.messages[position]
            closed = supersede(old)
            if closed is not old:
                fold.change(position, closed)
    _open_message(fold, turn, record, number)
    fold.turn = max(fold.turn, turn.turn)
    fold.open = turn
    return turn


def _open_message(fold: Fold, turn: OpenTurn, record: Record, number: int) -> None:
    named = record.get("messageId")
    if turn.mode == "continue":
        position = fold.chain.find(named)
        if position is not None and fold.chain.messages[position].get("role") == "assistant":
            seed = fold.chain.messages[position]
            turn.slot = position
            turn.seed = len(parts_of(seed))
            turn.took_grant = any(granted(part) for _, part in calls_of(seed))
            turn.acc = fold.accumulator(seed, turn.seed)
            fold.touch(position)
            return
        fold.note("continue-without-message", f"message {named!r} to continue is not there; a new one opens")
    own = {message.get("id") for message in turn.asked}
    message_id = free_id(named, f"msg-{number}", lambda i: i in own or fold.held(i))
    if isinstance(named, str) and named and named != message_id:
        fold.note("id-held", f"message id {named!r} is held; {message_id!r} is used")
        turn.alias[named] = message_id
    turn.acc = fold.accumulator({"id": message_id, "role": "assistant", "parts": []}, 0)


def _place(fold: Fold, turn: OpenTurn, entry: Input) -> None:
    """Put a user message, or an edit, behind the settled chain (or into the edit's place)."""
    placed = fold.placed.get(entry.id)
    if placed is not None and fold.chain.find(placed) is not None:
        turn.placed[entry.id] = placed
        return
    replaced: set[str] = set()
    if entry.role == "edit":
        before = [(e, turn.placed[n]) for n in turn.placed if (e := fold.inputs.get(n)) is not None]
        ids = [message["id"] for message in turn.asked]
        target = entry.record["messageId"]
        if target not in ids:
            target = _heir(before, target)
        if target in ids:
            replaced = set(ids[ids.index(target) :])
            del turn.asked[ids.index(target) :]
        else:
            _cut_for_edit(fold, target)
    message = _named(fold, entry, {m["id"] for m in turn.asked})
    turn.asked.append(message)
    turn.placed[entry.id] = message["id"]
    if replaced:
        for number, message_id in turn.placed.items():
            if message_id in replaced:
                turn.placed[number] = message["id"]


def _heir(before: Iterable[tuple[Input, str]], target: str) -> str:
    """The id of what an edit replaces: the message that an earlier edit of the same item left in the
    target's place, else the target. `before`: the inputs that were placed with it, and under which ids."""
    for entry, placed in reversed(list(before)):
        if entry.role == "edit" and target in (entry.record["messageId"], entry.message.get("id")):
            return placed
    return target


def _named(fold: Fold, entry: Input, also: set[str]) -> Message:
    """The input's message under an id that is free."""
    wanted = entry.message.get("id")
    message_id = free_id(wanted, f"msg-in{entry.id}", lambda i: i in also or fold.held(i))
    if message_id == wanted:
        return entry.message
    if wanted:
        fold.note("id-held", f"message id {wanted!r} of input {entry.id} is held; {message_id!r} is used")
    return {**entry.message, "id": message_id}


def owed_ids(fold: Fold) -> dict[int, str]:
    """Under which id each owed user message, or edit, will stand when it is taken, by what there is now: a
    derived one where another message holds its own."""
    found: dict[int, str] = {}
    taken: set[str] = set()
    for entry in fold.inputs.owed(fold.open.inputs if fold.open is not None else ()):
        if entry.role in ("message", "edit"):
            found[entry.id] = _owed_id(fold, entry, taken)
            taken.add(found[entry.id])
    return found


def _owed_id(fold: Fold, entry: Input, taken: set[str]) -> str:
    wanted = entry.message.get("id")
    if wanted and entry.record.get("messageId") == wanted:
        return str(wanted)  # an edit that keeps the id takes the message's place
    return free_id(wanted, f"msg-in{entry.id}", lambda i: i in taken or fold.held(i))


def _cut_for_edit(fold: Fold, target: str) -> None:
    position = fold.chain.find(target)
    if position is None or fold.chain.messages[position].get("role") != "user":
        fold.note("edit-without-target", f"no user message {target!r} to edit; it is appended")
        return
    fold.touch(position)
    fold.chain.cut(position)


def _regenerate(fold: Fold, entry: Input) -> None:
    position = regenerate_target(fold, entry)
    if position is None:
        fold.note("unknown-target", f"message {entry.message_id!r} to regenerate is not there")
        return
    if position < 0:
        return
    keep = position if fold.chain.messages[position].get("role") == "assistant" else position + 1
    if keep < len(fold.chain):
        fold.touch(keep)
        fold.chain.cut(keep)


def regenerate_target(fold: Fold, entry: Input) -> int | None:
    """Chain position that a regenerate means; -1 in an empty chain, None where it names an unknown
    message. The last turn's message, gone for having no parts, counts as none given."""
    named = entry.record.get("messageId")
    position = fold.chain.find(named)
    if position is not None:
        return position
    gone = named is not None and fold.last_turn is not None and fold.last_turn.get("messageId") == named
    return len(fold.chain) - 1 if named is None or gone else None


# -- answers ------------------------------------------------------------------------------------------


def answer_position(fold: Fold, entry: Input) -> int | None:
    """Chain position of the message that an answer is for; None where there is none."""
    if entry.message_id is not None:
        return fold.chain.find(entry.message_id)
    return newest_for(fold.chain.messages, fold.chain.unsettled(), entry)


def newest_for(messages: list[Message], positions: list[int], entry: Input) -> int | None:
    """Of these positions (newest first) the first whose message holds the answer's call waiting, else
    unsettled."""
    unsettled = None
    for position in positions:
        message = messages[position]
        index = locate(message, entry.record)
        if index is None:
            continue
        part = message["parts"][index]
        if waits(part):
            return position
        if unsettled is None and not is_settled(part):
            unsettled = position
    return unsettled


def apply_answer(fold: Fold, entry: Input) -> None:
    position = answer_position(fold, entry)
    if position is None or (fold.open is not None and position == fold.open.slot):
        fold.note("unknown-call", f"input {entry.id} answers no waiting call: unknown, or closed meanwhile")
        return
    old = fold.chain.messages[position]
    new = answer_call(old, entry.record)
    if new is old:
        fold.note("late-answer", f"input {entry.id} answers a call that is closed; spent")
    else:
        fold.change(position, new)


def apply_inputs(fold: Fold, record: Record) -> None:
    """`input-applied`: inputs that are spent without a turn take what effect they have."""
    entries = named_inputs(fold, record)
    taken = set(fold.open.inputs) if fold.open is not None else set()
    placed: list[tuple[Input, str]] = []
    for entry in entries:
        if fold.inputs.is_applied(entry.id) or entry.id in taken:
            continue
        if entry.role == "answer":
            apply_answer(fold, entry)
        elif entry.role in ("message", "edit") and fold.open is not None:
            message = _named(fold, entry, set()) if entry.role == "message" else None
            fold.open.after.append((entry, message))
        elif entry.role in ("message", "edit"):
            _stand(fold, entry, None, placed)
    fold.inputs.apply(entry.id for entry in entries)


def place_after(fold: Fold, after: Iterable[tuple[Input, Message | None]]) -> None:
    """Place what was spent while a turn was open, which is closed now."""
    placed: list[tuple[Input, str]] = []
    for entry, message in after:
        _stand(fold, entry, message, placed)


def _stand(fold: Fold, entry: Input, message: Message | None, placed: list[tuple[Input, str]]) -> None:
    """Place a user message (`message`, where its id is decided) or an edit that is spent, unanswered."""
    replaced = _heir(placed, entry.record["messageId"]) if entry.role == "edit" else None
    if replaced is not None:
        _cut_for_edit(fold, replaced)
    if message is None:
        message = _named(fold, entry, set())
    fold.chain.append(message)
    placed[:] = [(e, message["id"] if stood == replaced else stood) for e, stood in placed]
    placed.append((entry, message["id"]))


# -- history operations and compaction ------------------------------------------------------------------


def set_context(fold: Fold, record: Record) -> None:
    messages, upto = record.get("messages"), record.get("upto")
    if fold.chain.find(upto) is None or not isinstance(messages, list):
        fold.note("context-without-message", f"message {upto!r} is not in the history; context skipped")
    else:
        fold.context = {"upto": upto, "messages": messages}


def edit_history(fold: Fold, record: Record) -> None:
    """One operation on the settled messages, or on those that are owed (`redact`). One that names a message
    of the open turn is skipped."""
    op, named = record.get("op"), record.get("messageId")
    if op == "redact":
        named = _ids(record.get("inputs"))
        fold.inputs.redact(named)
        fold.inputs.apply(named & _ids(record.get("applied")))  # a copy whose first is not known any more
        return
    if op == "put" and "message" in record:
        named = record["message"].get("id")
    if isinstance(named, str) and fold.open is not None and named in fold.open.ids():
        fold.note("history-of-open-turn", f"message {named!r} belongs to the open turn; skipped")
        return
    with _settled_only(fold):
        if not _operate(fold, op, named, record):
            fold.note("unknown-history-op", f"history {op!r} of {named!r} has nothing to act on; skipped")


def _ids(told: Any) -> set[int]:
    return {number for number in told if type(number) is int} if type(told) is list else set()


@contextmanager
def _settled_only(fold: Fold) -> Iterator[None]:
    """Take the message that an open turn continues out of the chain while settled messages change."""
    turn = fold.open
    if turn is None or turn.slot is None:
        yield
        return
    before = {id_of(message) for message in fold.chain.messages[: turn.slot]}
    slot = fold.chain.messages[turn.slot]
    fold.chain.splice(turn.slot, turn.slot + 1)
    yield
    turn.slot = _slot_after(before, fold.chain.messages)
    fold.chain.splice(turn.slot, turn.slot, [slot])


def _slot_after(before: set[str], after: list[Message]) -> int:
    """Where the open message stands now: behind the last message that stood before it; where none of
    them is left, behind all (settled messages stand before those of an open turn)."""
    kept = [position for position, message in enumerate(after) if id_of(message) in before]
    return kept[-1] + 1 if kept else len(after)


def _operate(fold: Fold, op: Any, named: Any, record: Record) -> bool:
    chain = fold.chain
    if op == "clear":
        fold.context = None
        chain.clear()
        return True
    if op == "replace":
        if "messages" not in record:
            return False
        fold.context = None
        chain.clear()
        for message in record["messages"]:
            _append(fold, message, replacing=True)
        return True
    position = chain.find(named)
    if op == "put" and "message" in record:
        if position is None:
            _append(fold, record["message"])
        else:
            fold.change(position, record["message"])
        return True
    if position is None:
        return False
    if op == "remove":
        fold.touch(position)
        chain.splice(position, position + 1)
    elif op == "truncate-after":
        if position + 1 < len(chain):
            fold.touch(position + 1)
        chain.cut(position + 1)
    else:
        return False
    return True


def _append(fold: Fold, message: Any, *, replacing: bool = False) -> None:
    """Append a message under an id that is free. A list that replaces the history may show the open
    turn's messages, too: those stand in the turn, not here."""
    if not isinstance(message, dict):
        fold.note("not-a-message", "a value that is no message; skipped")
        return
    named = message.get("id")
    if replacing and isinstance(named, str) and fold.open is not None and named in fold.open.ids():
        fold.note("history-of-open-turn", f"message {named!r} belongs to the open turn; skipped")
        return
    message_id = free_id(named, f"msg-{fold._record}", fold.held)
    fold.chain.append(message if named == message_id else {**message, "id": message_id})
