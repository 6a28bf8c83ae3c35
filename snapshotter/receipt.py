"""What a sender gets back, and what travels in a queue message."""

from __future__ import annotations

import json
import reprlib
from dataclasses import dataclass
from typing import Any

from streams import keys
from streams.errors import InvalidValue


@dataclass(frozen=True, slots=True)
class Receipt:
    """An input is durable: input `id` of session `session`.

    `str(receipt)` is one line of JSON that `Receipt.parse` reads again: put it into the queue message,
    and give it to `boot`, which then need not list the in log. `duplicate` is true when the input had been
    sent before; `id` is then the first one's.
    """

    session: str
    id: int
    duplicate: bool = False

    def __str__(self) -> str:
        return json.dumps({"session": self.session, "id": self.id})

    @classmethod
    def parse(cls, value: Receipt | str | dict[str, Any]) -> Receipt:
        """A receipt from itself, its line of JSON, or that line decoded. Raises InvalidValue."""
        if isinstance(value, Receipt):
            return value
        try:
            found = json.loads(value) if isinstance(value, str) else value
            session, number = found["session"], found["id"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise _no_receipt(value) from None
        if not isinstance(session, str) or type(number) is not int or not 1 <= number <= keys.MAX:
            raise _no_receipt(value)
        return cls(session, number)


def _no_receipt(value: Any) -> InvalidValue:
    shown = reprlib.repr(value)
    return InvalidValue(f"not a receipt: {shown}; give what `send` returned", path="receipt")
