"""What must hold in time, where requests take none: stops are heeded, pauses kept, repeats found.

Beside `checker`, which judges worlds whose stores may keep a request for minutes, and where nobody can say
how soon a stop had to be seen. Feeds what it finds to the same list of violations.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from checker import Checker, Violation

Event = dict[str, Any]

HEEDED = 6.5
"""Seconds after which a stop has been seen: it is asked for every second, in a tool every five."""
CAP = 256.0
RECENT = 120.0
"""Seconds for which a sender finds what was sent before it under the same id."""


class Timely:
    """`exact`: no fault happens, so that every look of a watcher finds what is there."""

    def __init__(self, checker: Checker, *, exact: bool) -> None:
        self._checker = checker
        self._exact = exact
        self._places: dict[str, tuple[float, int]] = {}
        self._booted: dict[str, float] = {}
        self._asked: dict[str, tuple[str, float]] = {}
        self._stops: dict[str, float] = {}
        self._wants: dict[str, str] = {}
        self._lost: defaultdict[str, list[float]] = defaultdict(list)

    def see(self, event: Event) -> None:
        found = getattr(self, "_on_" + event["what"].replace("-", "_"), None)
        if found is not None:
            found(event)

    def _blame(self, rule: str, event: Event) -> None:
        self._checker.violations.append(Violation(rule, f"{event}"))

    def _on_send(self, event: Event) -> None:
        self._wants.setdefault(event["token"], event.get("target") or "")

    def _on_sent(self, event: Event) -> None:
        t, number = self._places.setdefault(event["token"], (event["t"], event["id"]))
        if number != event["id"] and event["t"] < t + RECENT:
            self._blame("one message, two places", event)
        if event["kind"] == "stop":
            self._stops.setdefault(self._wants[event["token"]], event["t"])

    def _on_booted(self, event: Event) -> None:
        self._booted[event["who"]] = event["since"]

    def _on_model_call(self, event: Event) -> None:
        who, question = event["who"], event["question"]
        self._asked[who] = question, event["t"]
        stopped = self._stops.get(question)
        if event["attempt"] > 1 and stopped is not None and stopped < self._booted.get(who, 0.0):
            # It was there when this worker began to read the log of an open turn, which it ends.
            self._blame("stopped and answered", event)
        lost = self._lost[question]
        if self._exact and lost and event["t"] < lost[-1] + min(4.0 ** len(lost), CAP):
            self._blame("too soon", event)

    def _on_turn_ended(self, event: Event) -> None:
        question, began = self._asked.pop(event["who"])
        stopped = self._stops.get(question)
        seen = stopped is not None and began < stopped < event["t"] - HEEDED
        if self._exact and seen and event["status"] == "completed":
            self._blame("the stop was not heeded", event)

    def _on_left(self, event: Event) -> None:
        asked = self._asked.pop(event["who"], None)
        if asked is not None and event["how"] == "error":
            self._lost[asked[0]].append(event["t"])
