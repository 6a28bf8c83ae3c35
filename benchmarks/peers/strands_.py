"""Strands agents: the manager that keeps each message as an object, and the one that keeps a snapshot.

`S3SessionManager` with the whole history, or with the agent's own default, a window of 40 messages;
`SnapshotSessionManager`, which saves after each invocation, or (`message`) after each message, over
`S3Storage`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from typing import Any

import boto3
from botocore.config import Config
from strands import Agent, tool
from strands.agent.conversation_manager import NullConversationManager, SlidingWindowConversationManager
from strands.models import Model
from strands.session import S3SessionManager
from strands.session.snapshot_session_manager import SnapshotSessionManager
from strands.storage import S3Storage

from benchmarks import texts
from benchmarks.peers.driver import Driver

_BUCKET, _SESSION = "snapshotter", "s1"


class _Model(Model):
    """Calls the tool, then answers."""

    number = 0

    def update_config(self, **_config: Any) -> None:
        """Has none."""

    def get_config(self) -> dict[str, Any]:
        return {"model_id": "none", "context_window_limit": 10**9}

    async def structured_output(self, *_args: Any, **_more: Any) -> AsyncGenerator[dict[str, Any], None]:
        raise NotImplementedError
        yield {}

    async def stream(self, messages: Any, *_args: Any, **_more: Any) -> AsyncGenerator[dict[str, Any], None]:
        spoken = any("toolResult" in block for block in messages[-1]["content"])
        use = {"toolUseId": f"call-{self.number}", "name": "search"}
        delta = {"text": texts.answer(self.number)} if spoken else {"toolUse": {"input": '{"query": "x"}'}}
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {} if spoken else {"toolUse": use}}}
        yield {"contentBlockDelta": {"delta": delta}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn" if spoken else "tool_use"}}
        usage = {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}
        yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 1}}}


class _Prepared(boto3.Session):
    """A session that hands out one client, made before: what boto3 takes to make one is no part of a boot."""

    def __init__(self) -> None:
        super().__init__()
        self._made = super().client("s3", config=Config(max_pool_connections=50))

    def client(self, *_args: Any, **_more: Any) -> Any:
        return self._made


class _Strands(Driver):
    def __init__(self, variant: str, prefix: str) -> None:
        logging.disable(logging.CRITICAL)
        self._variant, self._saving, self._prefix = variant, variant, prefix
        self._model = _Model()

    def open(self, _turns: int) -> None:
        self._session = _Prepared()

    def boot(self) -> int:
        windowed = self._variant == "window"
        self._manager = self._managed()
        self._agent = Agent(
            model=self._model,
            tools=[self._tool()],
            session_manager=self._manager,
            conversation_manager=SlidingWindowConversationManager()
            if windowed
            else NullConversationManager(),
            agent_id="a",
            callback_handler=None,
            load_tools_from_directory=False,
        )
        return len(self._agent.messages)

    def _managed(self) -> Any:
        if self._variant in ("whole", "window"):
            return S3SessionManager(_SESSION, bucket=_BUCKET, prefix=self._prefix, boto_session=self._session)
        storage = S3Storage(_BUCKET, prefix=self._prefix, boto_session=self._session)
        return SnapshotSessionManager(_SESSION, storage=storage, save_latest_on=self._saving)

    def _tool(self) -> Any:
        @tool
        def search(query: str) -> str:  # noqa: ARG001
            """Search."""
            return texts.result(self._model.number)

        return search

    def turn(self, number: int) -> None:
        self._model.number = number
        self._agent(texts.question(number))

    def grow(self, done: int, turns: int) -> None:
        """A snapshot that is saved once, at the end, is the one that turns would have left."""
        snapshots = self._variant in ("invocation", "message")
        self._saving = "trigger" if snapshots else self._saving
        self.boot()
        super().grow(done, turns)
        if snapshots:
            asyncio.run(self._manager.save_snapshot(self._agent, is_latest=True))
            self._saving = self._variant


def make(variant: str, place: str) -> _Strands:
    return _Strands(variant, place)
