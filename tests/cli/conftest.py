"""A root of its own for each test."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder that is a root; its path is a store URL for the command line."""
    return tmp_path / "root"
