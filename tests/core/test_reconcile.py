"""A client's messages against the server's, and orphans merged into what is stored."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from build import INTERRUPTED

from snapshotter.core.reconcile import merge_orphan, news, reconcile, same, upsert_incoming_message

Part = dict[str, Any]


def text(value: str, **more: Any) -> Part:
    return {"type": "text", "text": value, **more}


def call(call_id: str, state: str = "input-available", name: str = "x", **more: Any) -> Part:
    return {"type": f"tool-{name}", "toolCallId": call_id, "state": state, "input": {}, **more}


def done(call_id: str, output: Any = 1, **more: Any) -> Part:
    return call(call_id, "output-available", output=output, **more)


def said(message_id: str, *parts: Part, **more: Any) -> dict[str, Any]:
    return {"id": message_id, "role": "assistant", "parts": list(parts), **more}


def asked(message_id: str, value: str = "hi") -> dict[str, Any]:
    return {"id": message_id, "role": "user", "parts": [text(value)]}


# -- ids ------------------------------------------------------------------------------------------------


def test_exact_ids_claim_first() -> None:
    stored = [said("s1", text("ok")), said("s2", text("ok"))]
    found = reconcile([said("c1", text("ok")), said("s1", text("ok"))], stored)
    assert [m["id"] for m in found] == ["s2", "s1"]


def test_same_contents_are_claimed_one_to_one_in_order() -> None:
    stored = [said("s1", text("ok")), said("s2", text("ok"))]
    found = reconcile([said(c, text("ok")) for c in ("c1", "c2", "c3")], stored)
    assert [m["id"] for m in found] == ["s1", "s2", "c3"]


def test_a_call_id_that_is_used_again_claims_no_other_call() -> None:
    stored = [said("s1", done("f:0", input={"q": 1}))]
    copy = said("c1", call("f:0", input={"q": 2}))
    assert reconcile([copy], stored) == [copy]
    assert reconcile([said("c1", call("f:0", input={"q": 1}))], stored)[0]["id"] == "s1"
    assert reconcile([said("c1", call("f:0", name="y", input={"q": 1}))], stored)[0]["id"] == "c1"


def test_user_messages_are_claimed_by_id_alone() -> None:
    found = reconcile([asked("c1"), asked("s2", "new text")], [asked("s1"), asked("s2")])
    assert found == [asked("c1"), asked("s2", "new text")]


def test_contents_are_compared_as_they_would_be_stored() -> None:
    def stripped(message: dict[str, Any]) -> dict[str, Any]:
        return {**message, "parts": [{"type": "text", "text": p["text"]} for p in message["parts"]]}

    copy = said("c1", text("ok", providerMetadata={"openai": {"itemId": "i"}}))
    assert reconcile([copy], [said("s1", text("ok"))])[0]["id"] == "c1"
    assert reconcile([copy], [said("s1", text("ok"))], comparable=stripped)[0]["id"] == "s1"


# -- states ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["input-available", "approval-requested", "approval-responded"])
@pytest.mark.parametrize(
    "settled",
    [
        {"state": "output-available", "output": {"a": 1}},
        {"state": "output-error", "errorText": "no"},
        {"state": "output-denied", "approval": {"id": "p", "approved": False}},
    ],
)
def test_a_stale_state_takes_ours_with_its_own_fields(state: str, settled: Part) -> None:
    row = said("s1", {**call("k", input={"server": 1}), **settled, "title": "kept here"})
    copy = said("s1", call("k", state, input={"client": 1}))
    found = reconcile([copy], [row])[0]
    assert found["parts"] == [{**call("k", input={"client": 1}), **settled}]
    assert copy["parts"][0]["state"] == state


def test_the_nth_call_of_an_id_takes_the_nth_result() -> None:
    row = said("s1", done("k", 1), {"type": "step-start"}, call("k"))
    copy = said("s1", call("k"), {"type": "step-start"}, call("k"))
    found = reconcile([copy], [row])[0]["parts"]
    assert [part["state"] for part in found if part["type"] == "tool-x"] == [
        "output-available",
        "input-available",
    ]


def test_a_result_comes_from_the_claimed_message_only() -> None:
    stored = [said("s1", done("k", "old")), said("s2", call("k"))]
    copy = said("s2", call("k"))
    assert reconcile([copy], stored) == [copy]


def test_what_is_settled_here_is_not_changed_by_a_client() -> None:
    row = said("s1", done("k", "ours"))
    for theirs in (done("k", "theirs"), call("k", "output-error", errorText="gone")):
        part = reconcile([said("s1", theirs)], [row])[0]["parts"][0]
        assert (part["state"], part["output"]) == ("output-available", "ours")
        assert "errorText" not in part


def test_a_result_that_the_client_brings_is_kept() -> None:
    for here in (call("k"), {**call("k"), **INTERRUPTED}):
        copy = said("s1", done("k", "theirs"))
        assert reconcile([copy], [said("s1", here)])[0] is copy


def test_an_error_of_cleanup_keeps_its_mark_and_progress_stays_progress() -> None:
    for here in ({**call("k"), **INTERRUPTED}, done("k", 50, preliminary=True)):
        assert reconcile([said("s1", call("k"))], [said("s1", here)])[0]["parts"] == [here]


def test_states_that_are_not_final_move_forward_too() -> None:
    here = call("k", "approval-responded", approval={"id": "p", "approved": True})
    assert reconcile([said("s1", call("k"))], [said("s1", here)])[0]["parts"] == [here]
    half = {"type": "tool-x", "toolCallId": "k", "state": "input-streaming", "input": {"a": 1}}
    assert reconcile([said("s1", half)], [said("s1", done("k"))])[0]["parts"] == [done("k")]
    ahead = said("s1", here)
    assert reconcile([ahead], [said("s1", call("k"))])[0] is ahead


def test_a_stale_copy_beside_its_own_message_is_left_out() -> None:
    stored = [said("s1", done("k"))]
    sent = [said("s1", done("k")), said("c9", call("k")), asked("u")]
    assert [m["id"] for m in reconcile(sent, stored)] == ["s1", "u"]
    assert [m["id"] for m in reconcile(sent[:2], stored)] == ["s1", "c9"]  # the last one may be a new call
    other = said("c9", call("k", input={"other": 1}))
    assert [m["id"] for m in reconcile([stored[0], other, asked("u")], stored)] == ["s1", "c9", "u"]


def test_nothing_changes_in_place() -> None:
    stored, sent = [said("s1", done("k"))], [said("c1", call("k")), asked("u")]
    before = deepcopy((stored, sent))
    reconcile(sent, stored)
    merge_orphan(stored[0], sent[0])
    assert (stored, sent) == before


# -- one message ----------------------------------------------------------------------------------------


def test_upsert_replaces_a_user_message_and_only_moves_an_answer_forward() -> None:
    stored = [asked("u1"), said("s1", text("Long answer"), call("k")), asked("u2")]
    assert upsert_incoming_message(stored, asked("u3")) == [*stored, asked("u3")]
    assert upsert_incoming_message(stored, asked("u1", "ho"))[0] == asked("u1", "ho")
    found = upsert_incoming_message(stored, said("s1", done("k", 7)))
    assert found[1] == said("s1", text("Long answer"), done("k", 7))
    assert upsert_incoming_message(stored, said("s1")) == stored


def test_news_are_new_user_messages_and_answers_that_are_further_on() -> None:
    stored = [asked("u1"), said("s1", text("A")), said("s2", call("k"))]
    sent = [asked("u1"), said("c1", text("A")), said("c2", done("k")), asked("u2"), said("c3", text("?"))]
    assert news(sent, stored) == [said("s2", done("k")), asked("u2")]
    assert news(stored, stored) == []


# -- orphans --------------------------------------------------------------------------------------------


def test_a_replay_of_what_is_stored_adds_nothing() -> None:
    row = said("s1", {"type": "step-start"}, text("Let me look."), done("k"), text("Found."))
    replay = said("o1", {"type": "step-start"}, text("Let me look."), call("k"), text("Found."))
    assert merge_orphan(row, replay) == row


def test_only_what_is_new_is_added_text_included() -> None:
    row = said("s1", text("Let me look."), done("k"))
    replay = said("o1", text("Let me look."), call("k"), text("Found it."))
    assert merge_orphan(row, replay) == said("s1", text("Let me look."), done("k"), text("Found it."))


def test_text_that_was_cut_off_goes_on_and_longer_text_stays() -> None:
    assert merge_orphan(said("s1", text("Hel")), said("o1", text("Hello"))) == said("s1", text("Hello"))
    assert merge_orphan(said("s1", text("Hello")), said("o1", text("Hel"))) == said("s1", text("Hello"))


def test_new_parts_stand_where_the_orphan_has_them() -> None:
    row = said("s1", text("A"), done("k"), text("stored later"))
    replay = said("o1", text("A"), {"type": "reasoning", "text": "hm"}, done("k"), done("l"))
    found = merge_orphan(row, replay)["parts"]
    assert found == [
        text("A"),
        {"type": "reasoning", "text": "hm"},
        done("k"),
        text("stored later"),
        done("l"),
    ]


def test_a_call_is_never_doubled_and_moves_only_forward() -> None:
    row = said("s1", call("a"), done("b", "kept"))
    replay = said("o1", done("b", "other"), done("a", "new"))
    assert merge_orphan(row, replay)["parts"] == [done("a", "new"), done("b", "kept")]
    interrupted = {**call("a"), **INTERRUPTED}
    assert merge_orphan(said("s1", call("a")), said("o1", interrupted))["parts"] == [call("a")]
    assert merge_orphan(said("s1", interrupted), said("o1", done("a")))["parts"] == [done("a")]


def test_a_call_id_used_again_is_a_new_call() -> None:
    step = {"type": "step-start"}
    row = said("s1", step, done("k", 1))
    replay = said("o1", step, done("k", 1), step, call("k"))
    assert merge_orphan(row, replay)["parts"] == [step, done("k", 1), step, call("k")]
    other = said("o1", done("k", 2, name="y"))
    assert merge_orphan(row, other)["parts"] == [step, done("k", 1), done("k", 2, name="y")]


def test_data_and_sources_are_known_by_their_ids() -> None:
    row = said(
        "s1",
        {"type": "data-p", "id": "1", "data": 90},
        {"type": "source-url", "sourceId": "w", "url": "https://a"},
    )
    replay = said(
        "o1",
        {"type": "data-p", "id": "1", "data": 10},
        {"type": "source-url", "sourceId": "w", "url": "https://a", "title": "late"},
        {"type": "data-p", "id": "2", "data": 0},
    )
    assert merge_orphan(row, replay)["parts"] == [*row["parts"], replay["parts"][2]]


def test_metadata_is_laid_over() -> None:
    row, replay = said("s1", metadata={"a": 1, "b": 1}), said("o1", metadata={"b": 2})
    assert merge_orphan(row, replay)["metadata"] == {"a": 1, "b": 2}
    assert merge_orphan(said("s1"), replay)["metadata"] == {"b": 2}
    assert merge_orphan(row, said("o1"))["metadata"] == {"a": 1, "b": 1}


def test_values_are_compared_as_json() -> None:
    assert same({"a": 1, "b": [1.0, "x"]}, {"b": [1, "x"], "a": 1})
    for a, b in ((True, 1), (None, 0), ([1], [1, 2]), ({"a": None}, {}), ("1", 1), ({}, [])):
        assert not same(a, b)
