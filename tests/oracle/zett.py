"""Asks zett-agent where histories can be resumed: JSON lines in, JSON lines out. Runs in its environment.

A line is a history of plain messages, as in `snapshotter.core.classify`; the answer is {"kind",
"unanswered"}, or {"error": reason}, "bad_input" for a line that is no history.
"""

import json
import sys

from zett_agent.exceptions import AgentResumeError
from zett_agent.messages import (
    AgentMessage,
    AssistantMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from zett_agent.resume import classify_resume
from zett_agent.stop import StopInfo, StopReason, classify_stop

TALK = {"system": SystemMessage, "user": UserMessage, "agent": AgentMessage}


def stop_of(value, has_tools):
    if value is None:
        return None
    if isinstance(value, dict):
        return StopInfo(reason=StopReason(value["reason"]), raw=value.get("raw"))
    if value in {reason.value for reason in StopReason}:
        return StopInfo(reason=StopReason(value))
    return classify_stop(value, has_tool_calls=has_tools)


def message_of(m):
    role, content = m["role"], m.get("content") or ""
    if role == "assistant":
        calls = [
            ToolCall(id=c["id"], name=c.get("name", "tool"), arguments={}) for c in m.get("tool_calls") or ()
        ]
        stop = m.get("stop", m.get("stop_reason", m.get("finish_reason")))
        return AssistantMessage(content=content, tool_calls=tuple(calls), stop=stop_of(stop, bool(calls)))
    if role == "tool":
        return ToolMessage(tool_call_id=m["tool_call_id"], name="tool", content=content)
    return TALK[role](content=content)


def answer(history):
    try:
        messages = [message_of(m) for m in history]
    except (KeyError, TypeError, ValueError, AttributeError):
        return {"error": "bad_input"}
    try:
        point = classify_resume(messages)
    except AgentResumeError as error:
        return {"error": error.reason}
    return {"kind": point.kind.value, "unanswered": [c.id for c in point.unanswered_tool_calls]}


for line in sys.stdin:
    sys.stdout.write(json.dumps(answer(json.loads(line))) + "\n")
