"""Maintenance of a root: what keeps logs short, and what removes, moves and copies sessions.

    from snapshotter import maintenance

    maintenance.compact(db, "chat-42")

Everything here is safe beside workers, senders and readers, and beside other maintenance; it may be broken
off anywhere and run again. docs/maintenance.md says what each does, and which rules it keeps.
"""

from __future__ import annotations

from .bench import Done
from .compacting import compact
from .deleting import delete
from .forking import fork
from .moving import export, import_
from .redacting import redact
from .rules import Keep, Rules
from .sweeping import gc
from .trimming import trim
from .upkeep import Kept, each, maintain

__all__ = [
    "Done",
    "Keep",
    "Kept",
    "Rules",
    "compact",
    "delete",
    "each",
    "export",
    "fork",
    "gc",
    "import_",
    "maintain",
    "redact",
    "trim",
]
