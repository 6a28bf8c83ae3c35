"""OpenAI Agents SDK: its runner with a `SQLiteSession`, one row for each item."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from agents import Agent, Runner, SQLiteSession, function_tool, set_tracing_disabled
from agents.items import ModelResponse
from agents.models.interface import Model
from agents.usage import Usage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from benchmarks import texts
from benchmarks.peers.driver import Driver


class _Model(Model):
    """Calls the tool, then answers."""

    number = 0

    async def get_response(self, **given: Any) -> ModelResponse:
        last = given["input"][-1]
        found = self._spoken() if last.get("type") == "function_call_output" else self._called()
        return ModelResponse(output=[found], usage=Usage(), response_id=None)

    def _called(self) -> ResponseFunctionToolCall:
        return ResponseFunctionToolCall(
            id=f"f{self.number}",
            call_id=f"call-{self.number}",
            type="function_call",
            name="search",
            arguments='{"query": "x"}',
        )

    def _spoken(self) -> ResponseOutputMessage:
        text = ResponseOutputText(text=texts.answer(self.number), type="output_text", annotations=[])
        return ResponseOutputMessage(
            id=f"m{self.number}", type="message", role="assistant", status="completed", content=[text]
        )

    async def stream_response(self, *_args: Any, **_more: Any) -> AsyncIterator[Any]:
        raise NotImplementedError
        yield


class _Sdk(Driver):
    def __init__(self, folder: str) -> None:
        set_tracing_disabled(True)
        self._path = Path(folder) / "openai.sqlite"
        self._model = _Model()
        self._loop = asyncio.new_event_loop()

        @function_tool
        def search(query: str) -> str:  # noqa: ARG001
            """Search."""
            return texts.result(self._model.number)

        self._agent = Agent(name="a", model=self._model, tools=[search])

    def open(self, _turns: int) -> None:
        self._session = SQLiteSession("s1", self._path)

    def boot(self) -> int:
        return len(self._loop.run_until_complete(self._session.get_items()))

    def turn(self, number: int) -> None:
        self._model.number = number
        run = Runner.run(self._agent, texts.question(number), session=self._session)
        self._loop.run_until_complete(run)


def make(_variant: str, place: str) -> _Sdk:
    return _Sdk(place)
