"""What a person is shown is harmless, whoever chose it: an id, a text, what a store says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from cli_runs import ANSWER, answered, jsonl, run

from snapshotter.cli.output import shown
from snapshotter.cli.problems import Failure
from streams import keys

EVIL = "x\x1b]0;owned\x07\x1b[2J\nok  fake  0 segments\r\u202eabc\x9b1m\u2028"
TOLD = r"x\u001b]0;owned\u0007\u001b[2J\nok  fake  0 segments\r\u202eabc\u009b1m\u2028"


@pytest.mark.parametrize(
    "command",
    [
        ["ls"],
        ["maintain"],
        ["verify"],
        ["rebuild", "--jobs", "1"],
        ["boot", EVIL],
        ["incident", EVIL],
        ["gc", EVIL],
        ["compact", EVIL],
        ["export", EVIL, "FILE"],
        ["redact", EVIL, "--message", "a1", "--yes"],
        ["fork", EVIL, "new"],
        ["fork", "new", EVIL],
        ["history", EVIL],
        ["history", "no" + EVIL],
        ["send", EVIL, "again"],
        ["record", EVIL],
        ["delete", EVIL, "--dry-run"],
        ["delete", EVIL, "--yes"],
        ["--log-format", "text", "verify"],
    ],
    ids=lambda command: " ".join(command[:2]).encode("unicode_escape").decode(),
)
def test_no_command_lets_anybody_else_steer_the_terminal(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    answered(root, EVIL, "hi" + EVIL)
    stray = keys.segment("in", keys.encode_sid(EVIL), 3)
    if command[0] in ("verify", "rebuild", "maintain"):
        (root / stray).write_bytes(b'{"v":1,"nonce":"\x1b[31m\xe2\x80\xae"}\n')
    monkeypatch.setattr("click._compat.strip_ansi", lambda text: text)  # as on a terminal
    monkeypatch.setattr("click.utils.should_strip_ansi", lambda *_: False)
    given = [str(tmp_path / "file.zip") if word == "FILE" else word for word in command]
    at = next(n for n, word in enumerate(given) if not word.startswith("-") and word != "text") + 1
    ran = run(*given[:at], root, *given[at:], stdin=jsonl(*ANSWER))
    told = ran.out + ran.err
    plain = re.sub(r"\x1b\[\d{1,2}m", "", told)  # our own colours; nobody else's escape begins another
    assert not [char for char in plain if char != "\n" and not char.isprintable()]
    assert "\nok  fake" not in told
    assert told


def test_what_is_harmless_is_shown_as_it_is() -> None:
    for text in ("", "Größe\u00a0№ 1\t日本語", "👨\u200d👩\u200d👧 می\u200cخواهم", r"C:\n \u001b"):
        assert shown(text) == text
    assert shown(EVIL) == TOLD
    assert json.loads(f'"{shown(EVIL)}"') == EVIL  # JSON stays the JSON that it was
    assert shown("\ud800 \U000e0041") == r"\ud800 \udb40\udc41"


def test_for_a_program_all_is_as_it_was(root: Path) -> None:
    answered(root, EVIL)
    assert run("ls", root, "--json").json["id"] == EVIL


def test_an_error_is_one_harmless_line(capsys: pytest.CaptureFixture[str]) -> None:
    Failure("refused", f"no {EVIL}", 2, hint=EVIL).show(as_json=False)
    assert capsys.readouterr().err == f"error: no {TOLD}\nhint: {TOLD}\n"
