"""A worker and its fake model, which quotes whom it answers: see `checker`, *Tokens*.

What the model does follows from the messages that it is shown, as with a real one. A user message's text is
`token flavour words`:

    say       it answers with so many words
    tool      it runs a tool of the server's first, and again if it sees no result of it
    ask       it asks for an approval, and runs a tool once when that is granted
    client    it calls a tool that the client runs, and goes on when the result is there
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from plan import Fate

from snapshotter.database import Database
from snapshotter.errors import Deadline
from snapshotter.session import Session
from snapshotter.signals import Terminated
from snapshotter.turn import Turn
from streams.errors import Busy, Fenced, Retryable, StreamError

Chunk = dict[str, Any]
Message = dict[str, Any]
Tell = Callable[..., None]
CLIENT_TOOL = "browse"


class ModelFault(Exception):
    """The model's provider is down."""


def question_of(turn: Turn) -> Message:
    """The user message that this turn answers: the one before the answer, where that stands already."""
    asked: Message = {}
    for message in turn.messages:
        if message["role"] == "user" and not (message.get("metadata") or {}).get("snapshotter"):
            asked = message
        elif message["id"] == turn.message_id:
            break
    return asked


class Answering:
    """One model call: what it streams, and what of it the engine has acknowledged."""

    def __init__(self, turn: Turn, answer: str, tell: Tell, run_tool: Callable[[str], Any]) -> None:
        asked = question_of(turn)
        self.turn = turn
        self.question = str(asked.get("id", "nobody"))
        self.answer = answer
        self.words: list[str] = []
        self.runs: dict[str, str] = {}
        self.fin: str | None = None
        self._tell = tell
        self._run_tool = run_tool
        text = "".join(part.get("text", "") for part in asked.get("parts", []))
        _, self.flavour, length = (*text.split(), "say", "1")[:3] if text else ("", "say", "1")
        self.length = int(length)
        # What an earlier attempt left of this answer.
        self.before = [p for m in turn.messages if m["id"] == turn.message_id for p in m.get("parts", [])]

    def chunks(self) -> Iterator[Chunk]:
        yield {"type": "start"}
        yield {"type": "start-step"}
        ended = f"{self.question}~"
        for part in self.before:
            if part["type"] == "text" and part["text"].rstrip().endswith(".fin") and ended in part["text"]:
                yield from self._finish("stop")  # it has been said whole
                return
        if self.flavour == "tool":
            yield from self._server_tool()
        elif self.flavour == "ask" and (yield from self._asks()):
            return
        elif self.flavour == "client" and (yield from self._client_tool()):
            return
        yield from self._say(self.length, fin=True)
        yield from self._finish("stop")

    def _say(self, count: int, *, fin: bool = False) -> Iterator[Chunk]:
        yield {"type": "text-start", "id": "t"}
        said = [str(len(self.words) + n) for n in range(count)] + ["fin"] * fin
        for number in said:
            word = f"{self.question}~{self.answer}.{number}"
            self.words.append(word)
            if number == "fin":
                self.fin = word
            yield {"type": "text-delta", "id": "t", "delta": f"{word} "}
        yield {"type": "text-end", "id": "t"}

    def _finish(self, reason: str) -> Iterator[Chunk]:
        yield {"type": "finish-step"}
        yield {"type": "finish", "finishReason": reason}

    def _parts(self, tool: str) -> list[Chunk]:
        return [part for part in self.before if part["type"] == f"tool-{tool}"]

    def _call(self, tool: str) -> Chunk:
        call = f"{self.answer}-{tool}"
        return {"type": "tool-input-available", "toolCallId": call, "toolName": tool, "input": {"n": 1}}

    def _run(self, tool: str, call: str) -> Chunk:
        output = self._run_tool(f"{self.question}/{tool}")
        self.runs[f"{self.question}/{tool}"] = output["run"]
        return {"type": "tool-output-available", "toolCallId": call, "output": output}

    def _next_step(self) -> Iterator[Chunk]:
        yield {"type": "finish-step"}
        yield {"type": "start-step"}

    def _server_tool(self) -> Iterator[Chunk]:
        if not any(part["state"] == "output-available" for part in self._parts("lookup")):
            yield from self._say(1)
            call = self._call("lookup")
            yield call
            yield self._run("lookup", call["toolCallId"])
            yield from self._next_step()

    def _asks(self) -> Iterator[Chunk]:
        """True where it waits for a person."""
        paid = [part for part in self._parts("oncepay") if "approval" in part or "output" in part]
        state = paid[-1]["state"] if paid else None
        if state == "approval-responded" and paid[-1]["approval"].get("approved"):
            yield self._run("oncepay", paid[-1]["toolCallId"])
            yield from self._next_step()
        if state is not None and state != "approval-requested":
            return False
        yield from self._say(1)
        call = self._call("oncepay")
        yield call
        yield {
            "type": "tool-approval-request",
            "toolCallId": call["toolCallId"],
            "approvalId": f"{self.answer}-approval",
        }
        yield from self._finish("tool-calls")
        return True

    def _client_tool(self) -> Iterator[Chunk]:
        """True where it waits for the client."""
        calls = self._parts(CLIENT_TOOL)
        if calls and calls[-1]["state"].startswith("output"):
            return False
        yield from self._say(1)
        yield self._call(CLIENT_TOOL)
        yield from self._finish("tool-calls")
        return True

    def acknowledged(self) -> None:
        """All that was written so far is durable."""
        turn = self.turn
        self._tell(
            "durable",
            question=self.question,
            words=list(self.words),
            runs=dict(self.runs),
            id=turn.durable_id,
        )


class Worker:
    """One worker's life: boot, answer all that is owed, tell the journal. `acknowledged` is true when its
    queue message need not be delivered again."""

    def __init__(
        self, db: Database, session: str, name: str, tell: Tell, fate: Fate | None, pace: float
    ) -> None:
        self.db = db
        self.session = session
        self.name = name
        self.fate = fate
        self.pace = pace
        self.acknowledged = False
        self._answers = 0
        self._chunks = 0
        self._tell = lambda what, **fields: tell(name, what, session=session, **fields)
        self._dice = random.Random(f"worker {name}")

    def run(self, *, wait: float = 0.0, **options: Any) -> None:
        how = "error"
        try:
            since = self.db.clock.world.now  # type: ignore[attr-defined]
            with self.db.boot(self.session, client_tools=[CLIENT_TOOL], **options) as session:
                whole, start = not session.fold.chain.partial, session.fold.chain.window_start()
                tail = [message["id"] for message in session.messages[start:]]
                self._tell("booted", since=since, messages=session.messages, whole=whole, tail=tail)
                self._loop(session, wait)
            self.acknowledged, how = True, "ok"
        except Busy:
            how = "busy"
            self._tell("busy")
        except Fenced:
            how = "fenced"
            self._tell("fenced")
        except Deadline:
            how = "deadline"
        except Retryable as error:
            how = type(error).__name__
            self._tell("error", type=how, typed=True)
        except StreamError as error:
            self._tell("error", type=type(error).__name__, typed=True, detail=str(error))
            self.acknowledged = True  # a dead letter
        except ModelFault:
            how = "error"
        except Terminated:
            how = "signal"
        except Exception as error:  # the judge says what it thinks of it
            self._tell("error", type=type(error).__name__, typed=False, detail=repr(error))
        self._tell("left", how=how)

    def _turns(self, session: Session, wait: float) -> Iterator[Turn]:
        return session.turns(wait=wait)

    def _loop(self, session: Session, wait: float) -> None:
        for turn in self._turns(session, wait):
            inputs = [record["id"] for record in turn.inputs]
            if turn.kind == "action":
                with turn:
                    turn.set_state({"acted": inputs})
                self._tell("acted", inputs=inputs)
                continue
            self._answers += 1
            answer = f"{self.name}a{self._answers}"
            answering = Answering(turn, answer, self._tell, self._run_tool)
            attempt = turn.attempt
            with turn:
                self._stream(turn, answering, inputs)
            fin = answering.fin if turn.status == "completed" else None
            self._tell(
                "turn-ended",
                turn=turn.number,
                attempt=attempt,
                status=turn.status,
                inputs=inputs,
                question=answering.question,
                fin=fin,
            )

    def _stream(self, turn: Turn, answering: Answering, inputs: list[int]) -> None:
        self._tell(
            "model-call",
            turn=turn.number,
            attempt=turn.attempt,
            inputs=inputs,
            question=answering.question,
            answer=answering.answer,
        )
        for chunk in answering.chunks():
            self._suffer()
            self.db.clock.sleep(self.pace * self._dice.random())
            turn.write(chunk)
            if chunk["type"].startswith("tool-"):
                answering.acknowledged()
            elif chunk["type"] == "text-end" and self._dice.random() < 0.3:
                turn.flush()
                answering.acknowledged()
            if turn.stopped:
                break

    def _suffer(self) -> None:
        self._chunks += 1
        if self.fate is None or self._chunks != self.fate.number:
            return
        if self.fate.kind == "raise":
            raise ModelFault("the provider is down")
        if self.fate.kind == "signal":
            raise Terminated

    def _run_tool(self, call: str) -> Any:
        run = f"{self.name}r{self._dice.getrandbits(32):08x}"
        self._tell("tool-run", call=call, run=run)
        self.db.clock.sleep(self._dice.choice((0.1, 1.0, 3.0, 20.0)) * self._dice.random())
        return {"run": run}
