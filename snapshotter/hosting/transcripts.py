"""A client that sends its whole transcript with each request: what of it is new becomes inputs.

New user messages are sent; copies of answers whose calls are further on than ours are sent as answers; a last
message that is known, and says something else now, is an edit. All the rest is known already, or old.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from snapshotter.core.calls import Message, parts_of
from snapshotter.core.given import messages_in
from snapshotter.core.reconcile import news, same
from snapshotter.database import Database
from snapshotter.receipt import Receipt


def receive(db: Database, session_id: str, incoming: Sequence[Message], **options: Any) -> list[Receipt]:
    """Send what is new in a client's transcript; the receipts, in order. Repeated, it sends nothing.

    `options` (body, client_tools, metadata) go to `send`, of them the body to `edit`. Raises as these do, and
    InvalidValue, with its path and before anything is sent, for what is no list of messages.
    """
    messages_in(incoming, "incoming")
    stored = db.history(session_id)
    receipts = [db.send(session_id, message, **options) for message in news(incoming, stored)]
    last = incoming[-1] if incoming else None
    if last is not None and last.get("role") == "user":
        known = next((m for m in reversed(stored) if m.get("id") == last.get("id")), None)
        if known is not None and not same(parts_of(known), parts_of(last)):
            receipts.append(db.edit(session_id, str(last["id"]), last, body=options.get("body")))
    return receipts
