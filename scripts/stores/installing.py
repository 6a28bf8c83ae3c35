"""Installing servers, each in a place of its own that later runs find again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from s3_server import NoServer

HOME = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "snapshotter-stores"


def python_home(package: str, version: str) -> Path:
    """The `bin` folder of a virtual environment with this version of a package from PyPI. Raises NoServer."""
    home = HOME / f"{package}-{version}"
    if not (home / "installed").exists():
        shutil.rmtree(home, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(home)])
        _run(
            [
                str(home / "bin" / "pip"),
                "install",
                "--quiet",
                "--disable-pip-version-check",
                f"{package}=={version}",
            ]
        )
        (home / "installed").touch()
    return home / "bin"


def node_home(package: str, version: str) -> Path:
    """The `.bin` folder of an npm prefix with this version of a package. No package's own script is run.
    Raises NoServer."""
    home = HOME / f"{package}-{version}"
    if not (home / "installed").exists():
        if shutil.which("npm") is None or shutil.which("node") is None:
            raise NoServer(f"{package} needs node and npm")
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        _run(
            [
                "npm",
                "install",
                "--prefix",
                str(home),
                "--no-audit",
                "--no-fund",
                "--ignore-scripts",
                f"{package}@{version}",
            ]
        )
        (home / "installed").touch()
    return home / "node_modules" / ".bin"


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoServer(f"{' '.join(command)}: {done.stderr.strip()[-600:]}")
