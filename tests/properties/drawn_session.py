"""A simulated world around one session: clients that send, workers that answer, die and come back.

It is pure. Every decision is taken by `choose(n)`, a number from 0 to n-1; handed random numbers it makes
a random session, handed draws of Hypothesis one that can be shrunk. What comes out are the two logs, with
the segment ends of the out log, as real clients and workers would have written them:

- clients repeat, contradict and stop themselves, edit, answer tools and approvals, send copies back;
- a worker boots (fold, revive) and does what `moves` says: one segment, or a turn;
- in a turn it streams chunks, looks at the in log, works on the history, and completes, lets go or dies.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from model import CLIENT_TOOL, Model

from snapshotter.core import moves
from snapshotter.core.calls import calls_of
from snapshotter.core.chunks import ChunkError
from snapshotter.core.fold import Fold
from snapshotter.core.queue import Item, concerns
from snapshotter.core.redacted import blank
from snapshotter.core.revive import Plan, revive

Record = dict[str, Any]
Choose = Callable[[int], int]

RELEASES = ("error", "cancelled", "signal", "deadline", "stall")


def fold_of(inputs: list[Record], outs: list[Record], fold: Fold | None = None) -> Fold:
    """The fold of these records, all inputs fed first."""
    fold = Fold() if fold is None else fold
    for record in inputs:
        fold.feed(record)
    for record in outs:
        fold.apply(record)
    return fold


def user(message_id: str, text: str) -> Record:
    return {"id": message_id, "role": "user", "parts": [{"type": "text", "text": text}]}


@dataclass
class World:
    choose: Choose
    inputs: list[Record] = field(default_factory=list)
    outs: list[Record] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)  # how many inputs there were when each record was written
    ends: list[int] = field(default_factory=list)
    fold: Fold = field(default_factory=lambda: Fold(strict=True))
    steady: bool = False
    names: int = 0

    # -- chance -----------------------------------------------------------------------------------------

    def pick(self, options: Any) -> Any:
        return options[self.choose(len(options))]

    def often(self, one_in: int) -> bool:
        """False once in so many times; the simplest choice is True."""
        return self.choose(one_in) != one_in - 1

    def fresh(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    # -- clients ----------------------------------------------------------------------------------------

    def send(self, body: Record) -> None:
        number = len(self.inputs) + 1
        self.inputs.append({"id": number, "ts": 1_000 * number, **body})

    def client(self) -> None:
        """One thing that a client does."""
        self.pick(
            [self.say, self._answer] * 2
            + [self.stop, self.edit, self.again, self._regenerate, self._copy, self._action, self._odd]
        )()

    def say(self) -> None:
        body: Record = {"kind": "message", "message": user(self.fresh("u"), self.fresh("text "))}
        if not self.often(4):
            body |= {"body": {"model": self.pick("ab")}, "clientTools": [CLIENT_TOOL]}
        self.send(body)

    def again(self) -> None:
        """Send something again: word by word, under its key, or its id with other words."""
        if not self.inputs:
            return self.say()
        old = {k: v for k, v in self.pick(self.inputs).items() if k not in ("id", "ts")}
        if "message" in old and not self.often(3):
            old["message"] = {**old["message"], "parts": [{"type": "text", "text": self.fresh("text ")}]}
        elif not self.often(3):
            old["metadata"] = {"again": True}
        return self.send(old)

    def _user_id(self) -> str:
        known = [r["message"]["id"] for r in self.inputs if "message" in r]
        return str(self.pick([*known[-4:], "nobody"]))

    def _assistant_id(self) -> str:
        known = [m["id"] for m in self.shown() if m.get("role") == "assistant"]
        return str(self.pick([*known[-3:], "nobody"]))

    def stop(self) -> None:
        self.send({"kind": "stop"} if self.often(2) else {"kind": "stop", "messageId": self._user_id()})

    def edit(self) -> None:
        target = self._user_id()
        own = target if self.often(2) else self.fresh("u")
        edited = user(own, self.fresh("text "))
        self.send({"kind": "edit", "messageId": target, "message": edited, "key": self.fresh("k")})

    def _regenerate(self) -> None:
        named = {} if self.often(2) else {"messageId": self._assistant_id()}
        self.send({"kind": "regenerate", **named, "key": self.fresh("k")})

    def _action(self) -> None:
        self.send({"kind": "action", "name": self.pick(("note", "ask")), "input": {}, "key": self.fresh("k")})

    def _odd(self) -> None:
        if self.often(4):
            self.send({"kind": self.pick(("wave", "message", "edit"))})
        else:
            self.send({"kind": "close"})

    def shown(self) -> list[Record]:
        return revive(fold_of(self.inputs, self.outs)).messages

    def _calls(self) -> list[tuple[str, Record]]:
        shown = [(m["id"], part) for m in self.shown() for _, part in calls_of(m)]
        open_calls = [c for c in shown if c[1]["state"] not in ("output-available", "output-denied")]
        return [*open_calls[-4:], *shown[-1:], ("nobody", {"toolCallId": "none", "state": "input-available"})]

    def _answer(self) -> None:
        message_id, part = self.pick(self._calls())
        named = {"messageId": message_id} if self.often(2) else {}
        if "approval" in part and self.often(4):
            by = (
                {"approvalId": part["approval"]["id"]}
                if self.often(2)
                else {"toolCallId": part["toolCallId"]}
            )
            self.send(
                {"kind": "tool-approval", **by, **named, "approved": self.often(3), "key": self.fresh("k")}
            )
            return
        result = {"output": self.fresh("out ")} if self.often(3) else {"errorText": self.fresh("err ")}
        self.send({"kind": "tool-result", "toolCallId": part["toolCallId"], **named, **result})

    def _copy(self) -> None:
        """The client sends an assistant message back, some of its calls further on."""
        copies = [m for m in self.shown() if m.get("role") == "assistant" and calls_of(m)]
        if not copies:
            return self.say()
        parts = []
        for part in self.pick(copies[-2:])["parts"]:
            if part.get("state") == "approval-requested" and self.often(2):
                answer = {**part["approval"], "approved": self.often(3)}
                part = {**part, "state": "approval-responded", "approval": answer}
            elif "toolCallId" in part and self.often(2):
                part = {**part, "state": "output-available", "output": self.fresh("out ")}
            parts.append(part)
        return self.send({"kind": "message", "message": {**self.pick(copies[-2:]), "parts": parts}})

    # -- writing ----------------------------------------------------------------------------------------

    def write(self, bodies: list[Record], *, end: bool) -> None:
        for body in bodies:
            record = {"id": len(self.outs) + 1, "ts": 1_000_000 + 50 * len(self.outs), **body}
            self.outs.append(json.loads(json.dumps(record)))
            self.sent.append(len(self.inputs))
            self.fold.apply(record)
        if end and self.fold.open is None and self.fold.claim is None:
            self.ends.append(len(self.outs))

    def chunk(self, body: Record) -> None:
        """Stream one chunk as the writer does: checked, its start rewritten, what is dropped not stored."""
        number = len(self.outs) + 1
        if body["type"] == "start":
            body = {**body, "messageId": self.fold.start_id(body, number)}
        try:
            kept = self.fold.chunk(number, body)
        except ChunkError:
            return
        if kept:
            self.outs.append({"id": number, "ts": 1_000_000 + 50 * number, "chunk": body})
            self.sent.append(len(self.inputs))
            self.fold.cursor = number

    # -- a worker ---------------------------------------------------------------------------------------

    def boot(self) -> Plan:
        self.fold = fold_of(self.inputs, self.outs, Fold(strict=True))
        return revive(self.fold)

    def look(self) -> None:
        for record in self.inputs:
            self.fold.feed(record)

    def work(self, steps: int) -> bool:
        """Boot, and do at most so many steps; True when the worker finds nothing to do."""
        self.boot()
        if not self.steady and not self.often(8):
            self.write([self._start_of("fence", why="boot")], end=True)
            if not self.often(3):
                return False
            if not self.often(3):
                self.write([{"control": "turn-release", "why": "error"}], end=True)
        for _ in range(steps):
            if not self.step(revive(self.fold)):
                return True
            if self.fold.open is not None and self.fold.open.released is None:
                return False  # it died in its turn
            self.look()
        return False

    def _start_of(self, control: str, **fields: Any) -> Record:
        return {"control": control, "epoch": self.fold.epoch + 1, "run": "r", **fields}

    def step(self, plan: Plan) -> bool:
        """One step of a worker; False when there is nothing to do."""
        step = moves.next_step(plan)
        if step == "seal":
            self.write(moves.sealing(self.fold, plan), end=True)
        elif step == "spend":
            self.write(moves.spending(plan), end=True)
        elif step == "resume":
            self.turn(plan, None)
        elif step == "item":
            self.item(plan, plan.pending[0])
        return step != "idle"

    def item(self, plan: Plan, item: Item) -> None:
        if item.kind == "close":
            self.write(moves.ending(self.fold, plan, item), end=True)
        elif item.kind == "action" and item.inputs[0]["name"] == "note":
            operations = [] if self.steady else [self.operation()]
            self.write([*operations, moves.applied(sorted({*item.ids, *plan.spent}))], end=True)
        else:
            self.turn(plan, item)

    def turn(self, plan: Plan, item: Item | None) -> None:
        tools = None if self.often(3) else [CLIENT_TOOL]
        named = self.fresh("a")
        bodies = moves.opening(self.fold, plan, item, run="r", message_id=named, client_tools=tools)
        old = self.fold.open
        if item is not None and old is not None and item.kind == "message" and not self.often(3):
            # A recovery hook may hand the interrupted turn's inputs to the turn that follows it.
            bodies[-1]["inputs"] = sorted({*old.inputs, *bodies[-1]["inputs"]})
        self.write(bodies, end=False)
        model = Model(self)
        for _ in range(2 if self.steady else self.choose(14)):
            what = self.choose(10) if not self.steady else 0
            if what == 8:
                self.look()
            elif what == 9:
                self.aside()
            else:
                model.chunk()
        how = "complete" if self.steady else self.pick(("complete", "complete", "die", "release"))
        if how == "complete":
            self._complete(model)
        elif how == "release":
            turn = self.fold.open
            assert turn is not None
            self.write(
                [{"control": "turn-release", "turn": turn.turn, "why": self.pick(RELEASES)}], end=False
            )

    def _complete(self, model: Model) -> None:
        turn = self.fold.open
        assert turn is not None
        self.look()
        taken = [e for n in turn.inputs if (e := self.fold.inputs.get(n)) is not None]
        owed = self.fold.inputs.owed(turn.inputs)
        stops = [e.id for e in owed if e.role == "stop" and concerns(taken, e.record, turn.seen)]
        if not stops:
            model.finish()
        status = "aborted" if stops or turn.aborted else "error" if turn.error is not None else "completed"
        fields = {} if self.steady or self.often(6) else {"keep": False}
        operations = [self.operation()] if turn.mode == "action" and not self.steady else []
        self.write([*operations, *moves.closing(self.fold, status, stops, **fields)], end=True)

    def end(self) -> None:
        """Delete the session, or open a deleted one again."""
        self.boot()
        if self.fold.deleted:
            self.write([self._start_of("fence", why="create", **{"for": len(self.inputs)})], end=True)
        else:
            fence = self._start_of("fence", why="delete", **{"for": self.choose(len(self.inputs) + 1)})
            self.write([fence, {"control": "session-deleted"}], end=True)

    # -- besides ----------------------------------------------------------------------------------------

    def aside(self) -> None:
        """Something that is written beside the answer, in a turn or between turns."""
        what = (self.operation, self._state, self._context, self._stash)
        self.write([self.pick(what)()] if self.often(5) else self.redaction(), end=True)

    def _state(self) -> Record:
        if self.often(3):
            return {"control": "state", "set": {self.pick("abc"): self.names}}
        return {"control": "state", "unset": [self.pick("abc")]}

    def _stash(self) -> Record:
        return {"control": "stash", "data": self.names}

    def _context(self) -> Record:
        known = [m["id"] for m in self.fold.chain.messages]
        upto = self.pick([*known[-3:], "nobody"])
        return {"control": "context", "upto": upto, "messages": [user("sum", self.fresh("text "))]}

    def redaction(self) -> list[Record]:
        """A message is redacted, with all inputs that bring it: first the in log says so."""
        self.look()
        ids = [r["message"]["id"] for r in self.inputs if brings(r)]
        if self.fold.open is not None or not ids:
            return [self.operation()]
        target = self.pick(ids[-4:])
        brought = [r for r in self.inputs if brings(r) and r["message"]["id"] == target]
        entries = [(r["id"], self.fold.inputs.get(r["id"])) for r in brought]
        pairs = [[number, (entry and entry.duplicate_of) or number] for number, entry in entries]
        self.send({"kind": "redaction", "inputs": pairs})
        self.look()
        named = [number for number, _ in pairs] + [len(self.inputs)]
        said = [r["message"]["parts"] for r in brought]
        stand = [m for m in self.fold.chain.messages if m.get("parts") in said]
        puts = [{"control": "history", "op": "put", "message": blank(m)} for m in stand]
        return [{"control": "history", "op": "redact", "inputs": named}, *puts]

    def operation(self) -> Record:
        """An operation on the settled history."""
        ids = [m["id"] for m in self.fold.chain.messages][-3:] or ["nobody"]
        op = self.pick(("put", "put", "remove", "truncate-after", "replace", "clear"))
        body: Record = {"control": "history", "op": op}
        if op == "put":
            named = self.pick([self.fresh("h"), *ids])
            return body | {"message": user(named, self.fresh("text "))}
        if op in ("remove", "truncate-after"):
            return body | {"messageId": self.pick(ids)}
        if op == "replace":
            return body | {"messages": self.fold.chain.messages[-2:]}
        return body


def brings(record: Record) -> bool:
    """Whether an in record brings a user message, or an edit."""
    return record["kind"] in ("message", "edit") and record.get("message", {}).get("role") == "user"


def live(choose: Choose, size: int) -> World:
    """A session of about `size` events, with everything that can go wrong."""
    world = World(choose)
    world.say()
    for _ in range(size):
        what = world.choose(5)
        if what in (0, 1):
            world.client()
        elif what in (2, 3):
            world.work(1 + world.choose(3))
        elif world.fold.deleted or not world.often(16):
            world.end()
        elif world.fold.open is None and world.outs:
            world.boot()
            world.aside()
    return world


def redacting(choose: Choose, size: int) -> World:
    """A session in which ids are used again and again, and messages are redacted."""
    world = World(choose)
    world.say()
    for _ in range(size):
        what = world.choose(6)
        if what in (0, 1):
            world.again()
        elif what == 2:
            world.pick((world.say, world.edit, world.stop))()
        elif what == 3:
            world.work(1 + world.choose(3))
        else:
            world.boot()
            world.write(world.redaction(), end=True)
    return world


def settle(world: World, limit: int) -> int:
    """Let workers that never die work until nothing is left to do; the number of boots it took."""
    world.steady = True
    for boots in range(1, limit + 1):
        if world.work(1):
            return boots
    raise AssertionError(f"still at work after {limit} boots")
