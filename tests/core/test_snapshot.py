"""The snapshot document: what it says, what a reader refuses, and that a fold goes on from it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from build import (
    answer,
    applied,
    begin,
    bot,
    call,
    cut_off,
    done,
    finish,
    fold,
    numbered,
    say,
    start,
    step,
    stop,
    user,
)

from snapshotter.core.contract import describe, fold_case
from snapshotter.core.inputs import body_hash
from snapshotter.core.revive import revive
from snapshotter.core.snapshot import VERSION, decode, encode, restore
from streams.errors import Corrupt, NewerVersion

INPUTS = [say("u1"), say("u2"), stop("u0")]
OUTS = [start(1, [1]), *answer("One."), done(1, finishReason="stop"), applied(3)]


def test_the_document_field_by_field() -> None:
    document = json.loads(encode(fold(INPUTS, OUTS), "nonce", 99, session="s%2F1", first=8))
    assert list(document)[-1] == "crc"
    assert document == {
        "crc": document["crc"],
        "session": "s%2F1",
        "lastOutFirst": "8",
        "version": 1,
        "savedAt": 99,
        "messages": [user("u1"), bot("a1", "One.")],
        "lastOutEventId": "10",
        "lastOutNonce": "nonce",
        "lastOutTimestamp": 10_000,
        "lastInEventId": "1",
        "inApplied": [3],
        "keys": [[1, "u1", body_hash(say("u1"))]],
        "epoch": 1,
        "run": "r",
        "turn": 1,
        "lastTurn": {"turn": 1, "status": "completed", "finishReason": "stop", "messageId": "a1"},
        "unfinished": [],
        "state": {},
        "context": None,
        "closed": False,
        "deleted": False,
    }


def test_a_fold_goes_on_from_it() -> None:
    document = decode(encode(fold(INPUTS, OUTS), "n", 0))
    tail = [start(2, [2]), begin(), step(), *cut_off("Tw")]
    got = fold_case(numbered(INPUTS), numbered([*OUTS, *tail]), document)
    assert got == {**fold_case(numbered(INPUTS), numbered([*OUTS, *tail])), "report": []}
    assert got["resume"] == {"kind": "retry_response", "turn": 2, "attempt": 1, "messageId": "a2"}


def test_records_at_or_below_its_cursors_are_ignored() -> None:
    document = decode(encode(fold(INPUTS, OUTS), "n", 0))
    whole = fold(INPUTS, OUTS)
    for records in ([], numbered(INPUTS), numbered(INPUTS)[1:]):
        restored = restore(document)
        for record in records:
            restored.feed(record)
        for record in numbered(OUTS):
            assert not restored.apply(record)
        assert restored.chain.messages == whole.chain.messages
    assert describe(restored, revive(restored))["pending"] == describe(whole, revive(whole))["pending"]


def test_a_continue_seeds_from_its_messages() -> None:
    head = [start(1, [1]), begin(), step(), call("c1"), finish(), done(1)]
    inputs = [say("u1"), {"kind": "tool-result", "toolCallId": "c1", "output": 7}]
    document = decode(encode(fold(inputs, head), "n", 0))
    tail = [
        start(2, [2], mode="continue", messageId="a1"),
        begin("a1"),
        step(),
        *cut_off("So"),
        done(2, "error"),
    ]
    got = fold_case(numbered(inputs), numbered([*head, *tail]), document)
    assert got["messages"] == fold(inputs, [*head, *tail]).chain.messages
    assert [part["type"] for part in got["messages"][1]["parts"]] == [
        "step-start",
        "tool-run",
        "step-start",
        "text",
    ]


def test_fields_that_another_writer_left_out_count_as_empty() -> None:
    bare = restore({"version": 1})
    assert encode(bare, "n", 0) == encode(fold([], []), "n", 0)
    nulls = dict.fromkeys(("messages", "inApplied", "keys", "state", "epoch", "run", "turn", "unfinished"))
    assert encode(restore(decode(json.dumps({"version": 1, **nulls}).encode())), "n", 0) == encode(
        bare, "n", 0
    )


def test_messages_of_another_writer_may_lack_an_id() -> None:
    whole = restore(
        {"version": 1, "messages": [{"role": "user", "parts": []}, {"id": 5}, {"id": ["x"]}, user("u1")]}
    )
    whole.apply({"id": 1, "ts": 1, "control": "history", "op": "remove", "messageId": "u1"})
    assert len(whole.chain) == 3
    assert whole.chain.find("") is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"version":"1"}',
        b'{"version":1,"messages":{}}',
        b'{"version":1,"messages":[5]}',
        b'{"version":1,"inApplied":["1"]}',
        b'{"version":1,"keys":[[1,"k"]]}',
        b'{"version":1,"lastOutEventId":"-1"}',
        b'{"version":1,"lastInEventId":"x"}',
        b'{"version":1,"state":[]}',
        b'{"version":1,"lastTurn":"done"}',
    ],
)
def test_what_is_no_snapshot_is_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt, match=r"left as it is"):
        decode(data)


def test_a_newer_version_is_refused_by_both_names() -> None:
    with pytest.raises(NewerVersion, match=r"has version 2, this release reads up to 1") as caught:
        decode(b'{"version":2}', key="k")
    assert VERSION == 1
    assert "k" in str(caught.value)


def test_a_tombstone_says_deleted_and_holds_no_messages() -> None:
    whole: Any = fold(INPUTS, [*OUTS, {"control": "session-deleted"}])
    document = decode(encode(whole, "n", 0))
    assert (document["deleted"], document["closed"], document["messages"]) == (True, True, [])
    assert restore(document).deleted


def test_a_cursor_of_another_writer_moves_up_to_the_first_hole() -> None:
    document = {"version": 1, "lastInEventId": "3", "inApplied": [4, 5, 7]}
    got = fold_case([{"id": 6, **say("u6")}, {"id": 7, **say("u7")}], [], document)
    assert (got["cursor"]["in"], [item["ids"] for item in got["pending"]]) == (5, [[6]])
