"""Does this store keep what the engine needs? Asked once, by trying it; the answer is kept in the store.

Many servers that speak S3 take a conditional write and ignore the condition. Two workers would then
overwrite each other and nobody would notice. So before the first write to a store that is not known,
the probe does what the engine does, on keys of its own:

    create     If-None-Match: * creates once, and of racing creates exactly one wins
    replace    If-Match replaces the named version alone, and of racing replacements exactly one wins
    exact      the bytes come back as they were (some stores keep a driver's upload framing)
    listing    keys come in ascending byte order, after a given one
    copy       where the driver offers it: a copy is a create, and of the named version of its source alone

Readers never probe.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Literal

import orjson

from streams.clock import Clock
from streams.errors import (
    AccessDenied,
    Corrupt,
    NewerVersion,
    Unsupported,
)
from streams.store import Store
from streams.trial import Trial

logger = logging.getLogger("snapshotter")  # one name for users to configure

KEY = "capabilities.json"
VERSION = 1
_USUAL = {
    "plain": True,
    "refuses": False,
    "deep": False,
    "copy": False,
}  # what is written only where it is otherwise


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a store was found to keep. `etag`: how If-Match wants it; "none" where it never held.

    `checked_at` is epoch milliseconds by this machine's clock. `plain`: objects are named, overwritten and
    deleted as asked; the probe takes that for granted, `snapshotter doctor --deep` tries it. `refuses`: a
    conditional create is not ignored but refused as such (501). `deep`: found by the whole conformance suite.
    `copy`: the store copies by itself, as a create.
    """

    create: bool
    replace: bool
    exact: bool
    listing: bool
    etag: Literal["as-given", "unquoted", "none"]
    checked_at: int
    plain: bool = True
    refuses: bool = False
    deep: bool = False
    copy: bool = False

    def encode(self) -> bytes:
        found = {name: value for name, value in asdict(self).items() if _USUAL.get(name) is not value}
        found["checkedAt"] = found.pop("checked_at")
        return orjson.dumps({"version": VERSION, **found})

    def less(self, other: Capabilities) -> Capabilities:
        """What both found: a guarantee that either misses is missing. ETag form and date are this one's."""
        return replace(
            self,
            create=self.create and other.create,
            replace=self.replace and other.replace,
            exact=self.exact and other.exact,
            listing=self.listing and other.listing,
            plain=self.plain and other.plain,
            refuses=self.refuses or other.refuses,
            deep=self.deep or other.deep,
            copy=self.copy and other.copy,
        )


def decode(data: bytes, key: str = KEY) -> Capabilities:
    """Raises Corrupt, and NewerVersion for a version above ours."""
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise _unreadable(key, str(error)) from error
    if type(found) is not dict or type(found.get("version")) is not int:
        raise _unreadable(key, "no document with a version")
    if found["version"] > VERSION:
        raise NewerVersion(f"{key} has version {found['version']}; this release knows {VERSION}", key=key)
    # A wrong type is no answer: taken for a "no" it would blame the store.
    given = {"exact": False, "etag": "as-given", **_USUAL, **found}
    facts = ("create", "replace", "exact", "listing", *_USUAL)
    wrong = [name for name in facts if type(given.get(name)) is not bool]
    if given["etag"] not in ("as-given", "unquoted", "none"):
        wrong.append("etag")
    if type(given.get("checkedAt")) is not int:
        wrong.append("checkedAt")
    if wrong:
        raise _unreadable(key, f"{wrong[0]} is not what it should be")
    return Capabilities(
        **{name: given[name] for name in facts}, etag=given["etag"], checked_at=given["checkedAt"]
    )


def _unreadable(key: str, why: str) -> Corrupt:
    return Corrupt(f"{key} cannot be read; delete it and probe again: {why}", key=key)


def load(store: Store, key: str = KEY) -> Capabilities | None:
    """What an earlier probe found, None where none has. Raises Corrupt, NewerVersion, the store's errors."""
    blob = store.get(key)
    return None if blob is None else decode(blob.data, key)


def lack(capabilities: Capabilities, *, allow_unfenced: bool = False) -> str | None:
    """Why the engine does not write to a store that keeps no more than this; None where it does."""
    if not capabilities.exact:
        return "the store does not give back the bytes that were written; update it, or use another"
    if not capabilities.listing:
        return (
            "the store does not list all keys in ascending byte order, after a given one; use another "
            "bucket type"
        )
    if not capabilities.plain:
        return (
            "the store does not name, overwrite or delete objects as it is asked to; `snapshotter doctor "
            "--deep` says where; use another"
        )
    if capabilities.refuses:
        return (
            "the store refuses If-None-Match as such, so nothing can be appended, fenced or not; use another"
        )
    if not capabilities.create and not allow_unfenced:
        return (
            "the store ignores If-None-Match, so two workers could overwrite each other; use another store, "
            "or allow unfenced work (allow_unfenced=True, --allow-unfenced) where never more than one worker "
            "runs"
        )
    return None


def require(capabilities: Capabilities, *, allow_unfenced: bool = False) -> None:
    """Raise Unsupported where the store lacks a guarantee that the engine cannot do without.

    With `allow_unfenced` a store without conditional create is taken, with a warning: then the caller vouches
    that no session ever has two workers, or two senders at one moment.
    """
    lacking = lack(capabilities, allow_unfenced=allow_unfenced)
    if lacking is not None:
        raise Unsupported(lacking)
    if not capabilities.create:
        logger.warning(
            "the store ignores If-None-Match: two workers on one session would go unnoticed",
            extra={"event": "store-unfenced"},
        )
    if not capabilities.replace:
        logger.warning(
            "the store does not replace under If-Match (etag: %s)",
            capabilities.etag,
            extra={"event": "store-no-replace"},
        )


def ensure(store: Store, *, allow_unfenced: bool = False) -> Capabilities | None:
    """For writers: None for a store known to keep its word, else what is stored or a probe finds now.

    Raises Unsupported (see `require`), Corrupt, NewerVersion, AccessDenied where the store was not probed yet
    and this writer may not, and the store's errors.
    """
    if store.bucket.trusted:
        return None
    found = load(store)
    if found is None:
        try:
            found = probe(store, store.clock)
        except AccessDenied as error:
            raise AccessDenied(
                f"{KEY} is not there, and these credentials may not probe the store ({error}); let somebody "
                "run `snapshotter doctor` who may"
            ) from error
    require(found, allow_unfenced=allow_unfenced)
    return found


def probe(store: Store, clock: Clock, *, key: str = KEY) -> Capabilities:
    """Try the store and write down at `key` what it keeps. Raises the store's errors, never Unsupported."""
    found = _probed(store, clock)
    keep(store, found, found.exact, key)
    return found


def keep(store: Store, found: Capabilities, readable: bool, key: str = KEY) -> None:
    """Write it down, unless nothing is `readable` again here: then every writer finds out anew."""
    if readable:
        store.put(key, found.encode())
    else:
        store.delete(key)


def _probed(store: Store, clock: Clock) -> Capabilities:
    trial = Trial(store, clock)
    try:
        create = trial.steadily(trial.creates)
        etag = trial.steadily(trial.etag)
        return Capabilities(
            create=create,
            replace=etag != "none" and trial.steadily(partial(trial.replaces, etag)),
            exact=trial.exact(),
            listing=trial.lists(),
            etag=etag,
            checked_at=clock.now_ms(),
            refuses=trial.refuses,
            copy=create and trial.copies(),
        )
    finally:
        trial.clean()
