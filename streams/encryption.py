"""Whether and with which keys objects are encrypted before they leave this process.

    Encryption(key=callback)         your own source of keys
    Encryption(key=Keyring(text))    keys from a text: one `id base64` a line, the newest first

The callback is asked `key(None)` at each write, for the key to write with now, and `key(key_id)` once for
each id that is met when reading. It answers `(key_id, 32 bytes)`. So a rotation is: from now on answer
another key to None, and go on answering the old ids as long as there are objects of theirs.

What it raises decides what becomes of the request: LookupError, TypeError, ValueError, AttributeError and
a wrong answer are WrongKey, which a person has to mend; a StreamError is raised as it is; anything else, such
as a key service that is away, is Unreachable and tried again like a store that does not answer. No message
repeats what it said.

From the environment: SNAPSHOTTER_KEY_FILE names a file with a Keyring's text, SNAPSHOTTER_KEY_COMMAND a
command that prints one. SNAPSHOTTER_ALLOW_PLAIN=1 reads objects that are not encrypted, too.

The cipher itself is in `streams.buckets.sealed`, which alone imports `cryptography`.
"""

from __future__ import annotations

import binascii
import os
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from streams.errors import InvalidValue, Misconfigured, WrongKey

if TYPE_CHECKING:
    from streams.buckets.base import Bucket

Key = tuple[str, bytes]
KeySource = Callable[[str | None], Key]

MAGIC = b"\x91SNP"
"""How an encrypted object begins. No JSON and no gzip does: 0x91 begins no UTF-8 text."""
KEY_BYTES = 32
ID_BYTES = 48


@dataclass(frozen=True, slots=True)
class Encryption:
    """Encrypt every object. `key`: see the top of this file. It does not show in a repr.

    `allow_plain` also reads objects that are not encrypted, for as long as an older root still has some: then
    whoever can write to the bucket can put in a history of their own.
    """

    key: KeySource = field(repr=False)
    allow_plain: bool = False

    def __post_init__(self) -> None:
        if not callable(self.key):
            raise InvalidValue("key is a function from a key id, or None, to (key id, 32 bytes)", path="key")


class Keyring:
    """Keys from a text: one `id base64` a line, the newest first; blank lines and `#` lines are nothing.

    Raises Misconfigured for a text that is none; its message never repeats a key.
    """

    def __init__(self, text: str, name: str = "the keyring") -> None:
        self._name = name
        self._keys: dict[str, bytes] = {}
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if len(words) != 2 or not is_key_id(words[0]) or words[0] in self._keys:
                raise Misconfigured(f"{name}, line {number}: one `id base64` is needed, each id once")
            self._keys[words[0]] = _decoded(words[1], f"{name}, line {number}")
        if not self._keys:
            raise Misconfigured(f"{name} holds no key; it needs a line `id base64`, of 32 bytes")

    def __call__(self, key_id: str | None) -> Key:
        found = next(iter(self._keys)) if key_id is None else key_id
        return found, self._keys[found]

    def __repr__(self) -> str:
        return f"<Keyring {self._name}: {', '.join(self._keys)}>"


def of_environment(env: Mapping[str, str] | None = None) -> Encryption | None:
    """What the environment says; None where it names no key. Raises Misconfigured for what cannot be read."""
    env = os.environ if env is None else env
    file, command = env.get("SNAPSHOTTER_KEY_FILE"), env.get("SNAPSHOTTER_KEY_COMMAND")
    if file and command:
        raise Misconfigured("SNAPSHOTTER_KEY_FILE and SNAPSHOTTER_KEY_COMMAND are both set; take one out")
    if file:
        ring = Keyring(_file(file), "the file of SNAPSHOTTER_KEY_FILE")
    elif command:
        ring = Keyring(_printed(command), "what SNAPSHOTTER_KEY_COMMAND prints")
    else:
        return None
    return Encryption(ring, allow_plain=env.get("SNAPSHOTTER_ALLOW_PLAIN") == "1")


def sealed(bucket: Bucket, encryption: Encryption | None, root: str = "") -> Bucket:
    """The bucket, encrypted where `encryption` is given. `root`: the path in the store before each key, with
    a slash at its end. Raises Misconfigured where `cryptography` is not installed."""
    if encryption is None:
        return bucket
    if not isinstance(encryption, Encryption):
        raise InvalidValue(f"encryption is {type(encryption).__name__}: Encryption(key=…) is needed")
    try:
        from streams.buckets.sealed import SealedBucket
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "cryptography":
            raise
        raise Misconfigured("encryption needs a library: pip install cryptography") from error
    return SealedBucket(bucket, encryption, root)


def is_key_id(text: object) -> bool:
    """A key's name: 1 to 48 printable ASCII characters without spaces."""
    return (
        isinstance(text, str)
        and text.isascii()
        and text.isprintable()
        and " " not in text
        and 0 < len(text) <= ID_BYTES
    )


def no_key(key: str) -> WrongKey:
    """For an encrypted object that was read without encryption."""
    return WrongKey(f"{key} is encrypted: open the store with encryption=…, or set SNAPSHOTTER_KEY_FILE")


def _decoded(text: str, where: str) -> bytes:
    try:
        found = b64decode(text, validate=True)
    except binascii.Error:
        found = b""
    if len(found) != KEY_BYTES:
        raise Misconfigured(f"{where}: a key is the base64 of 32 bytes (`openssl rand -base64 32`)")
    return found


def _file(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except (OSError, ValueError) as error:
        raise Misconfigured(f"SNAPSHOTTER_KEY_FILE cannot be read ({type(error).__name__})") from error


def _printed(command: str) -> str:
    # Imported late: few environments name a command.
    import shlex
    import subprocess

    try:
        # The user's own command, which the environment names as it names the user's shell.
        done = subprocess.run(shlex.split(command), stdout=subprocess.PIPE, check=True)  # noqa: S603
        return done.stdout.decode("ascii")
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        # Not chained: the error would repeat what was printed.
        raise Misconfigured(f"SNAPSHOTTER_KEY_COMMAND failed ({type(error).__name__})") from None
