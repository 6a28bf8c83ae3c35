"""Record the streams that ship in snapshotter/recordings, from a real framework, offline.

pydantic-ai's adapter for the AI SDK writes them; the "model" is a script, so no key and no network is
needed. Ids differ from run to run, which is why the recordings are kept and not made anew.

    python -m venv /tmp/rec && /tmp/rec/bin/pip install 'pydantic-ai-slim==2.68.0' starlette
    PYTHONPATH=. /tmp/rec/bin/python scripts/record_streams.py snapshotter/recordings

Each file: a line {"name", "user", "about"} (and "message", the assistant message that a continuation
goes on from), then one chunk a line.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from pydantic_ai import Agent, DeferredToolRequests, ModelRetry
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.ui.vercel_ai import VercelAIAdapter

from snapshotter.core.accumulator import Accumulator

Chunk = dict[str, Any]
Script = Callable[[list[ModelMessage], AgentInfo], AsyncIterator[Any]]

GUIDE = (
    "Three days in Lisboa, at an easy pace. "
    "Day one belongs to Alfama: take tram 28 up to Graça, walk down past the Sé, and stop for a bica "
    "and a pastel de nata where the tiles are bluest. "
    "In the afternoon the Museu do Azulejo tells you what you have been looking at; it is quiet after four. "
    "Day two, Belém: the Jerónimos cloister early, before the buses, then the tower from outside (the queue "
    "is longer than the view), and MAAT for the evening light over the Tejo. "
    "Day three, Sintra: the 08:41 from Rossio, Quinta da Regaleira first, lunch in the old town, and Pena "
    "only if the fog has lifted. "
    "Budget: about 70 € a day for two, museums included. 🚋🥐\n\n"
    "| day | where | bring |\n|---|---|---|\n| 1 | Alfama | good shoes |\n| 2 | Belém | a hat ☀️ |\n"
    "| 3 | Sintra | a raincoat 🌧️ |\n\n"
    "If it rains on day two, swap it with day three: Belém works indoors, Sintra does not. "
    "Boa viagem! 旅行を楽しんでください。"
)


def steps_taken(messages: list[ModelMessage]) -> int:
    """How many tool results (or requests to try again) the model has been shown."""
    return sum(
        part.part_kind in ("tool-return", "retry-prompt") for message in messages for part in message.parts
    )


def split(text: str, size: int) -> list[str]:
    return [text[i : i + size] for i in range(0, len(text), size)]


async def forecast(messages: list[ModelMessage], _info: AgentInfo) -> AsyncIterator[Any]:
    """Reasoning, then two calls at once whose arguments stream in, then an answer."""
    if steps_taken(messages) == 0:
        for piece in split(
            "Two cities, so two forecasts. I can ask for both at once: Reykjavík and 東京.", 7
        ):
            yield {0: DeltaThinkingPart(content=piece)}
        yield {1: DeltaToolCall(name="get_weather", json_args="", tool_call_id="call_rvk")}
        for piece in split('{"city": "Reykjavík", "unit": "celsius"}', 6):
            yield {1: DeltaToolCall(json_args=piece)}
        yield {2: DeltaToolCall(name="get_weather", json_args="", tool_call_id="call_tyo")}
        for piece in split('{"city": "\\u6771\\u4eac", "unit": "celsius"}', 5):
            yield {2: DeltaToolCall(json_args=piece)}
    elif steps_taken(messages) == 2:
        for piece in split("Reykjavík is windy at 4 °C; a museum day. Let me see what is open. ", 9):
            yield piece
        yield {
            1: DeltaToolCall(name="find_places", json_args='{"city":"Reykjavík"}', tool_call_id="call_places")
        }
    else:
        for piece in split("**Reykjavík**: 4 °C, wind. Perlan is open. 🌬️\n**東京**: 22 °C, sun. ☀️", 6):
            yield piece


async def guide(_messages: list[ModelMessage], _info: AgentInfo) -> AsyncIterator[Any]:
    """One long answer, in pieces of about a token."""
    for piece in split(GUIDE, 3):
        yield piece


async def book(messages: list[ModelMessage], _info: AgentInfo) -> AsyncIterator[Any]:
    """A call that a person has to approve; what the model says next depends on the answer."""
    if steps_taken(messages) == 0:
        for piece in split("There is one seat left on the 08:41. Shall I take it? ", 8):
            yield piece
        yield {1: DeltaToolCall(name="book_train", json_args="", tool_call_id="call_book")}
        for piece in split('{"train": "08:41 Rossio → Sintra", "seats": 1}', 9):
            yield {1: DeltaToolCall(json_args=piece)}
    else:
        for piece in split(f"The railway desk: {messages[-1].parts[0].content}", 6):
            yield piece


async def retry(messages: list[ModelMessage], _info: AgentInfo) -> AsyncIterator[Any]:
    """Arguments that the tool refuses, and a second try."""
    if steps_taken(messages) < 2:
        nights = "two" if steps_taken(messages) == 0 else 2
        arguments = json.dumps({"hotel": "Pensão Amor", "nights": nights}, ensure_ascii=False)
        yield {0: DeltaToolCall(name="quote", json_args=arguments, tool_call_id=f"call_q{nights}")}
    else:
        for piece in split("Two nights at Pensão Amor come to 180 €.", 7):
            yield piece


async def cut_off(_messages: list[ModelMessage], _info: AgentInfo) -> AsyncIterator[Any]:
    """The provider's connection breaks in the middle of a call's arguments."""
    for piece in split("Looking for flights from Porto", 6):
        yield piece
    yield {1: DeltaToolCall(name="get_weather", json_args='{"city": "Port', tool_call_id="call_cut")}
    raise ConnectionResetError("connection reset by the provider")


def assistant(script: Script) -> Agent[None, Any]:
    agent = Agent(FunctionModel(stream_function=script), output_type=[str, DeferredToolRequests])

    @agent.tool_plain
    def get_weather(city: str, unit: str = "celsius") -> dict[str, Any]:
        known = {"Reykjavík": (4.0, "wind 🌬️"), "東京": (22.0, "sun ☀️")}
        degrees, sky = known[city]
        return {"city": city, "degrees": degrees, "unit": unit, "sky": sky, "warning": None}

    @agent.tool_plain
    def find_places(city: str) -> list[str]:
        return [f"Perlan ({city})", "Hallgrímskirkja", "Harpa"]

    @agent.tool_plain(retries=2)
    def quote(hotel: str, nights: int) -> str:
        if not hotel:
            raise ModelRetry("which hotel?")
        return f"{hotel}: {nights * 90} €"

    @agent.tool_plain(requires_approval=True)
    def book_train(train: str, seats: int) -> str:
        return f"{seats} × {train}, seat 17A 🎫"

    return agent


async def chunks_of(script: Script, messages: list[Chunk], message_id: str) -> list[Chunk]:
    body = {"id": "trip", "trigger": "submit-message", "messages": messages}
    adapter = VercelAIAdapter(
        agent=assistant(script),
        run_input=VercelAIAdapter.build_run_input(json.dumps(body).encode()),
        sdk_version=7,
        server_message_id=message_id,
    )
    events = [event async for event in adapter.encode_stream(adapter.run_stream())]
    return [json.loads(line[6:]) for line in "".join(events).split("\n\n") if line[6:] not in ("", "[DONE]")]


def answered(chunks: list[Chunk], approved: bool) -> Chunk:
    """The message that a client sends back once a person has answered the approval that `chunks` end in."""
    accumulator = Accumulator(strict=True)
    for chunk in chunks:
        accumulator.apply(chunk)
    asked = next(chunk for chunk in chunks if chunk["type"] == "tool-approval-request")
    answer = {"type": "tool-approval-response", "approvalId": asked["approvalId"], "approved": approved}
    accumulator.apply(answer if approved else {**answer, "reason": "too early in the morning"})
    message = accumulator.view()
    assert message is not None
    return message


class Recorder:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    async def record(
        self, name: str, about: str, user: str, script: Script, go_on: Chunk | None = None
    ) -> list[Chunk]:
        messages = [{"id": "u1", "role": "user", "parts": [{"type": "text", "text": user}]}]
        message_id = f"a-{name}" if go_on is None else go_on["id"]
        chunks = await chunks_of(script, messages if go_on is None else [*messages, go_on], message_id)
        head = {"name": name, "user": user, "about": about} | ({} if go_on is None else {"message": go_on})
        lines = [json.dumps(line, ensure_ascii=False, separators=(",", ":")) for line in [head, *chunks]]
        (self.folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", "utf-8", newline="\n")
        print(
            f"{name:16} {len(chunks):4} chunks: {', '.join(dict.fromkeys(chunk['type'] for chunk in chunks))}"
        )
        return chunks


async def main(folder: Path) -> None:
    recorder = Recorder(folder)
    weather = "What is the weather in Reykjavík and 東京, and what could I do there?"
    await recorder.record("forecast", "reasoning, parallel calls, three steps", weather, forecast)
    await recorder.record("guide", "one long answer", "Plan three days in Lisboa for us 🙂", guide)
    ticket = "Book me a train to Sintra tomorrow morning."
    asked = await recorder.record("book", "a call that waits for a person", ticket, book)
    for name, approved in (("book-approved", True), ("book-denied", False)):
        about = f"the continuation of `book`, {'granted' if approved else 'refused'}"
        await recorder.record(name, about, ticket, book, answered(asked, approved))
    await recorder.record("quote", "arguments refused, then tried again", "Two nights at Pensão Amor?", retry)
    await recorder.record(
        "cut-off", "the provider fails inside a call's arguments", "Flights from Porto?", cut_off
    )


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
