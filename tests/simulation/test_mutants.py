"""Each engine that is broken on purpose is caught, and where it is broken was run."""

from __future__ import annotations

import pytest
from hunting import BEST, best, hunt
from mutants import MUTANTS
from mutating import Edit, Mutant, patched

from streams.store import Store
from streams.writer import Writer


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_broken_engine_is_caught(mutant: Mutant) -> None:
    with mutant.patch() as ran:
        caught = hunt(best(mutant.name))
    assert caught.rule, f"{mutant.breaks}: not seen in {caught.schedules} schedules of {caught.where!r}"
    assert set(ran) == {edit.function.__qualname__ for edit in mutant.edits}


def test_every_mutant_is_hunted_once() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(set(names)) == len(names) >= 69
    assert sorted(name for group in BEST.values() for name in group) == sorted(names)


def test_a_patch_meets_every_caller_and_is_undone() -> None:
    """Also one that took the function by name, as `from module import function` does."""
    before, taken = Writer.flush.__code__, Writer.flush
    with patched([Edit(Writer.flush, "self._await(last)", "pass")]):
        assert taken.__code__ is not before
    assert Writer.flush.__code__ is before
    assert "_mutated_ran" not in Writer.flush.__globals__


@pytest.mark.parametrize(("old", "times"), [("head.nonce is not there", "0"), ("head", r"\d\d")])
def test_an_edit_that_fits_nowhere_or_twice_is_refused(old: str, times: str) -> None:
    with (
        pytest.raises(AssertionError, match=rf"has '{old}' {times} times"),
        patched([Edit(Store._find_own, old, "")]),
    ):
        pass
