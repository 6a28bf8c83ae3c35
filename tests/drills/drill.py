"""A fault drill on real processes, over a real store. Run as a program:

    python tests/drills/drill.py --kills 300 --zombies 100 --store file|s3|minio|all --seed N

Workers and clients are killed, stopped and continued at random moments; the server below them is killed and
started again, stalled, and its disk filled. Each process keeps a journal of what the engine acknowledged to
it. When everything is calm again, the journals and the stored bytes are judged by the checker that judges the
simulation, too, and knows nothing of how the engine works. Exit code 1 where anything is wrong.

The seed decides what is done in which order; when it hits is the machine's, so a run does not repeat exactly.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import click

HERE = Path(__file__).parent
for folder in (HERE.parents[1], HERE, HERE.parent / "simulation"):
    sys.path.insert(0, str(folder))

from checker import Checker  # noqa: E402
from drill_director import Director  # noqa: E402
from drill_journal import Event, read_all  # noqa: E402
from drill_place import place_for  # noqa: E402

SPEED = 8.0
TROUBLES = ("kill", "zombie", "pause", "restart", "stall", "full")


@dataclass
class Report:
    """What one drill did and found. `killed`: the killed by the last event that they noted; `given_up`: turns
    sealed as exhausted; `errors`: by type; `wrong`: all that must not be."""

    store: str
    seed: int
    seconds: float
    troubles: dict[str, int]
    sessions: int
    events: dict[str, int]
    errors: dict[str, int]
    killed: dict[str, int]
    given_up: int
    wrong: list[str]
    not_tried: str


def drill(
    store: str, trouble: dict[str, int], seed: int, told: Callable[[], None], kept: Path | None = None
) -> Report:
    """One drill over one store. Its folder is kept when that is asked for (`kept`, below which it is made),
    or when something is wrong. Raises NoServer."""
    folder = Path(tempfile.mkdtemp(prefix=f"drill-{store}-", dir=kept))
    began = time.monotonic()
    with place_for(store, folder) as place:
        if place.why_not_full:
            trouble = {**trouble, "full": 0}
        if not place.served:
            trouble = {**trouble, "restart": 0, "stall": 0}
        (folder / "journals").mkdir()
        about = {"url": place.url, "env": place.env, "speed": SPEED, "began": time.time()}
        director = Director(place, {**about, "journals": str(folder / "journals")}, trouble, seed, told)
        director.run()
        objects = place.objects(director.sessions)
        why = place.why_not_full
    events = read_all(folder / "journals")
    wrong = [*director.wrong, *judge(events, objects)]
    if wrong or kept:
        keep(folder, objects)
    else:
        shutil.rmtree(folder)
    return Report(
        store=store,
        seed=seed,
        seconds=round(time.monotonic() - began, 1),
        troubles={name: director.counts[name] for name in TROUBLES},
        sessions=len(director.sessions),
        events=dict(Counter(event["what"] for event in events)),
        errors=errors_of(events),
        killed=killed_after(events),
        given_up=sum(data.count(b'"status":"exhausted"') for data in objects.values()),
        wrong=wrong,
        not_tried=f"full disks: {why}" if why else "",
    )


def judge(events: list[Event], objects: dict[str, bytes]) -> list[str]:
    checker = Checker(processes=True)
    for event in events:
        checker.see(event)
    checker.judge(objects)
    return [str(each) for each in checker.violations]


def keep(folder: Path, objects: dict[str, bytes]) -> None:
    """The stored bytes beside the journals, for a person to look at."""
    for key, data in objects.items():
        path = folder / "objects" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    click.echo(f"journals and stored bytes are kept in {folder}", err=True)


def errors_of(events: list[Event]) -> dict[str, int]:
    """Errors by their type; Busy and Fenced are among them."""
    found = Counter(event["type"] for event in events if event["what"] == "error")
    found.update(event["what"].title() for event in events if event["what"] in ("busy", "fenced"))
    return dict(found.most_common())


def killed_after(events: list[Event]) -> dict[str, int]:
    """How far those that were killed had come, by the last that they told."""
    last: dict[str, str] = {}
    found: Counter[str] = Counter()
    for event in events:
        if event.get("how") == "killed":
            found[last.get(event["who"], "start")] += 1
        last[event["who"]] = event["what"]
    return dict(found.most_common())


def counts(found: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in found.items()) or "none"


def lines_of(found: Report) -> list[str]:
    """The summary for people."""
    events, troubles = found.events, found.troubles
    rows = {
        "kills": f"{troubles['kill']} (after {counts(found.killed)})",
        "zombies": f"{troubles['zombie']} (each woke behind another worker)",
        "pauses": troubles["pause"],
        "server restarts": troubles["restart"],
        "server stalls": troubles["stall"],
        "full disks": found.not_tried or troubles["full"],
        "sessions": found.sessions,
        "acked sends": events.get("sent", 0),
        "model calls": events.get("model-call", 0),
        "tool runs": events.get("tool-run", 0),
        "turns ended": events.get("turn-ended", 0),
        "given up": found.given_up,
        "errors": counts(found.errors),
        "violations": len(found.wrong),
    }
    head = f"{found.store}, seed {found.seed}, {found.seconds:.0f} s"
    return [head, *(f"  {name:<16} {value}" for name, value in rows.items()), *map(str, found.wrong[:20])]


@click.command()
@click.option("--kills", default=60, show_default=True)
@click.option("--zombies", default=20, show_default=True)
@click.option("--pauses", default=20, show_default=True)
@click.option("--restarts", default=2, show_default=True, help="Of the server (s3, minio).")
@click.option("--stalls", default=2, show_default=True, help="Of the server (s3, minio).")
@click.option("--fills", default=2, show_default=True, help="Of the disk.")
@click.option("--store", type=click.Choice(["file", "s3", "minio", "all"]), default="all", show_default=True)
@click.option("--seed", type=int, help="By default a random one.")
@click.option("--keep", type=click.Path(path_type=Path), help="Keep journals and stored bytes below here.")
@click.option("--json", "as_json", is_flag=True, help="One line of JSON a store.")
def main(store: str, seed: int | None, keep: Path | None, as_json: bool, **trouble: int) -> None:
    """Kill, stop and starve real processes; then see whether anything acknowledged was lost."""
    seed = random.randrange(2**32) if seed is None else seed
    trouble = {name.removesuffix("s"): count for name, count in trouble.items()}
    trouble["full"] = trouble.pop("fill")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # no server is left behind
    failed = False
    for name in ("file", "s3", "minio") if store == "all" else (store,):
        with click.progressbar(length=sum(trouble.values()), label=name, file=sys.stderr) as bar:
            found = drill(name, trouble, seed, partial(bar.update, 1), keep)
        failed |= bool(found.wrong)
        click.echo(json.dumps(asdict(found)) if as_json else "\n".join(lines_of(found)))
    sys.exit(failed)


if __name__ == "__main__":
    main()
