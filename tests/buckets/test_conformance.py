"""Every backend keeps the bucket contract."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from lying import ForgetsNonces, IgnoresConditions, KeepsDeleted, KeepsFraming, RacyOnReuse, Unsorted

from streams.buckets.memory import MemoryBucket
from streams.errors import PreconditionFailed, Unreachable
from streams.testing.conformance import CHECKS, Check, Traits

ASSERTIONS = (AssertionError, PreconditionFailed)


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_the_contract(check: Check, backend: Any) -> None:
    check(backend.connect, backend.traits)


class ChecksThenWrites(MemoryBucket):
    """A condition that holds one racer at a time, and not two: here both have looked before one writes."""

    def __init__(self):
        super().__init__()
        self.both = threading.Barrier(2, timeout=30)

    def put(self, key, data, *, if_absent=False, if_match=None, nonce=""):
        found = self.head(key)
        if key == "r/0" or if_match is not None:
            self.both.wait()
        if (if_absent and found) or (if_match is not None and (found is None or found.etag != if_match)):
            raise PreconditionFailed(key)
        return super().put(key, data, nonce=nonce)


class StopsAtThousand(MemoryBucket):
    def list(self, prefix, *, after="", limit=1000):
        page = super().list(prefix, after=after, limit=limit)
        return type(page)(page.entries, False, page.resume, page.date_ms)


class UnquotesListedTags(MemoryBucket):
    def get(self, key):
        blob = super().get(key)
        return blob and type(blob)(
            blob.data, blob.etag.strip('"'), blob.nonce, blob.modified_ms, blob.date_ms
        )


class ListsLate(MemoryBucket):
    """A listing that is one write old."""

    shown: tuple[str, ...] = ()

    def put(self, key, data, *, if_absent=False, if_match=None, nonce=""):
        self.shown = tuple(entry.key for entry in super().list("").entries)
        return super().put(key, data, if_absent=if_absent, if_match=if_match, nonce=nonce)

    def list(self, prefix, *, after="", limit=1000):
        page = super().list(prefix, after=after, limit=limit)
        seen = tuple(entry for entry in page.entries if entry.key in self.shown)
        return type(page)(seen, page.more, page.resume, page.date_ms)


class ListsFoldersFirst(MemoryBucket):
    def list(self, prefix, *, after="", limit=1000):
        whole = super().list(prefix)
        entries = sorted(whole.entries, key=lambda entry: entry.key.split("/"))
        start = next((n for n, e in enumerate(entries) if e.key.split("/") > after.split("/")), len(entries))
        page = tuple(entries[start : start + limit])
        return type(whole)(page, start + limit < len(entries), page[-1].key if page else after, whole.date_ms)


class ReadsFolders(MemoryBucket):
    def get(self, key):
        below = super().list(f"{key}/", limit=1).entries
        return super().get(below[0].key if below else key)


class CutsNames(MemoryBucket):
    def _full(self, key):
        return "/".join(segment[:255] for segment in super()._full(key).split("/"))


@pytest.mark.parametrize(
    ("kind", "caught_by"),
    [
        (IgnoresConditions, "a_key_is_created_once"),
        (IgnoresConditions, "only_the_named_version_is_replaced"),
        (ChecksThenWrites, "one_racer_creates"),
        (ChecksThenWrites, "one_racer_replaces"),
        (ForgetsNonces, "nonces_travel_with_the_object"),
        (KeepsFraming, "bytes_come_back_as_they_were"),
        (Unsorted, "a_listing_is_ordered_bounded_and_resumable"),
        (StopsAtThousand, "a_long_listing_misses_and_repeats_nothing"),
        (StopsAtThousand, "a_catalogue_over_folders_is_complete"),
        (UnquotesListedTags, "every_etag_serves_as_a_condition"),
        (KeepsDeleted, "deletes_are_final_and_repeatable"),
        (KeepsDeleted, "a_listing_shows_what_was_just_done"),
        (ListsLate, "a_listing_shows_what_was_just_done"),
        (ListsFoldersFirst, "folders_are_listed_in_byte_order"),
        (ReadsFolders, "a_key_is_no_folder"),
        (CutsNames, "long_names_are_kept"),
        (RacyOnReuse, "one_racer_creates_what_was_deleted"),
    ],
)
def test_the_suite_catches_a_bucket_that_breaks_the_contract(kind, caught_by) -> None:
    bucket = kind()
    with pytest.raises(ASSERTIONS):
        CHECKS[caught_by](lambda: bucket, Traits(racers=2, rounds=3))


class Conflicts(MemoryBucket):
    """Of racers, those that did not win are told to ask again (a 409), and so is each `lost`th that did."""

    def __init__(self, lost=0):
        super().__init__()
        self.lost, self.wins, self.lock = lost, 0, threading.Lock()

    def put(self, key, data, *, if_absent=False, if_match=None, nonce=""):
        with self.lock:
            try:
                written = super().put(key, data, if_absent=if_absent, if_match=if_match, nonce=nonce)
            except PreconditionFailed:
                raise Unreachable("409") from None
            self.wins += 1
            if self.lost and self.wins % self.lost == 0:
                raise Unreachable("409")
            return written


@pytest.mark.parametrize(
    "name", ["one_racer_creates", "one_racer_replaces", "one_racer_creates_what_was_deleted"]
)
def test_a_racer_that_is_told_to_ask_again_has_not_lost_the_race(name) -> None:
    bucket = Conflicts()
    CHECKS[name](lambda: bucket, Traits(racers=3, rounds=3))


def test_a_race_whose_winner_was_not_answered_is_not_settled() -> None:
    bucket = Conflicts(lost=2)
    with pytest.raises(Unreachable, match="409"):
        CHECKS["one_racer_creates"](lambda: bucket, Traits(racers=3, rounds=3))
