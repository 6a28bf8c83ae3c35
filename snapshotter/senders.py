"""The senders of a database: what the world tells a session.

Each appends one in record, durable when the call returns; none boots a session or waits for a worker.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from streams.clock import Clock

from . import sending
from .core.calls import Message
from .receipt import Receipt


class Senders(ABC):
    """The part of `Database` that clients and their servers use."""

    clock: Clock

    @abstractmethod
    def _append(self, session_id: str, record: dict[str, Any]) -> Receipt:
        """Append an in record. Raises Conflict, TooLarge, Unknown …"""

    def send(
        self,
        session_id: str,
        message: Message | str,
        *,
        key: str | None = None,
        metadata: Any = None,
        body: Any = None,
        client_tools: list[str] | None = None,
    ) -> Receipt:
        """Append a user message (a UIMessage, or just its text). Durable when it returns.

        A message without an id gets one: from `key` where that is given, else a random one. Sending the same
        message (by its id, or by `key`) again returns the first receipt.

        Raises Conflict when the id or key was used with another body, InvalidValue, TooLarge; nothing was
        written then. Raises Unknown when the store never answered: send again with the same id or key.
        """
        record = sending.message_record(message, key, self.clock)
        return self._append(session_id, sending.request(record, key, metadata, body, client_tools))

    def edit(
        self,
        session_id: str,
        message_id: str,
        message: Message | str,
        *,
        key: str | None = None,
        body: Any = None,
    ) -> Receipt:
        """Replace a user message and remove what followed it; the new one is answered."""
        record = sending.edit_record(message_id, message)
        return self._append(session_id, sending.request(record, key, None, body, None))

    def approve(
        self,
        session_id: str,
        approval_id: str | None = None,
        *,
        tool_call_id: str | None = None,
        approved: bool = True,
        reason: str | None = None,
        key: str | None = None,
    ) -> Receipt:
        """Answer an approval request: grant it, or with `approved=False` deny it."""
        record = sending.approval_record(approval_id, tool_call_id, approved, reason)
        return self._append(session_id, sending.request(record, key))

    def tool_result(
        self,
        session_id: str,
        tool_call_id: str,
        output: Any = None,
        *,
        error_text: str | None = None,
        message_id: str | None = None,
        key: str | None = None,
    ) -> Receipt:
        """Answer a client-side tool call, with its output or with the text of its error."""
        record = sending.result_record(tool_call_id, output, error_text, message_id)
        return self._append(session_id, sending.request(record, key))

    def stop(self, session_id: str, message_id: str | None = None, *, key: str | None = None) -> Receipt:
        """Ask to stop the answer to the user message `message_id` (give it: else whatever runs is meant)."""
        return self._append(session_id, sending.request(sending.named("stop", message_id), key))

    def regenerate(
        self, session_id: str, message_id: str | None = None, *, key: str | None = None, body: Any = None
    ) -> Receipt:
        """Ask for a new answer in place of the assistant message `message_id`, by default the last one."""
        return self._append(
            session_id, sending.request(sending.named("regenerate", message_id), key, None, body)
        )

    def action(
        self,
        session_id: str,
        name: str,
        input: Any = None,  # noqa: A002 - the record's own word
        *,
        key: str | None = None,
    ) -> Receipt:
        """Ask the worker for something of your own; it may answer, or only edit the session."""
        return self._append(session_id, sending.request(sending.action_record(name, input), key))

    def close_session(self, session_id: str, *, key: str | None = None) -> Receipt:
        """Close the session, after what is owed before this."""
        return self._append(session_id, sending.request({"kind": "close"}, key))
