"""LangGraph: a graph of an agent and its tools, its state in checkpoints, in object storage or in SQLite.

`s3` and `sqlite` have the default durability (async); `exit` saves once, at the end. A turn reads its state
by itself; `boot` is `get_state` of a new saver, which is what a process would show before a message comes.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

from benchmarks import texts
from benchmarks.peers.driver import Driver

_THREAD = {"configurable": {"thread_id": "s1"}}


class _State(TypedDict):
    messages: Annotated[list[Any], add_messages]


class _LangGraph(Driver):
    def __init__(self, variant: str, place: str) -> None:
        self._variant, self._place = variant, place
        self._number = 0

    def _agent(self, state: _State) -> dict[str, Any]:
        number = self._number
        if isinstance(state["messages"][-1], ToolMessage):
            return {"messages": [AIMessage(texts.answer(number), id=f"b{number}")]}
        calls = [{"name": "search", "args": {"query": "x"}, "id": f"call-{number}"}]
        return {"messages": [AIMessage("", id=f"a{number}", tool_calls=calls)]}

    def _tools(self, _state: _State) -> dict[str, Any]:
        number = self._number
        text = texts.result(number)
        return {
            "messages": [ToolMessage(text, tool_call_id=f"call-{number}", id=f"t{number}", name="search")]
        }

    def _graph(self) -> StateGraph[Any]:
        graph = StateGraph(_State)
        graph.add_node("agent", self._agent)
        graph.add_node("tools", self._tools)
        graph.add_edge(START, "agent")
        graph.add_edge("tools", "agent")
        graph.add_conditional_edges("agent", lambda s: "tools" if s["messages"][-1].tool_calls else END)
        return graph

    def _saver(self) -> Any:
        if self._variant == "sqlite":
            from langgraph.checkpoint.sqlite import SqliteSaver

            path = Path(self._place) / "langgraph.sqlite"
            return SqliteSaver(sqlite3.connect(path, check_same_thread=False))
        import fsspec
        from langgraph_checkpoint_objectstorage import ObjectStorageSaver

        fsspec.filesystem("s3").clear_instance_cache()  # else the new saver has the client of the last one
        return ObjectStorageSaver.from_conn_string(f"s3://snapshotter/{self._place}")

    def open(self, _turns: int) -> None:
        self._app = self._graph().compile(checkpointer=self._saver())

    def boot(self) -> int:
        return len(self._app.get_state(_THREAD).values.get("messages", ()))

    def turn(self, number: int) -> None:
        self._number = number
        message = HumanMessage(texts.question(number), id=f"u{number}")
        durability = "exit" if self._variant == "exit" else "async"
        self._app.invoke({"messages": [message]}, _THREAD, durability=durability)


def make(variant: str, place: str) -> _LangGraph:
    return _LangGraph(variant, place)
