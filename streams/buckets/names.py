"""Which roots and keys a bucket takes.

A hostile prefix must not leave its root, and the same key must mean the same object in every backend.
So the alphabet is small (what needs no escaping in a URL, a file name or an XML listing, and `%` for
the escapes that `streams.keys` makes) and no path segment is empty, `.` or `..`.
"""

from __future__ import annotations

import re

from streams.errors import InvalidId

KEY_BYTES = 1024  # the longest key that S3 takes, the root's prefix included

_SEGMENT = re.compile(r"[A-Za-z0-9._%+=@-]+", re.ASCII)
_UNDOTTED = r"[A-Za-z0-9_%+=@-][A-Za-z0-9._%+=@-]*"
_USUAL = re.compile(rf"{_UNDOTTED}(?:/{_UNDOTTED})*", re.ASCII)


def check_path(path: str, what: str) -> str:
    """Return `path` as it is. Raises InvalidId, naming the first segment that cannot be used."""
    if _USUAL.fullmatch(path):
        return path
    for segment in path.split("/"):
        if segment in ("", ".", ".."):
            raise InvalidId(f"{what} {path!r} has the segment {segment!r}; leave it out")
        if not _SEGMENT.fullmatch(segment):
            raise InvalidId(f"{what} {path!r}: use only letters, digits and -_.%+=@ in {segment!r}")
    return path


def check_listing(prefix: str) -> str:
    """Return as it is what a listing's keys begin with: whole segments, and the beginning of one more.

    Raises InvalidId: there are servers to which `in/../out/` means `out/`.
    """
    folder, slash, start = prefix.rpartition("/")
    if slash:
        check_path(folder, "the listed prefix")
    if start:
        check_path(start, "the listed prefix")
    return prefix


def check_prefix(prefix: str) -> str:
    """The path of a store URL without its outer slashes; "" is the bucket itself. Raises InvalidId."""
    prefix = prefix.removeprefix("/").removesuffix("/")
    if not prefix:
        return ""
    check_path(prefix, "the store's prefix")
    if "%" in prefix:  # some servers and proxies would read %2F or %2E as what they stand for
        raise InvalidId(f"the store's prefix {prefix!r} holds a %; choose plain names")
    if len(prefix) > KEY_BYTES // 2:
        raise InvalidId(
            f"the store's prefix is {len(prefix)} bytes long; at most {KEY_BYTES // 2} leave room for keys"
        )
    return prefix


def root_of(prefix: str) -> str:
    """What is put before every key: the checked prefix and a slash, or nothing."""
    return f"{prefix}/" if prefix else ""
