"""Stores that do not do as they say, each in one way. The class says in which."""

from __future__ import annotations

from streams.buckets.base import Blob, Head, Page, Written
from streams.buckets.memory import MemoryBucket
from streams.errors import AccessDenied, PreconditionFailed, Unreachable, Unsupported


class Remote(MemoryBucket):
    """A store that nobody trusts unasked."""

    trusted = False


class IgnoresConditions(Remote):
    def put(self, key, data, *, if_absent=False, if_match=None, nonce=""):
        return super().put(key, data, nonce=nonce)


class IgnoresIfMatch(Remote):
    def put(self, key, data, *, if_absent=False, if_match=None, nonce=""):
        return super().put(key, data, if_absent=if_absent, nonce=nonce)


class WantsUnquoted(Remote):
    def put(self, key, data, *, if_absent=False, if_match=None, nonce=""):
        if if_match is not None and if_match.startswith('"'):
            raise PreconditionFailed(key)
        match = None if if_match is None else f'"{if_match}"'
        return super().put(key, data, if_absent=if_absent, if_match=match, nonce=nonce)


class RefusesConditions(Remote):
    def put(self, key, data, *, if_absent=False, if_match=None, nonce=""):
        if if_absent or if_match is not None:
            raise Unsupported("501 NotImplemented")
        return super().put(key, data, nonce=nonce)


class TakesNoIfMatch(Remote):
    def put(self, key, data, *, if_absent=False, if_match=None, nonce=""):
        if if_match is not None:
            raise Unsupported("501 NotImplemented")
        return super().put(key, data, if_absent=if_absent, nonce=nonce)


class RacyOnReuse(Remote):
    """What the probe does not try: a key that was deleted is created by everybody who asks."""

    def __init__(self):
        super().__init__()
        self.deleted: set[str] = set()

    def delete(self, key):
        self.deleted.add(key)
        super().delete(key)

    def put(self, key, data, *, if_absent=False, if_match=None, nonce=""):
        if_absent = if_absent and key not in self.deleted
        return super().put(key, data, if_absent=if_absent, if_match=if_match, nonce=nonce)


class IgnoresStartAfter(Remote):
    def list(self, prefix, *, after="", limit=1000):
        return super().list(prefix, limit=limit)


class Unsorted(Remote):
    def list(self, prefix, *, after="", limit=1000):
        page = super().list(prefix, after=after, limit=limit)
        return Page(page.entries[::-1], page.more, page.resume, page.date_ms)


class LosesARange(Remote):
    """A long listing without some keys of its middle."""

    def list(self, prefix, *, after="", limit=1000):
        page = super().list(prefix, after=after, limit=limit)
        kept = page.entries if len(page.entries) < 100 else page.entries[:40] + page.entries[60:]
        return Page(kept, page.more, page.resume, page.date_ms)


class ListsEverything(Remote):
    """Whatever prefix is asked for."""

    def list(self, prefix, *, after="", limit=1000):
        return super().list("", after=after, limit=limit)


class Undated(Remote):
    def get(self, key):
        blob = super().get(key)
        return blob and Blob(blob.data, blob.etag, blob.nonce, blob.modified_ms, None)

    def head(self, key):
        head = super().head(key)
        return head and Head(head.size, head.etag, head.nonce, head.modified_ms, None)

    def put(self, key, data, **condition):
        return Written(super().put(key, data, **condition).etag, None)

    def list(self, prefix, *, after="", limit=1000):
        page = super().list(prefix, after=after, limit=limit)
        return Page(page.entries, page.more, page.resume, None)


class ForgetsNonces(Remote):
    def put(self, key, data, *, if_absent=False, if_match=None, nonce=""):
        return super().put(key, data, if_absent=if_absent, if_match=if_match)


class KeepsFraming(Remote):
    def put(self, key, data, **condition):
        return super().put(key, b"1\r\n" + data, **condition)


class TornLarge(Remote):
    """What the probe does not try: of large bodies the end is lost."""

    def put(self, key, data, **condition):
        return super().put(key, data[: 1 << 20], **condition)


class KeepsDeleted(Remote):
    def delete(self, key):
        pass


class FoldsCase(Remote):
    def _full(self, key):
        return super()._full(key).lower()


class CopiesOver(Remote):
    """A copy is no create here, whatever it is told."""

    def copy(self, source, key, etag):
        blob = self.get(source)
        if blob is None:
            return False
        if blob.etag != etag:
            raise PreconditionFailed(source)
        self.put(key, blob.data, nonce=blob.nonce or "")
        return True


class CopiesOverAndSaysNo(CopiesOver):
    def copy(self, source, key, etag):
        there = self.head(key) is not None
        copied = super().copy(source, key, etag)
        if there:
            raise PreconditionFailed(key)
        return copied


class CopiesOnlyOnceSaysAlways(Remote):
    """Nothing is overwritten, and nobody is told."""

    def copy(self, source, key, etag):
        return self.head(key) is not None or super().copy(source, key, etag)


class CopiesAnyVersion(Remote):
    def copy(self, source, key, etag):
        blob = self.get(source)
        return blob is not None and super().copy(source, key, blob.etag)


class CopiesNothing(Remote):
    """What says where to copy from is not known here: it creates an empty object."""

    def copy(self, source, key, etag):
        self.put(key, b"", if_absent=True)
        return True


class CopiesWhatIsGone(Remote):
    def copy(self, source, key, etag):
        return self.head(source) is None or super().copy(source, key, etag)


class ForgetsNoncesOfCopies(Remote):
    def copy(self, source, key, etag):
        blob = self.get(source)
        copied = super().copy(source, key, etag)
        self.put(key, blob.data)
        return copied


class CopiesAlike(Remote):
    """Of copies that race for one key each is told that it won."""

    def copy(self, source, key, etag):
        blob = self.get(source)
        if blob is not None and blob.data in (b"a", b"b", b"c"):
            self.put(key, blob.data)
            return True
        return super().copy(source, key, etag)


class RefusesCopies(Remote):
    def copy(self, source, key, etag):
        raise Unsupported("501 NotImplemented")


class ForbidsCopies(Remote):
    def copy(self, source, key, etag):
        raise AccessDenied("403")


class AnswersNoCopy(Remote):
    def copy(self, source, key, etag):
        raise Unreachable("500")


class OffersNoCopy(Remote):
    copies = False


NO_CREATES_BY_COPY = [
    CopiesOver,
    CopiesOverAndSaysNo,
    CopiesOnlyOnceSaysAlways,
    CopiesAnyVersion,
    CopiesNothing,
    CopiesWhatIsGone,
    ForgetsNoncesOfCopies,
    CopiesAlike,
    RefusesCopies,
    ForbidsCopies,
    AnswersNoCopy,
    OffersNoCopy,
]
