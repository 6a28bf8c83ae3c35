"""Each target of `targets.py`, over real bytes that were broken in every way that `mutations.py` knows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutations import mutated
from targets import TARGETS

EXAMPLES = {"store": 60, "shown": 60, "url": 60}
PAGE = Path(__file__).parents[2] / "docs" / "simulation.md"


def test_the_page_lists_the_targets() -> None:
    text = PAGE.read_text(encoding="utf-8")
    (listed,) = re.findall(r"^The targets: (.*?)\.", text, re.M | re.S)
    assert re.findall(r"`(\w+)`", listed) == list(TARGETS)
    assert f"a minute for each of the {len(TARGETS)} targets" in text


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_good_bytes_keep_the_laws(name: str) -> None:
    for seed in TARGETS[name].seeds():
        TARGETS[name].run(seed)


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_broken_bytes_keep_the_laws(name: str) -> None:
    seeds = TARGETS[name].seeds()

    @settings(
        max_examples=EXAMPLES.get(name, 150),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(st.data())
    def law(data: st.DataObject) -> None:
        def choose(bound: int) -> int:
            return data.draw(st.integers(0, bound - 1))

        TARGETS[name].run(mutated(seeds[choose(len(seeds))], choose))

    law()
