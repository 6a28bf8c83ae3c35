"""Every error a user can meet, in one place. The tree is drawn in `streams.errors`; four belong to chat:

    Refused   → ChunkError   a chunk that breaks a rule of the stream; nothing was stored
    Refused   → NotResumable a history that cannot be picked up again, and why
    Retryable → Deadline     the worker's own deadline came; the turn was released for the next worker
    Retryable → Stalled      the model's stream fell silent; the turn was released for the next worker

`except Retryable` is the one rule that a queue worker needs: do not acknowledge the message.
"""

from __future__ import annotations

from streams.errors import (
    AccessDenied,
    BucketMissing,
    Busy,
    ClockSkew,
    Closed,
    Conflict,
    Corrupt,
    CredentialsExpired,
    Damaged,
    Fenced,
    Gap,
    InvalidId,
    InvalidValue,
    Misconfigured,
    Missing,
    NewerVersion,
    Refused,
    Retryable,
    StreamError,
    Throttled,
    TooLarge,
    Unknown,
    Unreachable,
    Unsupported,
    WrongEndpoint,
    WrongKey,
)

from .core.chunks import ChunkError
from .core.classify import NotResumable


class Deadline(Retryable):
    """The deadline given to `boot` came: the turn was released in good order. Do not acknowledge the
    queue message; the next worker goes on from what is stored."""


class Stalled(Retryable):
    """The model's stream said nothing for `stall_timeout` seconds while no tool was at work: it was closed,
    and the turn released. Do not acknowledge the queue message; the next worker goes on."""


__all__ = [
    "AccessDenied",
    "BucketMissing",
    "Busy",
    "ChunkError",
    "ClockSkew",
    "Closed",
    "Conflict",
    "Corrupt",
    "CredentialsExpired",
    "Damaged",
    "Deadline",
    "Fenced",
    "Gap",
    "InvalidId",
    "InvalidValue",
    "Misconfigured",
    "Missing",
    "NewerVersion",
    "NotResumable",
    "Refused",
    "Retryable",
    "Stalled",
    "StreamError",
    "Throttled",
    "TooLarge",
    "Unknown",
    "Unreachable",
    "Unsupported",
    "WrongEndpoint",
    "WrongKey",
]
