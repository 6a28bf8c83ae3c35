"""Are there known weaknesses in what is installed here? Asked of the public advisory databases, by pip-audit.

    python scripts/audit.py

Exit codes: 0 none is known; 1 some are (they are listed, with the versions that mend them); 3 the databases
could not be asked about all of it. pip-audit by itself calls a package that it could not look up "skipped"
and succeeds, so behind a mirror that keeps no advisories everything would seem well: here that is a 3, and
loud.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

NONE, FOUND, NOT_ASKED = 0, 1, 3
SERVICES = ("pypi", "osv")  # the second knows the same advisories; it is asked where the first cannot be
_SECONDS = 300


def main() -> int:
    for service in SERVICES:
        report = ask(service)
        if report is None:
            continue
        found = [package for package in report if package.get("vulns")]
        for package in found:
            for weakness in package["vulns"]:
                mended = ", ".join(weakness["fix_versions"]) or "no release yet"
                print(f"{package['name']} {package['version']}: {weakness['id']} (mended in: {mended})")
        if found:
            return FOUND
        print(f"audited {len(report)} packages by {service}: no known weakness")
        return NONE
    print("NOT AUDITED: no advisory database could be asked about all packages", file=sys.stderr)
    return NOT_ASKED


def ask(service: str) -> list[dict[str, Any]] | None:
    """The packages that are installed here, each with its `vulns`; None where one could not be looked up and
    none was found wanting."""
    options = ["--vulnerability-service", service, "--skip-editable", "--format", "json"]
    command = [sys.executable, "-m", "pip_audit", *options, "--progress-spinner", "off", "--timeout", "10"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
        packages: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (subprocess.TimeoutExpired, ValueError, KeyError):
        return None
    known = [package for package in packages if "vulns" in package]
    missed = [p for p in packages if "vulns" not in p and "editable" not in p.get("skip_reason", "")]
    if any(package["vulns"] for package in known):
        return known
    return None if missed or not known else known


if __name__ == "__main__":
    sys.exit(main())
