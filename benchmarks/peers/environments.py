"""The venvs of the peers: made when they are needed, kept for the next run, never mixed with our own.

Each peer has one, so that none of them decides what another one gets. Ranges name the releases that the
report was made with; a bugfix release may come in, a new version is a change of this file. A venv whose
requirements have changed since is made anew.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import venv
from pathlib import Path

FOLDER = Path.home() / ".cache" / "snapshotter-peers"
OWN = "ours"
"""The environment that runs this program."""

REQUIREMENTS: dict[str, tuple[str, ...]] = {
    "strands": ("strands-agents>=1.62,<1.63", "boto3>=1.40,<2"),
    "langgraph": (
        "langgraph>=1.2.24,<1.3",
        "langgraph-checkpoint>=4.3,<4.4",
        "langgraph-checkpoint-sqlite>=3.1,<3.2",
        "langgraph-checkpoint-objectstorage>=0.1.15,<0.2",
        "s3fs>=2026.9,<2027",
    ),
    "openai": ("openai-agents>=0.24,<0.25",),
    "eventsourcing": ("eventsourcing>=9.5,<9.6",),
    "plot": ("matplotlib>=3.9,<4",),
}
TOLD = {
    OWN: ("boto3", "minio", "obstore"),
    "strands": ("strands-agents", "boto3"),
    "langgraph": (
        "langgraph",
        "langgraph-checkpoint-objectstorage",
        "langgraph-checkpoint-sqlite",
        "s3fs",
        "aiobotocore",
    ),
    "openai": ("openai-agents",),
    "eventsourcing": ("eventsourcing",),
}
"""Whose versions a report tells."""


def python(folder: Path, name: str) -> str:
    """The interpreter of an environment, which is made now if it is not there. Raises CalledProcessError
    where pip cannot install it."""
    if name == OWN:
        return sys.executable
    place = folder / name
    program, stamp = place / "bin" / "python", place / "requirements.json"
    wanted = json.dumps(REQUIREMENTS[name])
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(place, ignore_errors=True)
        venv.create(place, with_pip=True)
        pip = [str(program), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *REQUIREMENTS[name]], check=True, stderr=subprocess.DEVNULL)
        stamp.write_text(wanted)
    return str(program)


_VERSIONS = "import sys; from importlib.metadata import version; print([version(n) for n in sys.argv[1:]])"


def versions(folder: Path, name: str) -> dict[str, str]:
    """The installed versions of what a report tells of this environment."""
    asked = [python(folder, name), "-c", _VERSIONS, *TOLD[name]]
    found = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
    return dict(zip(TOLD[name], json.loads(found.replace("'", '"')), strict=True))
