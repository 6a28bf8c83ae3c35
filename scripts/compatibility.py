"""What this project does with each S3 server that can be started here: `make compatibility`.

Each server of `stores` is started; through each driver `snapshotter doctor --deep` says what the engine will
do with it, and a short session with a killed worker shows whether it does that. The rows go into
docs/stores.md.

    python scripts/compatibility.py                     all servers, all drivers, the page
    python scripts/compatibility.py seaweed ceph        these alone; the other rows stay as they are
    python scripts/compatibility.py --print moto        the rows on stdout, the page untouched

Exit code 1: the engine did something else than was said of it. 3: a server could not be started here; its
rows stay, with their dates, and stderr says what would help.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from stores import STORES, NoServer, Running, started
from stores.session import killed_turn
from stores.table import Row, rewrite

PAGE = Path(__file__).parents[1] / "docs" / "stores.md"
DRIVERS = {"s3": "boto3", "minio": "minio-py", "s3+obstore": "obstore"}
_SECONDS = 900


@dataclass
class Outcome:
    """What came of all servers: rows of the table, what was not as said, and which server is missing."""

    rows: list[Row] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


def examine(server: Running, scheme: str, *options: str) -> dict[str, Any]:
    """What `doctor --deep` says of the server. Raises RuntimeError where it says nothing."""
    url = server.url(scheme, _root(scheme))
    done = subprocess.run(
        [sys.executable, "-m", "snapshotter", "doctor", "--deep", "--json", *options, url],
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
        env=server.environment(),
    )
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except json.JSONDecodeError:
        raise RuntimeError(f"doctor said {done.stdout!r} and {done.stderr[-400:]!r}") from None
    return found


def sessions(server: Running, scheme: str) -> tuple[str, str]:
    """How a session with a killed worker goes in the root that was examined: as it is, and with unfenced work
    allowed."""
    url, environment = server.url(scheme, _root(scheme)), server.environment()
    return (
        killed_turn(url, "plain", environment, unfenced=False),
        killed_turn(url, "unfenced", environment, unfenced=True),
    )


def _root(scheme: str) -> str:
    return f"by-{scheme.replace('+', '-')}"


def try_driver(name: str, server: Running, scheme: str, outcome: Outcome) -> None:
    """One row, and what is wrong with it."""
    found = examine(server, scheme)
    verdict = found.get("verdict", f"stops: {found.get('error')}")
    plain, unfenced = sessions(server, scheme)
    expected = {
        "fenced": ("completed", "completed"),
        "unfenced": ("Unsupported", "completed"),
        "refused": ("Unsupported", "Unsupported"),
    }
    where = f"{name} by {DRIVERS[scheme]}"
    if expected.get(verdict) != (plain, unfenced):
        outcome.wrong.append(f"{where}: it is {verdict}, and sessions came to {plain}, {unfenced}")
    if found.get("left") and verdict != "refused":
        outcome.wrong.append(f"{where}: left behind: {', '.join(found['left'])}")
    row = (
        STORES[name].name,
        server.version,
        DRIVERS[scheme],
        f"**{_WORDS.get(verdict, verdict)}**",
        lacking(found),
        told(plain, unfenced),
        datetime.now(UTC).date().isoformat(),
    )
    outcome.rows.append(row)
    print(" | ".join(row), flush=True)


_WORDS = {"fenced": "works", "unfenced": "works only with `allow_unfenced`"}


UNQUOTED = "quoted ETags in If-Match (it gets them unquoted)"
_GUARANTEES = {
    "create": "conditional create",
    "replace": "conditional replace",
    "exact": "exact bytes",
    "listing": "complete listings in order",
    "plain": "names or copies as asked",
    "copy": "copies that are creates",
}
_WITHOUT = {
    "nonces_travel_with_the_object": "metadata",
    "the_store_dates_its_answers": "dates",
    "long_names_are_kept": "long names",
    "folders_are_listed_in_byte_order": "byte order across folders",
    "a_key_is_no_folder": "keys below keys",
    "a_checksum_is_taken": "`checksum=`",
}


def lacking(found: dict[str, Any]) -> str:
    """Guarantees of which a check failed, then what the engine can do without; and how If-Match is taken,
    where that is unusual."""
    failed = [f for f in found.get("contract", ()) if f["state"] in ("fails", "not answered")]
    lost = {f["guarantee"] for f in failed}
    known = found.get("capabilities") or {}
    if known.get("create") and not known.get("copy"):
        lost.add("copy")
    names = [words for guarantee, words in _GUARANTEES.items() if guarantee in lost]
    names += [_WITHOUT[f["check"]] for f in failed if not f["guarantee"]]
    if known.get("etag") == "unquoted":
        names.append(UNQUOTED)
    if found.get("message"):
        names.append(found["message"].replace("|", "/"))
    return ", ".join(names) or "–"


def told(plain: str, unfenced: str) -> str:
    if plain == "completed":
        return "completed by the next worker"
    if unfenced == "completed":
        return f"`{plain}`; completed with `allow_unfenced`"
    return f"`{plain}`" if plain == unfenced else f"`{plain}`; `{unfenced}`"


def try_server(name: str, outcome: Outcome) -> None:
    with tempfile.TemporaryDirectory(prefix="snapshotter-") as folder:
        try:
            with started(name, Path(folder)) as server:
                for scheme, driver in DRIVERS.items():
                    try:
                        try_driver(name, server, scheme, outcome)
                    except (RuntimeError, subprocess.TimeoutExpired) as error:
                        outcome.wrong.append(f"{name} by {driver}: {error}")
        except NoServer as error:
            outcome.missing.append(f"{name}: {error}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("servers", nargs="*", metavar="SERVER", help=", ".join(STORES))
    parser.add_argument("--print", action="store_true", help="leave the page as it is")
    args = parser.parse_args()
    unknown = [name for name in args.servers if name not in STORES]
    if unknown:
        parser.error(f"no server is called {unknown[0]}; there are {', '.join(STORES)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers are ended in order
    outcome = Outcome()
    for name in args.servers or STORES:
        try_server(name, outcome)
    if not args.print:
        rewrite(PAGE, outcome.rows, [(s.name, d) for s in STORES.values() for d in DRIVERS.values()])
    for line in outcome.missing:
        print(f"not started: {line}", file=sys.stderr)
    for line in outcome.wrong:
        print(f"NOT AS SAID: {line}", file=sys.stderr)
    return 1 if outcome.wrong else 3 if outcome.missing else 0


if __name__ == "__main__":
    sys.exit(main())
