"""The comparison with peers, and the load: our own parts run, and what counts them counts right.

The peers themselves are not run here: they are installed from an index, and take a quarter of an hour. The
load is a small one.
"""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from endpoints import Endpoint

from benchmarks.common import fresh
from benchmarks.load import command, crowd, gauge, long, records, soak
from benchmarks.load import report as load_report
from benchmarks.load.handle import Dead, Handle
from benchmarks.peers import environments, measure, report
from benchmarks.peers.measure import PEERS, Found, Peer
from benchmarks.peers.proxy import Cost, Exchange, Proxy, depth
from streams.buckets.memory import MemoryBucket

OWN = [peer for peer in PEERS if peer.key == "ours-minio"]


@pytest.mark.parametrize(
    ("spans", "trips"),
    [
        ([], 0),
        ([(0, 1), (0, 1), (0.5, 1.5)], 1),  # at once
        ([(0, 1), (1, 2), (2, 3)], 3),  # each when the one before is answered
        ([(0, 9), (0, 1), (1, 2)], 2),  # a slow one beside two
    ],
)
def test_a_round_trip_is_counted_from_the_times(spans: list[tuple[float, float]], trips: int) -> None:
    assert depth(spans) == trips


def test_what_exchanges_come_to() -> None:
    cost = Cost.of([Exchange("PUT", 0, 1, 10, 0), Exchange("GET", 1, 2, 0, 5), Exchange("GET", 1, 2, 0, 6)])
    assert cost == Cost({"GET": 2, "PUT": 1}, sent=10, received=11, round_trips=2)
    assert cost.requests == 3


@pytest.fixture
def measured(moto_server: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Found]:
    """Our part of the comparison, in one round over the emulator."""
    monkeypatch.setattr(measure, "ROUNDS", 1)
    monkeypatch.setattr(measure, "WARM", 1)
    bucket = moto_server.s3()
    bucket._client.create_bucket(Bucket="snapshotter")
    bucket.close()
    own = moto_server.keys
    keys = {"AWS_ACCESS_KEY_ID": own.access_key, "AWS_SECRET_ACCESS_KEY": own.secret_key}
    told: list[str] = []
    with (
        Proxy(moto_server.url) as proxy,
        measure.processes(OWN, tmp_path, tmp_path, {**keys, "AWS_REGION": "us-east-1"}) as running,
    ):
        found = list(measure.measure(running, [2, 12], moto_server.url, proxy, tmp_path, told.append))
    assert told
    return found


def test_our_part_runs_and_is_reported(measured: list[Found]) -> None:
    again = [Found.of(json.loads(json.dumps(row.plain()))) for row in measured]
    assert again == measured
    assert [(row.peer.key, row.turns, row.boot.messages) for row in measured] == [
        *((peer.key, 2, 4) for peer in OWN),
        *((peer.key, 12, 24) for peer in OWN),
    ]
    for row in measured:
        assert row.boot.cost is not None
        assert row.boot.cost.round_trips <= 2
        assert row.first is not None
        assert row.first.kinds["PUT"] >= 4  # the claim, the call, its result, the end
    assert len(measured[-1].starts) == 1
    tables = {table.title: table for table in report.tables(measured)}
    assert len(tables["A boot of a session in S3"].rows) == len(measured)
    page = report.page(list(tables.values()), {"ours": environments.versions(Path(), "ours")}, "plot.svg")
    assert all(f"## {title}" in page for title in tables)
    assert not any(name in page for name in ("{machine}", "{plot}", "{tables}"))


def test_every_peer_has_an_environment_and_a_driver() -> None:
    folder = Path(measure.__file__).parent
    for peer in PEERS:
        assert peer.environment == environments.OWN or peer.environment in environments.REQUIREMENTS
        assert (folder / f"{peer.module}.py").exists()
    assert len({peer.key for peer in PEERS}) == len(PEERS)


def test_a_peer_that_ends_is_told(tmp_path: Path) -> None:
    broken = Peer("broken", "Broken", environments.OWN, "no_such_driver", "")
    with measure.processes([broken], tmp_path, tmp_path, {}) as (process,):
        with pytest.raises(RuntimeError, match="broken has ended while it was asked to boot"):
            process.ask("boot")


# -- load ---------------------------------------------------------------------------------------------------

ON_LINUX = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="the load is read from /proc")


def test_of_a_dead_worker_nothing_is_sent_and_nothing_heard() -> None:
    inner = MemoryBucket()
    handle = Handle(inner)
    handle.put("out/a/1", b"one", if_absent=True)
    handle.cut("a")
    for ask in (
        lambda: handle.get("out/a/1"),
        lambda: handle.head("out/a/1"),
        lambda: handle.put("out/a/2", b"two"),
        lambda: handle.list("out/a/"),
        lambda: handle.delete("out/a/1"),
    ):
        with pytest.raises(Dead):
            ask()
    assert inner.get("out/a/1") is not None
    assert inner.get("out/a/2") is None
    handle.put("out/ab/1", b"another")
    assert (handle.unsent, handle.bill.put, handle.bill.written) == (5, 2, 10)


def test_what_lands_as_its_sender_dies_is_not_heard_of() -> None:
    class Killing(MemoryBucket):
        def put(self, key: str, data: bytes, **condition: Any) -> Any:
            written = super().put(key, data, **condition)
            handle.cut("a")
            return written

    inner = Killing()
    handle = Handle(inner)
    with pytest.raises(Dead):
        handle.put("out/a/1", b"one")
    assert inner.get("out/a/1") is not None


@ON_LINUX
def test_what_a_process_holds_is_counted() -> None:
    before = gauge.now(objects=True)
    stay = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server, gauge.Peaks():
        waiting = threading.Thread(target=stay.wait)
        waiting.start()
        with socket.create_connection(server.getsockname()), server.accept()[0]:
            kept = [[number] for number in range(10_000)]
            now = gauge.now(objects=True)
        stay.set()
        waiting.join()
    assert now.connections - before.connections == 2
    assert now.files - before.files >= 3
    assert now.objects - before.objects >= len(kept)
    assert now.threads >= 3  # this one, the one that waits, the one that looks
    assert gauge.settled(before).files <= before.files


@ON_LINUX
def test_what_a_block_takes_is_counted() -> None:
    """In a process of its own: in this one memory that other tests have let go of is taken again."""
    much = 50_000_000
    before, most, held = fresh(
        "from benchmarks.load import gauge\n"
        "before = gauge.now()\n"
        f"with gauge.Peaks() as peaks, gauge.Held() as held:\n    much = bytearray({much})\n"
        "print([before.memory, peaks.most.memory, held.bytes])"
    )
    assert most > before
    assert much * 0.9 < held < much * 2


def small(folder: Path) -> dict[str, Any]:
    """All parts, of a few sessions, turns and records."""
    url, grown = (folder / "records").as_uri(), folder / "long"
    grown.mkdir()
    size = {"sessions": 4, "chunks": 60, "pace": 200.0}
    by = {how: crowd.run(f"memory://crowd-by-{how}", how, **size) for how in crowd.HOW}
    boots = []
    lengths = [20, 60]
    rows = long.grow(lengths, str(grown))
    for window in (long.WINDOW, None):
        for length in lengths:
            boots.append({"turns": length, "window": window, **long.booted(str(grown), length, window)})
    made = records.made(url, 3, 40)
    calls = {"boot": records.booted, "verify": records.verified, "follow": records.followed}
    read = {name: call(url) for name, call in calls.items()}
    read["rebuild"] = records.rebuilt(url)
    written = records.opened(url, "open", 80)
    still = {"deltas": 80, "written": written, "boot": records.booted(url, "open")}
    return {
        "crowd": {**size, "by": by},
        "soak": {"seconds": 0.6, "every": 0.1, "sessions": 2, **soak.run("memory://soak", 0.6, 2, 2, 0.1)},
        "long": {
            "lengths": lengths,
            "grown": rows,
            "boots": boots,
            "pages": {"the middle": long.paged(str(grown), 60, 30)},
            "kept": long.kept(str(grown), 60, 10),
        },
        "records": {"turns": 3, "deltas": 40, "made": made, "read": read, "open": [still]},
    }


@ON_LINUX
def test_a_small_load_runs_and_is_reported(tmp_path: Path) -> None:
    found = json.loads(json.dumps(small(tmp_path)))
    assert set(found) == set(command.PARTS)
    for run in found["crowd"]["by"].values():
        assert run["kept"] > 0
        assert run["held"]["after"]["threads"] <= run["held"]["before"]["threads"]
    assert set(found["soak"]["did"]) > {"turns", "killed", "fenced", "broken off", "by a task"}
    assert [row["found"] for row in found["long"]["boots"]] == [40, 120, 40, 120]
    assert found["long"]["pages"]["the middle"]["found"] == long.PAGE
    assert found["long"]["kept"]["after"]["out"] < found["long"]["kept"]["before"]["out"]
    made = found["records"]["made"]["records"]
    assert found["records"]["read"]["follow"]["found"] == made == 3 * (40 + 8)
    assert found["records"]["read"]["rebuild"]["found"] == made
    tables = load_report.tables(found)
    page = load_report.page(tables)
    assert all(f"## {table.title}" in page for table in tables)
    assert not any(name in page for name in ("{machine}", "{tables}"))


@ON_LINUX
def test_a_part_runs_in_a_process_of_its_own() -> None:
    assert gauge.isolated("gauge", "quantile", values=[3, 1, 2], share=0.5) == 2
