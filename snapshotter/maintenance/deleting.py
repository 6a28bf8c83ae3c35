"""Deleting a session: its content is gone for good, and nobody brings it back by accident.

Objects that are simply deleted free their keys, and a worker that slept would write the session anew. So:

    1  one segment in the out log: fence why=delete, session-deleted. From here every worker is fenced, and
       every boot finds the session deleted
    2  the snapshot becomes a tombstone whose cursor is that segment's end; boots start there
    3  everything below is overwritten by an empty object, each until it is answered: both logs, checkpoints,
       blocks, values. The content is gone, the keys stay taken. The newest in segment names the next input's
       place, so it keeps its frame, and in its record stands nothing but `kind: deleted`

`gc` sweeps the empty objects once they are past the minimum age; the fence, the tombstone and the newest in
segment stay, so that ids go on. Only `Database.create` opens the session again; inputs that came before that
are spent and reported.

What is below the fence is nobody's any more, whatever comes after. Blocks, values and checkpoints are
emptied only if the fence is still the newest of the log once they are listed: else the session was opened
again meanwhile and they may be its own; what is not is left to `gc`.

A session that an import or a fork has only begun (a claim, or an empty object, stands in a log's first place)
is deleted likewise. The fence stands above all that the claim's file has of the out log, and the input that
is left is the file's newest: what still comes of it lands below. An import that goes on sees the fence when
it is through, and runs the deletion again.

A deletion that was broken off is run again and goes on; where inputs came in since, it writes another fence
and removes them, too. So what is emptied is spent in the log before: a `create` that was under way and spends
less is fenced. It asks nobody: a worker that is at work is fenced. A snapshot that cannot be read is
replaced, since this is what was asked for; one that a newer release wrote is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from snapshotter import saving
from snapshotter.core.controls import control_of
from snapshotter.core.fold import Fold
from snapshotter.core.inputs import GONE, InputLog
from snapshotter.core.snapshot import decode
from snapshotter.incoming import newest_input
from snapshotter.spans import maintained
from snapshotter.tombstones import deletes, tombstone
from snapshotter.windows import WINDOW, windows
from streams import claims, keys, log
from streams.buckets.base import Blob, Broken, Entry
from streams.codec import decode_segment, encode_segment
from streams.errors import (
    Corrupt,
    Damaged,
    Fenced,
    NewerVersion,
    PreconditionFailed,
    Refused,
    Unreachable,
)
from streams.keys import Log
from streams.log import Place
from streams.records import Cursor
from streams.writer import Flush, Writer

from .bench import Bench, Done, restarting
from .deletions import newest_deletion
from .rules import Rules

if TYPE_CHECKING:
    from snapshotter.database import Database

_TRIES = 8


@maintained("delete")
def delete(db: Database, session_id: str, *, rules: Rules | None = None, dry_run: bool = False) -> Done:
    """Delete one session. When it returns, its content is gone from the store, but for what the bucket's own
    versioning keeps.

    Raises Refused where there is no such session, NewerVersion, Corrupt where the newest out segment cannot
    be read, and what requests raise; run it again then.
    """
    return restarting(lambda: _delete(Bench(db, session_id, "delete", rules, dry_run)), _TRIES)


def finish(bench: Bench) -> None:
    """Go on with a deletion beside which something was written; nothing where there is none any more."""
    restarting(lambda: _delete(bench, begin=False), _TRIES)


def bring_to_end(db: Database, session_id: str, newest: int) -> None:
    """Go on with a deletion that is under way, or was broken off, or beside which something was sent, unless
    nothing is left: neither what the in log says of the inputs up to the `newest`, nor anything below the
    fence."""
    bench = Bench(db, session_id, "delete", None, dry_run=False)
    below = [place for place in bench.places("in")[0] if place.first <= newest]
    last = bench.store.get(below[-1].key) if below else None
    left: list[Place | Entry] = [*below[:-1], *bench.places("out")[0][:-1], *_kept(bench)]
    if any(entry.size for entry in left) or not (last is None or _is_spent(last)):
        finish(bench)


def _delete(bench: Bench, *, begin: bool = True) -> Done:
    fold, position, date_ms = _found(bench)
    if not (begin or fold.deleted):
        return bench.done
    if bench.done.dry_run:
        inputs, _ = bench.places("in")
        _empty(bench, position.id + 1, max([p.first for p in inputs], default=0), inputs, [*_kept(bench)])
        return bench.done
    bench.db._ensure()
    fence, spent = _fence_of(bench) if fold.deleted else (position, 0)
    if not fold.deleted or spent < newest_input(bench.store, bench.sid):
        fence, spent = _write_fence(bench, fold, position, date_ms)
    inputs, _ = bench.places("in")
    kept = _kept(bench)
    if not log.is_newest(bench.store, "out", bench.sid, fence.first):
        kept = []  # opened again, perhaps: what was listed may belong to the session's next life
    _bury(bench, fold, fence, spent)
    _empty(bench, fence.first, spent, inputs, kept)
    _look_again(bench, spent, kept)
    return bench.done


def _look_again(bench: Bench, last: int, kept: Sequence[Entry]) -> None:
    """An input that came meanwhile may name a value that was on the list, and is empty now: then it goes,
    too. Raises Vanished where there is such a one; the deletion is run again."""
    names = {found[2].encode() for entry in kept if (found := keys.parse_content(entry.key)) is not None}
    later = [
        place for place in log.tail_keys(bench.store, "in", bench.sid, last).entries if place.first > last
    ]
    for place, blob in bench.read(later):
        if not isinstance(blob, Broken) and any(name in blob.data for name in names):
            raise log.Vanished(f"{place.key} came meanwhile, and names what was emptied")


def _found(bench: Bench) -> tuple[Fold, Cursor, int | None]:
    """The session's state as far as it matters here, where its out log ends, and the store's date."""
    try:
        loaded = bench.db.load(bench.done.session)
    except NewerVersion:
        raise
    except (Damaged, Refused):  # also what needs a hook that is not there, to be shown
        return _damaged(bench)
    if not (loaded.fold.cursor or loaded.fold.inputs.last or _kept(bench)):
        raise Refused(f"there is no session {bench.done.session!r} at {bench.db.url}")
    return loaded.fold, loaded.position, loaded.date_ms


def _damaged(bench: Bench) -> tuple[Fold, Cursor, int | None]:
    """The same of a session that does not boot here: from its newest out segment, from what an import has
    claimed, and the turn from the newest that tells one. Raises Corrupt, where the newest segment is none and
    has others below it."""
    listing = log.newest(bench.store, "out", bench.sid, 1)
    if not (listing.entries and listing.entries[0].first == 1):
        log.check_newest(listing)
    fold, position = Fold(), Cursor(1 if listing.entries else 0)
    newest = [place.key for place in listing.entries[:1] if not place.vacant]
    for segment in log.fetch(bench.store, newest):
        header = segment.header
        position = Cursor(header.last, header.nonce, header.first)
        fold.cursor, fold.epoch = header.last, header.epoch or 0
        fold.deleted = deletes(segment)
    if (claimed := _claimed(bench, "out")) > position.id:
        position = Cursor(claimed)
    fold.inputs, fold.turn = InputLog(_claimed(bench, "in")), _newest_turn(bench)
    return fold, position, listing.date_ms


def _newest_turn(bench: Bench) -> int:
    """The newest turn that the out log, or a checkpoint's name, tells of: turns go on from there, and no
    checkpoint's name is ever used again. What cannot be read tells none."""
    entries = bench.shelf(keys.checkpoints_prefix(bench.sid)).entries
    named = max((name[1] for e in entries if (name := keys.parse_checkpoint(e.key)) is not None), default=0)
    places, _ = bench.places("out")
    for window in windows(place for place in reversed(places) if not place.vacant):
        blobs = bench.store.gather([partial(bench.store.get, place.key) for place in window])
        for place, blob in zip(window, blobs, strict=True):
            told = 0 if blob is None else _turn_in(place.key, blob)
            if told:
                return max(told, named)
    return named


def _turn_in(key: str, blob: Blob) -> int:
    """The newest turn that a segment tells of; 0 where it tells none, or cannot be read."""
    try:
        segment = decode_segment(blob.data, key=key)
    except Corrupt:
        return 0
    records = [] if segment is None else segment.records
    return max((control_of(record).get("turn", 0) for record in records), default=0)


def _claimed(bench: Bench, which: Log) -> int:
    """The newest id of a log up to which an import may still bring something; 0 where none is under way."""
    blob = bench.store.get(keys.segment(which, bench.sid, 1))
    return (blob is not None and claims.last_of(blob.data)) or 0


def _write_fence(bench: Bench, fold: Fold, position: Cursor, date_ms: int | None) -> tuple[Cursor, int]:
    """Write the segment that deletes; returns its place and the newest input that it spends. Raises Vanished
    where another writer was faster."""
    run, epoch = f"r-{bench.store.clock.token()}", fold.epoch + 1
    spent = max(newest_input(bench.store, bench.sid), fold.inputs.last)
    writer = Writer(
        bench.store,
        bench.sid,
        position=position,
        epoch=epoch,
        run=run,
        lease=lambda: 0,
        date_ms=date_ms,
    )
    fence = {"control": "fence", "epoch": epoch, "run": run, "why": "delete", "for": spent, "turn": fold.turn}
    try:
        writer.append_batch([fence, {"control": "session-deleted"}], flush=Flush.NOW, end_segment=True)
    except Fenced as lost:
        raise log.Vanished(f"session {bench.done.session!r}: {lost}") from lost
    finally:
        writer.close(flush=False)
    fold.epoch, fold.run = epoch, run
    bench.done.written += 1
    return writer.position, spent


def _fence_of(bench: Bench) -> tuple[Cursor, int]:
    """The same of a deletion that was begun earlier."""
    found = newest_deletion(bench)
    if found is not None:
        return found
    key = keys.snapshot(bench.sid)
    raise Corrupt(f"{key} says deleted, and the out log has no such record; it was left as it is", key=key)


def _bury(bench: Bench, fold: Fold, fence: Cursor, spent: int) -> None:
    """Put the tombstone in the snapshot's place, unless it stands there, or something later does."""
    data = tombstone(bench.sid, fence, fold, spent=spent, date_ms=bench.store.clock.now_ms())
    key = keys.snapshot(bench.sid)
    for _ in range(_TRIES):
        blob = bench.store.get(key)
        if blob is not None and not _is_older(bench, blob, fence):
            return
        try:
            _put_over(bench, key, data, blob, bench.store.clock.token())
        except PreconditionFailed:
            continue
        bench.done.written += 1
        return
    raise Unreachable(f"{key} changes each time it is looked at; run the deletion again")


def _is_older(bench: Bench, blob: Blob, fence: Cursor) -> bool:
    """Whether the tombstone is news to a stored snapshot. Raises NewerVersion."""
    try:
        found = decode(blob.data, key=keys.snapshot(bench.sid), session=bench.sid, hydrated=True)
    except NewerVersion:
        raise
    except Corrupt:
        return True
    return int(found.get("lastOutEventId") or 0) < fence.id


def _kept(bench: Bench) -> list[Entry]:
    """What a session keeps beside its logs and its snapshot."""
    prefixes = (keys.checkpoints_prefix, keys.blocks_prefix, keys.values_prefix)
    return [entry for prefix in prefixes for entry in bench.shelf(prefix(bench.sid)).entries]


def _empty(bench: Bench, fence: int, spent: int, inputs: Sequence[Place], kept: list[Entry]) -> None:
    """Overwrite everything below the fence; of the inputs (oldest first) the newest that is spent keeps its
    frame. Values come last: a sender who finds its own empty stores it again, while something names it."""
    places, _ = bench.places("out")
    below = [place for place in inputs if place.first <= spent]
    owing = spent > max([place.first for place in inputs], default=0)  # an import was to bring it
    last = spent if owing else max([place.first for place in below], default=0)
    doomed: list[Place | Entry] = [place for place in places if place.first < fence]
    doomed += [place for place in below if place.first < last]
    if last:
        _spend(bench, last, owing)  # before the claim of an import goes: nobody may send in between
    _blank(bench, [entry for entry in doomed if entry.size])
    _blank(bench, [entry for entry in kept if entry.size])


def _spend(bench: Bench, number: int, owing: bool) -> None:
    """Leave of an input what makes it one, its place. `owing`: also where it is not there. One that is empty
    was emptied by another deletion, which spends more, and is left so: that keeps the place of a newer one.
    Raises Vanished where it changes each time it is looked at."""
    key = keys.segment("in", bench.sid, number)
    record = {"id": number, "ts": bench.store.clock.now_ms(), "kind": GONE}
    for _ in range(_TRIES):
        blob = bench.store.get(key)
        if (blob is None and not owing) or (blob is not None and (_is_empty(blob) or _is_spent(blob))):
            return
        if bench.done.dry_run:
            break
        nonce = bench.store.clock.token()
        data = encode_segment("in", [record], nonce=nonce)
        try:
            _put_over(bench, key, data, blob, nonce)
        except PreconditionFailed:
            continue
        break
    else:
        raise log.Vanished(f"{key} changes each time it is looked at")
    bench.done.deleted += 1


def _put_over(bench: Bench, key: str, data: bytes, blob: Blob | None, nonce: str) -> None:
    """Write an object in the place of what was read there, where the store can under that condition. Raises
    PreconditionFailed."""
    etags = bench.etags()
    if blob is None:
        bench.store.put_once(key, data, if_absent=True, nonce=nonce)
    elif etags == "none":
        bench.store.put(key, data, nonce=nonce)
    else:
        bench.store.put_once(key, data, if_match=saving.match_of(blob.etag, etags), nonce=nonce)


def _is_empty(blob: Blob) -> bool:
    """Whether a deletion has emptied it."""
    return not isinstance(blob, Broken) and not blob.data


def _is_spent(blob: Blob) -> bool:
    """Whether an input keeps its place, and nothing else."""
    return not isinstance(blob, Broken) and b'"kind":"deleted"}' in blob.data


def _blank(bench: Bench, doomed: Sequence[Place | Entry]) -> None:
    bench.done.deleted += len(doomed)
    bench.done.freed += sum(entry.size for entry in doomed)
    if bench.done.dry_run:
        return
    for start in range(0, len(doomed), WINDOW):
        window = doomed[start : start + WINDOW]
        bench.store.gather([partial(bench.store.put, entry.key, b"") for entry in window], writes=True)
