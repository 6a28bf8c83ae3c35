"""`classify` over histories: one answer a line, for good input and for bad."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli_runs import answered, jsonl, run

HI = {"role": "user", "content": "hi"}
CALL = {"role": "assistant", "tool_calls": [{"id": "c1", "name": "grep"}]}
PARTIAL = {"id": "a1", "role": "assistant", "parts": [{"type": "text", "text": "Hel", "state": "streaming"}]}


def test_each_history_gets_one_answer() -> None:
    found = run("classify", "--json", stdin=b"\n" + jsonl([HI, CALL], {"messages": [HI, PARTIAL]}, []))
    assert found.code == 0
    recover, retry, empty = found.lines
    assert recover.keys() == {"kind", "description", "unanswered"}
    assert (recover["kind"], recover["unanswered"]) == ("recover_tools", ["c1"])
    assert (retry["kind"], retry["unanswered"]) == ("retry_response", [])
    assert empty == {"error": "empty"}


def test_how_the_turn_ended_may_be_told(tmp_path: Path) -> None:
    line = {"messages": [HI, PARTIAL], "turn": {"finishReason": "length"}}
    (tmp_path / "histories").write_bytes(jsonl(line))
    assert run("classify", tmp_path / "histories", "--json").json["kind"] == "continue_response"


@pytest.mark.parametrize(
    "line",
    [b"3\n", b"{}\n", b"{nope\n", b"\xff\n", *map(jsonl, ([3], [{"role": "robot"}], {"messages": "x"}))],
)
def test_a_line_that_is_no_history_is_bad_input_and_the_others_are_answered(line: bytes) -> None:
    found = run("classify", "--json", stdin=line + jsonl([HI]))
    assert found.code == 2
    bad, good = found.lines
    assert bad == {"error": "bad_input"}
    assert good["kind"] == "call_model"


def test_a_person_reads_a_sentence() -> None:
    told = run("classify", stdin=jsonl([HI, CALL], []))
    assert "recover_tools: The request stopped while tools were running" in told.out
    assert "empty: There are no messages" in told.out


def test_a_stored_history_can_be_asked_about(root: Path) -> None:
    answered(root)
    history: list[Any] = run("history", root, "s", "--json").lines
    assert run("classify", "--json", stdin=jsonl(history)).json == {"error": "completed"}
