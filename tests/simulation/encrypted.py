"""A simulated store whose every object is encrypted: the same worlds, with keys that only the processes have.

What goes wrong goes wrong with the sealed bytes. The judge sees the contents, as whoever has the key does; of
an object that does not open, what is stored.
"""

from __future__ import annotations

import builtins
import random

from streams.buckets.base import Broken
from streams.buckets.sealed import SealedBucket
from streams.encryption import Encryption
from streams.testing.faults import Call
from streams.testing.simulation import Process, SimBucket, SimStore

EVERY = 5
_ENCRYPTION = Encryption(lambda key_id: (key_id or "simulated", b"\x05" * 32))


def is_encrypted(seed: int) -> bool:
    """Whether the world of this seed runs encrypted: one in five does."""
    return seed % EVERY == 0


class _Sealed(SealedBucket):
    """One process's way to the store. The number of a request is that of the bucket within."""

    def __init__(self, inner: SimBucket, seed: object) -> None:
        dice = random.Random(f"{seed}/{inner.process.name}/seals")
        super().__init__(inner, _ENCRYPTION, "root/", entropy=dice.randbytes)
        self.at = inner.at

    @property
    def calls(self) -> builtins.list[Call]:
        return self.inner.calls  # type: ignore[attr-defined, no-any-return]


class EncryptedStore(SimStore):
    """As `SimStore`; `bucket` seals, `objects` opens."""

    def bucket(self, process: Process) -> SimBucket:
        return _Sealed(super().bucket(process), self.seed)  # type: ignore[return-value]

    def objects(self) -> dict[str, bytes]:
        reader = SealedBucket(self.inner, _ENCRYPTION, "root/")
        found = {}
        for key, data in super().objects().items():
            blob = reader.get(key)
            found[key] = data if blob is None or isinstance(blob, Broken) else blob.data
        return found
