"""The command line. The only package that imports click; everything else is a library without it."""

from __future__ import annotations

import io
import sys


def main() -> None:
    """Run the command that the arguments name, and exit with its code."""
    from .app import cli

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal without UTF-8 is no reason to fail
    cli.main()
