"""What must hold of the stored bytes, whatever happened. Reads JSON lines by itself: neither the codec
nor the fold is asked.

    acknowledged is durable   each acknowledged input, result and completed turn is in the logs
    one writer                ids of both logs have no hole, out is a chain, epochs never fall
    nothing stranded          each message is answered by a turn that completed
    nothing twice             by one such turn only, and stands in the history once
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from crash_agent import SESSION, Ledger, check_results, text_of

from snapshotter.database import Database
from streams.buckets.base import Bucket
from streams.buckets.memory import MemoryBucket, Space

Record = dict[str, Any]


def objects(bucket: Bucket, prefix: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    after, more = "", True
    while more:
        page = bucket.list(prefix, after=after)
        for entry in page.entries:
            blob = bucket.get(entry.key)
            assert blob is not None
            found[entry.key] = blob.data
        after, more = page.resume, page.more
    return found


def records_of(bucket: Bucket, log: str) -> tuple[list[Record], list[Record]]:
    """(headers, records) of a log, oldest first; asserts that it is one chain without a hole."""
    headers, records = [], []
    segments = [data.decode().split("\n") for data in objects(bucket, f"{log}/").values()]
    expect, nonce = 1, None
    for head, *lines in sorted(segments, key=lambda lines: json.loads(lines[0])["first"]):
        header = json.loads(head)
        headers.append(header)
        assert header["first"] == expect, f"{log}: a segment begins at {header['first']}, due is {expect}"
        assert header.get("prev") == (nonce if log == "out" else None)
        for line in filter(None, lines):
            record = json.loads(line)
            assert record["id"] == expect
            expect += len(record.get("cuts", "1"))
            records.append(record)
        assert header["last"] == expect - 1
        nonce = header["nonce"]
    return headers, records


def check_out(
    records: list[Record], headers: list[Record]
) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """One writer, one turn at a time.

    Returns, by turn, the inputs that were answered, and those of interrupted turns. The inputs of one that is
    carried on in a turn of mode continue are that turn's."""
    epochs = [header["epoch"] for header in headers]
    assert epochs == sorted(epochs), f"an older worker wrote behind a newer one: {epochs}"
    open_turn: int | None = None
    attempt, took = 0, list[int]()
    answered: dict[int, list[int]] = {}
    interrupted: dict[int, list[int]] = {}
    names: dict[str, int] = {}
    for record in records:
        control = record.get("control")
        if control == "turn-start":
            if record["turn"] == open_turn:
                assert record["attempt"] == attempt + 1
                assert set(record["inputs"]) <= set(took)
            else:
                assert open_turn is None
                assert record["attempt"] == 1
                took = record["inputs"]
                if record["mode"] == "continue":
                    took = sorted({*took, *interrupted.pop(names.get(record["messageId"], 0), [])})
            open_turn, attempt = record["turn"], record["attempt"]
            names[record["messageId"]] = open_turn
        elif control == "turn-complete":
            assert record["turn"] == open_turn
            if record["status"] == "interrupted":
                interrupted[record["turn"]] = took
            else:
                answered[record["turn"]] = took
            open_turn = None
        elif "chunk" in record:
            assert open_turn is not None, f"a chunk of no turn: {record}"
    assert open_turn is None, "a turn was left open"
    return answered, interrupted


def check_all(bucket: Bucket, ledger: Ledger) -> list[Record]:
    """Everything, after the script came to its end. Returns the history."""
    _, inputs = records_of(bucket, "in")
    headers, outs = records_of(bucket, "out")
    answered, _ = check_out(outs, headers)
    for number, name in ledger.inputs.items():
        found = inputs[number - 1]
        assert name in (found.get("key"), found.get("message", {}).get("id"))
    for turn, status in ledger.completed.items():
        assert any(
            r.get("control") == "turn-complete" and (r["turn"], r["status"]) == (turn, status) for r in outs
        ), f"turn {turn} was acknowledged as {status}"
    times = Counter(number for took in answered.values() for number in took)
    applied = Counter(number for r in outs if r.get("control") == "input-applied" for number in r["inputs"])
    firsts: set[str] = set()
    for record in inputs:
        name = record.get("key") or record["message"]["id"]
        if name in firsts:
            continue
        firsts.add(name)
        assert times[record["id"]] == 1 or (name == "approval" and applied[record["id"]]), f"{name}: {times}"
    history = Database(bucket).history(SESSION)
    check_history(history, ledger)
    return history


def check_history(history: list[Record], ledger: Ledger) -> None:
    assert [m["id"] for m in history if m["role"] == "user"] == ["u1", "u2"]
    assert [m["role"] for m in history] == ["user", "assistant"] * 2
    for message_id, text in ledger.texts.items():
        assert any(m["id"] == message_id and text in text_of(m) for m in history), (message_id, text)
    check_results(history, ledger.results)
    assert text_of(history[-1]) == "the second answer "
    first = text_of(history[1])
    assert first.endswith(("it is done ", "ask your bank whether it is done ")), first
    assert ledger.ran["charge"] <= 1, "the user was charged twice"
    if not ledger.ran["charge"]:
        assert "ask your bank" in first
    for part in (p for m in history for p in m["parts"]):
        assert part.get("state") not in ("streaming", "input-streaming", "input-available"), part


def check_journal(bucket: Bucket, session: str, sent: list[str], journal: list[list[Any]]) -> None:
    """Everything, after workers that answered with `crash_worker.answer` came to an end.

    `sent` are the ids of the messages, in order; `journal` is what the engine acknowledged."""
    headers, outs = records_of(bucket, "out")
    answered, overtaken = check_out(outs, headers)
    history = Database(bucket).history(session)
    assert [m["id"] for m in history if m["role"] == "user"] == sent
    assert [m["role"] for m in history] == ["user", "assistant"] * len(sent)
    # The message of a cut-off answer, whose sender went on, is answered with the one that followed.
    inputs = first_inputs(bucket)
    assert list(inputs) == sent
    whose = {inputs_of(took, inputs): turn for turn, took in (answered | overtaken).items()}
    times = Counter(inputs_of(took, inputs) for took in answered.values())
    assert set(times.values()) == {1}
    assert set(whose) == set(sent)
    assert sent[-1] in times
    texts = {whose[name]: text_of(history[2 * index + 1]) for index, name in enumerate(sent)}
    calls = [part for message in history for part in message["parts"] if "toolCallId" in part]
    last = {r["turn"]: r["attempt"] for r in outs if r.get("control") == "turn-start"}
    ends = {(r["turn"], r["status"]) for r in outs if r.get("control") == "turn-complete"}
    results = Counter(row[1] for row in journal if row[0] == "result")
    assert set(results.values()) <= {1}, "a tool ran again"
    for kind, *row in journal:
        if kind == "result":
            assert [p["output"] for p in calls if p["toolCallId"] == row[0]] == [row[1]], f"{row} is lost"
        elif kind == "done" and row[1] != "released":
            assert tuple(row) in ends, f"{row} was acknowledged"
        elif kind == "text" and last[row[0]] == row[1] and row[0] in texts:
            assert row[2] in texts[row[0]], f"{row} was acknowledged"


def first_inputs(bucket: Bucket) -> dict[str, int]:
    """Message id → in id, of the first record of each message."""
    found: dict[str, int] = {}
    for record in records_of(bucket, "in")[1]:
        found.setdefault(record["message"]["id"], record["id"])
    return found


def inputs_of(took: list[int], inputs: dict[str, int]) -> str:
    """The message that a turn took: exactly one."""
    (name,) = [name for name, number in inputs.items() if number in took]
    return name


def snapshot_cursors(bucket: Bucket) -> list[int]:
    """The out cursor of the stored snapshot, if there is one."""
    return [int(json.loads(data)["lastOutEventId"]) for data in objects(bucket, "sessions/").values() if data]


def plain(space: Space) -> MemoryBucket:
    """The store as it is, without faults."""
    return MemoryBucket(space=space)
