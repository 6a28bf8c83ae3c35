"""What the judge knows of one session: a plain notebook of what was told (see `checker`)."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from pieces import Record

Event = dict[str, Any]


@dataclass
class Sent:
    kind: str
    text: str | None
    target: str | None
    began: float
    tried: float
    """When it was last begun to be sent."""
    acked: float | None = None
    id: int | None = None


@dataclass
class Call:
    """A model call: whose, and for what."""

    who: str
    question: str
    incident: int
    began: float
    ended: str | None = None


@dataclass
class Case:
    """One session, as far as its world was told."""

    sends: dict[str, Sent] = field(default_factory=dict)
    ids: dict[int, str] = field(default_factory=dict)
    calls: dict[str, Call] = field(default_factory=dict)
    done: dict[int, tuple[int, int]] = field(default_factory=dict)
    """In id → the turn and the attempt that answered it, once that was acknowledged."""
    ended: list[Event] = field(default_factory=list)
    text: dict[str, tuple[float, list[str]]] = field(default_factory=dict)
    """Question → when these words of its answer were acknowledged as durable."""
    runs: dict[str, tuple[float, str]] = field(default_factory=dict)
    """Run → when its result was acknowledged, and the call."""
    ran: Counter[str] = field(default_factory=Counter)
    durable: int = 0
    words: set[str] = field(default_factory=set)
    final: list[Record] | None = None
    present: list[str] = field(default_factory=list)
    """Who booted, in order, and has not left."""
    newest: str = ""
    """Who booted last."""
    came: dict[str, float] = field(default_factory=dict)
    """Who booted, and when."""
    acted: set[int] = field(default_factory=set)
    """Inputs of actions whose end was acknowledged."""
    wiped: float = -math.inf
    """All that was begun to be sent until then may be gone, by a deletion."""
    deleting: set[str] = field(default_factory=set)
    """Who may be about to delete it."""
    deleted: list[tuple[float, float]] = field(default_factory=list)
    """When each acknowledged deletion began, and was acknowledged."""
    redacting: set[str] = field(default_factory=set)
    redacted: dict[str, float] = field(default_factory=dict)
    """User message → when its redaction was acknowledged."""
    source: str = ""
    """The session that this one was forked from, or was to be."""
    forking: float = math.inf
    """When somebody first began to make it such a fork."""
    forked: bool = False

    def alone(self, who: str) -> bool:
        """Nobody else has booted since this one did, nor may go on with an earlier boot."""
        return self.newest == who and set(self.present) <= {who}

    def silent(self) -> list[str]:
        """Who booted, has not left, and has told of no model call: their claims may be there or not."""
        return [who for who in self.present if all(call.who != who for call in self.calls.values())]

    def newest_call(self, event: Event) -> bool:
        """Whether the newest model call for this event's question is that of its own worker."""
        question = event["question"] if "question" in event else event["call"].partition("/")[0]
        asked = [call.who for call in self.calls.values() if call.question == question]
        return not asked or asked[-1] == event["who"]

    def may_be_closed(self) -> bool:
        """Whether somebody asked for the session's end."""
        return self.wiped > -math.inf or any(send.kind == "close" for send in self.sends.values())

    def removed(self, question: str) -> bool:
        """Whether somebody asked for something that may take this message, or its answer, away: an edit or a
        regenerate of it, or of one before it, or the session's end. From the moment it is asked for: it may
        be there already."""
        own = self.sends.get(question)
        if own is None or own.began <= self.wiped:
            return True
        # What was stopped stands where its worker got to it, perhaps behind what came later.
        stopped = {send.target for send in self.sends.values() if send.kind == "stop"}
        for send in self.sends.values():
            if send.kind == "close" and (own.id is None or send.id is None or send.id < own.id):
                return True
            if send.kind not in ("edit", "regenerate"):
                continue
            target = self.sends.get(send.target or "")
            if target is None or own.id is None or target.id is None or target.id <= own.id:
                return True
            if question in stopped:
                return True
        return False
