"""The comparison with peers: its own part runs, and what counts it counts right.

The peers themselves are not run here: they are installed from an index, and take a quarter of an hour.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from endpoints import Endpoint

from benchmarks.peers import environments, measure, report
from benchmarks.peers.measure import PEERS, Found, Peer
from benchmarks.peers.proxy import Cost, Exchange, Proxy, depth

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
