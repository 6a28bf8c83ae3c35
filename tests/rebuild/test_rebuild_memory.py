"""What a rebuild holds of a session: a few windows of its logs, and of its messages the newest, whatever
their number; and so do `verify`, a trim, a compaction and gc."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.common import fresh
from snapshotter.core.chunks import delta_of
from snapshotter.rebuilding import Options, rebuild_some, working
from streams import keys
from streams.codec import frame
from streams.packing import Packer

TURNS = 1_000
TEXT = "all that is said " * 1_500  # 25 kB
LOG = TURNS * len(TEXT)
PEAKS = 120  # turns: 250 kB of messages as JSON, which is what `peaks` lets be read before any leaves memory
PAGE = 1_300_000  # of 840 turns more the messages alone are three times as much


def bodies(number: int) -> Iterator[dict[str, Any]]:
    """A turn; what was said before it is cleared away first."""
    yield {"control": "history", "op": "clear"}
    yield {"control": "turn-start", "turn": number, "attempt": 1, "epoch": 1, "run": "r", "inputs": []}
    for chunk in (
        {"type": "start", "messageId": f"m{number}"},
        {"type": "text-start", "id": "t"},
        {"type": "text-delta", "id": "t", "delta": TEXT},
        {"type": "text-end", "id": "t"},
        {"type": "finish", "finishReason": "stop"},
    ):
        yield {"chunk": chunk}
    yield {"control": "turn-complete", "turn": number, "status": "completed"}


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with one session, whose log is long and whose history is short."""
    root = tmp_path_factory.mktemp("long")
    (root / "out" / "long").mkdir(parents=True)
    first = 1
    for number in range(1, TURNS + 1):
        packer = Packer(first, delta_of)
        for body in bodies(number):
            packer.add(number, body)
        data = frame(
            "out",
            first,
            packer.next - 1,
            packer.lines(),
            nonce=f"n{number}",
            epoch=1,
            run="r",
            prev=f"n{number - 1}" if number > 1 else None,
        )
        root.joinpath(keys.segment("out", "long", first)).write_bytes(data)
        first = packer.next
    return root


@pytest.mark.parametrize("ahead", [False, True])
def test_no_more_than_a_few_windows_are_held(
    long: Path, ahead: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(working, "is_at_hand", lambda _url: not ahead)
    rebuild_some(long.as_uri(), Options(), [])  # what is imported at the first call is not counted
    tracemalloc.start()
    try:
        (result,) = rebuild_some(long.as_uri(), Options(), ["long"])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (result.status, result.turns, result.messages, result.segments) == ("unsaved", TURNS, 1, TURNS)
    assert result.bytes > LOG
    window = 64 * len(TEXT)
    assert peak < 5 * window < LOG / 3


def test_a_session_eight_times_as_long_takes_little_more(tmp_path: Path) -> None:
    """Whatever reads a whole log: by the bytes that each takes at most, in processes of their own."""
    code = "import runpy, sys; print(runpy.run_path(sys.argv[1])['main'](*sys.argv[2:]))"
    script = str(Path(__file__).with_name("peaks.py"))
    short, long = (
        fresh(code, script, str(tmp_path / str(turns)), str(turns)) for turns in (PEAKS, 8 * PEAKS)
    )
    assert set(short) == set(long)
    assert len(short) == 8
    # A page of a listing has a thousand entries, of which the short one has none too many.
    more = {name: (short[name], long[name]) for name in short if long[name] > short[name] + PAGE}
    assert not more
