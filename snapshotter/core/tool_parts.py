"""Tool parts of a message: what they are, when they are settled, and how a chunk rewrites one.

A tool part is a dict `{"type": "tool-<name>"}` or `{"type": "dynamic-tool", "toolName": <name>}` with a
`toolCallId` and a `state`:

    input-streaming → input-available → approval-requested → approval-responded
                                      → output-available | output-error | output-denied

The chunk that moves a part to a state says which of `REWRITTEN` it then has: the AI SDK's client drops
the others. Title, metadata and the flag of provider-executed tools stay until a chunk brings new ones.

A part is never changed in place: every function here returns a new dict, so a message that was handed
out stays as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

Part = dict[str, Any]

REWRITTEN: Final = frozenset({"input", "output", "errorText", "rawInput", "inputEncoding", "preliminary"})
"""Fields that each move of a part sets anew or drops."""

_BROUGHT: Final = ("title", "toolMetadata", "providerExecuted")
_METADATA: Final = "providerMetadata"
_ANY_BROUGHT: Final = frozenset({*_BROUGHT, _METADATA})
_RESULT_STATES: Final = frozenset({"output-available", "output-error"})


def is_tool(part: Any) -> bool:
    """Whether a message part is a call of a tool, static or dynamic."""
    kind = part.get("type") if isinstance(part, dict) else None
    return isinstance(kind, str) and (kind == "dynamic-tool" or kind.startswith("tool-"))


def is_dynamic(part: Part) -> bool:
    return part.get("type") == "dynamic-tool"


def tool_name(part: Part) -> str:
    """The name of the tool that a tool part calls."""
    name = part.get("toolName") if is_dynamic(part) else part["type"].removeprefix("tool-")
    return name if isinstance(name, str) else ""


def is_interrupted(part: Part) -> bool:
    """An error that the cleanup of an interrupted message made; a late result may still replace it."""
    marks = part.get("resultProviderMetadata")
    own = marks.get("snapshotter") if isinstance(marks, dict) else None
    return isinstance(own, dict) and own.get("interrupted") is True


def is_settled(part: Any) -> bool:
    """A final output that cleanup did not make, or a denial: nothing may change it any more."""
    if not is_tool(part):
        return False
    state = part.get("state")
    if state == "output-available":
        return not part.get("preliminary")
    return state == "output-denied" or (state == "output-error" and not is_interrupted(part))


def without_mark(part: Part) -> Part:
    """The part without cleanup's mark; objects that are empty then go too."""
    marks = dict(part["resultProviderMetadata"])
    own = {key: value for key, value in marks.pop("snapshotter").items() if key != "interrupted"}
    if own:
        marks["snapshotter"] = own
    fresh = {key: value for key, value in part.items() if key != "resultProviderMetadata"}
    return {**fresh, "resultProviderMetadata": marks} if marks else fresh


def moved(
    part: Part | None,
    call: str,
    name: str,
    dynamic: bool,
    state: str,
    fields: Part,
    extra: Mapping[str, Any],
) -> Part:
    """`part` (None: a new one) in `state`, with `fields` of `REWRITTEN` and what `extra` brings.

    `extra` is the chunk, or a part of one: its `title`, `toolMetadata`, `providerExecuted` and
    `providerMetadata` are taken where given. The metadata goes to the result once there is one.
    """
    if part is None:
        fresh: Part = {"toolCallId": call}
    else:
        fresh = dict(part)
        for key in REWRITTEN:
            if key in fresh:
                del fresh[key]
    if dynamic:
        fresh.update(type="dynamic-tool", toolName=name)
    else:
        fresh["type"] = f"tool-{name}"
    fresh["state"] = state
    fresh.update(fields)
    if _ANY_BROUGHT.isdisjoint(extra):
        return fresh
    for key in _BROUGHT:
        if extra.get(key) is not None:
            fresh[key] = extra[key]
    if extra.get(_METADATA) is not None:
        target = "resultProviderMetadata" if state in _RESULT_STATES else "callProviderMetadata"
        fresh[target] = extra[_METADATA]
    return fresh


def with_output(part: Part, chunk: Mapping[str, Any]) -> Part:
    """The part with the result that a tool-output-available or tool-output-error chunk brings."""
    dynamic = is_dynamic(part)
    fields = {"input": part["input"]} if "input" in part else {}
    if chunk["type"] == "tool-output-available":
        state = "output-available"
        fields["output"] = chunk["output"]
        if "preliminary" in chunk:
            fields["preliminary"] = chunk["preliminary"]
    else:
        state = "output-error"
        fields["errorText"] = chunk["errorText"]
        if "rawInput" in part and not dynamic:
            fields["rawInput"] = part["rawInput"]
    if "title" in chunk:
        chunk = {key: value for key, value in chunk.items() if key != "title"}
    name = tool_name(part)
    return moved(part, chunk["toolCallId"], name, dynamic, state, fields, chunk)


def with_request(part: Part, chunk: Mapping[str, Any]) -> Part:
    """The part with the fresh approval that a tool-approval-request chunk asks for."""
    approval: Part = {"id": chunk["approvalId"]}
    if chunk.get("approvalDescriptor") is not None:
        approval["descriptor"] = chunk["approvalDescriptor"]
    if "inputSchemaInput" in chunk:
        approval["inputSchemaInput"] = chunk["inputSchemaInput"]
    if "reason" in chunk:
        approval["requestReason"] = chunk["reason"]
    if chunk.get("isAutomatic") is True:
        approval["isAutomatic"] = True
    if "signature" in chunk:
        approval["signature"] = chunk["signature"]
    return {**part, "state": "approval-requested", "approval": approval}


def with_response(part: Part, chunk: Mapping[str, Any]) -> Part:
    """The part with its approval answered by a tool-approval-response chunk."""
    approval = {**part["approval"], "id": chunk["approvalId"], "approved": chunk["approved"]}
    if "reason" in chunk:
        approval["reason"] = chunk["reason"]
    fresh = {**part, "state": "approval-responded", "approval": approval}
    if "providerExecuted" in chunk:
        fresh["providerExecuted"] = chunk["providerExecuted"]
    if "providerMetadata" in chunk:
        fresh["callProviderMetadata"] = chunk["providerMetadata"]
    return fresh
