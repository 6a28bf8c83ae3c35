"""Coverage-guided fuzzing of whatever reads bytes from outside: `python scripts/fuzz.py TARGET --minutes 5`.

Needs `pip install -e '.[fuzz]'` (atheris, libFuzzer's door to Python). The targets are those of
`tests/fuzz/targets.py`, the seeds what the engine itself wrote; `all` takes one target after the other, each
in a process of its own. What is found new is kept in `.fuzz/TARGET`, so that the next run goes on from there;
a finding is a traceback and a file `.fuzz/TARGET-crash-…` (`-timeout-`, `-oom-`), which a run with
`--again FILE` repeats.
"""

from __future__ import annotations

import argparse
import logging
import random
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".fuzz"
SECONDS = 20  # that one input may take, instrumented
MEGABYTES = 2048
LONGEST = 1 << 16


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("target", help="a name from tests/fuzz/targets.py, or all")
    parser.add_argument("--minutes", type=float, default=1.0, help="for each target")
    parser.add_argument("--again", type=Path, help="run this one input and stop")
    asked = parser.parse_args()
    sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "fuzz")]
    if asked.target == "all":
        return _all(asked.minutes)
    targets = import_module("targets") if asked.again is not None else _instrumented()
    if asked.target not in targets.TARGETS:
        parser.error(f"no such target; there are {', '.join(targets.TARGETS)}")
    if asked.again is not None:
        targets.TARGETS[asked.target].run(asked.again.read_bytes())
        return 0
    _fuzz(targets, asked.target, round(asked.minutes * 60))
    return 0


def _all(minutes: float) -> int:
    """Every target; how many did not end well."""
    import targets

    failed = []
    for name in targets.TARGETS:
        print(f"== {name}", flush=True)
        command = [sys.executable, __file__, name, "--minutes", str(minutes)]
        if subprocess.run(command, check=False).returncode:
            failed.append(name)
    print(f"findings in: {', '.join(failed)}" if failed else "no finding")
    return len(failed)


def _instrumented() -> ModuleType:
    """The targets, over an engine that tells which of its branches were taken."""
    import atheris

    with atheris.instrument_imports(include=["snapshotter", "streams"]):
        return import_module("targets")


def _fuzz(targets: ModuleType, name: str, seconds: int) -> None:
    """Run until the time is over. libFuzzer ends the process itself."""
    import atheris
    from mutations import mutated

    target = targets.TARGETS[name]
    found, begin = HOME / name, HOME / f"{name}.seeds"
    for folder in (found, begin):
        folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds()):
        (begin / str(number)).write_bytes(seed)

    def change(data: bytes, size: int, seed: int) -> bytes:
        """libFuzzer's own mutations half of the time, ours the other half."""
        if seed % 2:
            return bytes(atheris.Mutate(data, size))
        return mutated(data, random.Random(seed).randrange)[:size]

    logging.disable(logging.CRITICAL)
    limits = [f"-max_total_time={seconds}", f"-timeout={SECONDS}", f"-rss_limit_mb={MEGABYTES}"]
    style = [f"-max_len={LONGEST}", "-print_final_stats=1", f"-artifact_prefix={HOME}/{name}-"]
    atheris.Setup([sys.argv[0], *limits, *style, str(found), str(begin)], target.run, custom_mutator=change)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
