"""What one worker does: some sessions, opened and read ahead while others are folded.

`rebuild_some` is all that a process, a thread, or a node of a cluster has to be able to call: everything it
takes and returns can be pickled, it opens the store itself (credentials, and keys of an encryption, come from
its own environment), and calling it twice does no harm.
"""

from __future__ import annotations

from collections.abc import Sequence

from snapshotter.comparing import Side
from snapshotter.database import Database
from streams.buckets.url import open_bucket
from streams.encryption import Encryption, of_environment
from streams.errors import WrongKey

from .exporting import Export
from .folding import Work
from .results import Options, Result
from .threads import REQUESTS, SESSIONS, PooledClock, Reader, is_at_hand


def rebuild_some(
    url: str, options: Options, sids: Sequence[str], encryption: Encryption | None = None
) -> list[Result]:
    """Rebuild these sessions (their ids, not encoded) of the root at `url`; one result each, in this order.
    `encryption`: by default what the environment says.

    What goes wrong with one session is its result. Raises Misconfigured, which concerns all of them, and,
    where an export cannot be written, what requests raise.
    """
    with PooledClock(1 if is_at_hand(url) else REQUESTS) as clock:
        bucket = open_bucket(url, clock=clock, encryption=encryption or of_environment())
        db = Database(
            bucket, clock, sizes=options.sizes, allow_unfenced=options.allow_unfenced, telemetry=None
        )
        try:
            return rebuild_in(db, options, sids)
        finally:
            db.close()


def rebuild_in(db: Database, options: Options, sids: Sequence[str]) -> list[Result]:
    """As `rebuild_some`, in a database that is open."""
    export = Export(options.dest, options.format, sids) if options.mode == "export" else None
    sink = _nowhere if export is None else export.add
    with Reader(0 if is_at_hand(db.url) else SESSIONS) as reader:
        begun = (Work(db, session_id, options).start for session_id in sids)
        results = [work.finish(reader.ahead, sink) for work in reader.each(begun)]
    if export is not None and not all(result.error == WrongKey.__name__ for result in results):
        export.write()  # else the run that follows with the right keys would find its place taken
    return results


def _nowhere(_side: Side, _result: Result) -> None:
    """Nothing is exported."""
