"""Listings: complete, in order, in pages, and never older than what was written."""

from __future__ import annotations

from .checking import Connect, Traits, check, fill, names, pages, segment_keys


@check
def a_listing_is_ordered_bounded_and_resumable(connect: Connect, _: Traits) -> None:
    bucket = connect()
    keys = segment_keys(12)
    fill(bucket, keys)
    first = bucket.list("out/s/", limit=5)
    assert [e.key for e in first.entries] == keys[:5]
    assert first.more
    assert [e.key for e in bucket.list("out/s/", after=keys[6], limit=3).entries] == keys[7:10]
    between = keys[6][:-1]  # no object, sorts right before keys[6]
    assert [e.key for e in bucket.list("out/s/", after=between, limit=1).entries] == [keys[6]]
    assert bucket.list("out/s/", after=keys[-1]).entries == ()
    for limit in (1, 4, 5, 12, 1000):
        assert names(bucket, "out/s/", limit) == keys, f"pages of {limit}"
    whole = bucket.list("out/s/", limit=12)
    assert len(whole.entries) == 12
    assert all(e.size == len(e.key) for e in whole.entries)


@check
def a_listing_keeps_to_its_prefix(connect: Connect, _: Traits) -> None:
    bucket = connect()
    fill(bucket, ["in/a/1", "in/a/2", "in/a-b/1", "in/ab/1", "in/a.b/1", "inn/a/1", "out/a/1"])
    assert names(bucket, "in/a/") == ["in/a/1", "in/a/2"]
    assert sorted(names(bucket, "in/")) == ["in/a-b/1", "in/a.b/1", "in/a/1", "in/a/2", "in/ab/1"]
    assert names(bucket, "in/a/2") == ["in/a/2"]
    assert names(bucket, "nothing/") == []
    assert len(names(bucket, "")) == 7


@check
def a_catalogue_over_folders_is_complete(connect: Connect, _: Traits) -> None:
    bucket = connect()
    sids = ["a", "a-b", "a.b", "ab", "A", "b_c", "z", "0", *(f"s{n}" for n in range(20))]
    keys = sorted(f"sessions/{sid}/snapshot.json" for sid in sids)
    fill(bucket, keys)
    for limit in (1, 3, 7, len(keys), 1000):
        found = names(bucket, "sessions/", limit)
        assert sorted(found) == keys, f"pages of {limit}: {len(found)} names for {len(keys)} objects"


@check
def folders_are_listed_in_byte_order(connect: Connect, traits: Traits) -> None:
    """Not every store that lists one folder in order has `a-b/1` before `a/1`."""
    bucket = connect()
    keys = [f"sessions/{sid}/snapshot.json" for sid in ("A", "a-b", "a.b", "a", "ab")]
    fill(bucket, keys)
    found = names(bucket, "sessions/", 2)
    assert sorted(found) == sorted(keys)
    if traits.byte_order:
        assert found == sorted(keys)


@check
def a_long_listing_misses_and_repeats_nothing(connect: Connect, traits: Traits) -> None:
    bucket = connect()
    keys = segment_keys(traits.objects)
    fill(bucket, keys)
    sizes = [len(page) for page in pages(bucket, "out/s/", 1000)]
    assert sum(sizes) == traits.objects
    assert names(bucket, "out/s/", 1000) == keys
    assert names(bucket, "out/s/", traits.objects // 5) == keys


@check
def an_object_added_between_pages_disturbs_no_other(connect: Connect, _: Traits) -> None:
    bucket = connect()
    keys = [f"l/s/{n:04}" for n in range(0, 40, 2)]
    fill(bucket, keys)
    first = bucket.list("l/s/", limit=10)
    fill(bucket, ["l/s/0001", "l/s/0099"])
    rest = bucket.list("l/s/", after=first.resume, limit=1000)
    assert [e.key for e in first.entries + rest.entries] == [*keys, "l/s/0099"]


@check
def a_listing_shows_what_was_just_done(connect: Connect, _: Traits) -> None:
    """A boot lists the newest of a log: what another has just written has to be there."""
    writer, reader = connect(), connect()
    keys = segment_keys(8)
    for number, key in enumerate(reversed(keys), 1):
        writer.put(key, b"x", if_absent=True)
        assert names(reader, "out/s/") == keys[-number:], f"after the put of {key}"
    for number, key in enumerate(keys, 1):
        writer.delete(key)
        assert names(reader, "out/s/") == keys[number:], f"after the delete of {key}"
