"""One session as one file: out, checked, and in again."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, Literal

import pytest
from chat_samples import SID, Place, first_turn, user
from upkeep import HOURS, check, fresh, killed_at, picture, session_of, watched

from snapshotter import Corrupt, Damaged, Gap, NewerVersion, Refused, TooLarge
from snapshotter.maintenance import Keep, delete, export, import_, trim
from streams import keys
from streams.testing.faults import Call


@pytest.fixture
def place() -> Place:
    return Place()


def exported(place: Place, session: str = SID) -> io.BytesIO:
    file = io.BytesIO()
    assert export(place.db, session, file).why == ""
    return file


def test_a_session_moves_to_another_root(place: Place, tmp_path: Path) -> None:
    session_of(place, 3, "chat/ü")
    file = tmp_path / "session.zip"
    done = export(place.db, "chat/ü", file)
    assert done.written == len(place.stored(""))
    other = Place()
    assert import_(other.db, file).written == done.written
    assert other.stored("") == place.stored("")
    assert picture(other, "chat/ü") == picture(place, "chat/ü")
    check(other, "chat/ü")
    other.db.send("chat/ü", user("u4"))
    with other.db.boot("chat/ü") as session, first_turn(session) as turn:
        turn.write({"type": "start"})
    check(other, "chat/ü")


def test_the_file_tells_of_itself(place: Place) -> None:
    session_of(place, 1)
    with zipfile.ZipFile(exported(place)) as archive:
        assert archive.testzip() is None
        manifest = json.loads(archive.read("manifest.json"))
        assert (manifest["format"], manifest["version"], manifest["session"]) == (
            "snapshotter-session",
            1,
            SID,
        )
        for row in manifest["objects"]:
            data = archive.read(row["name"])
            assert (len(data), hashlib.sha256(data).hexdigest()) == (row["bytes"], row["sha256"])
        assert archive.read("snapshot.json") == place.stored("sessions/")[keys.snapshot(SID)]


def test_a_trimmed_session_moves_too(place: Place) -> None:
    session_of(place, 3)
    trim(place.db, SID, keep=Keep(turns=1))
    other = Place()
    import_(other.db, exported(place))
    assert picture(other) == picture(place)
    assert list(other.stored("checkpoints/")) == list(place.stored("checkpoints/"))


def test_a_path_that_exists_is_not_overwritten_and_a_failure_leaves_no_file(
    place: Place, tmp_path: Path
) -> None:
    session_of(place, 1)
    file = tmp_path / "session.zip"
    with pytest.raises(Refused, match="no session"):
        export(place.db, "nobody", file)
    assert not file.exists()
    file.write_bytes(b"mine")
    with pytest.raises(Refused, match="is there already"):
        export(place.db, SID, str(file))
    assert file.read_bytes() == b"mine"


def test_a_session_that_exists_is_refused(place: Place) -> None:
    session_of(place, 2)
    file = exported(place)
    before = place.stored("")
    with pytest.raises(Refused, match="exists"):
        import_(place.db, file)
    other = Place()
    other.send("u9")
    with pytest.raises(Refused, match="exists"):
        import_(other.db, file)
    assert len(other.stored("")) == 1
    assert place.stored("") == before


def test_a_deleted_id_is_told_as_that_and_what_opens_it(place: Place) -> None:
    session_of(place, 2)
    file = exported(place)
    delete(place.db, SID)
    before = place.stored("")
    with pytest.raises(Refused, match=r"was deleted at .* `create` opens the id again"):
        import_(place.db, file)
    assert place.stored("") == before
    place.bucket.put(keys.snapshot(SID), b"broken")
    with pytest.raises(Refused, match="exists"):
        import_(place.db, file)
    place.db.create("other")
    delete(place.db, "other")
    place.db.create("other")
    with pytest.raises(Refused, match="exists"):
        import_(place.db, exported(place, "other"))
    assert fresh(place).history(SID) == []


def test_a_dry_run_checks_and_writes_nothing(place: Place) -> None:
    session_of(place, 2)
    other = Place()
    done = import_(other.db, exported(place), dry_run=True)
    assert done.written == len(place.stored(""))
    assert other.stored("") == {}


def changed(file: io.BytesIO, change: Callable[[dict[str, bytes]], None]) -> io.BytesIO:
    """The archive with other members, its own checksums right."""
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return made


def manifest(**fields: Any) -> Callable[[dict[str, bytes]], None]:
    def change(members: dict[str, bytes]) -> None:
        members["manifest.json"] = json.dumps({**json.loads(members["manifest.json"]), **fields}).encode()

    return change


BROKEN: dict[str, tuple[Callable[[dict[str, bytes]], Any], type[Exception]]] = {
    "a byte of an object": (lambda m: m.update({"snapshot.json": m["snapshot.json"][:-2] + b" }"}), Corrupt),
    "an object is cut": (lambda m: m.update({"snapshot.json": b"{}"}), Corrupt),
    "an object is missing": (lambda m: m.pop("snapshot.json"), Corrupt),
    "an object too many": (lambda m: m.update({"other.txt": b"x"}), Corrupt),
    "no manifest": (lambda m: m.pop("manifest.json"), Corrupt),
    "a manifest that is none": (lambda m: m.update({"manifest.json": b"[]"}), Corrupt),
    "another format": (manifest(format="x"), Corrupt),
    "a newer version": (manifest(version=2), NewerVersion),
    "no session": (manifest(session=None), Corrupt),
    "rows that are none": (manifest(objects=[1]), Corrupt),
    "no rows": (manifest(objects=None), Corrupt),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_file_that_is_not_whole_is_refused_before_anything_is_written(place: Place, what: str) -> None:
    session_of(place, 2)
    change, error = BROKEN[what]
    other = Place()
    with pytest.raises(error):
        import_(other.db, changed(exported(place), change))
    assert other.stored("") == {}


@pytest.mark.parametrize("name", ["../evil", "sessions/x/y.json", "out/1.jsonl", "probe/x"])
def test_a_file_cannot_write_elsewhere(place: Place, name: str) -> None:
    session_of(place, 1)

    def change(members: dict[str, bytes]) -> None:
        members[name] = b"x"
        row = {"name": name, "bytes": 1, "sha256": hashlib.sha256(b"x").hexdigest()}
        manifest(objects=[*json.loads(members["manifest.json"])["objects"], row])(members)

    other = Place()
    with pytest.raises(Corrupt, match="no object of a session"):
        import_(other.db, changed(exported(place), change))
    assert other.stored("") == {}


def test_what_is_no_archive_is_refused(place: Place) -> None:
    with pytest.raises(Corrupt, match="cannot be imported"):
        import_(place.db, io.BytesIO(b"no archive"))


def packed_as(file: io.BytesIO, method: int) -> io.BytesIO:
    made = io.BytesIO()
    with zipfile.ZipFile(file) as archive, zipfile.ZipFile(made, "w", method) as other:
        for name in archive.namelist():
            other.writestr(name, archive.read(name))
    return made


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_an_archive_that_unpacks_without_limit_is_refused(place: Place, method: int) -> None:
    session_of(place, 1)
    with pytest.raises(Corrupt, match="compressed in another way"):
        import_(Place().db, packed_as(exported(place), method))


def test_an_encrypted_archive_is_refused(place: Place) -> None:
    session_of(place, 1)
    data = bytearray(exported(place).getvalue())
    for mark, offset in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        at = data.find(mark)
        while at >= 0:
            data[at + offset] |= 1
            at = data.find(mark, at + 4)
    with pytest.raises(Corrupt, match="is encrypted"):
        import_(Place().db, io.BytesIO(data))


def test_a_file_with_flipped_bits_is_corrupt_or_the_same(place: Place, tmp_path: Path) -> None:
    session_of(place, 1)
    whole, path = exported(place).getvalue(), tmp_path / "flipped.zip"
    told = 0
    for at in range(0, len(whole), 7):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        other = Place()
        try:
            import_(other.db, path)
        except Corrupt:
            told += 1
            assert other.stored("") == {}
        else:
            assert other.stored("") == place.stored("")
    assert told > 100


def test_a_manifest_that_unpacks_to_more_than_any_is_refused_unread() -> None:
    bomb = io.BytesIO()
    with (
        zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("manifest.json", "w") as entry,
    ):
        for _ in range(65):
            entry.write(bytes(1 << 20))
    with pytest.raises(Corrupt, match=r"manifest.json tells of \d+ bytes"):
        import_(Place().db, bomb)


def test_an_archive_that_unpacks_to_more_than_the_limit_is_refused_unread(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_of(place, 1)
    file, other = exported(place), Place()
    with zipfile.ZipFile(file) as archive:
        whole = sum(i.file_size for i in archive.infolist() if i.filename != "manifest.json")
    read = zipfile.ZipFile.read
    names: list[str] = []

    def watched_read(self: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
        names.append(entry.filename)
        return read(self, entry)

    monkeypatch.setattr(zipfile.ZipFile, "read", watched_read)
    with pytest.raises(TooLarge, match=f"unpacks to {whole:,} bytes") as caught:
        import_(other.db, file, limit=whole - 1)
    assert (caught.value.size, caught.value.limit) == (whole, whole - 1)
    assert names == ["manifest.json"]
    assert other.stored("") == {}
    import_(other.db, file, limit=whole)
    check(other)


def test_a_path_that_is_not_there_is_absent_and_not_corrupt(place: Place, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        import_(place.db, tmp_path / "none.zip")


def test_a_session_whose_history_a_hook_owns_is_not_in_a_file(place: Place) -> None:
    session_of(place, 1)

    def change(members: dict[str, bytes]) -> None:
        snapshot = json.loads(members["snapshot.json"])
        del snapshot["crc"]
        members["snapshot.json"] = json.dumps({**snapshot, "messages": [], "hydrated": True}).encode()
        rows = json.loads(members["manifest.json"])["objects"]
        for row in rows:
            data = members[row["name"]]
            row |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        manifest(objects=rows)(members)

    other = Place()
    file = changed(exported(place), change)
    with pytest.raises(Damaged, match="belongs to a hydrate hook"):
        import_(other.db, file)
    assert other.stored("") == {}


def test_a_damaged_session_is_exported_as_it_is_and_not_imported(place: Place) -> None:
    session_of(place, 2)
    place.bucket.inner.put(keys.segment("out", SID, 1), b"broken")
    file = io.BytesIO()
    assert export(place.db, SID, file).why.startswith("it does not verify: corrupt")
    other = Place()
    with pytest.raises(Damaged, match="does not verify"):
        import_(other.db, file)
    assert other.stored("") == {}


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_import_killed_around_any_request_is_run_again(when: Literal["before", "after"]) -> None:
    source = Place()
    session_of(source, 1)
    want = picture(source)
    file = exported(source)
    for number in count(1):
        place = Place()
        killed = killed_at(place, number, when, lambda db: import_(db, file))
        if not killed:
            assert number > 8
            break
        if set(place.stored("")) != set(source.stored("")):
            import_(place.db, file)
        assert place.stored("") == source.stored("")
        assert picture(place) == want


def test_whoever_looks_in_between_sees_nothing_a_gap_or_all(place: Place) -> None:
    session_of(place, 2)
    other = Place()
    seen: list[Any] = []

    def look() -> None:
        try:
            seen.append(len(fresh(other).history(SID)))
        except Gap:
            seen.append("gap")

    import_(watched(other, look), exported(place))
    assert set(seen) == {0, "gap", 4}
    assert seen[-1] == 4


def test_a_session_at_work_is_exported_whole(place: Place) -> None:
    session_of(place, 2)
    other = fresh(place)
    sent = iter(["u3", "u4", "u5"])

    def meanwhile() -> None:
        name = next(sent, None)
        if name is not None:
            other.send(SID, user(name))
            with other.boot(SID) as session:
                for turn in session.turns():
                    with turn:
                        turn.write({"type": "start"})

    target = Place()
    import_(target.db, _export(watched(place, meanwhile)))
    check(target)
    assert len(target.db.history(SID)) >= 4


def _export(db: Any) -> io.BytesIO:
    file = io.BytesIO()
    export(db, SID, file)
    return file


def test_an_export_beside_a_trim(place: Place) -> None:
    session_of(place, 3)
    trimmed: list[Any] = []

    def hook(asked: Call, when: str) -> None:
        if asked.key == "out/chat/" and when == "after" and not trimmed:
            trimmed.append(trim(fresh(place), SID, keep=Keep(turns=1)))

    place.bucket.hook = hook
    target = Place()
    import_(target.db, _export(place.db))
    assert trimmed[0].deleted > 5
    assert picture(target) == picture(place)
    place.clock.advance(HOURS)
