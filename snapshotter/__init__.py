"""Durable sessions for chat agents.

After each turn a session is a JSON snapshot in a bucket; append-only event logs of what came in and what
went out are kept beside it. When a worker dies in the middle of an answer, the next one boots the session
from these, sees the history with the unfinished answer spliced onto it, and carries on.

    import snapshotter

    db = snapshotter.open("s3://bucket/agents")
    receipt = db.send("chat-42", "hi")
    with db.boot("chat-42", receipt=receipt) as session:
        for turn in session.turns():
            with turn:
                for chunk in turn.tee(model(turn.messages)):
                    ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streams.buckets.serverside import ServerSide
from streams.encryption import Encryption, Keyring

from .core.classify import Classified, classify_resume
from .core.onward import for_model
from .core.repair import Repaired, normalize_input, repair
from .core.sanitize import sanitize
from .core.shorten import shorten
from .database import Database, open  # noqa: A004 - reads like the built-in on purpose
from .errors import (
    AccessDenied,
    BucketMissing,
    Busy,
    ChunkError,
    ClockSkew,
    Closed,
    Conflict,
    Corrupt,
    CredentialsExpired,
    Damaged,
    Deadline,
    Fenced,
    Gap,
    InvalidId,
    InvalidValue,
    Misconfigured,
    Missing,
    NewerVersion,
    NotResumable,
    Refused,
    Retryable,
    Stalled,
    StreamError,
    Throttled,
    TooLarge,
    Unknown,
    Unreachable,
    Unsupported,
    WrongEndpoint,
    WrongKey,
)
from .following import Event
from .readers import SessionInfo
from .receipt import Receipt
from .recovery import ChatRecovery, RecoveryChoice, RecoveryContext, RecoveryEvent
from .session import Session
from .signals import Terminated, release_on_sigterm
from .telemetry import Telemetry
from .turn import Turn
from .watchdog import watch

if TYPE_CHECKING:
    from .core.texts import text_chunks
    from .rebuilding import rebuild

__version__ = "0.1.0"

__all__ = [
    "AccessDenied",
    "BucketMissing",
    "Busy",
    "ChatRecovery",
    "ChunkError",
    "Classified",
    "ClockSkew",
    "Closed",
    "Conflict",
    "Corrupt",
    "CredentialsExpired",
    "Damaged",
    "Database",
    "Deadline",
    "Encryption",
    "Event",
    "Fenced",
    "Gap",
    "InvalidId",
    "InvalidValue",
    "Keyring",
    "Misconfigured",
    "Missing",
    "NewerVersion",
    "NotResumable",
    "Receipt",
    "RecoveryChoice",
    "RecoveryContext",
    "RecoveryEvent",
    "Refused",
    "Repaired",
    "Retryable",
    "ServerSide",
    "Session",
    "SessionInfo",
    "Stalled",
    "StreamError",
    "Telemetry",
    "Terminated",
    "Throttled",
    "TooLarge",
    "Turn",
    "Unknown",
    "Unreachable",
    "Unsupported",
    "WrongEndpoint",
    "WrongKey",
    "classify_resume",
    "for_model",
    "normalize_input",
    "open",
    "rebuild",
    "release_on_sigterm",
    "repair",
    "sanitize",
    "shorten",
    "text_chunks",
    "watch",
]


# What most workers do without: who boots a session never pays for it.
_LATER = {"rebuild": ".rebuilding", "text_chunks": ".core.texts"}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LATER[name], __name__), name)
