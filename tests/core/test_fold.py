"""The reducer itself: replay, packed runs, gaps, what it skips and mends; and the smallest logs of what was
once wrong in it, each under the name of what it must do."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from build import (
    answer,
    applied,
    begin,
    boot,
    bot,
    call,
    chunk,
    cut_off,
    done,
    edit,
    finish,
    fold,
    history,
    numbered,
    owed,
    result,
    say,
    start,
    step,
    stop,
    tool,
    user,
    words,
)

from snapshotter.core.contract import describe, fold_case, fold_records
from snapshotter.core.fold import Fold
from snapshotter.core.revive import revive
from snapshotter.core.snapshot import encode
from streams.errors import Gap

ONE = [start(1, [1]), *answer("One."), done(1)]


def picture(whole: Fold) -> dict[str, Any]:
    return describe(whole, revive(whole))


# -- replay ---------------------------------------------------------------------------------------------


def test_records_at_or_below_the_cursor_change_nothing() -> None:
    inputs, outs = numbered([say("u1"), say("u2")]), numbered(ONE)
    whole = fold_records(inputs, outs)
    before = deepcopy(picture(whole))
    for record in [*outs, *reversed(outs)]:
        assert whole.apply(record) is False
    for record in reversed(inputs):
        whole.feed(record)
    assert picture(whole) == before


def test_records_may_come_in_any_order_to_the_contract() -> None:
    inputs, outs = numbered([say("u1"), say("u2")]), numbered(ONE)
    assert fold_case(inputs[::-1], outs[::-1]) == fold_case(inputs, outs)


PACKED = {"chunk": {"type": "text-delta", "id": "t", "delta": "Hello"}, "cuts": [3, 3, 5]}


def test_a_packed_run_covers_its_ids_and_says_what_its_deltas_say() -> None:
    head = numbered([start(1, [1]), begin(), step(), chunk("text-start", id="t")])
    run = {"id": 5, "ts": 1, **PACKED}
    singles = numbered([chunk("text-delta", id="t", delta=d) for d in ("Hel", "", "lo")], 5)
    tail = numbered([chunk("text-end", id="t")], 8)
    inputs = numbered([say("u1")])
    want = picture(fold_records(inputs, [*head, *singles, *tail]))
    assert picture(fold_records(inputs, [*head, run, *tail])) == want
    for seen in range(4):
        whole = fold_records(inputs, [*head, *singles[:seen]])
        assert whole.apply(run) is (seen < 3)
        assert whole.cursor == 7
        whole.apply(tail[0])
        assert picture(whole) == want


def test_a_packed_tool_input_goes_on_from_its_middle() -> None:
    outs = numbered([start(1, [1]), begin(), chunk("tool-input-start", toolCallId="c", toolName="run")])
    outs += numbered([chunk("tool-input-delta", toolCallId="c", inputTextDelta='{"a":')], 4)
    whole = fold_records(numbered([say("u1")]), outs)
    run = {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": '{"a":1}'}
    whole.apply({"id": 4, "ts": 1, "chunk": run, "cuts": [5, 7]})
    assert whole.open is not None
    assert whole.open.current()["parts"][0]["input"] == {"a": 1}


@pytest.mark.parametrize("first", [2, 5])
def test_a_missing_record_is_a_gap_that_names_the_range(first: int) -> None:
    with pytest.raises(Gap) as caught:
        Fold().apply({"id": first, "ts": 1, "control": "heartbeat"})
    assert (caught.value.log, caught.value.missing) == ("out", (1, first - 1))


def test_a_gap_changes_nothing_so_that_the_reader_can_go_on() -> None:
    whole = fold([say("u1")], [start(1, [1]), begin(), step(), *cut_off("Hel")])
    before = deepcopy(picture(whole))
    record = {"id": 6, "ts": 1, **start(2, [2])}
    with pytest.raises(Gap, match="input 2 is named"):
        whole.apply(record)
    assert picture(whole) == before
    whole.feed({"id": 2, "ts": 1, **say("u2")})
    assert whole.apply(record)


# -- what is not understood, or makes no sense ----------------------------------------------------------


@pytest.mark.parametrize(
    "record", [{"control": "tomorrow", "x": 1}, {}, {"control": None}, {"control": ["x"]}]
)
def test_an_unknown_control_is_skipped_and_reported(record: dict[str, Any]) -> None:
    seen = boot([say("u1")], [*ONE, record, {"control": "state", "set": {"a": 1}}])
    assert (seen["state"], seen["codes"][-1]) == ({"a": 1}, "unknown-control")


@pytest.mark.parametrize("bad", [5, None, "text", [], {"type": 5}, {"type": "from-tomorrow"}, {"id": "t"}])
def test_an_unknown_chunk_is_skipped_and_reported(bad: Any) -> None:
    outs = [start(1, [1]), begin(), step(), *words("One."), {"chunk": bad}, done(1)]
    assert boot([say("u1")], outs)["messages"][1] == bot("a1", "One.")


def test_a_heartbeat_changes_nothing() -> None:
    outs = [start(1, [1]), begin(), step(), *words("One."), finish()]
    plain, beaten = boot([say("u1")], outs), boot([say("u1")], [*outs, {"control": "heartbeat"}])
    assert beaten | {"cursor": plain["cursor"]} == plain


@pytest.mark.parametrize(
    "bad",
    [
        {
            "control": "turn-start",
            "turn": "2",
            "inputs": 7,
            "epoch": None,
            "seen": [],
            "mode": 3,
            "messageId": {},
        },
        {"control": "turn-complete", "turn": [1], "status": {}},
        {"control": "state", "set": 5, "unset": {"a": 1}},
        {"control": "state", "unset": [["a"], 5]},
        {"control": "history", "op": "put", "message": "x"},
        {"control": "history", "op": {"put": 1}, "messageId": ["u1"]},
        {"control": "history", "op": "replace", "messages": {"a": 1}},
        {"control": "context", "upto": ["a1"], "messages": 5},
        {"control": "input-applied", "inputs": "12"},
        {"control": "input-applied", "inputs": [None, "1", True, -1, 0]},
        {"control": "fence", "why": 5, "epoch": "9", "for": True},
        {"control": "turn-release", "turn": {}, "why": 5},
    ],
)
def test_a_control_of_a_wrong_shape_degrades_with_a_report(bad: dict[str, Any]) -> None:
    for head in (ONE, ONE[:-1]):
        whole = fold([say("u1"), say("u2")], [*head, bad])
        revive(whole)
        encode(whole, "n", 0)
        assert whole.cursor == len(head) + 1


def test_what_was_mended_is_said() -> None:
    seen = boot([say("u1")], [{**start(1, [1]), "seen": "1"}])
    assert seen["codes"] == ["mended-control"]
    assert boot([say("u1")], [{**start(1, [1]), "cause": None}])["codes"] == []


def test_the_report_is_bounded() -> None:
    whole = fold([], [{"control": "tomorrow"}] * 1_005)
    assert (len(whole.report), whole.reported) == (1_000, 1_005)


# -- pure -----------------------------------------------------------------------------------------------


def test_revive_changes_neither_the_fold_nor_a_message() -> None:
    inputs = [say("u1"), result("c1"), say("u3"), stop("u3"), edit("u1", "u9")]
    outs = [
        start(1, [1], clientTools=["run"]),
        begin(),
        step(),
        *cut_off("Hel"),
        call("c1"),
        call("c2", "own"),
    ]
    whole = fold(inputs, outs)
    before, first = encode(whole, "n", 0), picture(whole)
    frozen = deepcopy(first)
    assert (picture(whole), encode(whole, "n", 0), first) == (frozen, before, frozen)


def test_messages_that_were_handed_out_stay_as_they_were() -> None:
    whole = fold([say("u1"), result("c1")], [start(1, [1]), begin(), step(), *cut_off("Hel"), call("c1")])
    plan = revive(whole)
    handed, frozen = plan.messages, deepcopy(plan.messages)
    later = [
        chunk("text-delta", id="t", delta="lo"),
        chunk("tool-output-available", toolCallId="c1", output=1),
    ]
    later += [done(1, "error"), history("put", message=user("u1", "other")), applied(2), history("clear")]
    for record in numbered(later, 7):
        whole.apply(record)
    assert handed == frozen


# -- once wrong -----------------------------------------------------------------------------------------


def test_the_place_of_a_continued_message_does_not_hang_on_object_identity() -> None:
    """A live worker handed the very objects of the chain back; a replay has equal ones."""
    inputs = numbered([say("u1"), result("c1")])
    head = [start(1, [1]), begin(), step(), call("c1"), finish(), done(1)]
    head += [start(2, [2], mode="continue", messageId="a1"), begin("a1"), step(), *words("So.")]
    live, replayed = fold_records(inputs, numbered(head)), fold_records(inputs, numbered(head))
    operation = {
        "id": 13,
        "ts": 1,
        "control": "history",
        "op": "replace",
        "messages": live.chain.messages[:1],
    }
    live.apply(operation)
    replayed.apply(deepcopy(operation))
    assert picture(live) == picture(replayed)
    assert [m["id"] for m in picture(live)["messages"]] == ["u1", "a1"]


def test_a_continued_message_that_cleanup_empties_is_no_target() -> None:
    """A completed turn left a call whose input had only begun; a later turn continued that message."""
    half = chunk("tool-input-start", toolCallId="c1", toolName="run")
    outs = [start(1, [1]), begin(), step(), half, done(1), start(2, [2], mode="continue", messageId="a1")]
    seen = boot([say("u1"), result("c1"), result("c1", 5, messageId="a1")], outs)
    assert [m["id"] for m in seen["messages"]] == ["u1", "a1"]
    emptied = boot([say("u1"), result("c9"), result("c1", 5, messageId="a1")], outs)
    assert [m["id"] for m in emptied["messages"]] == ["u1"]
    assert emptied["spent"] == [3]


def test_an_edit_of_the_open_turns_input_goes_before_older_messages() -> None:
    outs = [start(1, [1]), begin(), step(), *cut_off("Hel")]
    assert owed(boot([say("u1"), say("u2"), edit("u1", "u3")], outs)) == [([3], "edit"), ([2], "message")]


def test_an_old_input_named_again_is_the_same_with_and_without_a_snapshot() -> None:
    inputs = numbered([say("u1"), say("u2")])
    head, tail = [*ONE, history("clear")], [start(2, [1, 2]), *answer("Two."), done(2)]
    whole = fold_records(inputs, numbered([*head, *tail]))
    document = {
        "version": 1,
        "lastOutEventId": str(len(head)),
        "lastInEventId": "1",
        "turn": 1,
        "epoch": 1,
        "run": "r",
    }
    restored = fold_records(inputs, numbered([*head, *tail]), document)
    assert restored.chain.messages == whole.chain.messages == [user("u2"), bot("a2", "Two.")]


def test_a_claim_ends_with_the_turn_that_its_worker_seals() -> None:
    """Else a fold from the snapshot behind that seal would hold no claim where the whole log holds one."""
    claim = {"control": "fence", "why": "boot", "epoch": 2, "run": "r2"}
    assert fold([say("u1")], [*ONE, claim]).claim is not None
    assert fold([say("u1")], [*ONE[:-1], claim, done(1)]).claim is None
    assert fold([say("u1")], [*ONE, claim, {"control": "turn-release", "why": "error"}]).claim is None


def test_a_late_result_that_is_broken_settles_nothing() -> None:
    broken = chunk("tool-output-error", toolCallId="c1", errorText={"not": "text"})
    outs = [
        start(1, [1]),
        begin(),
        step(),
        call("c1"),
        finish(),
        done(1),
        start(2, [], mode="action"),
        broken,
    ]
    seen = boot([say("u1")], outs)
    assert (seen["messages"][1], seen["codes"]) == (bot("a1", tool("c1")), ["bad-chunk"])
