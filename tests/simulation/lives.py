"""What the judge is told by those who tidy up, and what must hold then. The rest is in `checker`.

    upkeep       op (compact, trim, gc, maintain): was done
    deleting     about to delete
    spared       that came to nothing
    deleted      acknowledged: since (when it began), remains: objects below the fence that hold something
    created      acknowledged: the session begins anew
    forking      about to fork: source: the other session, which this one goes on from
    forked       acknowledged: since, source
    redacting    about to redact: token, a user message
    redacted     acknowledged: token, remains: objects that still hold its text
    exported     why: what keeps the file from being whole, "" for nothing
    rebuilt      status: what comparing the stored snapshot with the logs came to; detail

A deletion takes away what was begun to be sent before the session was opened again, from the moment when it
begins: it may be done without being acknowledged. Once it is, nothing of what it found comes back.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from dataclasses import replace

from casebook import Case, Event, Sent
from pieces import Record

REDACTED = "[redacted]"
WHOLE = ("same", "newer", "unsaved", "unchecked", "deleted", "written", "absent")
"""What a rebuild may come to where nothing is damaged."""


class Lives(ABC):
    """The part of the judge that knows of deletions, forks and redactions."""

    _cases: defaultdict[str, Case]
    _damage: bool

    @abstractmethod
    def _blame(self, rule: str, detail: str) -> None:
        """A promise was broken."""

    def _deleting(self, case: Case, event: Event) -> None:
        case.wiped = math.inf
        case.deleting.add(event["who"])

    def _spared(self, case: Case, event: Event) -> None:
        case.deleting.discard(event["who"])

    def _deleted(self, case: Case, event: Event) -> None:
        case.deleting.discard(event["who"])
        case.deleted.append((event["since"], event["t"]))
        # Beside another deletion the newest fence is that one's, perhaps; it says itself what became of it.
        if event["remains"] and not self._damage and not case.deleting:
            self._blame("deleted and stored", f"{event}")

    def _created(self, case: Case, event: Event) -> None:
        if not case.deleting:
            case.wiped = event["t"]

    def _redacting(self, case: Case, event: Event) -> None:
        case.redacting.add(event["token"])

    def _redacted(self, case: Case, event: Event) -> None:
        case.redacted.setdefault(event["token"], event["t"])
        if event["remains"] and not self._damage:
            self._blame("redacted and stored", f"{event}")

    def _forking(self, case: Case, event: Event) -> None:
        case.source = event["source"]
        case.forking = min(case.forking, event["t"])
        self._inherit(case, self._cases[case.source])

    def _forked(self, case: Case, event: Event) -> None:
        """The new session shows what the other one had, and promises nothing of what was owed there."""
        source, case.forked = self._cases[event["source"]], True
        self._inherit(case, source)
        # One that was broken off stands where it stood; who runs it again brings it to its end.
        done = [ended for ended in source.ended if ended["t"] < min(event["since"], case.forking)]
        case.ended += [ended for ended in done if not source.removed(ended["question"])]

    @staticmethod
    def _inherit(case: Case, source: Case) -> None:
        """What was said there may be shown here."""
        for token, send in source.sends.items():
            if send.text is not None:
                shown = Sent("message", send.text, None, send.began, send.tried)
                case.sends.setdefault(token, shown)
        case.calls = {
            **{token: replace(call, incident=-1) for token, call in source.calls.items()},
            **case.calls,
        }
        case.redacting |= source.redacting

    def _exported(self, case: Case, event: Event) -> None:
        if event["why"] and not self._damage:
            self._blame("exported in pieces", f"{event}")

    def _rebuilt(self, case: Case, event: Event) -> None:
        # One that was deleted and created again begins with neither its first record nor a checkpoint.
        if event["status"] not in WHOLE and not self._damage and not case.may_be_closed():
            self._blame("rebuilt otherwise", f"{event}")

    def _acted(self, case: Case, event: Event) -> None:
        again = case.acted.intersection(event["inputs"])
        if again:
            self._blame("acted again", f"{sorted(again)}: {event}")
        case.acted.update(event["inputs"])

    def _check_gone(self, case: Case, messages: list[Record], event: Event) -> None:
        """What was deleted or redacted does not come back."""
        for message in messages:
            send = case.sends.get(message["id"])
            if send is None or message["role"] != "user" or send.acked is None:
                continue
            for began, acked in case.deleted:
                if send.acked < began and send.tried < began and acked < event["since"]:
                    self._blame("deleted and back", f"{message['id']} in {event['what']} by {event['who']}")
            text = "".join(part.get("text", "") for part in message["parts"])
            redacted = case.redacted.get(message["id"], math.inf)
            if send.tried < redacted < event["since"] and text != REDACTED:
                self._blame("redacted and back", f"{message['id']} in {event['what']} by {event['who']}")
