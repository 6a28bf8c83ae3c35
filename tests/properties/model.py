"""The model of the simulated world: what a provider streams, from the plain to the wild."""

from __future__ import annotations

from typing import TYPE_CHECKING

from snapshotter.core.calls import calls_of

if TYPE_CHECKING:
    from drawn_session import Record, World

REASONS = ("stop", None, "tool-calls", "length", "content-filter", "error", "other")
CLIENT_TOOL = "where"


class Model:
    """Streams chunks: mostly valid ones, of every kind, in any order that a provider may come upon."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.texts: list[str] = []
        self.calls: list[str] = []
        self.asked: list[str] = []
        self.first = True

    def chunk(self) -> None:
        world = self.world
        if self.first:
            self.first = False
            self._start()
            return
        if world.steady:
            self._text()
            return
        world.pick(
            [self._text, self._call] * 2
            + [self._result, self._ask, self._step, self._stream, self._start, self._rare]
        )()

    def _start(self) -> None:
        world = self.world
        named = {} if world.often(2) else {"messageId": world.pick([world.fresh("m"), *self._known()])}
        meta = {} if world.often(3) else {"messageMetadata": {"n": world.names}}
        world.chunk({"type": "start", **named, **meta})
        world.chunk({"type": "start-step"})

    def _known(self) -> list[str]:
        return [m["id"] for m in self.world.fold.chain.messages][-2:]

    def _text(self) -> None:
        world = self.world
        kind = "text" if world.often(3) else "reasoning"
        ident = world.pick("xy")
        world.chunk({"type": f"{kind}-start", "id": ident})
        for _ in range(world.choose(3)):
            world.chunk({"type": f"{kind}-delta", "id": ident, "delta": world.fresh("w")})
        if world.steady or world.often(3):
            world.chunk({"type": f"{kind}-end", "id": ident})

    def _call_id(self) -> str:
        fresh = self.world.fresh("c")
        return str(self.world.pick([fresh, fresh, *self.calls[-1:]]))

    def _call(self) -> None:
        call, name = self._call_id(), self.world.pick(("srv", CLIENT_TOOL))
        self.calls.append(call)
        dynamic = {} if self.world.often(4) else {"dynamic": True}
        self.world.chunk(
            {"type": "tool-input-available", "toolCallId": call, "toolName": name, "input": {}, **dynamic}
        )

    def _stream(self) -> None:
        call = self._call_id()
        self.calls.append(call)
        self.world.chunk({"type": "tool-input-start", "toolCallId": call, "toolName": "srv"})
        for piece in ('{"a":', "[1,", "2]}")[: self.world.choose(4)]:
            self.world.chunk({"type": "tool-input-delta", "toolCallId": call, "inputTextDelta": piece})

    def _old_call(self) -> str:
        """A call of this attempt, or of anything that was shown before."""
        shown = [part["toolCallId"] for m in self._messages() for _, part in calls_of(m)]
        return str(self.world.pick([*self.calls[-2:], *shown[-2:], "nobody"]))

    def _messages(self) -> list[Record]:
        turn = self.world.fold.open
        assert turn is not None
        return [*self.world.fold.chain.messages, turn.current()]

    def _result(self) -> None:
        call, world = self._old_call(), self.world
        what = world.choose(6)
        if what == 5:
            world.chunk({"type": "tool-output-denied", "toolCallId": call})
        elif what == 4:
            world.chunk({"type": "tool-output-error", "toolCallId": call, "errorText": world.fresh("err ")})
        else:
            progress = {"preliminary": True} if what == 3 else {}
            output = world.fresh("out ")
            world.chunk({"type": "tool-output-available", "toolCallId": call, "output": output, **progress})

    def _ask(self) -> None:
        if not self.asked or self.world.often(2):
            approval = self.world.fresh("p")
            self.asked.append(approval)
            call = self._old_call()
            self.world.chunk({"type": "tool-approval-request", "toolCallId": call, "approvalId": approval})
        else:
            approved = self.world.often(2)
            approval = self.world.pick(self.asked)
            self.world.chunk({"type": "tool-approval-response", "approvalId": approval, "approved": approved})

    def _step(self) -> None:
        self.world.chunk({"type": "finish-step"})
        self.world.chunk({"type": "start-step"})

    def _rare(self) -> None:
        self.world.chunk(
            self.world.pick(
                (
                    {"type": "reset-step"},
                    {"type": "error", "errorText": "boom"},
                    {"type": "abort"},
                    {"type": "message-metadata", "messageMetadata": {"m": self.world.names}},
                    {"type": "data-note", "id": "d", "data": self.world.names},
                    {"type": "source-url", "sourceId": "s", "url": "https://example.org"},
                    {"type": "finish", "finishReason": self.world.pick(REASONS[2:])},
                )
            )
        )

    def finish(self) -> None:
        reason = "stop" if self.world.steady else self.world.pick(REASONS)
        self.world.chunk({"type": "finish-step"})
        self.world.chunk({"type": "finish"} | ({} if reason is None else {"finishReason": reason}))
