"""Seeded random walks through the chunk protocol: valid streams of every chunk type.

Each step of a walk picks any chunk that is legal where the walk stands, so streams interleave in ways no
well-behaved server would dare: a call id met again in the next step, a late input delta after its output,
a text id opened twice, a reset in the middle of everything. What makes a chunk legal is the client's own
look-up (a delta needs its start, a result its call), tracked by `Walk`.

    python tests/oracle/streams_gen.py SEED COUNT > streams.jsonl
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from typing import Any

Chunk = dict[str, Any]

WORDS = [
    *(
        "rain",
        "over",
        "Tōkyō",
        "naïve",
        "Größe",
        "日本語",
        "👍🏽",
        "👩\u200d👩\u200d👧",
        "𝒳",
        "e\u0301",
        "**b**",
    ),
    *("\\", '"', "'", "</p>", "\n\n", "\u2028", "\u0085", "\u0000", "\ufeff", "\uffff"),
]
KEYS = ["city", "units", "a", "nested", "10", "2", "", "ключ", "emoji😀", "x.y", "toString", "length"]
TOOLS = ["weather", "read-file", "db.query", "mcp__fs__list"]
NUMBERS = [0, 1, -1, 42, 2**31, 2**53 - 1, -(2**63), 2**64 - 1, 0.5, -0.0, 1.0, 1e21, 5e-324, 0.1 + 0.2]


class Walk:
    """One stream being made, and what a client would know at this point of it."""

    def __init__(self, rng: random.Random) -> None:
        self.r = rng
        self.chunks: list[Chunk] = []
        self.message: Chunk | None = None
        self.step = 0
        self.serial = 0
        self.forget_message()

    def forget_message(self) -> None:
        self.open: dict[str, list[str]] = {"text": [], "reasoning": []}
        self.inputs: dict[str, list[str]] = {}  # call id → the pieces of its JSON still to come
        self.calls: dict[str, set[int]] = {}  # call id → steps that hold a part of it
        self.approvals: dict[tuple[str, int], str] = {}

    # -- values ----------------------------------------------------------------------------------

    def chance(self, share: float) -> bool:
        return self.r.random() < share

    def text(self, most: int = 6) -> str:
        return " ".join(self.r.choice(WORDS) for _ in range(self.r.randint(0, most)))

    def value(self, depth: int = 0) -> Any:
        pick = self.r.random()
        if depth > 3 or pick < 0.4:
            return self.text(3)
        if pick < 0.6:
            return self.r.choice([*NUMBERS, True, False, None])
        if pick < 0.75:
            return [self.value(depth + 1) for _ in range(self.r.randint(0, 3))]
        return self.object(depth + 1)

    def object(self, depth: int = 1) -> Chunk:
        return {self.r.choice(KEYS): self.value(depth) for _ in range(self.r.randint(0, 4))}

    def maybe(self, share: float = 0.15, **fields: Any) -> Chunk:
        return {name: make() for name, make in fields.items() if self.chance(share)}

    def provider(self) -> Chunk:
        return {
            "openai": self.r.choice([{}, {"itemId": "i1"}, {"n": None}]),
            **self.maybe(0.2, x=self.object),
        }

    def pieces(self, text: str) -> list[str]:
        """`text` in pieces, cut by UTF-16 unit now and then, as JavaScript cuts it: halves of pairs."""
        if self.chance(0.3):
            raw = text.encode("utf-16-le", "surrogatepass")
            units = [raw[i : i + 2].decode("utf-16-le", "surrogatepass") for i in range(0, len(raw), 2)]
        else:
            units = list(text)
        size = self.r.choice([1, 3, 8, 1000])
        return ["".join(units[i : i + size]) for i in range(0, len(units), size)]

    def fresh(self, prefix: str) -> str:
        self.serial += 1
        return f"{prefix}{self.serial}" if self.chance(0.7) else self.r.choice(["0", "1", "call_0"])

    # -- moves: each adds chunks that are legal here, or none ---------------------------------------

    def add(self, kind_: str, /, **fields: Any) -> None:
        self.chunks.append({"type": kind_, **fields})

    def start_block(self) -> None:
        kind = self.r.choice(["text", "text", "reasoning"])
        ident = self.fresh("t")
        if ident not in self.open[kind]:
            self.open[kind].append(ident)
        self.add(f"{kind}-start", id=ident, **self.maybe(providerMetadata=self.provider))

    def deltas(self) -> None:
        kind = self.r.choice([k for k in self.open if self.open[k]] or [""])
        if not kind:
            return
        ident = self.r.choice(self.open[kind])
        for piece in self.pieces(self.text(8)) or [""]:
            self.add(
                f"{kind}-delta", id=ident, delta=piece, **self.maybe(0.04, providerMetadata=self.provider)
            )

    def end_block(self) -> None:
        kind = self.r.choice([k for k in self.open if self.open[k]] or [""])
        if not kind:
            return
        ident = self.open[kind].pop(self.r.randrange(len(self.open[kind])))
        extra = self.maybe(0.2, providerMetadata=self.provider)
        if kind == "text" and self.chance(0.1):
            source = {"type": "source", "sourceType": "url", "id": "s", "url": "https://example.com/"}
            extra["citations"] = [{"source": source, "startIndex": 0, "endIndex": 2, "citedText": "ab"}]
        self.add(f"{kind}-end", id=ident, **extra)

    def call_extras(self) -> Chunk:
        yes = lambda: True  # noqa: E731
        no = lambda: self.chance(0.5)  # noqa: E731
        meta = {"toolMetadata": self.object, "providerMetadata": self.provider}
        return self.maybe(0.12, dynamic=yes, providerExecuted=no, **meta)

    def known_call(self) -> str | None:
        return self.r.choice(sorted(self.calls)) if self.calls else None

    def hold(self, call: str) -> None:
        self.calls.setdefault(call, set()).add(self.step)

    def start_call(self) -> None:
        call = self.known_call() if self.calls and self.chance(0.15) else self.fresh("call_")
        assert call is not None
        self.inputs[call] = self.pieces(self.json_text())
        self.hold(call)
        extra = self.call_extras() | self.maybe(0.1, title=self.text)
        if self.chance(0.15):
            extra["inputEncoding"] = self.r.choice(["json", "text"])
        self.add("tool-input-start", toolCallId=call, toolName=self.r.choice(TOOLS), **extra)

    def json_text(self) -> str:
        text = json.dumps(self.object(0), ensure_ascii=self.chance(0.5), indent=self.r.choice([None, 1]))
        return text[: self.r.randint(0, len(text))] if self.chance(0.1) else text

    def call_deltas(self) -> None:
        if not self.inputs:
            return
        call = self.r.choice(sorted(self.inputs))
        left = self.inputs[call]
        for piece in [left.pop(0) for _ in range(min(len(left), self.r.randint(1, 12)))] or ["", " x"]:
            self.hold(call)
            self.add("tool-input-delta", toolCallId=call, inputTextDelta=piece)

    def end_call(self) -> None:
        call = self.known_call() if self.calls and self.chance(0.8) else self.fresh("call_")
        assert call is not None
        self.hold(call)
        fields: Chunk = {"toolCallId": call, "toolName": self.r.choice(TOOLS), "input": self.value()}
        fields |= self.call_extras() | self.maybe(0.1, title=self.text)
        if self.chance(0.1):
            self.add("tool-input-error", errorText=self.text(), **fields)
        else:
            self.add("tool-input-available", **fields)

    def output(self) -> None:
        call = self.known_call()
        if call is None:
            return
        pick = self.r.random()
        if pick < 0.6:
            extra = self.call_extras() | self.maybe(0.25, preliminary=lambda: self.chance(0.8))
            self.add("tool-output-available", toolCallId=call, output=self.value(), **extra)
        elif pick < 0.85:
            self.add("tool-output-error", toolCallId=call, errorText=self.text(), **self.call_extras())
        else:
            self.add("tool-output-denied", toolCallId=call)

    def ask(self) -> None:
        call = self.known_call()
        if call is None:
            return
        steps = self.calls[call]
        approval = self.fresh("ap")
        self.approvals[call, self.step if self.step in steps else max(steps)] = approval
        extra = self.maybe(
            0.2,
            approvalDescriptor=self.value,
            inputSchemaInput=self.value,
            reason=self.text,
            isAutomatic=lambda: self.chance(0.5),
            signature=self.text,
        )
        self.add("tool-approval-request", approvalId=approval, toolCallId=call, **extra)

    def answer(self) -> None:
        if not self.approvals:
            return
        approval = self.r.choice(sorted(self.approvals.values()))
        extra = self.maybe(
            0.2, reason=self.text, providerExecuted=lambda: True, providerMetadata=self.provider
        )
        self.add("tool-approval-response", approvalId=approval, approved=self.chance(0.6), **extra)

    def next_step(self) -> None:
        if self.chance(0.7):
            self.add("finish-step")
        self.step += 1
        self.add("start-step")

    def reset_step(self) -> None:
        self.add("reset-step")
        for steps in self.calls.values():
            steps.discard(self.step)
        self.calls = {call: steps for call, steps in self.calls.items() if steps}
        self.approvals = {key: held for key, held in self.approvals.items() if key[1] != self.step}
        self.open = {"text": [], "reasoning": []}
        self.inputs = {}

    def data(self) -> None:
        kind = "data-" + self.r.choice(["status", "x-y", "ünï"])
        extra = self.maybe(0.6, id=lambda: self.r.choice(["1", "2", "日"]))
        self.add(kind, data=self.value(), **extra, **self.maybe(0.2, transient=lambda: self.chance(0.6)))

    def metadata(self) -> None:
        self.add("message-metadata", messageMetadata=self.object(0))

    def push(self) -> None:
        provider = self.maybe(0.3, providerMetadata=self.provider)
        pick = self.r.randrange(6)
        if pick < 2:
            name = ["file", "reasoning-file"][pick]
            self.add(name, url="https://example.com/f", mediaType="image/png", filename="lost", **provider)
        elif pick == 2:
            self.add(
                "source-url",
                sourceId="s",
                url="https://e.org/é",
                **self.maybe(0.5, title=self.text),
                **provider,
            )
        elif pick == 3:
            extra = self.maybe(0.5, filename=self.text) | provider
            self.add("source-document", sourceId="d", mediaType="application/pdf", title=self.text(), **extra)
        elif pick == 4:
            self.add("custom", kind="openai.compaction", **provider)
        else:
            self.add("steering-message", id=self.fresh("u"), parts=[{"type": "text", "text": self.text()}])

    def note(self) -> None:
        if self.chance(0.5):
            self.add("error", errorText=self.text())
        else:
            self.add("abort", **self.maybe(0.5, reason=self.text))

    def start(self) -> None:
        """A second `start`: with another id it begins an empty message."""
        extra = self.maybe(0.3, messageMetadata=lambda: self.object(0))
        if self.chance(0.6):
            extra["messageId"] = f"m{self.r.randint(1, 3)}"
            # The walk does not track which id the message bears; it forgets either way, and stays legal.
            self.forget_message()
        self.add("start", **extra)

    # -- whole streams ---------------------------------------------------------------------------

    def seed_message(self) -> None:
        """A message to continue: parts of every kind, the last step with calls in several states."""
        parts: list[Chunk] = [{"type": "step-start"}, {"type": "text", "text": self.text(), "state": "done"}]
        parts += [{"type": "text", "text": "cut off", "state": "streaming"}] if self.chance(0.3) else []
        parts += [{"type": "data-status", "id": "1", "data": self.value()}] if self.chance(0.3) else []
        for number in range(self.r.randint(0, 4)):
            if self.chance(0.3):
                parts.append({"type": "step-start"})
                self.step += 1
            call = f"old_{number}"
            self.hold(call)
            parts.append(self.seed_call(call))
        self.inputs = {call: left for call, left in self.inputs.items() if self.step in self.calls[call]}
        self.message = {"id": "m1", "role": "assistant", "parts": parts}
        self.message |= self.maybe(0.5, metadata=lambda: self.object(0))

    def seed_call(self, call: str) -> Chunk:
        kind: Chunk = {"type": f"tool-{self.r.choice(TOOLS)}"}
        if self.chance(0.3):
            kind = {"type": "dynamic-tool", "toolName": self.r.choice(TOOLS)}
        part = kind | {"toolCallId": call} | self.maybe(0.2, title=self.text, toolMetadata=self.object)
        pick = self.r.randrange(4)
        if pick == 0:
            text = self.json_text()
            cut = self.r.randint(0, len(text))
            self.inputs[call] = self.pieces(text[cut:])
            part |= self.maybe(0.8, rawInput=lambda: text[:cut])
            return part | {"state": "input-streaming"} | self.maybe(0.3, inputEncoding=lambda: "text")
        if pick == 1:
            self.approvals[call, self.step] = f"ap_{call}"
            return part | {"state": "approval-requested", "input": {}, "approval": {"id": f"ap_{call}"}}
        if pick == 2:
            return part | {"state": "input-available", "input": self.value()}
        return part | {"state": "output-available", "input": {}, "output": self.value()}

    def run(self) -> Chunk:
        if self.chance(0.2):
            self.seed_message()
        if self.chance(0.95):
            opening = self.maybe(0.9, messageId=lambda: "m1") | self.maybe(
                0.3, messageMetadata=lambda: self.object(0)
            )
            if self.message is None or "messageId" in opening:
                self.add("start", **opening)
        if self.chance(0.8):
            self.step += 1
            self.add("start-step")
        moves = [move for move, weight in _MOVES for _ in range(weight)]
        for _ in range(self.r.randint(0, 40)):
            self.r.choice(moves)(self)
        if self.chance(0.7):
            reason = self.maybe(0.8, finishReason=lambda: self.r.choice(["stop", "tool-calls", "length"]))
            self.add("finish", **reason, **self.maybe(0.3, messageMetadata=lambda: self.object(0)))
        line: Chunk = {"chunks": self.chunks}
        if self.message is not None:
            line["message"] = self.message
        return line


_MOVES = [
    (Walk.start_block, 12),
    (Walk.deltas, 18),
    (Walk.end_block, 9),
    (Walk.start_call, 10),
    (Walk.call_deltas, 16),
    (Walk.end_call, 10),
    (Walk.output, 12),
    (Walk.ask, 4),
    (Walk.answer, 4),
    (Walk.next_step, 5),
    (Walk.reset_step, 1),
    (Walk.data, 7),
    (Walk.metadata, 3),
    (Walk.push, 7),
    (Walk.note, 1),
    (Walk.start, 1),
]


def streams(seed: int, count: int) -> Iterator[Chunk]:
    """`count` lines `{"chunks": [...], "message"?}`; the same seed gives the same lines."""
    for number in range(count):
        yield Walk(random.Random(f"{seed}/{number}")).run()


if __name__ == "__main__":
    for line in streams(int(sys.argv[1]), int(sys.argv[2])):
        sys.stdout.write(json.dumps(line, separators=(",", ":")) + "\n")
