"""A corpus that every test may change, made once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from roots import corpus, folder

from snapshotter.database import Database

SESSIONS = 60


@pytest.fixture(scope="session")
def _made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("corpus") / "root"
    corpus(root.as_uri(), SESSIONS)
    return root


@pytest.fixture
def root(_made: Path, tmp_path: Path) -> Path:
    """A folder with the corpus, of this test's own."""
    return Path(shutil.copytree(_made, tmp_path / "root"))


@pytest.fixture
def db(root: Path) -> Iterator[Database]:
    """A database over it."""
    with folder(root) as found:
        yield found
