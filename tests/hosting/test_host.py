"""A chat host: overlapping requests, aborts, answers to tools, clears."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from chat_samples import SID, ask, call, saying, shape, text, user, write_all

from snapshotter import Conflict, Database
from snapshotter.hosting import ChatHost, Debounce, Signal, Submitted, until_aborted
from snapshotter.turn import Turn
from streams.buckets.memory import MemoryBucket
from streams.testing import FakeClock

WAIT = 30  # seconds until a test gives up on a thread


class Model:
    """A model whose answers a test holds back. `started` counts; `release` lets them through."""

    def __init__(self) -> None:
        self.started = threading.Semaphore(0)
        self.gate = threading.Event()
        self.turns: list[tuple[str, list[int]]] = []
        self.fails: list[Exception] = []

    def __call__(self, turn: Turn, signal: Signal) -> None:
        self.turns.append((turn.kind, [record["id"] for record in turn.inputs]))
        self.started.release()
        assert self.gate.wait(WAIT)
        if self.fails:
            raise self.fails.pop()
        for chunk in until_aborted(saying(f"answer {len(self.turns)}"), signal):
            turn.write(chunk)


class Requests:
    """Submits, each in a thread of its own."""

    def __init__(self, host: ChatHost) -> None:
        self.host = host
        self.found: dict[str, Submitted | Exception] = {}
        self.threads: list[threading.Thread] = []

    def submit(self, name: str, **options: Any) -> None:
        def run() -> None:
            try:
                self.found[name] = self.host.submit(SID, user(name), **options)
            except Exception as error:
                self.found[name] = error

        self.threads.append(threading.Thread(target=run))
        self.threads[-1].start()

    def join(self) -> dict[str, str]:
        for thread in self.threads:
            thread.join(WAIT)
        return {
            name: found.status if isinstance(found, Submitted) else repr(found)
            for name, found in self.found.items()
        }


class Hanging:
    """A model that begins, and then says nothing more until the test is over."""

    def __init__(self) -> None:
        self.silent, self.over = threading.Event(), threading.Event()

    def __call__(self, turn: Turn, signal: Signal) -> None:
        for _ in turn.tee(until_aborted(self.chunks(), signal)):
            pass

    def chunks(self) -> Iterator[Any]:
        yield {"type": "start"}
        yield from list(text("so far"))[:2]
        self.silent.set()
        self.over.wait()


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    model = Hanging()
    yield model
    model.over.set()


def test_a_cancel_frees_the_queue_of_a_model_that_hangs(hanging: Hanging) -> None:
    clock = FakeClock()
    host = ChatHost(Database(MemoryBucket(clock), clock), hanging)
    requests = Requests(host)
    requests.submit("u1")
    assert hanging.silent.wait(WAIT)
    assert host.cancel(SID, "enough") is True
    assert requests.join() == {"u1": "answered"}
    found = requests.found["u1"]
    assert isinstance(found, Submitted)
    assert found.outcome is not None
    assert (found.outcome.status, found.outcome.reason) == ("aborted", "enough")
    assert found.outcome == host.db.outcome(SID)
    assert host.wait_for_idle(SID, 0)


def test_go_on_takes_up_what_the_process_before_left(model: Model, host: ChatHost) -> None:
    model.gate.set()
    model.fails = [RuntimeError("down")]
    with pytest.raises(RuntimeError, match="down"):
        host.submit(SID, user("u1"))
    host.db.send(SID, user("u2"))
    next_process = ChatHost(host.db, model, boot={"stable_timeout": 60.0})
    next_process.go_on(SID)
    assert model.turns == [("message", [1]), ("call_model", [1]), ("message", [2])]
    assert host.db.peek(SID).pending == []


def test_a_stall_frees_the_queue_of_a_model_that_hangs(hanging: Hanging) -> None:
    clock = FakeClock()
    host = ChatHost(Database(MemoryBucket(clock), clock), hanging)
    requests = Requests(host)
    requests.submit("u1")
    assert hanging.silent.wait(WAIT)
    while not requests.found:
        clock.advance(10.0)
    assert "Stalled" in requests.join()["u1"]
    assert host.wait_for_idle(SID, 0)
    assert host.db.peek(SID).incident.error is not None


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def host(model: Model) -> Iterator[ChatHost]:
    clock = FakeClock()
    found = ChatHost(Database(MemoryBucket(clock), clock), model)
    yield found
    model.gate.set()
    assert found.wait_for_idle(SID, None)


def until(condition: Callable[[], bool]) -> None:
    """Wait until something holds that another thread brings about."""
    for _ in range(WAIT * 500):
        if condition():
            return
        threading.Event().wait(0.002)
    raise AssertionError("it never came to that")


def sent(host: ChatHost, count: int) -> None:
    until(lambda: host.db.load(SID).fold.inputs.last == count)


def overlap(host: ChatHost, model: Model, policy: Any, names: str = "bcd") -> dict[str, str]:
    """One request under way, and others that come meanwhile, one after another."""
    requests = Requests(host)
    requests.submit("a")
    assert model.started.acquire(timeout=WAIT)
    for number, name in enumerate(names):
        requests.submit(name, policy=policy)
        if policy != "drop":
            sent(host, number + 2)
            until(lambda wanted=number + 2: host._desk(SID).queue.count() == wanted)  # type: ignore[misc]
    model.gate.set()
    return requests.join()


def shown(host: ChatHost) -> list[str]:
    return [m["id"] if m["role"] == "user" else m["parts"][-1]["text"] for m in host.db.history(SID)]


def test_one_request_is_answered(host: ChatHost, model: Model) -> None:
    model.gate.set()
    found = host.submit(SID, "hello")
    assert found.status == "answered"
    assert found.receipt is not None
    assert shape(host.db.history(SID)) == [("user", ["hello"]), ("assistant", ["step-start:", "answer 1"])]
    assert len(host.aborts) == 0


def test_queue_answers_each_in_its_turn(host: ChatHost, model: Model) -> None:
    assert overlap(host, model, "queue") == dict.fromkeys("abcd", "answered")
    assert [inputs for _, inputs in model.turns] == [[1], [2], [3], [4]]


def test_merge_answers_the_rest_together(host: ChatHost, model: Model) -> None:
    found = overlap(host, model, "merge")
    assert found == {"a": "answered", "b": "superseded", "c": "superseded", "d": "answered"}
    assert [inputs for _, inputs in model.turns] == [[1], [2, 3, 4]]
    assert shown(host) == ["a", "answer 1", "b", "c", "d", "answer 2"]


def test_latest_answers_the_newest_and_keeps_what_it_supersedes(host: ChatHost, model: Model) -> None:
    found = overlap(host, model, "latest")
    assert found == {"a": "answered", "b": "superseded", "c": "superseded", "d": "answered"}
    assert [inputs for _, inputs in model.turns] == [[1], [4]]
    assert shown(host) == ["a", "answer 1", "b", "c", "d", "answer 2"]


def test_drop_stores_nothing(host: ChatHost, model: Model) -> None:
    found = overlap(host, model, "drop", "b")
    assert found == {"a": "answered", "b": "dropped"}
    assert shown(host) == ["a", "answer 1"]
    assert host.submit(SID, user("c"), policy="drop").status == "answered"


def test_debounce_waits_until_nobody_sends_any_more(host: ChatHost, model: Model) -> None:
    requests = Requests(host)
    requests.submit("a")
    assert model.started.acquire(timeout=WAIT)
    requests.submit("b", policy=Debounce(1000))
    sent(host, 2)
    requests.submit("c", policy=Debounce(1000))
    until(lambda: "b" in requests.found)  # the later one stands for it: it waits no longer
    model.gate.set()
    until(lambda: "a" in requests.found)
    assert "c" not in requests.found
    assert model.turns == [("message", [1])]
    host.db.clock.advance(1.5)  # type: ignore[attr-defined]
    assert requests.join() == {"a": "answered", "b": "superseded", "c": "answered"}
    assert shown(host) == ["a", "answer 1", "b", "c", "answer 2"]


@pytest.mark.parametrize("policy", ["latest", "merge", Debounce(1000)])
def test_a_submit_that_is_refused_supersedes_nobody(host: ChatHost, model: Model, policy: Any) -> None:
    requests = Requests(host)
    requests.submit("a")
    assert model.started.acquire(timeout=WAIT)
    requests.submit("b", policy=policy)
    sent(host, 2)
    with pytest.raises(Conflict):
        host.submit(SID, user("b", "another body"), policy=policy)
    model.gate.set()
    until(lambda: "a" in requests.found)
    host.db.clock.advance(1.5)  # type: ignore[attr-defined]
    assert requests.join() == {"a": "answered", "b": "answered"}
    assert shown(host) == ["a", "answer 1", "b", "answer 2"]


def test_a_submit_that_repeats_an_older_one_supersedes_nobody(host: ChatHost, model: Model) -> None:
    requests = Requests(host)
    requests.submit("a")
    assert model.started.acquire(timeout=WAIT)
    requests.submit("b", policy="latest")
    sent(host, 2)
    until(lambda: host._desk(SID).queue.count() == 2)
    again = Requests(host)
    again.submit("a", policy="latest")
    until(lambda: host._desk(SID).queue.count() == 3)
    model.gate.set()
    assert requests.join() == {"a": "answered", "b": "answered"}
    assert again.join() == {"a": "answered"}
    assert [inputs for _, inputs in model.turns] == [[1], [2]]


def test_what_an_answer_raises_is_its_callers_and_the_next_one_takes_it_up(
    host: ChatHost, model: Model
) -> None:
    model.gate.set()
    model.fails.append(ValueError("model"))
    with pytest.raises(ValueError, match="model"):
        host.submit(SID, user("a"))
    host.db.clock.advance(600)  # type: ignore[attr-defined]
    assert host.submit(SID, user("b")).status == "answered"
    assert [kind for kind, _ in model.turns] == ["message", "call_model", "message"]
    assert host.db.peek(SID).pending == []


def test_an_outside_signal_aborts_the_answer(host: ChatHost, model: Model) -> None:
    requests, outside = Requests(host), Signal()
    requests.submit("a", signal=outside)
    assert model.started.acquire(timeout=WAIT)
    outside.abort("the tab was closed")
    model.gate.set()
    assert requests.join() == {"a": "answered"}
    found = host.db.outcome(SID)
    assert found is not None
    assert (found.status, found.reason) == ("aborted", "the tab was closed")
    assert outside.listeners() == 0


def test_a_clear_makes_what_is_queued_stale(host: ChatHost, model: Model) -> None:
    requests = Requests(host)
    requests.submit("a")
    assert model.started.acquire(timeout=WAIT)
    requests.submit("b")
    sent(host, 2)
    until(lambda: host._desk(SID).queue.count() == 2)
    clearing = threading.Thread(target=host.clear, args=(SID,))
    clearing.start()
    until(lambda: bool(host._desk(SID).running) and host.aborts.signal(str(host._desk(SID).running)).aborted)
    model.gate.set()
    clearing.join(WAIT)
    assert requests.join() == {"a": "answered", "b": "stale"}
    assert shown(host) == []
    assert host.db.peek(SID).pending == []


def test_parallel_answers_to_tools_go_on_once() -> None:
    clock = FakeClock()
    rounds: list[str] = []
    went_on = threading.Event()

    def answer(turn: Turn, _signal: Signal) -> None:
        rounds.append(turn.kind)
        if turn.kind == "message":
            write_all(turn, [{"type": "start"}, {"type": "start-step"}])
            write_all(turn, [call("c1"), ask("c1", "p1"), call("c2"), ask("c2", "p2")])
        else:
            write_all(turn, text("all done"))
            went_on.set()

    host = ChatHost(Database(MemoryBucket(clock), clock), answer)
    host.submit(SID, user("a"))
    assert not host.is_complete(SID)
    host.approve(SID, "p1")
    clock.advance(1)
    until(lambda: not host._desk(SID).continuations.armed)
    assert rounds == ["message"]
    threads = [threading.Thread(target=host.approve, args=(SID, "p2")) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    clock.advance(1)
    assert went_on.wait(WAIT)
    until(lambda: not host._desk(SID).continuations.armed)
    assert rounds == ["message", "tool-answers"]
    assert host.db.history(SID)[-1]["parts"][-1]["text"] == "all done"
