"""The chunk vocabulary: `UIMessageChunk` of the AI SDK (npm `ai` 7.0.173), as tables.

A chunk is a dict with a `type`. `FIELDS` gives for each type what the SDK's own schema requires and
allows; further keys pass, as they do there, and null is not a way to say "absent". The other tables say
what a chunk means to the engine: which ones are deltas, which must be durable before a write returns
(`FLUSH_POINTS`), at once (`is_urgent`), which count as progress (`is_milestone`), and which begin or end
anything (`BOUNDARIES`).

`validate` is the strict door for a turn being written. `mend` is the lenient one for what is stored
already: it leaves out what is wrong and optional, adds a null where a value was lost, and gives up on
the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from streams.errors import Refused

Chunk = dict[str, Any]
Check = Callable[[Any], bool]


class ChunkError(Refused):
    """A chunk that breaks a rule of the stream. `rule` is a short word, `at` its index: among those that the
    turn was given, or those of a stream that is replayed.

    Rules: `not-an-object`, `no-type`, `unknown-type`, `missing-field`, `wrong-field`,
    `metadata-not-object`, `<type>-without-start` (text and reasoning deltas and ends, tool input
    deltas), `<type>-without-call` (approval requests, tool outputs, denials) and
    `tool-approval-response-without-request`.
    """

    def __init__(self, message: str, *, rule: str, at: int | None = None) -> None:
        super().__init__(message if at is None else f"chunk {at}: {message}")
        self.rule = rule
        self.at = at


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _any(value: Any) -> bool:  # noqa: ARG001 - one of the checks, which all take the value
    return True


def _object(value: Any) -> bool:
    return isinstance(value, dict)


def _objects(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(item, dict) for item in value.values())


def _one_of(*words: str) -> Check:
    known = frozenset(words)
    return lambda value: isinstance(value, str) and value in known


def _has(item: Any, required: Mapping[str, Check], optional: Mapping[str, Check]) -> bool:
    return (
        isinstance(item, dict)
        and all(name in item and check(item[name]) for name, check in required.items())
        and all(name not in item or check(item[name]) for name, check in optional.items())
    )


def _place(value: Any) -> bool:
    """A whole number from 0 up, as JavaScript counts: 3.0 is one."""
    return type(value) in (int, float) and 0 <= value <= 2**53 - 1 and value == int(value)


def _citations(value: Any) -> bool:
    return isinstance(value, list) and all(
        _has(item, {"source": _source}, {"startIndex": _place, "endIndex": _place, "citedText": _text})
        for item in value
    )


def _source(value: Any) -> bool:
    common = {"type": _one_of("source"), "id": _text}
    return _has(
        value,
        {"sourceType": _one_of("url"), "url": _text, **common},
        {"title": _text, "providerMetadata": _objects},
    ) or _has(
        value,
        {"sourceType": _one_of("document"), "mediaType": _text, "title": _text, **common},
        {"filename": _text, "providerMetadata": _objects},
    )


def _references(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(item, str) for item in value.values())


def _steering(value: Any) -> bool:
    return isinstance(value, list) and all(
        _has(item, {"type": _one_of("text"), "text": _text}, {})
        or _has(
            item,
            {"type": _one_of("file"), "mediaType": _text, "url": _text},
            {"filename": _text, "providerReference": _references},
        )
        for item in value
    )


_PM: Final[dict[str, Check]] = {"providerMetadata": _objects}
_TOOL: Final[dict[str, Check]] = {
    "providerExecuted": _flag,
    "toolMetadata": _object,
    "dynamic": _flag,
    **_PM,
}
_ID: Final[dict[str, Check]] = {"id": _text}
_CALL: Final[dict[str, Check]] = {"toolCallId": _text}
_NAMED_CALL: Final[dict[str, Check]] = {"toolCallId": _text, "toolName": _text}
_DATA: Final[tuple[dict[str, Check], dict[str, Check]]] = ({"data": _any}, {"id": _text, "transient": _flag})
FINISH_REASONS = ("stop", "length", "content-filter", "tool-calls", "error", "interrupted", "other")

FIELDS: Final[dict[str, tuple[dict[str, Check], dict[str, Check]]]] = {
    "start": ({}, {"messageId": _text, "messageMetadata": _any}),
    "finish": ({}, {"finishReason": _one_of(*FINISH_REASONS), "messageMetadata": _any}),
    "start-step": ({}, {}),
    "finish-step": ({}, {}),
    "reset-step": ({}, {}),
    "message-metadata": ({"messageMetadata": _any}, {}),
    "abort": ({}, {"reason": _text}),
    "error": ({"errorText": _text}, {}),
    "text-start": (_ID, _PM),
    "text-delta": ({"id": _text, "delta": _text}, _PM),
    "text-end": (_ID, {"citations": _citations, **_PM}),
    "reasoning-start": (_ID, _PM),
    "reasoning-delta": ({"id": _text, "delta": _text}, _PM),
    "reasoning-end": (_ID, _PM),
    "tool-input-start": (
        _NAMED_CALL,
        {"inputEncoding": _one_of("json", "text"), "title": _text, **_TOOL},
    ),
    "tool-input-delta": ({"toolCallId": _text, "inputTextDelta": _text}, {}),
    "tool-input-available": ({**_NAMED_CALL, "input": _any}, {"title": _text, **_TOOL}),
    "tool-input-error": ({**_NAMED_CALL, "input": _any, "errorText": _text}, {"title": _text, **_TOOL}),
    "tool-approval-request": (
        {"approvalId": _text, "toolCallId": _text},
        {
            "approvalDescriptor": _any,
            "inputSchemaInput": _any,
            "reason": _text,
            "isAutomatic": _flag,
            "signature": _text,
        },
    ),
    "tool-approval-response": (
        {"approvalId": _text, "approved": _flag},
        {"reason": _text, "providerExecuted": _flag, **_PM},
    ),
    "tool-output-available": ({**_CALL, "output": _any}, {"preliminary": _flag, **_TOOL}),
    "tool-output-error": ({**_CALL, "errorText": _text}, _TOOL),
    "tool-output-denied": (_CALL, {}),
    "source-url": ({"sourceId": _text, "url": _text}, {"title": _text, **_PM}),
    "source-document": (
        {"sourceId": _text, "mediaType": _text, "title": _text},
        {"filename": _text, **_PM},
    ),
    "file": ({"url": _text, "mediaType": _text}, _PM),
    "reasoning-file": ({"url": _text, "mediaType": _text}, _PM),
    "custom": ({"kind": _text}, _PM),
    "steering-message": ({"id": _text, "parts": _steering}, {}),
}
"""Type → (required fields, optional fields), each with its check. `data-*` types are `fields_of`'s."""

DELTAS: Final = {
    "text-delta": ("id", "delta"),
    "reasoning-delta": ("id", "delta"),
    "tool-input-delta": ("toolCallId", "inputTextDelta"),
}
"""Delta type → (the field that names its part, the field that holds the text)."""

FLUSH_POINTS: Final = frozenset({"tool-input-available", "tool-approval-request"})
"""Durable before a write returns: what follows may be a side effect, or a person's answer."""

_RESULTS: Final = frozenset({"tool-output-available", "tool-output-error", "tool-output-denied"})
_URGENT: Final = _RESULTS | {"tool-input-error", "error", "abort", "finish"}
_MILESTONES: Final = _RESULTS | {"text-start", "reasoning-start", "tool-input-available"}

BOUNDARIES: Final = frozenset(FIELDS) - {
    "text-delta",
    "reasoning-delta",
    "tool-input-delta",
    "tool-approval-response",
    "message-metadata",
    "error",
    "abort",
}
"""Chunks that begin or end anything: the newest of these tells whether an answer is complete."""


def fields_of(kind: str) -> tuple[dict[str, Check], dict[str, Check]] | None:
    """Required and optional fields of a chunk type, None for one that this version does not know."""
    return _DATA if kind.startswith("data-") else FIELDS.get(kind)


def is_transient(chunk: Mapping[str, Any]) -> bool:
    """A data part that the sender wants shown once and not kept."""
    kind = chunk.get("type")
    return isinstance(kind, str) and kind.startswith("data-") and bool(chunk.get("transient"))


def is_urgent(chunk: Mapping[str, Any]) -> bool:
    """To be flushed at once, without waiting: final tool outputs, errors, denials, abort, finish."""
    return chunk.get("type") in _URGENT and not chunk.get("preliminary")


def is_milestone(chunk: Mapping[str, Any]) -> bool:
    """Durable progress of a turn: a part begun, a tool call complete, a final tool output."""
    return chunk.get("type") in _MILESTONES and not chunk.get("preliminary")


def is_end_marker(chunk: Any) -> bool:
    """What some emitters send behind the last chunk: the text `[DONE]`, or a chunk of type `done`, which
    pydantic-ai's adapter writes as that text. It says that the transport ends, and nothing of the answer."""
    return chunk == "[DONE]" or (isinstance(chunk, dict) and chunk.get("type") == "done")


def delta_of(chunk: Mapping[str, Any]) -> tuple[tuple[str, str], str] | None:
    """((type, part id), text field) of a delta that may share a record with its neighbours, else None.

    Only deltas without any further field qualify, so that nothing is lost in the concatenation.
    """
    names = DELTAS.get(chunk.get("type", "")) if len(chunk) == 3 else None
    if names is None:
        return None
    part, text = chunk.get(names[0]), chunk.get(names[1])
    return ((chunk["type"], part), names[1]) if isinstance(part, str) and isinstance(text, str) else None


def validate(chunk: Any, at: int | None = None) -> None:
    """Refuse what the AI SDK's own schema refuses. Raises ChunkError with `at` and the broken rule."""
    if not isinstance(chunk, dict):
        raise ChunkError(f"a chunk is an object, not {type(chunk).__name__}", rule="not-an-object", at=at)
    kind = chunk.get("type")
    if not isinstance(kind, str):
        raise ChunkError("a chunk needs a type", rule="no-type", at=at)
    fields = fields_of(kind)
    if fields is None:
        raise ChunkError(f"unknown chunk type {kind!r}", rule="unknown-type", at=at)
    required, optional = fields
    for name, check in required.items():
        if name not in chunk:
            raise ChunkError(f"{kind} needs {name!r}{_whose(chunk)}", rule="missing-field", at=at)
        if not check(chunk[name]):
            raise ChunkError(f"{kind}: wrong value in {name!r}{_whose(chunk)}", rule="wrong-field", at=at)
    for name, check in optional.items():
        if name in chunk and not check(chunk[name]):
            hint = "; leave an absent field out" if chunk[name] is None else ""
            raise ChunkError(
                f"{kind}: wrong value in {name!r}{_whose(chunk)}{hint}", rule="wrong-field", at=at
            )


def _whose(chunk: Chunk) -> str:
    """The id a person would look for, as a suffix for an error message."""
    for name in ("id", "toolCallId", "approvalId", "sourceId"):
        if isinstance(chunk.get(name), str):
            return f" (id {chunk[name]!r})"
    return ""


# Type → its required texts, its other required fields, and how many fields a chunk has with only these.
_QUICK: Final = {
    kind: (
        tuple(name for name, check in required.items() if check is _text),
        frozenset(name for name, check in required.items() if check is _any),
        len(required) + 1,
    )
    for kind, (required, _) in FIELDS.items()
    if {_text, _any}.issuperset(required.values())
}


def is_sound(kind: str, chunk: Chunk) -> bool:
    """Whether a chunk's type, `kind`, is one that `FIELDS` has, and each of its fields is what that says."""
    quick = _QUICK.get(kind)
    if quick is not None and len(chunk) == quick[2]:  # nothing but what is required, as nearly all are
        for name in quick[0]:
            if type(chunk.get(name)) is not str:
                return False
        return not quick[1] or quick[1].issubset(chunk)
    fields = FIELDS.get(kind)
    return fields is not None and _has_all(chunk, *fields)


def _has_all(chunk: Chunk, required: Mapping[str, Check], optional: Mapping[str, Check]) -> bool:
    for name, check in required.items():
        if name not in chunk or not check(chunk[name]):
            return False
    if len(chunk) == len(required) + 1:
        return True  # nothing else but its type
    return all(name not in optional or optional[name](value) for name, value in chunk.items())


def mend(chunk: Chunk) -> tuple[Chunk | None, str]:
    """A chunk of a known type as it can be applied, and what was wrong with it ("" if nothing was).

    Wrong optional fields are left out; a lost `input`, `output` or `data` becomes null, which is what
    emitters that drop nulls meant. None where a required field is beyond mending.
    """
    required, optional = fields_of(chunk["type"]) or ({}, {})
    if _has_all(chunk, required, optional):
        return chunk, ""
    wrong = [name for name, check in optional.items() if name in chunk and not check(chunk[name])]
    lost = [name for name, check in required.items() if check is _any and name not in chunk]
    bad = [
        name
        for name, check in required.items()
        if check is not _any and not (name in chunk and check(chunk[name]))
    ]
    if bad:
        return None, "wrong or missing " + ", ".join(bad)
    mended = {name: value for name, value in chunk.items() if name not in wrong}
    mended.update(dict.fromkeys(lost))
    return mended, "mended " + ", ".join(wrong + lost)
