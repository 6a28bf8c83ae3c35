"""What a seed makes happen: the weather, what clients do, which workers come, and what becomes of them.

A plan is a list of `Deed`s, each of which happens at a time and can be left out, as can a worker's fate.
Worlds are small on purpose, so that many of them can be run: a rare meeting of two faults is found by many
short runs, not by a long one. Some are long all the same.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from snapshotter.core.blocks import DEFAULT, Sizes
from streams.testing.simulation import Weather

PROFILES = {"calm": 15, "flaky": 35, "stormy": 25, "lying": 10, "corrupting": 15}
_ASIDE = {"answer": 45, "stop": 15, "edit": 15, "regenerate": 15, "look": 10, "action": 10, "close": 2}
FLAVOURS = ("say", "say", "say", "tool", "ask", "client")


@dataclass(frozen=True)
class Fate:
    """What becomes of a worker at its n-th request (kill, freeze), or at its n-th chunk (raise, signal)."""

    kind: str
    number: int
    when: str = "before"
    seconds: float = 0.0
    clock_ran: bool = True


@dataclass(frozen=True)
class Deed:
    """`kind`: say, again, stop, edit, regenerate, answer, look, action, close, deliver, jump (the store's
    clock; else `jump_ms` is the worker's), or what a keeper does (see `keepers`). `token` names a message."""

    at: float
    kind: str
    session: str
    token: str = ""
    text: str = ""
    target: str = ""
    fate: Fate | None = None
    options: dict[str, Any] = field(default_factory=dict)
    jump_ms: int = 0


@dataclass(frozen=True)
class Plan:
    """`trusted` False: the engine has to find out whether the store keeps its conditions. `kept`: somebody
    tidies up. `sizes`: of snapshots, blocks and values."""

    seed: int
    profile: str
    weather: Weather
    deeds: tuple[Deed, ...]
    trusted: bool = True
    pace: float = 0.2
    kept: bool = False
    sizes: Sizes = DEFAULT

    @property
    def damage(self) -> bool:
        """Whether bytes may be bad."""
        return any((self.weather.flip, self.weather.cut, self.weather.rot))

    @property
    def end(self) -> float:
        """When the last deed is done."""
        return max((deed.at for deed in self.deeds), default=0.0)


def plan_of(seed: int) -> Plan:
    dice = random.Random(f"plan {seed}")
    profile = dice.choices(list(PROFILES), list(PROFILES.values()))[0]
    deeds: list[Deed] = []
    sessions = dice.choices((1, 2, 3), (75, 18, 7))[0]
    busy = 3 if dice.random() < 0.03 else 1
    for number in range(1, sessions + 1):
        talk(dice, deeds, f"s{number}", profile, busy * dice.choices((1, 2, 3, 4), (45, 30, 15, 10))[0])
    if profile != "calm" and dice.random() < 0.05:
        jump = dice.choice((-600_000, 30_000, 14_400_000))
        deeds.append(Deed(dice.random() * 30, "jump", "", jump_ms=jump))
    deeds.sort(key=lambda deed: deed.at)
    weather = _weather(dice, profile)
    # A probe that meets bytes that flip says so and refuses the store for good.
    trusted = profile in ("calm", "corrupting") or dice.random() < (0.5 if weather.twice else 0.9)
    return Plan(
        seed, profile, weather, tuple(deeds), trusted and not weather.unfenced, dice.choice((0.05, 0.3, 1.0))
    )


def _weather(dice: random.Random, profile: str) -> Weather:
    if profile == "calm":
        return Weather(latency=dice.choice([(0.0, 0.0), (0.004, 0.06), (0.05, 0.4)]))
    if profile == "flaky":
        return Weather(refused=0.02, throttled=0.01, lost=0.03, late=0.01, slow=0.01, short=0.01)
    if profile == "stormy":
        heavy = dice.choice((1, 2, 4))
        return Weather(
            latency=(0.01, 0.5),
            refused=0.04 * heavy,
            throttled=0.02 * heavy,
            lost=0.05 * heavy,
            late=0.04 * heavy,
            slow=0.02 * heavy,
            short=0.02,
        )
    if profile == "corrupting":
        if dice.random() < 0.25:
            return Weather(lost=0.01, rot=0.02)
        return Weather(lost=0.01, flip=0.03, cut=0.02, short=0.02)
    if dice.random() < 0.1:
        return Weather(unfenced=True, dates=dice.random() < 0.5)
    return Weather(
        lost=0.03,
        late=0.01,
        twice=0.08,
        dates=dice.random() < 0.5,
        nonces=dice.random() < 0.5,
        resolution_ms=dice.choice((1, 1000)),
    )


def talk(
    dice: random.Random, deeds: list[Deed], session: str, profile: str, messages: int, day: int = 1
) -> None:
    """What happens to one session."""
    at, tokens = 0.0, list[str]()
    for number in range(1, messages + 1):
        token = f"{session}q{number}" if day == 1 else f"{session}d{day}q{number}"
        tokens.append(token)
        at += dice.choice((0.0, 0.5, 3.0, 12.0, 40.0)) * dice.random()
        text = f"{token} {dice.choice(FLAVOURS)} {dice.randint(1, 6)}"
        deeds.append(Deed(at, "say", session, token, text))
        if dice.random() < 0.2:
            deeds.append(Deed(at + dice.random() * 4, "again", session, token, text))
        for _ in range(dice.choices((0, 1, 2, 3), (8, 62, 24, 6))[0]):
            deeds.append(_delivery(dice, session, token, at, profile))
        at = _aside(dice, deeds, session, tokens, at, day)
    if dice.random() < 0.3:
        deeds.append(Deed(at + dice.random() * 10, "look", session))


def _aside(
    dice: random.Random, deeds: list[Deed], session: str, tokens: list[str], at: float, day: int
) -> float:
    """What else a person may do after a message; returns the time by then."""
    if dice.random() < 0.5:
        return at
    token, n = dice.choice(tokens), f"{len(deeds)}" if day == 1 else f"{len(deeds)}d{day}"
    at += dice.random() * 8
    kind = dice.choices(tuple(_ASIDE), tuple(_ASIDE.values()))[0]
    text, target = "", ""
    if kind == "edit":
        target, token = token, f"{session}e{n}"
        tokens.append(token)
        text = f"{token} {dice.choice(FLAVOURS)} {dice.randint(1, 6)}"
    elif kind in ("action", "close"):
        token = f"{session}k{n}"
    elif kind in ("stop", "regenerate"):
        target, token = token, f"{session}k{n}"
    deeds.append(Deed(at, kind, session, token, text, target))
    if dice.random() < 0.7:
        deeds.append(
            Deed(at + 0.1 + dice.random(), "deliver", session, "", options={"claim": dice.random() < 0.1})
        )
    return at


def _delivery(dice: random.Random, session: str, token: str, at: float, profile: str) -> Deed:
    at += dice.choice((0.0, 0.2, 2.0, 30.0)) * dice.random()
    options: dict[str, Any] = {"durability": dice.choice(("stream", "stream", "live", "steps"))}
    options["window"] = dice.choice((None, None, 1, 3))
    if profile == "calm":
        return Deed(at, "deliver", session, token, options=options)
    options["skew_ms"] = dice.choice((0, 0, 0, -200_000, 86_400_000, 1500))
    options["claim"] = dice.random() < 0.12
    options["takeover"] = dice.random() < 0.08
    options["receipt"] = dice.random() < 0.75
    if dice.random() < 0.1:
        options["deadline"] = dice.choice((5.0, 20.0, 60.0))
    if dice.random() < 0.1:
        options["overlap"] = "merge"
    jump = dice.choice((-7_200_000, 3_600_000)) if dice.random() < 0.08 else 0
    return Deed(at, "deliver", session, token, fate=_fate(dice), options=options, jump_ms=jump)


def _fate(dice: random.Random) -> Fate | None:
    kind = dice.choices(("lives", "kill", "freeze", "raise", "signal"), (50, 22, 15, 7, 6))[0]
    if kind == "lives":
        return None
    number = dice.randint(1, dice.choice((6, 16, 40)))
    when = dice.choice(("before", "flying", "after"))
    seconds = dice.choice((0.5, 6.0, 30.0, 400.0, 3700.0, 12_000.0))
    return Fate(kind, number, when, seconds, dice.random() < 0.5)
