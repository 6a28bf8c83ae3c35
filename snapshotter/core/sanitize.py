"""What providers leave in a message and do not want to see again.

The ids that a provider gave to its own items, and reasoning that it encrypted for itself, are good for the
conversation that made them: sent again, or to another model, they are refused. And a reasoning part whose
text never came says nothing. `sanitize` takes both away, for the model's eyes; the log keeps them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from .calls import Message, Part, parts_of
from .given import messages_in

_EPHEMERAL: Final = {"openai": ("itemId", "reasoningEncryptedContent")}
_METADATA: Final = ("providerMetadata", "callProviderMetadata", "resultProviderMetadata")
# What JavaScript's trim takes away; Python's strip takes others, and leaves the byte order mark.
SPACE: Final = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)


def sanitize(messages: Sequence[Message]) -> list[Message]:
    """The messages without ephemeral provider fields, objects that are empty then, and reasoning parts that
    hold neither text nor metadata. A message that has none of these is the same object. Raises InvalidValue,
    with its path, for what is no list of messages."""
    return [_sanitized(message) for message in messages_in(messages)]


def _sanitized(message: Message) -> Message:
    old = parts_of(message)
    parts = [part for part in map(_stripped, old) if not _is_blank_reasoning(part)]
    same = len(parts) == len(old) and all(a is b for a, b in zip(parts, old, strict=True))
    return message if same else {**message, "parts": parts}


def _stripped(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    for name in _METADATA:
        for provider, fields in _EPHEMERAL.items():
            part = _without(part, name, provider, fields)
    return part


def _without(part: Part, name: str, provider: str, fields: tuple[str, ...]) -> Part:
    metadata = part.get(name)
    own = metadata.get(provider) if isinstance(metadata, dict) else None
    if not isinstance(own, dict) or (own and not any(field in own for field in fields)):
        return part
    left = {key: value for key, value in own.items() if key not in fields}
    rest = {key: value for key, value in metadata.items() if key != provider}  # type: ignore[union-attr]
    if left:
        rest[provider] = left
    bare = {key: value for key, value in part.items() if key != name}
    return {**bare, name: rest} if rest else bare


def _is_blank_reasoning(part: Any) -> bool:
    if not isinstance(part, dict) or part.get("type") != "reasoning":
        return False
    text = part.get("text")
    blank = not isinstance(text, str) or not text.strip(SPACE)
    return blank and not (isinstance(part.get("providerMetadata"), dict) and part["providerMetadata"])
