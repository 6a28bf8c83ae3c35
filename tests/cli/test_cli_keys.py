"""What the commands for a whole root do where a key is not at hand: of one session, and of all."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_runs import Ran, answered, run

from streams.encryption import MAGIC

K1 = "k1 AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
K2 = "k2 ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8="
OTHER = "k1 AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh4="  # another key under the same name
CAPABILITIES = "capabilities.json"


class Keys:
    """The key file that the environment names."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, *lines: str) -> None:
        self.path.write_text("".join(f"{line}\n" for line in lines))


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Keys:
    monkeypatch.setenv("SNAPSHOTTER_KEY_FILE", str(tmp_path / "keys"))
    return Keys(tmp_path / "keys")


@pytest.fixture
def mixed(root: Path, keys: Keys) -> Path:
    """Two sessions: the first was sealed with a key that is not at hand, the second with one that is."""
    keys(K1)
    answered(root, "a-old")
    keys(K2)
    answered(root, "b-new")
    return root


def stored(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


# --- one session of several ----------------------------------------------------------------------------


@pytest.mark.parametrize("held", [[K2], [K2, OTHER]], ids=["no such key", "another key of that name"])
@pytest.mark.parametrize(
    "command", [("verify",), ("rebuild", "--jobs", "1"), ("rebuild", "--jobs", "2"), ("maintain",)]
)
def test_a_session_without_its_key_does_not_keep_the_others(
    command: tuple[str, ...], held: list[str], mixed: Path, keys: Keys
) -> None:
    keys(*held)
    told = run(command[0], mixed, *command[1:])
    assert told.code == 1, told
    (bad,) = [line for line in told.out.splitlines() if "BAD" in line]
    assert "a-old" in bad
    assert "k1" in told.out
    assert "2 sessions" in told.out
    as_json = run(command[0], mixed, *command[1:], "--json")
    assert as_json.code == 1
    assert {"a-old", "b-new"} == {line["session"] for line in as_json.lines if "session" in line}


def test_what_is_told_of_the_session_is_its_key(mixed: Path) -> None:
    found = {line["session"]: line for line in run("verify", mixed, "--json").lines}
    assert [problem["code"] for problem in found["a-old"]["problems"]] == ["wrong-key"]
    assert (found["a-old"]["ok"], found["b-new"]["ok"]) == (False, True)
    rebuilt = {line["session"]: line for line in run("rebuild", mixed, "--json").lines if "session" in line}
    assert (rebuilt["a-old"]["status"], rebuilt["a-old"]["error"]) == ("failed", "WrongKey")
    assert rebuilt["b-new"]["status"] in ("same", "unsaved")
    kept = {line["session"]: line for line in run("maintain", mixed, "--json").lines}
    assert kept["a-old"]["error"] == "WrongKey"
    assert [step["operation"] for step in kept["b-new"]["done"]] == ["compact", "gc"]


# --- all of them ---------------------------------------------------------------------------------------


def wrong(told: Ran) -> None:
    assert (told.code, told.lines[-1]["error"]) == (6, "wrong-key")


@pytest.mark.parametrize("command", [("verify",), ("rebuild", "--jobs", "1"), ("maintain",)])
def test_where_no_session_can_be_opened_the_command_fails(
    command: tuple[str, ...], mixed: Path, keys: Keys
) -> None:
    before = stored(mixed)
    keys(OTHER)
    wrong(run(command[0], mixed, *command[1:], "--json"))
    keys(K2)
    wrong(run(command[0], mixed, "a-old", *command[1:], "--json"))
    assert stored(mixed) == before


def test_an_export_with_the_wrong_keys_leaves_its_place_free(mixed: Path, keys: Keys, tmp_path: Path) -> None:
    asked = ("rebuild", mixed, "--export", "jsonl", tmp_path / "tables", "--jobs", "1", "--json")
    keys(OTHER)
    wrong(run(*asked))
    assert not (tmp_path / "tables" / "sessions").exists()
    keys(K2, K1)
    assert run(*asked).code == 0
    parts = [path.read_bytes() for path in (tmp_path / "tables" / "sessions").iterdir()]
    assert b"".join(parts).count(b"\n") == 2


# --- doctor --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("held", [OTHER, K2], ids=["another key of that name", "another key"])
@pytest.mark.parametrize("deep", [(), ("--deep",)], ids=["shallow", "deep"])
def test_doctor_writes_nothing_where_the_keys_are_wrong(
    held: str, deep: tuple[str, ...], root: Path, keys: Keys
) -> None:
    keys(K1)
    answered(root)
    before = stored(root)
    keys(held)
    told = run("doctor", root, *deep)
    assert told.code == 6
    assert "BAD encryption" in told.out
    assert "can be trusted" not in told.out
    found = run("doctor", root, *deep, "--json").json
    assert (found["ok"], found["error"]) == (False, "wrong-key")
    assert found["checks"][-1]["check"] == "encryption"
    assert stored(root) == before


def test_doctor_without_any_key_says_so(root: Path, keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    keys(K1)
    answered(root)
    before = stored(root)
    monkeypatch.delenv("SNAPSHOTTER_KEY_FILE")
    told = run("doctor", root)
    assert told.code == 6
    assert "BAD encryption" in told.out
    assert "SNAPSHOTTER_KEY_FILE" in told.out
    assert stored(root) == before


def test_doctor_says_what_to_do_with_what_another_key_wrote_down(root: Path, keys: Keys) -> None:
    keys(OTHER)
    assert run("doctor", root).code == 0
    assert (root / CAPABILITIES).read_bytes().startswith(MAGIC)
    keys(K1)
    answered(root)
    told = run("doctor", root)
    assert told.code == 6
    assert f"delete {CAPABILITIES} and ask again" in told.out
    (root / CAPABILITIES).unlink()
    told = run("doctor", root)
    assert (told.code, "ok  encryption" in told.out) == (0, True)
    assert run("verify", root).code == 0


def test_a_key_file_that_is_not_there_is_no_missing_driver(root: Path, keys: Keys) -> None:
    assert not keys.path.exists()
    found = run("doctor", root, "--json")
    assert (found.code, found.json["error"]) == (6, "misconfigured")
    assert [(c["check"], c["ok"]) for c in found.json["checks"]] == [("encryption", False)]
    assert not root.exists()
