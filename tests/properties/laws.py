"""The laws that every session keeps, each as a function that raises AssertionError where it is broken.

They take the two logs of a session (`world.World`) and fold them again and again: whole, cut, repeated,
packed, from a snapshot, with junk between the records.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import asdict
from typing import Any

import orjson
from drawn_session import Record, World, fold_of

from snapshotter.core.calls import calls_of
from snapshotter.core.chunks import delta_of
from snapshotter.core.contract import describe
from snapshotter.core.fold import Fold
from snapshotter.core.redacted import REDACTED, blank_input, marked
from snapshotter.core.revive import Plan, revive
from snapshotter.core.snapshot import decode, encode, restore
from snapshotter.core.tool_parts import is_settled
from snapshotter.core.verdict import incident_of
from streams.packing import Packer


def picture(fold: Fold) -> str:
    """Everything that the law compares: all that a boot returns but the report."""
    seen = describe(fold, revive(fold))
    del seen["report"]
    return json.dumps(seen, indent=1)


def same(got: Fold, want: Fold, where: str) -> None:
    assert picture(got) == picture(want), where
    if want.open is None:
        assert encode(got, "n", 0) == encode(want, "n", 0), where


def snapshots_agree(world: World) -> None:
    """A snapshot at any segment's end with no turn open, and the tail: the same as the whole log."""
    whole = fold_of(world.inputs, world.outs)
    same(world.fold if world.fold.inputs.last == len(world.inputs) else whole, whole, "live")
    for end in world.ends:
        head = world.outs[:end]
        named = max((n for r in head for n in (*r.get("inputs", ()), r.get("for", 0))), default=0)
        for known in {named, len(world.inputs)}:
            document = decode(encode(fold_of(world.inputs[:known], head), "n", 0))
            got = fold_of(world.inputs, world.outs, restore(deepcopy(document)))
            same(got, whole, f"snapshot at {end}, inputs up to {known} known")


def what_is_redacted_says_nothing(world: World) -> None:
    """Behind the record that says so it is all the same whether an input was written anew, or not yet."""
    whole, said = fold_of(world.inputs, world.outs), redacted_in(world, world.outs)
    for chosen in (set(said), {n for n in said if n % 2}, {n for n in said if not n % 2}):
        inputs = [marked(blank_input(r), said[r["id"]]) if r["id"] in chosen else r for r in world.inputs]
        same(fold_of(inputs, world.outs), whole, f"{chosen} of {said} written anew")
        for end in world.ends:
            if chosen <= redacted_in(world, world.outs[:end]).keys():
                document = decode(encode(fold_of(world.inputs, world.outs[:end]), "n", 0))
                same(fold_of(inputs, world.outs, restore(document)), whole, f"the same, from {end}")


def redacted_in(world: World, outs: list[Record]) -> dict[int, int]:
    """The inputs that both logs say are redacted, and whose duplicate each is, or its own id."""
    named = {n for record in outs if record.get("op") == "redact" for n in record["inputs"]}
    told = [record for record in world.inputs if record["kind"] == "redaction" and record["id"] in named]
    return {number: first for record in told for number, first in record["inputs"]}


def replay_is_idempotent(world: World) -> None:
    """Records at or below the cursor change nothing; packed or not, the log says the same."""
    whole = fold_of(world.inputs, world.outs)
    again = fold_of(world.inputs, world.outs)
    for cut in (0, len(world.outs) // 2, len(world.outs) - 1):
        for record in world.outs[: cut + 1]:
            assert not again.apply(record)
        for record in world.outs[cut:]:
            assert not again.apply(record)
        for record in world.inputs[cut % (len(world.inputs) or 1) :]:
            again.feed(record)
    same(again, whole, "fed again")
    same(fold_of(world.inputs, packed(world.outs)), whole, "packed")
    middle = fold_of(world.inputs, world.outs[: len(world.outs) // 2])
    same(fold_of([], packed(world.outs), middle), whole, "packed, from the middle")


def packed(outs: list[Record]) -> list[Record]:
    packer = Packer(1, delta_of)
    for record in outs:
        packer.add(record["ts"], {k: v for k, v in record.items() if k not in ("id", "ts")})
    return [orjson.loads(line) for line in packer.lines()]


def every_prefix_boots(world: World) -> Iterator[Fold]:
    """Walk the log record by record, with the inputs that there were then: the fold of every prefix boots,
    and nothing that was handed out changes."""
    fold = Fold()
    handed: list[tuple[Any, str]] = []
    for record, sent in zip(world.outs, world.sent, strict=True):
        for early in world.inputs[:sent]:
            fold.feed(early)
        fold.apply(deepcopy(record))
        before = encode(fold, "n", 0)
        plan = revive(fold)
        assert encode(fold, "n", 0) == before, "revive changed the fold"
        assert describe(fold, plan) == describe(fold, revive(fold)), "the plan changed"
        handed.append((plan, json.dumps(describe(fold, plan)["messages"])))
        yield fold
    same(fold, fold_of(world.inputs[: fold.inputs.last], world.outs), "inputs fed as they came")
    for plan, frozen in handed:
        assert json.dumps(plan.messages) == frozen, "a message that was handed out changed"


def plans(world: World) -> Iterator[Plan]:
    for fold in every_prefix_boots(world):
        yield revive(fold)


def history_holds(world: World) -> None:
    """No settled call regresses, no settled message vanishes by itself, no user message stands twice."""
    settled_calls: dict[str, Counter[str]] = {}
    stood: set[str] = set()
    for record, fold in zip(world.outs, every_prefix_boots(world), strict=True):
        control = record.get("control")
        messages = revive(fold).messages
        ids = [message["id"] for message in messages]
        assert len(ids) == len(set(ids)), f"{record}: an id stands twice in {ids}"
        texts = Counter(part["text"] for m in messages if m["role"] == "user" for part in m["parts"])
        del texts[REDACTED]
        assert all(n == 1 for n in texts.values()), f"{record}: a user message stands twice: {texts}"
        now = {m["id"]: _settled_calls(m) for m in _standing(fold)}
        own = fold.open.ids() if fold.open is not None else set()
        if control == "history":
            settled_calls = {m: c for m, c in settled_calls.items() if m in own}
        for message_id, calls in settled_calls.items():
            lost = calls - now[message_id] if message_id in now else Counter()
            assert not lost, f"{record}: settled calls of {message_id} regressed: {lost}"
        settled_calls = {m: c for m, c in settled_calls.items() if m in now}
        if control == "history":
            settled_calls |= {m: c for m, c in now.items() if m not in own}
        elif control in ("turn-start", "turn-complete", "input-applied"):
            settled_calls = now
        chain = [message["id"] for message in fold.chain.messages]
        gone = stood - set(chain)
        assert not gone or _may_remove(world, record), f"{record}: {gone} vanished"
        stood = set(chain) if control == "turn-complete" else stood & set(chain)
    _answered_once(world)


def _standing(fold: Fold) -> list[Record]:
    """The assistant messages as they stand, those of the open turn not cleaned."""
    messages, turn = list(fold.chain.messages), fold.open
    if turn is not None:
        messages = [m for i, m in enumerate(messages) if i != turn.slot] + [*turn.done, turn.current()]
    return [m for m in messages if m["role"] == "assistant"]


def _settled_calls(message: Record) -> Counter[str]:
    # What a result says stays as it is; the input may still be shown in another way.
    return Counter(
        json.dumps([part["toolCallId"], part["state"], part.get("output"), part.get("errorText")])
        for _, part in calls_of(message)
        if is_settled(part)
    )


def _may_remove(world: World, record: Record) -> bool:
    if record.get("control") in ("history", "session-deleted") or record.get("keep") is False:
        return True
    named = [world.inputs[n - 1]["kind"] for n in record.get("inputs", ())]
    return "edit" in named or "regenerate" in named


def _answered_once(world: World) -> None:
    taken: dict[int, list[int]] = {}
    answered: Counter[int] = Counter()
    for record in world.outs:
        if record.get("control") == "turn-start":
            taken[record["turn"]] = record["inputs"]
        elif record.get("control") == "turn-complete" and record["status"] == "completed":
            talk = [n for n in taken[record["turn"]] if world.inputs[n - 1]["kind"] in ("message", "edit")]
            answered.update(talk)
    assert all(n == 1 for n in answered.values()), f"answered twice: {answered}"


def everything_ends(world: World) -> None:
    """After workers that live: all that is understood is applied, but for answers that wait for others."""
    fold = fold_of(world.inputs, world.outs)
    plan = revive(fold)
    assert not plan.pending, plan.pending
    assert not plan.spent, plan.spent
    assert plan.resume.kind in ("none", "waiting"), plan.resume
    left = [
        entry for entry in fold.inputs.owed(fold.open.inputs if fold.open else ()) if entry.role != "unknown"
    ]
    held = plan.resume.kind == "waiting" and all(entry.role == "answer" for entry in left)
    assert not left or held or fold.closed, left


JUNK: tuple[Record, ...] = (
    {"chunk": None},
    {"chunk": 7},
    {"chunk": {"type": ["start"]}},
    {"chunk": {"type": "start", "messageId": 5, "messageMetadata": []}},
    {"chunk": {"type": "tool-output-available", "toolCallId": "nobody"}},
    {"chunk": {"type": "tool-output-error", "toolCallId": None, "errorText": {}}},
    {"chunk": {"type": "text-delta", "id": "never", "delta": "lost"}},
    {"chunk": {"type": "tool-input-delta", "toolCallId": "never", "inputTextDelta": "{"}},
    {"chunk": {"type": "tool-approval-response", "approvalId": "none", "approved": True}},
    {"control": "turn-start"},
    {"control": "turn-start", "turn": "x", "attempt": None, "inputs": 5, "epoch": "e", "mode": []},
    {"control": "turn-start", "turn": 10**6, "inputs": ["1", True, -4], "seen": {}, "messageId": ""},
    {"control": "turn-start", "turn": 3, "mode": "continue", "messageId": "u1", "inputs": [1, 1]},
    {"control": "turn-complete", "turn": 10**6, "status": 5, "error": {"a": 1}},
    {"control": "turn-complete"},
    {"control": "turn-release", "turn": None, "why": 3},
    {"control": "state", "set": [1], "unset": 4},
    {"control": "state", "unset": [["a"], "a"]},
    {"control": "history", "op": "put", "message": {"id": ["u1"], "parts": 7}},
    {"control": "history", "op": "put", "message": {"parts": [None, 5, {"type": 3}]}},
    {"control": "history", "op": "replace", "messages": ["x", {}]},
    {"control": "history", "op": ["clear"], "messageId": {}},
    {"control": "history", "op": "put", "message": {"id": "h0", "role": "assistant", "parts": "x"}},
    {"control": "context", "upto": [], "messages": 1},
    {"control": "input-applied", "inputs": {"1": 1}},
    {"control": "input-applied", "inputs": [1, 2**70, 1.5]} | {"inputs": [0]},
    {"control": "fence", "epoch": None, "why": "create"},
    {"control": "fence", "why": "boot", "for": "1"},
    {"control": "session-closed"},
    {"control": "session-deleted"},
    {"control": ["turn-start"]},
    {"control": "tomorrow", "inputs": "no"},
    {"control": "heartbeat"},
    {},
)


def junk_boots(world: World, choose: Callable[[int], int]) -> None:
    """Junk and foreign controls anywhere in the log: everything boots, and twice the same."""
    controls = [r for r in world.outs if "control" in r]
    bodies = [{k: v for k, v in r.items() if k not in ("id", "ts")} for r in world.outs]
    for _ in range(1 + choose(4)):
        extra = JUNK[choose(len(JUNK))] if not controls or choose(2) else controls[choose(len(controls))]
        extra = {k: v for k, v in extra.items() if k not in ("id", "ts")}
        bodies.insert(choose(len(bodies) + 1), extra)
    outs = [{"id": n, "ts": n, **deepcopy(body)} for n, body in enumerate(bodies, 1)]
    fold = fold_of(world.inputs, [])
    for record in outs:
        fold.apply(record)
        revive(fold)
        encode(fold, "n", 0)
    same(fold_of(world.inputs, outs), fold, "junk")


def accounts(fold: Fold) -> Record:
    """What a fold says of its turn's budget: the verdict, and all that it is drawn from."""
    ledger = fold.budget
    verdict = incident_of(fold, revive(fold))
    # A claim that is still open is told apart by what comes next, which is what `verdict` goes on with.
    return {**asdict(verdict), "attempts": [asdict(a) for a in ledger.attempts], "claims": len(ledger.claims)}


def budgets_agree(world: World) -> None:
    """The budget of a snapshot and its tail, however fed, is that of the whole log; at every prefix."""
    snapshots = [(end, fold_of(world.inputs, world.outs[:end])) for end in world.ends]
    documents = [(end, decode(encode(fold, "n", 0))) for end, fold in snapshots]
    whole = fold_of(world.inputs, [])
    for at, record in enumerate(world.outs, 1):
        whole.apply(record)
        want = accounts(whole)
        quick = fold_of(world.inputs, [])
        quick.replay(world.outs[:at])
        assert accounts(quick) == want, f"replayed up to {at}"
        for end, document in documents[-3:]:
            if end <= at:
                got = fold_of(world.inputs, [], restore(deepcopy(document)))
                got.replay(world.outs[end:at])
                assert accounts(got) == want, f"snapshot at {end}, up to {at}"
