"""Chunks → message, exactly as an AI SDK client shows it (`readUIMessageStream`, npm `ai` 7.0.173).

The state is the list of parts and three maps: open text parts by id, open reasoning parts by id, partial
tool inputs by call id (`draft.py` holds it). Here is what each chunk does to it: one short method a type.

*Deltas only append.* Nearly every chunk is a delta of an open part, so `append`, tried first, finds the
open pieces and adds to them, and does nothing else. Text is joined, and the partial JSON of a tool's
input parsed, when somebody looks (`view`) or another chunk needs the part. Cost is linear in the text.

Strict mode raises ChunkError at the first chunk that breaks a rule, and leaves the message as it was.
Recovery mode skips or mends the chunk, says so through `report(code, detail)`, and goes on. Codes:
`bad-chunk`, `unknown-chunk`, `mended-chunk`, `missing-start`, `orphan-chunk`, `orphan-output`,
`metadata-replaced`, `replayed` (this one in both modes).

*Replay filter.* With `frozen_parts=n` the first n parts were made by an earlier turn or attempt. What is
settled there never changes: a chunk that would change it is dropped. `reset-step` does not reach it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from .chunks import (
    DELTAS,
    Chunk,
    ChunkError,
    fields_of,
    is_end_marker,
    is_sound,
    is_transient,
    mend,
    validate,
)
from .draft import Draft, Input, Open, merged, streamed_fields
from .tool_parts import (
    Part,
    is_dynamic,
    is_interrupted,
    is_settled,
    with_output,
    with_request,
    with_response,
)
from .values import mend_text

Report = Callable[[str, str], None]


class Accumulator(Draft):
    """One assistant message as chunks arrive. Not thread-safe.

    `message` seeds it (an assistant message; of another role only the id is taken) and is not changed.
    `report` gets (code, detail) of what was skipped or mended. A tool output for a call that this message
    does not hold is an orphan (an error in strict mode, else a finding); a caller that knows other messages
    asks `find_call` first.
    `frozen_parts` turns the replay filter on for the seed's first parts.
    `at` is the index of the newest chunk applied, -1 before the first.
    """

    def __init__(
        self,
        message: Part | None = None,
        *,
        strict: bool = False,
        report: Report | None = None,
        frozen_parts: int = 0,
    ) -> None:
        super().__init__(message or {}, frozen_parts)
        self.at = -1
        self.strict = strict
        self._report = report
        frozen = self._parts[:frozen_parts]
        self._final = {index for index, part in enumerate(frozen) if is_settled(part)} if frozen else set()
        self._open: tuple[Mapping[str, list[str]], ...] = (self._texts, self._reasonings, self._streaming)

    # -- chunks ----------------------------------------------------------------------------------

    def apply(self, chunk: Any) -> bool:
        """Apply one chunk; False when it was dropped. Raises ChunkError in strict mode, else nothing."""
        return self.append(chunk) or self.take(chunk)

    def take(self, chunk: Any) -> bool:
        """As `apply`, a chunk that `append` did not take."""
        self.at += 1
        kind = chunk.get("type") if type(chunk) is dict and not self.strict else None
        if type(kind) is str and is_sound(kind, chunk):
            return _HANDLERS[kind](self, chunk)
        accepted = self._accept(chunk)
        if accepted is None:
            return False
        return _HANDLERS.get(accepted["type"], Accumulator._data)(self, accepted)

    def append(self, chunk: Any) -> bool:
        """The fast way: apply the chunk if it is a plain delta of an open part. False: nothing was done."""
        try:
            if len(chunk) == 3 and (found := _DELTAS.get(chunk["type"])) is not None:
                name, field, which = found
                piece = chunk[field]
                if type(piece) is str:
                    self._open[which][chunk[name]].append(piece)
                    self.at += 1
                    return True
        except (KeyError, TypeError):
            pass  # no plain delta of an open part: `apply` decides what it is
        return False

    def takes(self, chunk: Any) -> bool:
        """Whether `append` would apply it, for a chunk with three fields whose types were looked at."""
        name, _, which = _DELTAS[chunk["type"]]
        return chunk[name] in self._open[which]

    def apply_start(self, chunk: Chunk, *, reset: bool) -> bool:
        """A `start` chunk. With `reset`, as the client does it: another id begins an empty message.

        Without, only its metadata counts, for a caller that decides about ids itself (`set_id`).
        """
        new = chunk.get("messageId")
        if reset and isinstance(new, str):
            if new != self.message_id:
                self.frozen_parts = 0
                self._final.clear()
                self._begin({})
            self.set_id(new)
        return self._metadata(chunk)

    def _accept(self, chunk: Any) -> Chunk | None:
        """The chunk, checked (strict) or mended (recovery); None where it is skipped."""
        if is_end_marker(chunk):
            return None
        if self.strict:
            validate(chunk, self.at)
            return chunk  # type: ignore[no-any-return]
        kind = chunk.get("type") if isinstance(chunk, dict) else None
        if not isinstance(kind, str):
            self._say("bad-chunk", "no object with a type")
            return None
        if fields_of(kind) is None:
            self._say("unknown-chunk", kind)
            return None
        mended, wrong = mend(chunk)
        if wrong:
            self._say("bad-chunk" if mended is None else "mended-chunk", f"{kind}: {wrong}")
        return mended

    def _say(self, code: str, detail: str) -> None:
        if self._report is not None:
            self._report(code, mend_text(detail))

    def _orphan(self, chunk: Chunk, name: str, what: str) -> bool:
        """A chunk whose beginning this message never saw."""
        kind, ident = chunk["type"], chunk[name]
        if self.strict:
            raise ChunkError(
                f"{kind} for {ident!r}, {what} unknown", rule=f"{kind}-without-{what}", at=self.at
            )
        self._say("orphan-output" if kind in _OUTPUTS else "orphan-chunk", f"{kind} {ident}")
        return False

    # -- text and reasoning ----------------------------------------------------------------------

    def _block(self, kind: str) -> dict[str, Open]:
        return self._texts if kind.startswith("text") else self._reasonings

    def _start_block(self, chunk: Chunk) -> bool:
        kind, ident = chunk["type"], chunk["id"]
        part: Part
        if kind.startswith("text"):
            blocks, part = self._texts, {"type": "text", "text": "", "state": "streaming"}
        else:
            part = {"type": "reasoning", "id": ident, "text": "", "state": "streaming"}
            blocks = self._reasonings
        if "providerMetadata" in chunk:
            part["providerMetadata"] = chunk["providerMetadata"]
        if ident in blocks:
            self._settle_text(blocks[ident])
        blocks[ident] = Open(len(self._parts))
        self._parts.append(part)
        return True

    def _delta(self, chunk: Chunk) -> bool:
        kind, ident = chunk["type"], chunk["id"]
        blocks = self._block(kind)
        if ident not in blocks:
            if self.strict:
                return self._orphan(chunk, "id", "start")
            self._say("missing-start", f"{kind} {ident}")
            self._start_block({"type": kind, "id": ident})
        block = blocks[ident]
        block.append(chunk["delta"])
        if "providerMetadata" in chunk:
            self._patch(block.place, providerMetadata=chunk["providerMetadata"])
        return True

    def _end_block(self, chunk: Chunk) -> bool:
        block = self._block(chunk["type"]).pop(chunk["id"], None)
        if block is None:
            return self._orphan(chunk, "id", "start")
        part = dict(self._parts[block.place])
        if len(block) > 1:
            part["text"] = mend_text("".join(block))
        part["state"] = "done"
        if "providerMetadata" in chunk:
            part["providerMetadata"] = chunk["providerMetadata"]
        if "citations" in chunk and chunk["type"] == "text-end":
            part["citations"] = chunk["citations"]
        self._parts[block.place] = part
        return True

    # -- tools -----------------------------------------------------------------------------------

    def _tool_start(self, chunk: Chunk) -> bool:
        call, dynamic = chunk["toolCallId"], bool(chunk.get("dynamic"))
        index = self._step_calls.get((call, dynamic))
        if self._replays(index, chunk):
            return False
        if self._streaming:
            self._detach(call)
        encoding: Part = {"inputEncoding": chunk["inputEncoding"]} if "inputEncoding" in chunk else {}
        index = self._move(index, chunk, chunk["toolName"], dynamic, "input-streaming", encoding)
        stream = Input(index, "", chunk, chunk["toolName"], dynamic)
        self._inputs[call] = self._streaming[call] = stream
        return True

    def _tool_delta(self, chunk: Chunk) -> bool:
        """A delta that could not take the fast way: its part is in another step or state, or gone."""
        call = chunk["toolCallId"]
        stream = self._inputs.get(call)
        found = self.find_here(call) if stream is None else self._step_calls.get((call, stream.dynamic))
        if self._replays(found, chunk):
            return False
        if stream is None:
            return self._orphan(chunk, "toolCallId", "start")
        stream.append(chunk["inputTextDelta"])
        fields = streamed_fields(stream)
        if found is None and stream.dynamic:
            del fields["rawInput"]  # the client shows it from the next delta on
        extra: Part = {"toolCallId": call, **stream.extra}
        stream.place = self._move(found, extra, stream.name, stream.dynamic, "input-streaming", fields)
        self._streaming[call] = stream
        return True

    def _tool_input(self, chunk: Chunk) -> bool:
        call, failed = chunk["toolCallId"], chunk["type"] == "tool-input-error"
        dynamic = bool(chunk.get("dynamic"))
        index = self._step_calls.get((call, dynamic))
        fields: Part = {"input": chunk["input"]}
        if failed:  # an error keeps to the part that is there, whatever kind the chunk says
            index = self.find_here(call)
            dynamic = dynamic if index is None else is_dynamic(self._parts[index])
            fields["errorText"] = chunk["errorText"]
            chunk = {key: value for key, value in chunk.items() if key != "title"}
        if self._replays(index, chunk):
            return False
        stream = self._streaming.pop(call, None)
        if stream is not None and stream.place != index:
            self._settle_input(stream)  # at `index` itself the whole input replaces what streamed in
        state = "output-error" if failed else "input-available"
        self._move(index, chunk, chunk["toolName"], dynamic, state, fields)
        return True

    def _tool_output(self, chunk: Chunk) -> bool:
        index = self.find_call(chunk["toolCallId"])
        if index is None:
            return self._orphan(chunk, "toolCallId", "call")
        return self._change(index, chunk, with_output)

    def _tool_request(self, chunk: Chunk) -> bool:
        index = self.find_call(chunk["toolCallId"])
        if index is None:
            return self._orphan(chunk, "toolCallId", "call")
        if not self._change(index, chunk, with_request):
            return False
        first = self.find_approval(chunk["approvalId"])
        self._approvals[chunk["approvalId"]] = index if first is None else min(first, index)
        return True

    def _tool_denied(self, chunk: Chunk) -> bool:
        index = self.find_call(chunk["toolCallId"])
        if index is None:
            return self._orphan(chunk, "toolCallId", "call")
        return self._change(index, chunk, lambda part, _: {**part, "state": "output-denied"})

    def _tool_response(self, chunk: Chunk) -> bool:
        index = self.find_approval(chunk["approvalId"])
        if index is None:
            return self._orphan(chunk, "approvalId", "request")
        return self._change(index, chunk, with_response)

    def _replays(self, index: int | None, chunk: Chunk) -> bool:
        """Whether the chunk would change what an earlier turn or attempt settled."""
        if not self._final or index not in self._final:
            return False
        self._say("replayed", f"{chunk['type']} {self._parts[index].get('toolCallId')}")
        return True

    def _change(self, index: int, chunk: Chunk, how: Callable[[Part, Chunk], Part]) -> bool:
        if self._replays(index, chunk):
            return False
        if self._streaming:
            self._detach(str(self._parts[index].get("toolCallId")))
        late = index < self.frozen_parts and is_interrupted(self._parts[index])
        self._parts[index] = how(self._unmarked(index), chunk)
        if late and is_settled(self._parts[index]):
            self._final.add(index)  # one late result replaces what cleanup made, not two
        return True

    # -- steps, data, metadata and the rest ------------------------------------------------------

    def _start(self, chunk: Chunk) -> bool:
        return self.apply_start(chunk, reset=True)

    def _start_step(self, _chunk: Chunk) -> bool:
        for call in tuple(self._streaming):
            self._detach(call)
        self._parts.append({"type": "step-start"})
        self._step = len(self._parts)
        self._step_calls.clear()
        return True

    def _reset_step(self, _chunk: Chunk) -> bool:
        self._settle_all()
        self._forget()
        del self._parts[max(self._step, self.frozen_parts) :]
        self._index()
        return True

    def _nothing(self, _chunk: Chunk) -> bool:
        return True

    def _metadata(self, chunk: Chunk) -> bool:
        new, old = chunk.get("messageMetadata"), self._head.get("metadata")
        if new is None:
            return True
        if isinstance(old, dict) and isinstance(new, dict):
            new = merged(old, new)
        elif old is not None:
            if self.strict:
                raise ChunkError("metadata merges objects only", rule="metadata-not-object", at=self.at)
            self._say("metadata-replaced", chunk["type"])
        self._head["metadata"] = new
        return True

    def _data(self, chunk: Chunk) -> bool:
        if is_transient(chunk):
            return True
        ident = chunk.get("id")
        index = self._data_parts.get((chunk["type"], ident)) if ident is not None else None
        if index is not None:
            self._patch(index, data=chunk["data"])
            return True
        if ident is not None:
            self._data_parts[chunk["type"], ident] = len(self._parts)
        self._parts.append(dict(chunk))
        return True

    def _push(self, chunk: Chunk) -> bool:
        self._parts.append({key: chunk[key] for key in _PUSHED[chunk["type"]] if key in chunk})
        return True


_OUTPUTS: Final = frozenset({"tool-output-available", "tool-output-error"})

_DELTAS: Final = {kind: (*DELTAS[kind], which) for which, kind in enumerate(DELTAS)}
"""As `DELTAS`, and which of the accumulator's open parts they go to."""

_PUSHED: Final = {
    "file": ("type", "mediaType", "url", "providerMetadata"),
    "reasoning-file": ("type", "mediaType", "url", "providerMetadata"),
    "source-url": ("type", "sourceId", "url", "title", "providerMetadata"),
    "source-document": ("type", "sourceId", "mediaType", "title", "filename", "providerMetadata"),
    "custom": ("type", "kind", "providerMetadata"),
    "steering-message": ("type", "id", "parts"),
}

_HANDLERS: Final[dict[str, Callable[[Accumulator, Chunk], bool]]] = {
    "start": Accumulator._start,
    "finish": Accumulator._metadata,
    "message-metadata": Accumulator._metadata,
    "start-step": Accumulator._start_step,
    "finish-step": Accumulator._nothing,
    "reset-step": Accumulator._reset_step,
    "abort": Accumulator._nothing,
    "error": Accumulator._nothing,
    "text-start": Accumulator._start_block,
    "text-delta": Accumulator._delta,
    "text-end": Accumulator._end_block,
    "reasoning-start": Accumulator._start_block,
    "reasoning-delta": Accumulator._delta,
    "reasoning-end": Accumulator._end_block,
    "tool-input-start": Accumulator._tool_start,
    "tool-input-delta": Accumulator._tool_delta,
    "tool-input-available": Accumulator._tool_input,
    "tool-input-error": Accumulator._tool_input,
    "tool-approval-request": Accumulator._tool_request,
    "tool-approval-response": Accumulator._tool_response,
    "tool-output-available": Accumulator._tool_output,
    "tool-output-error": Accumulator._tool_output,
    "tool-output-denied": Accumulator._tool_denied,
    **dict.fromkeys(_PUSHED, Accumulator._push),
}
