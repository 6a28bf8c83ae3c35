"""The error tree. Few, typed, and each says what to do next.

    StreamError
    ├── Retryable                 try again later; a queue message must NOT be acknowledged
    │   ├── Unreachable           the store did not answer in time, or answered 5xx
    │   │   └── Throttled         the store asked us to slow down
    │   ├── Unknown               an append was sent and never answered: it may or may not be there
    │   ├── Fenced                another worker has taken the log over; this one must stop
    │   └── Busy                  another worker is at work; `retry_after` seconds
    ├── Refused                   the input is not acceptable; nothing was written
    │   ├── InvalidId             a session id, key or URL that cannot be stored
    │   ├── InvalidValue          a value that cannot be stored (NaN, depth, type …), with its path
    │   ├── TooLarge              a record above the limit; `size` and `limit` in bytes
    │   ├── Conflict              the same idempotency key with another body
    │   └── Closed                the session is closed or deleted
    ├── Misconfigured             a person has to change something
    │   ├── BucketMissing         the bucket (or folder) does not exist
    │   ├── AccessDenied          the credentials may not do this
    │   ├── CredentialsExpired    the credentials are no longer valid, or not known
    │   ├── ClockSkew             this machine's clock is too far from the store's
    │   ├── WrongEndpoint         what answers there is not this store
    │   ├── WrongKey              the key that an object was encrypted with is not at hand
    │   └── Unsupported           the store lacks a guarantee that the engine needs
    ├── Damaged                   stored data is not what it should be; never overwritten
    │   ├── Corrupt               an object that cannot be decoded
    │   │   └── NewerVersion      an object that a newer release wrote
    │   ├── Missing               an object that another one names is not there
    │   └── Gap                   records are missing from a log
    └── PreconditionFailed        a conditional write found another state (the engine's own business)

Absent is not an error: a read of a key that is not there returns None. Absent, corrupt and
unreachable are three things and never confused.
"""

from __future__ import annotations


class StreamError(Exception):
    """Base of every error that the package raises on purpose."""


class Retryable(StreamError):
    """The same call may succeed later. Do not acknowledge the queue message that led here."""

    def __init__(self, message: str, *, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Unreachable(Retryable):
    """The store did not answer in time, broke the connection, or answered with a server fault."""


class Throttled(Unreachable):
    """The store asked to slow down, for longer than the call's deadline."""


class Unknown(Retryable):
    """An append was sent and never answered. It may land later; boot again to learn what happened."""


class Fenced(Retryable):
    """Another worker took the log over. Stop: write nothing more, do not acknowledge the message."""


class Busy(Retryable):
    """A living worker holds the session. Come back after `retry_after` seconds."""


class Refused(StreamError):
    """The input is not acceptable as it is. Nothing was written."""


class InvalidId(Refused):
    """A session id, store URL or key that cannot be stored safely."""


class InvalidValue(Refused):
    """A value that JSON cannot hold exactly. `path` names the place, for example `data.x[3]`."""

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class TooLarge(Refused):
    """A record, or a file to import, above the limit, measured on its bytes before anything was written."""

    def __init__(self, message: str, *, size: int, limit: int) -> None:
        super().__init__(message)
        self.size = size
        self.limit = limit


class Conflict(Refused):
    """The idempotency key (or message id) was used before with another body. `first` is that input's id."""

    def __init__(self, message: str, *, first: int) -> None:
        super().__init__(message)
        self.first = first


class Closed(Refused):
    """The session is closed or deleted and takes no more turns."""


class Misconfigured(StreamError):
    """Something outside the program has to be changed by a person."""


class BucketMissing(Misconfigured):
    """The bucket, or the folder that stands for it, does not exist."""


class AccessDenied(Misconfigured):
    """The store knows the credentials and refuses this operation to them."""


class CredentialsExpired(Misconfigured):
    """The credentials are expired, unknown to the store, or missing."""


class ClockSkew(Misconfigured):
    """The store refuses signatures because this machine's clock is too far off."""


class WrongEndpoint(Misconfigured):
    """What answers at the endpoint is not the store that the URL names."""


class WrongKey(Misconfigured):
    """An object is encrypted, and the key that it was encrypted with is not at hand."""


class Unsupported(Misconfigured):
    """The store lacks a guarantee that the engine needs, such as conditional create."""


class Damaged(StreamError):
    """Stored data is not what it should be. It is left as it is, for a person to look at."""


class Corrupt(Damaged):
    """An object that cannot be decoded. `key` names it, `offset` the byte where that was seen."""

    def __init__(self, message: str, *, key: str = "", offset: int | None = None) -> None:
        super().__init__(message)
        self.key = key
        self.offset = offset


class NewerVersion(Corrupt):
    """An object of a format version that this release does not know. Upgrade; nothing was touched."""


class Missing(Damaged):
    """An object that another one names is not there. `key` names it."""

    def __init__(self, message: str, *, key: str = "") -> None:
        super().__init__(message)
        self.key = key


class Gap(Damaged):
    """Records are missing. `log` is "in" or "out", `missing` the first and the last missing id."""

    def __init__(self, message: str, *, log: str, missing: tuple[int, int]) -> None:
        super().__init__(message)
        self.log = log
        self.missing = missing


class PreconditionFailed(StreamError):
    """A conditional write found the key taken, or the object changed."""
