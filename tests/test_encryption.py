"""Sessions in an encrypted root: all works as ever, and who has not the key neither reads nor alters them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from chat_samples import AT_ONCE, first_turn, saying, user, write_all

import snapshotter
from snapshotter.core.blocks import Sizes
from snapshotter.database import Database
from snapshotter.errors import Corrupt, Damaged, Gap, InvalidValue, Misconfigured, WrongKey
from snapshotter.maintenance import Keep, delete, export, fork, gc, import_, maintain, redact, trim
from snapshotter.maintenance.rules import Rules
from snapshotter.verify import verify
from streams import keys
from streams.buckets.base import Bucket
from streams.buckets.memory import MemoryBucket, Space
from streams.buckets.sealed import OVERHEAD, SealedBucket
from streams.encryption import MAGIC, Encryption, Keyring, of_environment
from streams.probe import KEY as CAPABILITIES
from streams.testing import FakeClock

SECRET = "the quick brown fox"
K1 = "k1 AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
K2 = "k2 ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8="
WRONG = "k1 AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh4="
TINY = Sizes(inline=1, tail=1, turns=1, small=2_000, large=8_000, value=600)


def encryption(text: str = K1, **options: Any) -> Encryption:
    return Encryption(Keyring(text), **options)


class Root:
    """A store in memory, seen by those who have the key and by its owner."""

    def __init__(self) -> None:
        self.space = Space()
        self.clock = FakeClock()
        self.owner = MemoryBucket(self.clock, space=self.space)

    def db(self, text: str | None = K1, **options: Any) -> Database:
        bucket: Bucket = self.owner
        if text is not None:
            bucket = SealedBucket(self.owner, encryption(text, **options))
        return Database(bucket, self.clock, recovery=AT_ONCE, sizes=TINY)

    def raw(self) -> dict[str, bytes]:
        return {key: self.space.objects[key].data for key in self.space.order}

    def put_back(self, objects: dict[str, bytes]) -> None:
        """The owner makes the store what it was."""
        for key in list(self.space.order):
            if key not in objects:
                self.owner.delete(key)
        for key, data in objects.items():
            self.owner.put(key, data)


def talk(db: Database, turns: int = 4, session: str = "s", first: int = 1) -> None:
    """So many turns; each message and answer holds the secret, every second one is large."""
    for number in range(first, first + turns):
        large = 60 if number % 2 == 0 else 1
        db.send(session, user(f"u{number}", f"{SECRET} {number} " * large))
        with db.boot(session, takeover=True) as booted, first_turn(booted) as turn:
            write_all(turn, saying(f"{SECRET} again {number}"))


@pytest.fixture
def root() -> Root:
    made = Root()
    talk(made.db())
    talk(made.db(), session="t")
    return made


# --- nothing shows -------------------------------------------------------------------------------------


def test_every_stored_object_is_encrypted_and_every_kind_was_stored(root: Root) -> None:
    trim(root.db(), "s", keep=Keep(turns=1))
    stored = root.raw()
    kinds = {key.partition("/")[0] for key in stored}
    assert kinds == {"in", "out", "sessions", "blocks", "values"}
    for key, data in stored.items():
        assert data.startswith(MAGIC), key
        assert SECRET.encode() not in data, key
    assert verify(root.db(), "s").problems == []
    assert len(root.db().history("s")) == 8


def test_the_probe_and_what_it_writes_down_are_encrypted_too(root: Root) -> None:
    class Unknown(MemoryBucket):
        trusted = False

    db = Database(SealedBucket(Unknown(space=root.space), encryption()), root.clock)
    db.send("new", user("u1"))
    assert root.raw()[CAPABILITIES].startswith(MAGIC)


def test_sizes_are_those_of_the_contents(root: Root) -> None:
    plain = {entry.key: entry.size for entry in root.db().store.entries("")}
    assert plain == {key: len(data) - OVERHEAD for key, data in root.raw().items()}


# --- without the key -----------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [None, WRONG, K2], ids=["no key", "another key", "another id"])
@pytest.mark.parametrize(
    "call",
    [
        lambda db: db.boot("s"),
        lambda db: db.peek("s"),
        lambda db: db.history("s"),
        lambda db: db.send("s", user("u9")),
        lambda db: list(db.records("s", "out")),
        lambda db: fork(db, "s", "other"),
        lambda db: maintain(db),
    ],
    ids=["boot", "peek", "history", "send", "records", "fork", "maintain"],
)
def test_who_has_not_the_key_is_told_so_and_changes_nothing(
    text: str | None, call: Callable[[Database], Any], root: Root
) -> None:
    before = root.raw()
    with pytest.raises(WrongKey):
        call(root.db(text))
    assert root.raw() == before


def test_a_plain_session_is_not_read_in_an_encrypted_root_unless_that_is_allowed() -> None:
    root = Root()
    talk(root.db(None), turns=2)
    with pytest.raises(Corrupt, match="allow_plain"):
        root.db().boot("s")
    history = root.db(None).history("s")
    mixed = root.db(allow_plain=True)
    assert mixed.history("s") == history
    talk(mixed, turns=2, first=3)
    assert [m["id"] for m in mixed.history("s") if m["role"] == "user"] == ["u1", "u2", "u3", "u4"]
    assert verify(mixed, "s").problems == []


def test_an_older_root_is_taken_over_by_export_and_import() -> None:
    root, new = Root(), Root()
    talk(root.db(None), turns=3)
    file = BytesIO()
    export(root.db(None), "s", file)
    import_(new.db(), file)
    assert new.db().history("s") == root.db(None).history("s")
    assert all(data.startswith(MAGIC) for data in new.raw().values())


def test_after_a_rotation_a_session_goes_on(root: Root) -> None:
    rotated = f"{K2}\n{K1}"
    talk(root.db(rotated), turns=2, first=5)
    assert len(root.db(rotated).history("s")) == 12
    assert verify(root.db(rotated), "s").problems == []
    ids = {data[8:10] for key, data in root.raw().items() if "/s/" in key}
    assert ids == {b"k1", b"k2"}
    with pytest.raises(WrongKey):
        root.db(K2).boot("s")


# --- what the owner of the bucket does -----------------------------------------------------------------


def outcome(root: Root) -> Any:
    """The history of "s" as a reader gets it, or the kind of its error."""
    try:
        return root.db().history("s")
    except Damaged as error:
        return type(error)


def objects_of(root: Root, session: str) -> list[str]:
    return [key for key in root.raw() if f"/{session}/" in key]


TAMPERINGS: dict[str, Callable[[bytes], bytes]] = {
    "one bit": lambda data: data[:-20] + bytes([data[-20] ^ 1]) + data[-19:],
    "cut": lambda data: data[:-1],
    "emptied": lambda _: b"",
    "looks empty": lambda data: data[:OVERHEAD],
    "in plain text": lambda _: b'{"v":1}\n',
}


@pytest.mark.parametrize("how", TAMPERINGS)
def test_each_object_that_is_altered_is_found_out_or_changes_nothing(how: str, root: Root) -> None:
    """A snapshot, or a block, that does not hold is rebuilt from the log; what is in no log any more is an
    error. No tampering ever makes another history."""
    history, whole = outcome(root), root.raw()
    assert len(history) == 8
    found = set()
    for key in objects_of(root, "s"):
        root.put_back({**whole, key: TAMPERINGS[how](whole[key])})
        seen = outcome(root)
        assert seen == history or isinstance(seen, type), key
        if how != "looks empty":  # is the same as deleting it, which for old records is what a trim does
            assert verify(root.db(), "s").problems, f"{key}: nobody noticed"
        found.add((key.partition("/")[0], isinstance(seen, type)))
    assert {kind for kind, _ in found} == {"in", "out", "sessions", "blocks", "values"}


def test_an_altered_snapshot_is_no_hindrance_to_a_claim_and_is_not_written_over(
    root: Root, caplog: pytest.LogCaptureFixture
) -> None:
    history, key = outcome(root), keys.snapshot("s")
    altered = TAMPERINGS["one bit"](root.raw()[key])
    root.put_back({**root.raw(), key: altered})
    root.db().send("s", user("u9"))
    with root.db().boot("s", claim=True, takeover=True) as session, first_turn(session) as turn:
        assert session.messages == history
        assert "its seal does not hold" in caplog.text
        write_all(turn, saying("hello"))
    assert root.raw()[key] == altered


def test_an_altered_session_can_be_deleted(root: Root) -> None:
    whole = root.raw()
    for key in (keys.snapshot("s"), next(key for key in whole if key.startswith("in/s/"))):
        root.put_back({**whole, key: TAMPERINGS["one bit"](whole[key])})
        delete(root.db(), "s")
        assert outcome(root) == []
        assert all(len(data) == OVERHEAD for key, data in root.raw().items() if key.startswith("values/s/"))


def test_each_object_that_is_swapped_is_found_out_or_changes_nothing(root: Root) -> None:
    history, whole = outcome(root), root.raw()
    swapped = 0
    for key in objects_of(root, "s"):
        kind = key.partition("/")[0]
        for other in whole:
            if other.partition("/")[0] != kind or other == key:
                continue
            root.put_back({**whole, key: whole[other]})
            swapped += 1
            with pytest.raises(Corrupt, match="in place of another"):
                _ = root.db().store.get(key).data
            seen = outcome(root)
            assert seen == history or isinstance(seen, type), (key, other)
    assert swapped > 100


def test_a_session_cannot_be_passed_off_as_another(root: Root) -> None:
    """All objects of "t" under the names of "s"."""
    theirs = {key.replace("/t/", "/s/"): data for key, data in root.raw().items() if "/t/" in key}
    root.put_back(theirs)
    assert isinstance(outcome(root), type)


def test_an_older_snapshot_put_back_makes_the_same_history(root: Root) -> None:
    key = keys.snapshot("s")
    older = root.raw()[key]
    talk(root.db(), turns=2, first=5)
    history = outcome(root)
    root.put_back({**root.raw(), key: older})
    assert outcome(root) == history
    assert len(history) == 12


def test_a_log_that_is_rolled_back_alone_is_found_out() -> None:
    root = Root()
    talk(root.db(), turns=2)
    older = root.raw()
    talk(root.db(), turns=2, first=3)
    for log in ("in/", "out/"):
        newer = root.raw()
        root.put_back({k: v for k, v in newer.items() if not k.startswith(log) or k in older})
        assert isinstance(outcome(root), type) or verify(root.db(), "s").problems, log
        root.put_back(newer)


def test_a_whole_root_that_is_rolled_back_is_not_found_out() -> None:
    """Nobody can see it who keeps nothing outside of the bucket. Written down in docs/security.md."""
    root = Root()
    talk(root.db(), turns=2)
    older, history = root.raw(), outcome(root)
    talk(root.db(), turns=2, first=3)
    root.put_back(older)
    assert outcome(root) == history
    assert verify(root.db(), "s").problems == []


def test_inputs_whose_answers_were_rolled_back_are_owed_again() -> None:
    """The in log stays, the out log and the snapshot go back: all that shows is that nobody has answered."""
    root = Root()
    talk(root.db(), turns=2)
    older = root.raw()
    talk(root.db(), turns=1, first=3)
    root.put_back({**older, **{key: data for key, data in root.raw().items() if key.startswith("in/")}})
    assert [item.ids for item in root.db().peek("s").pending] == [(3,)]


def test_a_receipt_that_was_kept_finds_out_that_everything_was_rolled_back() -> None:
    root = Root()
    talk(root.db(), turns=2)
    older = root.raw()
    receipt = root.db().send("s", user("u3"))
    root.put_back(older)
    with pytest.raises(Gap, match="the receipt names input 3"):
        root.db().boot("s", receipt=receipt)


def test_what_a_process_without_the_key_writes_is_refused_by_the_others(root: Root) -> None:
    root.db(None).send("new", user("u1"))
    with pytest.raises(Corrupt, match="not encrypted"):
        root.db().boot("new")


# --- everything else goes on ---------------------------------------------------------------------------


def test_maintenance_works_on_an_encrypted_root(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rules, "is_old", lambda *_: True)
    db = root.db()
    history = db.history("s")
    fork(db, "s", "other")
    maintain(db)
    trim(db, "s", keep=Keep(turns=1))
    gc(db, "s")
    assert db.history("s") == db.history("other") == history
    redact(db, "s", "u2")
    assert "2 the quick" not in json.dumps(db.history("s"))
    assert all(verify(db, name).problems == [] for name in ("s", "other"))
    assert all(data.startswith(MAGIC) for data in root.raw().values())


def test_a_session_on_a_real_server(seaweed: Any) -> None:
    for driver in ("s3", "minio", "obstore"):
        inner = getattr(seaweed, driver)(f"encrypted-{driver}-{FakeClock().token()}")
        db = Database(SealedBucket(inner, encryption(), "p/"), recovery=AT_ONCE, sizes=TINY)
        talk(db, turns=3)
        history = db.history("s")
        assert len(history) == 6
        fork(db, "s", "other")
        assert db.history("other") == history
        assert verify(db, "s").problems == []
        for entry in list(db.store.entries("")):
            assert SECRET.encode() not in inner.get(entry.key).data
        db.close()


# --- the door ------------------------------------------------------------------------------------------


def test_open_takes_keys_from_a_callback(tmp_path: Path) -> None:
    def key(key_id: str | None) -> tuple[str, bytes]:
        return key_id or "mine", b"0" * 32

    with snapshotter.open(tmp_path, encryption=snapshotter.Encryption(key=key)) as db:
        talk(db, turns=1)
        assert len(db.history("s")) == 2
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert sum(data.startswith(MAGIC) for data in files) >= 3
    assert not any(SECRET.encode() in data for data in files)
    with snapshotter.open(tmp_path) as db, pytest.raises(WrongKey, match="SNAPSHOTTER_KEY_FILE"):
        db.history("s")


def test_the_path_of_the_url_is_bound_into_the_seal() -> None:
    name = FakeClock().token()
    with snapshotter.open(f"memory://{name}/a", encryption=encryption()) as db:
        talk(db, turns=1)
    owner = snapshotter.open(f"memory://{name}").store.bucket
    for entry in owner.list("a/").entries:
        blob = owner.get(entry.key)
        assert blob is not None
        owner.put(f"b{entry.key[1:]}", blob.data)
    with snapshotter.open(f"memory://{name}/b", encryption=encryption()) as db, pytest.raises(Corrupt):
        db.history("s")


def test_without_the_library_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['cryptography'] = None\n"
        "import snapshotter\n"
        "snapshotter.open('memory://x').send('s', 'hi')\n"
        "key = lambda key_id: ('k', bytes(32))\n"
        "try: snapshotter.open('memory://x', encryption=snapshotter.Encryption(key=key))\n"
        "except snapshotter.Misconfigured as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install cryptography" in done.stdout


def test_the_library_is_loaded_only_where_it_is_used() -> None:
    code = "import sys, snapshotter; snapshotter.open('memory://x'); sys.exit('cryptography' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


# --- the environment -----------------------------------------------------------------------------------


def test_keys_come_from_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"{K2}\n{K1}\n")
    print_it = f"{sys.executable} -c \"print(open('{file}').read())\""
    for env in ({"SNAPSHOTTER_KEY_FILE": str(file)}, {"SNAPSHOTTER_KEY_COMMAND": print_it}):
        found = of_environment(env)
        assert found is not None
        assert (found.key(None)[0], found.allow_plain) == ("k2", False)
        assert of_environment({**env, "SNAPSHOTTER_ALLOW_PLAIN": "1"}).allow_plain  # type: ignore[union-attr]
    assert of_environment({}) is None


@pytest.mark.parametrize(
    "env",
    [
        {"SNAPSHOTTER_KEY_FILE": "/nowhere/at/all"},
        {"SNAPSHOTTER_KEY_COMMAND": "/nowhere/at/all"},
        {"SNAPSHOTTER_KEY_COMMAND": f"{sys.executable} -c 'print(\"s3cret\"); exit(1)'"},
        {"SNAPSHOTTER_KEY_COMMAND": f"{sys.executable} -c 'print(\"k1 s3cret\")'"},
        {"SNAPSHOTTER_KEY_COMMAND": "an unclosed 'quote"},
        {"SNAPSHOTTER_KEY_FILE": "a", "SNAPSHOTTER_KEY_COMMAND": "b"},
    ],
)
def test_an_environment_whose_keys_cannot_be_had_is_told_and_no_secret_with_it(env: dict[str, str]) -> None:
    with pytest.raises(Misconfigured, match="SNAPSHOTTER_KEY_") as caught:
        of_environment(env)
    assert "s3cret" not in str(caught.value)


def test_the_command_line_and_its_processes_take_the_keys_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, folder = tmp_path / "keys", tmp_path / "root"
    file.write_text(f"{K1}\n")
    env = {"SNAPSHOTTER_KEY_FILE": str(file), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path.cwd())}

    def run(*args: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "snapshotter", *args]
        return subprocess.run(command, capture_output=True, text=True, env={**env, **more}, check=False)

    assert run("send", str(folder), "s", SECRET).returncode == 0
    with snapshotter.open(folder, encryption=encryption(), recovery=AT_ONCE) as db:
        with db.boot("s") as session, first_turn(session) as turn:
            write_all(turn, saying(SECRET))
    assert SECRET in run("history", str(folder), "s").stdout
    for command in (["verify"], ["doctor"], ["maintain"], ["rebuild", "--jobs", "2"]):
        done = run(command[0], str(folder), *command[1:])
        assert done.returncode == 0, (command, done.stdout, done.stderr)
    assert "encryption" in run("doctor", str(folder)).stdout
    assert "encryption" not in run("doctor", str(folder / "other"), SNAPSHOTTER_KEY_FILE="").stdout
    without = run("history", str(folder), "s", SNAPSHOTTER_KEY_FILE="")
    assert without.returncode == 6
    assert "SNAPSHOTTER_KEY_FILE" in without.stderr
    stored = [path.read_bytes() for path in folder.rglob("*.json*")]
    assert stored
    assert not any(SECRET.encode() in data for data in stored)


def test_the_example_of_the_page_works(tmp_path: Path) -> None:
    page = (Path(__file__).parents[1] / "docs" / "security.md").read_text(encoding="utf-8")
    (source,) = [
        block for block in re.findall(r"^```python\n(.*?)^```", page, re.M | re.S) if "def key(" in block
    ]
    namespace: dict[str, Any] = {}
    exec(source.replace("/tmp/sealed-chats", str(tmp_path)), namespace)
    with namespace["db"] as db:
        talk(db, turns=1)
        assert len(db.history("s")) == 2
    assert all(path.read_bytes().startswith(MAGIC) for path in tmp_path.rglob("*.json*"))


def of_this_module(key_id: str | None) -> tuple[str, bytes]:
    return key_id or "k1", b"1" * 32


def test_rebuild_takes_a_source_of_keys_that_can_travel(tmp_path: Path) -> None:
    with snapshotter.open(tmp_path, encryption=Encryption(of_this_module)) as db:
        talk(db, turns=1)
    with ThreadPoolExecutor(1) as pool:
        for options in ({"jobs": 1}, {"jobs": 2}, {"executor": pool}):
            done = snapshotter.rebuild(tmp_path, encryption=Encryption(of_this_module), **options)
            assert (done.sessions, done.ok) == (1, True), options
    with pytest.raises(InvalidValue, match="cannot be sent"):
        snapshotter.rebuild(tmp_path, encryption=Encryption(lambda _: ("k1", b"1" * 32)), jobs=2)
    with pytest.raises(WrongKey):
        snapshotter.rebuild(tmp_path, jobs=1)
