"""Rebuilding many sessions from their logs alone: to compare, to write snapshots back, to export.

    running     a run: selection, tasks, journal, summary      executors   where tasks run
    working     what one worker does with some sessions        threads     reading beside folding
    source      one session's logs, window by window           folding     one session, and what becomes of it
    exporting   histories as tables                            journal     what is done, for the next run
    results     plain values between all of these

The unit of work is `rebuild_some(url, options, sids) -> [Result]`, which any executor can call. What it does
costs a GET for each object of the logs, and a few more: no index is kept, and none is needed. Reading
overlaps folding; what is held is three windows of a log, one window of each of the next eight sessions, and
the newest messages of one session: what is settled leaves memory (`snapshotter.spilling`).
"""

from __future__ import annotations

from .executors import LOCAL, dask, ray
from .results import Options, Result, Summary
from .running import rebuild
from .working import rebuild_some

__all__ = ["LOCAL", "Options", "Result", "Summary", "dask", "ray", "rebuild", "rebuild_some"]
