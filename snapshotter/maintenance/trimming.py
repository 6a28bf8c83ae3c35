"""Trimming: the beginning of the logs goes, the history stays.

Nothing but a full rebuild from the logs alone needs records that a snapshot covers. In this order, so that
whatever breaks off leaves a session that boots:

    1  the snapshot is copied to checkpoints/<sid>/<MAX-turn>-<turn>.json, which never changes again
       (`copying`: what is looked at once more then)
    2  snapshot.json is seen to stand no lower, or is brought up to it under its condition
    3  segments of the out log are deleted in the order of ids, then those of the in log

An old snapshot that slips in afterwards meets a log that does not reach down to it; the boot then goes on
from the checkpoint (`snapshotter.checkpoints`). What remains of the out log begins with a whole turn, the
newest that the checkpoint covers at least; of the in log the newest segment always stays, since it names
the next one's place, and so does what the remaining turns answer.

A trim cannot be undone, so the session is verified first: where log and snapshot disagree nothing is
deleted. Only what is past the minimum age goes; the first object that is younger ends it for this time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from snapshotter import saving
from snapshotter.checkpoints import cursor_of
from snapshotter.core.controls import control_of
from snapshotter.core.shapes import turn_of
from snapshotter.core.snapshot import decode
from snapshotter.spans import maintained
from snapshotter.verify import verify
from streams import keys
from streams.buckets.base import Blob
from streams.codec import decode_segment
from streams.errors import PreconditionFailed, Refused
from streams.log import Place, Vanished
from streams.places import split

from .bench import Bench, Done, restarting
from .copying import is_named, is_whole, put_copy
from .deletions import is_outdated
from .rules import Keep, Rules

if TYPE_CHECKING:
    from snapshotter.database import Database


@dataclass(frozen=True, slots=True)
class _Base:
    """The checkpoint that a trim rests on: its bytes, its document, whether it is stored already, and what
    stands in its place else."""

    data: bytes
    document: dict[str, Any]
    stored: bool
    stands: Blob | None = None


@maintained("trim")
def trim(
    db: Database,
    session_id: str,
    *,
    keep: Keep,
    rules: Rules | None = None,
    dry_run: bool = False,
) -> Done:
    """Delete what the snapshot covers and `keep` does not want from both logs of one session.

    Raises InvalidValue for a `keep` that is none, Refused where there is no such session, and where it does
    not verify (nothing is deleted then), Corrupt for a snapshot that cannot be read, Vanished where others
    tidied up three times, and what requests raise.
    """
    kept = Keep.checked(keep)
    return restarting(lambda: _trim(Bench(db, session_id, "trim", rules, dry_run), kept))


def _trim(bench: Bench, keep: Keep) -> Done:
    base = _base(bench)
    if base is None:
        return bench.done
    places, out_date_ms = bench.places("out")
    cut, first_input = _cut(bench, places, out_date_ms, cursor_of(base.document), keep)
    out = _doomed(bench, places, out_date_ms, cut, keep)
    if len(out) < sum(place.first < cut for place in places):
        first_input = 0  # what was too young stays, and so does what it answers
    inputs, date_ms = bench.places("in")
    below = min(first_input, int(base.document.get("lastInEventId") or 0) + 1)
    doomed = _doomed(bench, inputs[:-1], date_ms, below, keep)
    if out or doomed:
        _check(bench)
        if not base.stored and is_outdated(bench, cursor_of(base.document)):
            bench.done.why = "the snapshot is older than an edit or the deletion of the session"
            return bench.done
        _secure(bench, base)
        bench.delete(out)
        bench.delete(doomed)
    return bench.explain([(split(places, cut - 1)[0], out_date_ms)])


def _base(bench: Bench) -> _Base | None:
    """The checkpoint of this turn if there is one already, else the snapshot as it stands; None, and said
    why, where there is nothing to rest on."""
    found = bench.snapshot()
    if found is None:
        bench.check_there()
        bench.done.why = "there is no snapshot yet"
        return None
    blob, document = found
    if document.get("deleted"):
        bench.done.why = "the session is deleted"
    elif not turn_of(document):
        bench.done.why = "no turn has ended yet"
    else:
        own = keys.checkpoint(bench.sid, turn_of(document))
        stored = bench.store.get(own)
        if stored is None:
            return _Base(blob.data, document, stored=False)
        if stored.data:
            held = decode(stored.data, key=own, session=bench.sid, hydrated=True)
            fit = is_whole(bench, held) and is_named(held, found)
            return _Base(stored.data, held, True) if fit else _Base(blob.data, document, False, stored)
        bench.done.why = "what stood in this checkpoint's place was emptied, and no turn has ended since"
    return None


def _cut(
    bench: Bench, places: Sequence[Place], date_ms: int | None, cursor: int, keep: Keep
) -> tuple[int, int]:
    """The out id at which the log is to begin, and the oldest input that what is left from there answers.

    The claims before a turn belong to it, as they do in a compaction, which may put all of it into the place
    of the first claim at any moment: what is deleted lies below. Raises Vanished where one has just done so:
    the claim cannot be seen any more."""
    left, size, found = max(keep.turns, 1), 0, 0
    named: list[int] = []
    for place, blob in bench.read(place for place in reversed(places) if place.size):
        if bench.rules.is_old(place.modified_ms, date_ms) > bench.rules.is_old(blob.modified_ms, date_ms):
            raise Vanished(f"{place.key} was merged while the log was read")
        segment = decode_segment(blob.data, key=place.key)
        if segment is None:
            continue
        told = [control_of(record) for record in segment.records]
        if found and any(map(_settles, told)):
            break
        size += place.size
        named += [n for r in told for n in r.get("inputs", ()) if type(n) is int]
        begun = [r["id"] for r in told if r.get("control") == "turn-start" and r.get("attempt") == 1]
        left -= sum(number <= cursor for number in begun)
        enough = left <= 0 and size >= keep.bytes and _age(place, date_ms) >= keep.seconds
        if enough and (begun or (found and any(r.get("why") == "boot" for r in told))):
            found = place.first
    return found, min(named, default=keys.MAX) if found else 0


def _settles(record: dict[str, Any]) -> bool:
    """Whether no claim before this record counts for what comes behind it."""
    if record.get("control") == "turn-complete":
        return record.get("status") != "interrupted"
    return record.get("why") in ("create", "delete") or record.get("control") == "session-closed"


def _age(place: Place, date_ms: int | None) -> float:
    """Seconds; 0 where the store does not tell."""
    return 0.0 if place.modified_ms is None or date_ms is None else (date_ms - place.modified_ms) / 1000


def _doomed(
    bench: Bench, places: Sequence[Place], date_ms: int | None, below: int, keep: Keep
) -> Sequence[Place]:
    """The oldest segments that begin below this id, up to the first that is too young."""
    covered, _ = split(places, below - 1)
    young = (
        at
        for at, place in enumerate(covered)
        if not bench.rules.is_old(place.modified_ms, date_ms) or _age(place, date_ms) < keep.seconds
    )
    return covered[: next(young, len(covered))]


def _check(bench: Bench) -> None:
    """Raise Refused where the logs and the snapshot do not come to the same history."""
    problems = verify(bench.db, bench.done.session).hindering
    if problems:
        told = "; ".join(f"{problem.code}: {problem.detail}" for problem in problems[:3])
        raise Refused(f"session {bench.done.session!r} is not trimmed, since it does not verify: {told}")


def _secure(bench: Bench, base: _Base) -> None:
    """Make the checkpoint durable, and the snapshot stand no lower. Raises Vanished where another trim was
    first, or where a snapshot cannot be brought up."""
    bench.done.written += not base.stored
    if bench.done.dry_run:
        return
    if not base.stored:
        key = keys.checkpoint(bench.sid, turn_of(base.document))
        try:
            written = put_copy(bench, key, base.data, base.document, base.stands)
        except PreconditionFailed:
            raise Vanished(f"{key} was written by another trim") from None
        if written is None:
            raise Vanished(f"session {bench.done.session!r} was saved anew, deleted or redacted meanwhile")
        bench.awake.check(written.date_ms)
    stands = bench.snapshot()
    if base.stored and not is_named(base.document, stands):
        raise Vanished(f"session {bench.done.session!r} was saved anew meanwhile")  # gc may not have seen it
    if stands is None or cursor_of(stands[1]) < cursor_of(base.document):
        etag = None if stands is None else stands[0].etag
        saving.save(bench.store, bench.sid, base.data, cursor_of(base.document), etag, bench.etags())
