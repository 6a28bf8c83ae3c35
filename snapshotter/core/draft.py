"""The message under construction: its parts, what still grows in them, and where to find them.

Parts are replaced, never changed in place, so that a view can share their dicts. What grows (an open
text, a tool input that streams in) is kept as a list of pieces beside its part and written into a new
dict of the part when somebody looks. Maps find parts without a scan: tool parts of the current step by
call id and kind, the newest tool part anywhere by call id, the first one by the id of its approval, data
parts by type and id. They are rebuilt only when parts go.
"""

from __future__ import annotations

from typing import Any, Final

from .chunks import Chunk
from .partial_json import ABSENT, parse_partial
from .tool_parts import Part, is_dynamic, is_interrupted, is_tool, moved, tool_name, without_mark
from .values import mend_text


class Open(list[str]):
    """The pieces of one text that is growing, and the index of its part.

    One piece means that the part holds all of it; `settle` leaves the pieces so.
    """

    __slots__ = ("place",)

    def __init__(self, place: int, text: str = "") -> None:
        self.append(text)
        self.place = place


class Input(Open):
    """A tool input that streams in; what its tool-input-start said is said again by every delta."""

    __slots__ = ("dynamic", "encoding", "extra", "name")

    def __init__(self, place: int, text: str, said: Part, name: str, dynamic: bool) -> None:
        super().__init__(place, text)
        self.name = name
        self.dynamic = dynamic
        self.encoding = said.get("inputEncoding")
        self.extra: Part = {}
        for key in ("title", "toolMetadata"):
            if key in said:
                self.extra[key] = said[key]


class Draft:
    """One assistant message that is being made."""

    def __init__(self, message: Part, frozen_parts: int) -> None:
        self.frozen_parts = frozen_parts
        self._texts: dict[str, Open] = {}
        self._reasonings: dict[str, Open] = {}
        self._inputs: dict[str, Input] = {}
        # Inputs whose part is known to be streaming in the current step: only these take the fast way.
        self._streaming: dict[str, Input] = {}
        self._begin(message)

    # -- what it holds ---------------------------------------------------------------------------

    @property
    def message_id(self) -> str:
        """The message's id, "" while none is known."""
        found = self._head.get("id")
        return found if isinstance(found, str) else ""

    def set_id(self, message_id: str) -> None:
        """Rename the message; nothing else changes."""
        self._head["id"] = message_id

    @property
    def part_count(self) -> int:
        """How many parts the message has, a trailing step-start included."""
        return len(self._parts)

    @property
    def parts(self) -> list[Part]:
        """The parts as they stand: a fresh list of dicts that later chunks do not change."""
        self._settle_all()
        return self._parts.copy()

    def find_here(self, call_id: str) -> int | None:
        """Index of the first part of this call in the current step, static or dynamic."""
        static, dynamic = self._step_calls.get((call_id, False)), self._step_calls.get((call_id, True))
        if static is None or dynamic is None:
            return dynamic if static is None else static
        return min(static, dynamic)

    def find_call(self, call_id: str) -> int | None:
        """Index of the part that a result for this call goes to: in the current step, else the newest."""
        here = self.find_here(call_id)
        return self._newest_call.get(call_id) if here is None else here

    def knows_call(self, call_id: Any) -> bool:
        """Whether `find_call` finds a part of this call; True for what can be the id of none."""
        return type(call_id) is not str or call_id in self._newest_call

    def find_approval(self, approval_id: str) -> int | None:
        """Index of the first tool part that asks for this approval."""
        index = self._approvals.get(approval_id)
        if index is None or approval_of(self._parts[index]) == approval_id:
            return index
        # That part has asked anew since, under another id.
        parts = enumerate(self._parts)
        found = next((at for at, part in parts if approval_of(part) == approval_id), None)
        if found is None:
            del self._approvals[approval_id]
        else:
            self._approvals[approval_id] = found
        return found

    def view(self, *, trailing_step: bool = True) -> Part | None:
        """The message as it stands, None while nothing was started.

        With `trailing_step=False` step-starts at the end are left out, as a client does not show them
        yet. Read-only; later chunks do not change it.
        """
        parts = self.parts
        if not parts and "metadata" not in self._head and not self.message_id:
            return None
        while not trailing_step and parts and _kind(parts[-1]) == "step-start":
            parts.pop()
        return {**self._head, "parts": parts}

    # -- for the accumulator -------------------------------------------------------------------------------

    def _begin(self, message: Part) -> None:
        """Start from `message`. Its open tool inputs go on; its open texts do not, as in the client."""
        if message.get("role", "assistant") != "assistant":
            message = {"id": message.get("id")}
        self._head: Part = dict(message)
        parts = self._head.pop("parts", None)
        self._head.setdefault("id", "")
        self._head["role"] = "assistant"
        self._parts: list[Part] = list(parts) if isinstance(parts, list) else []
        self._forget()
        self._index()
        for index in range(self._step, len(self._parts)):
            part = self._parts[index]
            if is_tool(part) and part.get("state") == "input-streaming" and _call_of(part) is not None:
                raw = part.get("rawInput")
                text = raw if isinstance(raw, str) else ""
                self._inputs[part["toolCallId"]] = Input(index, text, part, tool_name(part), is_dynamic(part))

    def _forget(self) -> None:
        for open_parts in (self._texts, self._reasonings, self._streaming, self._inputs):
            open_parts.clear()

    def _index(self) -> None:
        self._step = 0
        self._step_calls: dict[tuple[str, bool], int] = {}
        self._newest_call: dict[str, int] = {}
        self._data_parts: dict[tuple[str, str], int] = {}
        self._approvals: dict[str, int] = {}
        for index, part in enumerate(self._parts):
            kind = _kind(part)
            if kind == "step-start":
                self._step = index + 1
                self._step_calls.clear()
            elif kind.startswith("data-"):
                if isinstance(part.get("id"), str):
                    self._data_parts.setdefault((kind, part["id"]), index)
            elif is_tool(part) and (call := _call_of(part)) is not None:
                self._step_calls.setdefault((call, is_dynamic(part)), index)
                self._newest_call[call] = index
            if (approval := approval_of(part)) is not None:
                self._approvals.setdefault(approval, index)

    def _patch(self, index: int, **changes: Any) -> None:
        self._parts[index] = {**self._parts[index], **changes}

    def _settle_all(self) -> None:
        for blocks in (self._texts, self._reasonings):
            for block in blocks.values():
                self._settle_text(block)
        for stream in self._streaming.values():
            self._settle_input(stream)

    def _settle_text(self, block: Open) -> None:
        if len(block) > 1:
            # The pieces keep a trailing half of a pair as it came: the next delta may bring the other.
            block[:] = ["".join(block)]
            self._patch(block.place, text=mend_text(block[0]))

    def _settle_input(self, stream: Input) -> None:
        if len(stream) > 1:
            part = {key: value for key, value in self._parts[stream.place].items() if key != "input"}
            self._parts[stream.place] = {**part, **streamed_fields(stream)}

    def _detach(self, call: str) -> None:
        """Before anything else touches the call's part: write what streamed in, leave the fast way."""
        stream = self._streaming.pop(call, None)
        if stream is not None:
            self._settle_input(stream)

    def _move(
        self, index: int | None, chunk: Chunk, name: str, dynamic: bool, state: str, fields: Part
    ) -> int:
        """Put the call's part into `state`, or a new part; the index of it."""
        call = chunk["toolCallId"]
        part = None if index is None else self._unmarked(index)
        fresh = moved(part, call, name, dynamic, state, fields, chunk)
        if index is None:
            index = len(self._parts)
            self._parts.append(fresh)
            self._step_calls[call, dynamic] = self._newest_call[call] = index
        else:
            self._parts[index] = fresh
        return index

    def _unmarked(self, index: int) -> Part:
        """The part; cleanup's mark goes with the first change, as what it said is then over."""
        part = self._parts[index]
        return without_mark(part) if "resultProviderMetadata" in part and is_interrupted(part) else part


def streamed_fields(stream: Input) -> Part:
    """The fields of a part whose input is what has streamed in so far."""
    stream[:] = ["".join(stream)]
    text = mend_text(stream[0])
    fields: Part = {"rawInput": text}
    if stream.encoding is not None:
        fields["inputEncoding"] = stream.encoding
    value = text if stream.encoding == "text" else parse_partial(text)
    if value is not ABSENT:
        fields["input"] = value
    return fields


def _kind(part: Any) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    return kind if isinstance(kind, str) else ""


def approval_of(part: Any) -> str | None:
    """The id of the approval that a tool part asks for."""
    approval = part.get("approval") if is_tool(part) else None
    found = approval.get("id") if isinstance(approval, dict) else None
    return found if isinstance(found, str) else None


def _call_of(part: Part) -> str | None:
    call = part.get("toolCallId")
    return call if isinstance(call, str) else None


_UNMERGED: Final = frozenset({"__proto__", "constructor", "prototype"})


def merged(base: Part, new: Part) -> Part:
    """Objects merge key by key, everything else replaces. Iterative: seeds are not bound in depth."""
    result = dict(base)
    work = [(result, new)]
    while work:
        target, source = work.pop()
        for key, value in source.items():
            if key in _UNMERGED:
                continue
            old = target.get(key)
            if isinstance(old, dict) and isinstance(value, dict):
                target[key] = dict(old)
                work.append((target[key], value))
            else:
                target[key] = value
    return result
