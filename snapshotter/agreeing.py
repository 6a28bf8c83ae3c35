"""Do a snapshot and the two logs speak of the same session?

A boot reads three things that were written at different times, and somebody may have restored, expired or
copied one of them alone. Whatever shows in what was read anyway is checked here, with no request more; only
where something does not fit is it looked at again, since a listing may be older than the snapshot.

    the snapshot is another session's, or damaged     its `session`, its `crc` (`decode`)
    ... or was taken of another out log               `lastOutFirst` against the listing; the chain of nonces
    the in log lost its newest inputs                 the listing's newest id, or the receipt's key and body
    a stray key stands far above the in log           the two newest ids
    a deletion came between the readings of the logs  an input is there that it has emptied
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from streams import keys, log
from streams.errors import Corrupt, Damaged, Gap
from streams.log import Listing, Vanished
from streams.records import Cursor, Record
from streams.store import Store

from .core.inputs import GONE, is_another, needed

_LOOKS = 3

Ends = tuple[int, int]  # the newest input and the one below it


class InputGone(Vanished):
    """An input below the newest one was not there when it was read."""

    def __init__(self, sid: str, number: int) -> None:
        super().__init__(f"in log of {sid}: input {number} is not there, and there are newer ones")
        self.number = number

    def gap(self) -> Gap:
        """The same, once looking again has not helped: nobody will bring it back."""
        return Gap(str(self), log="in", missing=(self.number, self.number))


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored snapshot as read: its document, or the problem with it; neither where there is none."""

    document: dict[str, Any] | None
    problem: Damaged | None

    @property
    def cursor(self) -> Cursor:
        found = self.document or {}
        begins = int(found.get("lastOutFirst") or 0)
        return Cursor(int(found.get("lastOutEventId") or 0), found.get("lastOutNonce") or "", begins)

    @property
    def applied(self) -> int:
        return int((self.document or {}).get("lastInEventId") or 0)

    def wants(self, newest: int, known: Iterable[int]) -> Iterable[int]:
        """Ids of the inputs up to the newest one that a fold from here needs, without the known ones."""
        have, applied = set(known), set((self.document or {}).get("inApplied") or ())
        return (n for n in needed(self.applied, applied, newest) if n not in have)


def newest_inputs(store: Store, sid: str) -> Ends:
    """The newest id of the in log and the one below it that is there; 0 where there is none."""
    firsts = [place.first for place in log.newest(store, "in", sid, 2).entries[:2]]
    newest, below = [*firsts, 0, 0][:2]
    return newest, below


def misfit(sid: str, document: dict[str, Any], out: Listing) -> Corrupt | None:
    """Why a snapshot was not taken of this out log: no segment begins where the one begins that it was taken
    at the end of. No request is made for it, so a log that is empty, or shows only newer segments, says
    nothing; nor does a merged segment that begins earlier, whose chain tells."""
    begins, cursor = int(document.get("lastOutFirst") or 0), int(document.get("lastOutEventId") or 0)
    below = [place.first for place in out.entries if place.first <= cursor]
    if not begins or not below or begins in below or (out.more and below[-1] > begins):
        return None
    if below[0] < begins and out.above(cursor):
        return None
    return Corrupt(
        f"snapshot {keys.snapshot(sid)} stands at out record {cursor}, in a segment that begins at {begins};"
        f" the out log has none, the newest up to there begins at {below[0]}; it was left as it is",
        key=keys.snapshot(sid),
    )


def check_newest(store: Store, sid: str, snapshot: Stored, ends: Ends) -> int:
    """The newest input's id. Raises Gap where the one below it is missing (a stray key may stand anywhere),
    or the snapshot is ahead of it: what is sent now would get ids that count as applied already."""
    applied = snapshot.applied
    for look in range(_LOOKS):
        # A listing may be older than the snapshot.
        newest, below = ends if look == 0 else newest_inputs(store, sid)
        if newest >= applied and newest - 1 <= max(below, applied):
            return newest
    if newest >= applied:
        missing = (max(below, applied) + 1, newest - 1)
        text = f"in log: inputs {missing[0]} to {missing[1]} are missing below {newest}, the newest"
        raise Gap(text, log="in", missing=missing)
    raise Gap(
        f"in log: inputs {newest + 1} to {applied} are missing, which the snapshot says are applied: the"
        " in log lost its newest inputs, or the snapshot is another session's",
        log="in",
        missing=(newest + 1, applied),
    )


def receipt_gap(store: Store, number: int, newest: int) -> Gap:
    """Why there is no boot for this receipt: it names an input above all that are here."""
    return Gap(
        f"in log: the receipt names input {number}, and there are inputs up to {newest} here:"
        f" was it sent to another store or session than {store.url}?",
        log="in",
        missing=(newest + 1, number),
    )


def check_receipt(snapshot: Stored, record: Record) -> None:
    """Raise Gap where the snapshot knows another input than this one at its place, as after a loss."""
    number = record["id"]
    if number <= snapshot.applied and is_another(record, (snapshot.document or {}).get("keys") or ()):
        raise Gap(
            f"in log: input {number} is not the one that the snapshot says is applied: the in log lost its"
            " newest inputs and began anew, or the snapshot is another session's",
            log="in",
            missing=(number, snapshot.applied),
        )


def is_emptied(inputs: Iterable[Record], applied: int) -> bool:
    """Whether a deletion left of one of these inputs nothing but its place, and the snapshot does not count
    it as applied."""
    return any(record["id"] > applied and record.get("kind") == GONE for record in inputs)
