"""The law, for whatever a session can live through: its log alone rebuilds what is stored, in any layout."""

from __future__ import annotations

from typing import Any

import pytest
from chat_samples import SID
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from roots import TESTS, forget, loaded, one

from snapshotter import windows
from snapshotter.rebuilding import Options

blocks: Any = loaded(TESTS / "properties" / "blocks_script.py")

SCRIPTS = settings(
    max_examples=25,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)


@SCRIPTS
@given(data=st.data())
def test_a_session_is_rebuilt_from_its_log(data: st.DataObject) -> None:
    steps = blocks.script(lambda n: data.draw(st.integers(0, n - 1)), data.draw(st.integers(2, 14)))
    sizes = data.draw(st.sampled_from([blocks.PLAIN, blocks.TINY]))
    play = blocks.Play(sizes, lambda: None)
    play.play(steps)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "WINDOW", data.draw(st.sampled_from([1, 2, 64])))
        found = one(play.db, Options(sizes=sizes))
        if not (found.inputs or found.cursor):  # edits of a session that is not there came to nothing
            assert found.status == "absent", found
            return
        assert found.status in ("same", "unsaved"), found
        before, state = play.document(), play.found()
        forget(play.db, SID)
        written = one(play.db, Options("write", sizes=sizes))
        assert written.status in ("written", "unsaved"), written
        assert play.found() == state
        if before is not None:
            assert written.status == "written"
            assert one(play.db, Options(sizes=sizes)).status == "same"
