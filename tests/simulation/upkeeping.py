"""What a seed adds to a plan where somebody tidies up: days that pass, keepers, and what becomes of them.

Of the worlds some are kept: their talk goes on over days, between which everything gets older than the
minimum age. Either the time itself passes, or the store's clock is set forward (where it tells its time) once
nothing is under way any more: no request is for longer than a quarter of an hour. Then the keepers come,
beside the next day's workers and those who slept since the first. What is drawn here is drawn from dice of
its own, so that nothing else of the plan changes.
"""

from __future__ import annotations

import random
from dataclasses import replace

from plan import Deed, Fate, Plan, talk

from snapshotter.core.blocks import DEFAULT, Sizes

KEPT = 0.35
TWO_DAYS = 172_800.0
_HOUR = 3600.0
_KEEPERS = {
    "upkeep": 40, "compact": 6, "trim": 8, "gc": 8, "export": 5, "rebuild": 12, "redact": 8, "fork": 6,
    "delete": 7,
}  # fmt: skip


def sizes_of(seed: int) -> Sizes:
    """Thresholds: those of every day, or so small that a few messages make blocks, merges and values."""
    dice = random.Random(f"sizes {seed}")
    if dice.random() < 0.35:
        return DEFAULT
    small = dice.choice((400, 1200))
    return Sizes(
        inline=dice.choice((0, 300, 900)),
        tail=dice.choice((0, 500, 3000)),
        turns=dice.choice((1, 2, 16)),
        small=small,
        large=small * dice.choice((2, 4)),
        value=dice.choice((90, 160, 400, 100_000)),
    )


def kept(plan: Plan) -> Plan:
    """The plan, with days, keepers and small thresholds where this seed has them."""
    dice = random.Random(f"kept {plan.seed}")
    plan = replace(plan, sizes=sizes_of(plan.seed))
    if plan.weather.unfenced or dice.random() >= KEPT:
        return plan
    deeds = [deed for deed in plan.deeds if deed.kind != "jump"]
    for day in range(2, dice.choice((2, 3, 3)) + 1):
        deeds += _day(dice, plan, deeds, day)
    deeds = [_sleepy(dice, deed) for deed in deeds]
    return replace(plan, deeds=tuple(sorted(deeds, key=lambda deed: deed.at)), kept=True)


def _day(dice: random.Random, plan: Plan, before: list[Deed], day: int) -> list[Deed]:
    """A night, and what happens after it."""
    end = max(deed.at for deed in before)
    deeds: list[Deed] = []
    if dice.random() < 0.4 and plan.weather.dates:
        at = end + 1300.0 + 900.0
        deeds.append(Deed(at - 900.0, "jump", "", jump_ms=round(dice.choice((3, 50)) * _HOUR * 1000)))
    else:
        at = end + dice.choice((2.5, 9.0, 50.0)) * _HOUR
    sessions = sorted({deed.session for deed in before if deed.session})
    for session in sessions:
        talking: list[Deed] = []
        if dice.random() < 0.8:
            talk(dice, talking, session, plan.profile, dice.choice((1, 1, 2)), day)
            deeds += [replace(deed, at=deed.at + at) for deed in talking]
        for _ in range(dice.choice((1, 1, 2))):
            deeds += _keeping(dice, session, at + dice.choice((0.0, 1.0, 8.0, 90.0)) * dice.random(), before)
    return deeds


def _keeping(dice: random.Random, session: str, at: float, before: list[Deed]) -> list[Deed]:
    kind = dice.choices(list(_KEEPERS), list(_KEEPERS.values()))[0]
    fate = _fate(dice) if dice.random() < 0.35 else None
    options = {
        "skew_ms": dice.choice((0, 0, -200_000, 86_400_000, 172_800_000)),
        "keep": dice.choice((0, 1, 1, 2)),
    }
    options["keep"] = max(options["keep"], int(kind == "trim"))
    if kind == "rebuild":
        options["mode"] = dice.choice(("compare", "compare", "write"))
    token = text = target = ""
    if kind == "redact":
        said = [deed for deed in before if deed.session == session and deed.kind == "say"]
        if not said:
            return []
        chosen = dice.choice(said)
        token, text = chosen.token, chosen.text
    elif kind == "fork":
        target = f"{session}f"
    deeds = [Deed(at, kind, session, token, text, target, fate, options)]
    if dice.random() < 0.3:  # who was broken off is run again, or two run at once
        deeds.append(replace(deeds[0], at=at + dice.choice((0.0, 5.0, 100.0)) * dice.random(), fate=None))
    if kind == "delete" and dice.random() < 0.75:
        deeds.append(
            Deed(at + dice.choice((0.5, 20.0, 200.0)) * dice.random(), "create", session, options=options)
        )
    return deeds


def _fate(dice: random.Random) -> Fate:
    kind = dice.choice(("kill", "freeze"))
    number = dice.randint(1, dice.choice((6, 20, 50)))
    seconds = dice.choice((30.0, 4000.0, TWO_DAYS))
    return Fate(kind, number, dice.choice(("before", "flying", "after")), seconds, dice.random() < 0.5)


def _sleepy(dice: random.Random, deed: Deed) -> Deed:
    """Some of those who freeze do so for two days."""
    fate = deed.fate
    if fate is None or fate.kind != "freeze" or dice.random() < 0.4:
        return deed
    return replace(deed, fate=replace(fate, seconds=TWO_DAYS))
