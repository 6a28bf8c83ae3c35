"""Forking: a new session that begins where another stood after one of its turns.

The new one has the history, the state and the compacted context of that place, and nothing that was owed
there. It shares no object with the other: blocks and values are copied, and both sessions may then be
deleted, trimmed or redacted without regard to each other. Its logs are its own and begin anew; so, as after a
trim, its history cannot be rebuilt from the log alone, and a checkpoint stands by: number 0, of no turn here.

    1  an empty object takes the first place of the out log: no create, no worker begins a session here now
    2  blocks and values are copied
    3  `fence why=create` in the second place: of several forks exactly one wins it
    4  the checkpoint at that fence, which says what the session is, then the same as its snapshot

Until 4 whoever looks finds a log with a hole, and no empty session; with the checkpoint it can be read, and
rebuilt. A fork that was broken off is run again; what was sent meanwhile is owed in the new session. The
claim comes first, since gc keeps all of a session that has a log and no snapshot: no copy is tidied away
before it is named. Each is a create, and nothing is ever written over one: a request that lands late changes
nothing, whatever became of the source. That holds of a copy that the store makes by itself, too: it is asked
for as a create, of the version that was looked at, and only where the store is known, or was found, to do so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from snapshotter import checkpoints, saving, values
from snapshotter.agreeing import InputGone, Stored, newest_inputs
from snapshotter.core.controls import control_of
from snapshotter.core.fold import Fold
from snapshotter.core.inputs import InputLog
from snapshotter.core.shapes import turn_of
from snapshotter.core.snapshot import decode, restore
from snapshotter.core.tally import Tally
from snapshotter.incoming import read_inputs
from snapshotter.loading import check_same
from snapshotter.sealing import Checkpoint
from snapshotter.shelf import Shelf
from snapshotter.spans import maintained
from snapshotter.tombstones import after_deletion
from snapshotter.windows import WINDOW
from streams import keys, log
from streams.codec import decode_segment, encode_segment
from streams.errors import Corrupt, Gap, InvalidValue, Missing, PreconditionFailed, Refused
from streams.log import Place, Vanished
from streams.packing import last_id
from streams.records import Cursor, Record, Segment
from streams.store import Store

from .arriving import MARK
from .bench import Bench, Done, restarting
from .deletions import newest_deletion, take_back

if TYPE_CHECKING:
    from snapshotter.database import Database

_CLAIM, _FENCE = 1, 2  # out ids
_NUMBER = 0  # of the checkpoint: it is the first, whichever turn the source stood at


@maintained("fork")
def fork(db: Database, source: str, target: str, *, turn: int | None = None, dry_run: bool = False) -> Done:
    """Make `target` a session that stands where `source` stood when the turn after `turn` began; by default
    where it stands now, without a turn that is open.

    Raises InvalidValue for a `turn` that is no number, Refused where the target exists, or where the source
    has no such turn (any more: trimming ends it), Gap, Corrupt and Missing where the source is not whole,
    Vanished where others tidied up three times, and what requests raise.
    """
    if turn is not None and type(turn) is not int:
        raise InvalidValue("a turn is told by its number", path="turn")
    try:
        return restarting(lambda: _fork(Bench(db, target, "fork", None, dry_run), source, turn))
    except InputGone as gone:
        raise gone.gap() from gone


def _fork(bench: Bench, source: str, turn: int | None) -> Done:
    sid = bench.db.sid(source)
    cause = f"fork of {source}" if turn is None else f"fork of {source} after turn {turn}"
    out = _begun(bench)
    fold = _state(bench.store, sid, source, turn)
    copies = _copies(fold, sid, bench.sid)
    bench.done.written = len(copies) + 4
    if bench.done.dry_run:
        return bench.done
    bench.db._ensure()
    if not out:
        _claim(bench)
    fence = _own_fence(bench, out)
    decided = fence is not None and bench.store.head(keys.checkpoint(bench.sid, _NUMBER)) is not None
    if decided:
        _finish(bench)
    if fence is not None and control_of(fence.records[0]).get("cause", cause) != cause:
        raise bench.taken("a fork")  # it was begun as a fork of something else, and is to become that
    if decided:
        return bench.done
    _copy(bench, copies)
    nonce = _fence(bench, cause) if fence is None else fence.header.nonce
    fold.inputs, fold.cursor, fold.epoch, fold.closed = InputLog(), _FENCE, 1, False
    at = Cursor(_FENCE, nonce, _FENCE)
    _keep(bench, Checkpoint(bench.store, bench.sid, fold, at, bench.db._sizes, _nothing_more).document())
    _finish(bench)
    return bench.done


def _nothing_more(_spans: object) -> None:
    """All of the history was read."""


# -- the source ---------------------------------------------------------------------------------------


def _state(store: Store, sid: str, name: str, turn: int | None) -> Fold:
    """The source's fold at the place of rest. Raises Refused, Gap, Corrupt, Missing; Vanished where its
    snapshot was replaced meanwhile, and what that had named may be gone."""
    stood = store.head(keys.snapshot(sid))
    try:
        return _read(store, sid, name, turn)
    except (Gap, Missing):
        check_same(store, sid, stood)
        raise


def _read(store: Store, sid: str, name: str, turn: int | None) -> Fold:
    """The same, at one look."""
    document, tail = _base(store, sid, name, turn)
    stored = Stored(document, None)
    records = values.fill(store, sid, tail.records)
    stop, reached = _rest(document or {}, records, turn)
    if turn is not None and reached != turn:
        raise Refused(f"session {name!r} has no turn {turn} that has ended; the last before it is {reached}")
    numbers = stored.wants(newest_inputs(store, sid)[0], ())
    applied = (document or {}).get("inApplied") or ()
    inputs = read_inputs(store, sid, numbers, applied, values.ABSENT)  # what is owed stays behind
    fold = Fold() if document is None else restore(document, parts=Shelf(store, sid, document).complete())
    with values.folding(sid):
        for record in inputs:
            fold.feed(record)
        for record in records:
            if record["id"] <= stop:
                fold.apply(record)
    if fold.deleted:
        raise Refused(f"session {name!r} is deleted")
    if not fold.cursor:
        begun = records or fold.inputs.last
        raise Refused(f"session {name!r} {'has ended no turn yet' if begun else 'is not there'}")
    return fold


def _base(store: Store, sid: str, name: str, turn: int | None) -> tuple[dict[str, Any] | None, log.Tail]:
    """What the fold begins with, and the out log behind it: the snapshot, where it does not stand beyond the
    turn; else the newest checkpoint; else the whole log. One that the log does not reach down to, or that is
    older than a trim, is passed over. Raises Refused where a trim took what the turn rests on, and Gap."""
    gaps: list[Gap] = []
    rest = (d for d in _documents(store, sid) if turn is None or turn_of(d) <= turn)
    for document in chain(rest, (None,)):
        try:
            return _tail(store, sid, document)
        except Gap as gap:
            gaps.append(gap)
    whole = [found for document in _documents(store, sid) if (found := _turn_with_tail(store, sid, document))]
    if turn is None or not whole:
        raise gaps[0]
    since = f"a trim took what it rests on; from turn {min(whole)} on they can be forked"
    raise Refused(f"turn {turn} of session {name!r} cannot be had any more: {since}") from gaps[0]


def _turn_with_tail(store: Store, sid: str, document: dict[str, Any]) -> int:
    """The turn that a document stands at, where the out log behind it is whole; else 0."""
    with suppress(Gap):
        _tail(store, sid, document)
        return turn_of(document)
    return 0


def _tail(store: Store, sid: str, document: dict[str, Any] | None) -> tuple[dict[str, Any] | None, log.Tail]:
    """The out log behind a document; without one the whole log, or behind the deletion that it begins with.
    Raises Gap."""
    try:
        return document, log.read_after(store, "out", sid, Stored(document, None).cursor)
    except Gap:
        deletion = after_deletion(store, sid) if document is None else None
        if deletion is None:
            raise
        return deletion, log.read_after(store, "out", sid, Stored(deletion, None).cursor)


def _documents(store: Store, sid: str) -> Iterator[dict[str, Any]]:
    """The stored snapshot, then the checkpoints from the newest on."""
    snapshot = keys.snapshot(sid)
    for key in (snapshot, *(entry.key for entry in checkpoints.listed(store, sid))):
        blob = store.get(key)
        if blob is not None and (blob.data or key == snapshot):  # a checkpoint may have been emptied since
            yield decode(blob.data, key=key, session=sid)


def _rest(document: dict[str, Any], records: list[Record], turn: int | None) -> tuple[int, int]:
    """The last out id at which no turn is open and none after `turn` has begun, and the turn it stands at."""
    number = turn_of(document)
    stop, reached = int(document.get("lastOutEventId") or 0), number
    tally = Tally(cursor=stop, turn=number)
    for record in records:
        tally.apply(record)
        if turn is not None and tally.turn > turn:
            break
        if tally.open is None and not tally.ledger.claims:
            stop, reached = last_id(record), tally.turn
    return stop, reached


def _copies(fold: Fold, source: str, target: str) -> list[tuple[str, str]]:
    """The keys of what the new session takes over, from and to."""
    apart = fold.chain.apart
    messages = [*fold.chain.messages, *(fold.context or {}).get("messages", ())]
    names = {ref["key"] for message in messages if (ref := apart.ref_of(message)) is not None}
    sealed = [span.block.key for span in fold.chain.spans if not span.dirty]
    found = [(keys.block(source, name), keys.block(target, name)) for name in sealed]
    return found + [(keys.value(source, name), keys.value(target, name)) for name in sorted(names)]


# -- the target ---------------------------------------------------------------------------------------


def _begun(bench: Bench) -> Sequence[Place]:
    """The out log: nothing, or what a fork that was broken off has left of its own. Raises Refused for
    anything else."""
    out, _ = bench.places("out")
    inputs, _ = bench.places("in")
    if bench.store.head(keys.snapshot(bench.sid)) is not None or not all(place.size for place in inputs):
        raise bench.taken("a fork")  # an input that is empty is an import's claim
    if out and _own_fence(bench, out) is None and not _is_claim(bench, out):
        raise bench.taken("a fork")
    if inputs and not out:
        raise bench.taken("a fork")
    return out


def _is_claim(bench: Bench, out: Sequence[Place]) -> bool:
    """Whether the out log is the claim of a fork, and nothing else."""
    if [(place.first, place.size) for place in out] != [(_CLAIM, 0)]:
        return False
    head = bench.store.head(out[0].key)
    return head is not None and not (head.nonce or "").startswith(MARK)


def _own_fence(bench: Bench, out: Sequence[Place]) -> Segment | None:
    """The fence of a fork that was broken off behind it; gc may have taken its claim away."""
    if [place.first for place in out if place.size] != [_FENCE] or out[-1].first != _FENCE:
        return None
    blob = bench.store.get(out[-1].key)
    segment = None if blob is None else decode_segment(blob.data, key=out[-1].key)
    why = None if segment is None else control_of(segment.records[0]).get("why")
    return segment if why == "create" else None


def _copy(bench: Bench, copies: list[tuple[str, str]]) -> None:
    """Create what is not there yet; by the store itself where a copy of its own is a create. Raises Vanished
    where a source is gone, or a target was emptied."""
    inside = bench.db._copies()
    for start in range(0, len(copies), WINDOW):
        window = copies[start : start + WINDOW]
        calls = [partial(bench.store.copy, *pair, partial(_check, pair[0]), inside=inside) for pair in window]
        found = bench.store.gather(calls, writes=True)
        for (source, _), copied in zip(window, found, strict=True):
            if not copied:
                raise Vanished(f"{source} was named and then gone")


def _check(key: str, data: bytes) -> None:
    """What is written under a name that proves its content has to be that content."""
    content = keys.parse_content(key)
    if content is not None and not values.is_named(data, content[2]):
        raise Corrupt(f"{key} is not what its name says", key=key, offset=0)


def _claim(bench: Bench) -> None:
    """Take the first place of the target's out log. Raises Refused where it is taken by no fork."""
    key = keys.segment("out", bench.sid, _CLAIM)
    try:
        written = bench.store.put_once(key, b"", if_absent=True, nonce=bench.store.clock.token())
    except PreconditionFailed:
        blob = bench.store.get(key)
        if blob is None or blob.data or (blob.nonce or "").startswith(MARK):
            raise bench.taken("a fork") from None
    else:
        bench.awake.check(written.date_ms)


def _fence(bench: Bench, cause: str) -> str:
    """Take the second place of the target's out log; returns the nonce of the segment there."""
    clock, nonce = bench.store.clock, bench.store.clock.token()
    run = f"r-{clock.token()}"
    fence = {"id": _FENCE, "ts": clock.now_ms(), "control": "fence", "epoch": 1, "run": run, "why": "create"}
    data = encode_segment("out", [{**fence, "cause": cause}], nonce=nonce, epoch=1, run=run, lease=0)
    try:
        key = keys.segment("out", bench.sid, _FENCE)
        written = bench.store.put_once(key, data, if_absent=True, nonce=nonce)
    except PreconditionFailed:
        raise bench.taken("a fork") from None
    bench.awake.check(written.date_ms)
    return nonce


def _keep(bench: Bench, data: bytes) -> None:
    """Create the checkpoint, of several forks that go on from one fence exactly one. Raises Refused where
    another did, or where the session was deleted meanwhile: that listed before this was there."""
    key = keys.checkpoint(bench.sid, _NUMBER)
    try:
        written = bench.store.put_once(key, data, if_absent=True, nonce=bench.store.clock.token())
    except PreconditionFailed:
        raise bench.taken("a fork") from None
    if newest_deletion(bench) is not None:
        take_back(bench, key, written)
        raise bench.taken("a fork")


def _finish(bench: Bench) -> None:
    """Put the checkpoint in the snapshot's place, unless a worker has begun here already, and saved. Raises
    Refused where the session was deleted meanwhile."""
    key = keys.checkpoint(bench.sid, _NUMBER)
    blob = bench.store.get(key)
    if blob is None or not blob.data:
        raise bench.taken("a fork")
    decode(blob.data, key=key, session=bench.sid)  # a bit that flipped on its way would stay for good
    if saving.save(bench.store, bench.sid, blob.data, _FENCE, None, bench.etags()) is not None:
        return
    stands = bench.snapshot()
    if stands is None or stands[1].get("deleted"):
        raise bench.taken("a fork")
