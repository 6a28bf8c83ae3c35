"""Small stories of those who tidy up, each around one rule of what deletion must respect (FORMAT.md).

As in `stories`; but hours pass in them, thresholds are small, and most faults are told (`doom`), not
searched: what has to meet is rare. `mutants` says which broken engine each of them finds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from keepers import Keeper
from plan import Deed
from smallworld import SESSION, SmallWorld
from stories import Steady, Story, Talking, say

from snapshotter.core.blocks import Sizes
from snapshotter.database import Database

HOURS = 3600.0
BLOCKS = Sizes(inline=0, tail=0, turns=1, small=10_000, large=20_000, value=100_000)
MERGING = Sizes(inline=0, tail=0, turns=1, small=400, large=20_000, value=100_000)
MERGING_APART = Sizes(inline=0, tail=0, turns=1, small=500, large=20_000, value=130)
LAGGING = Sizes(inline=0, tail=100_000, turns=16, small=10_000, large=20_000, value=100_000)
APART = Sizes(inline=0, tail=0, turns=1, small=10_000, large=20_000, value=60)


def keeps(small: SmallWorld, name: str, after: float, kind: str, *, skew_ms: int = 0, **options: Any) -> None:
    """Somebody tidies up after so many seconds. `token`, `text`: the message that is meant."""
    small.tidied = True
    token, text = options.pop("token", ""), options.pop("text", "")

    def act(db: Database, own: str) -> None:
        db.clock.sleep(after)
        Keeper(db, own, small.tell, small, damage=False).run(
            Deed(0.0, kind, SESSION, token, text, options=options)
        )

    small.client(name, act, skew_ms=skew_ms)


def talks(small: SmallWorld, *said: tuple[float, str], kind: type[Steady] = Steady, **options: Any) -> None:
    """Messages, each so many seconds after the one before, and a worker for each."""

    def send(db: Database, name: str) -> None:
        for after, token in said:
            db.clock.sleep(after)
            say(small, db, name, token)
            small.deliver(token, kind=kind, redeliveries=0, name=f"w-{token}", **options)

    small.client("sender", send)


def talks_later(small: SmallWorld, after: float, token: str, **options: Any) -> None:
    """One more message, and its worker."""

    def send(db: Database, name: str) -> None:
        db.clock.sleep(after)
        say(small, db, name, token)
        kind = options.pop("kind", Steady)
        small.deliver(token, kind=kind, redeliveries=0, name=f"w-{token}", **options)

    small.client(f"sender-{token}", send)


def fast_clock(small: SmallWorld) -> None:
    """gc comes with a clock of two days later, while a worker has sealed a block and not saved yet."""
    small.sizes, small.sleep = BLOCKS, 60.0
    small.doom["w-q2", "put", "sessions/", 1] = "asleep"
    talks(small, (0.0, "q1"), (10.0, "q2"))
    keeps(small, "keeper", 30.0, "gc", skew_ms=48 * 3_600_000)


def slow_gc(small: SmallWorld) -> None:
    """gc is frozen for three hours before its first listing, and before it reads the snapshot."""
    small.sizes, small.sleep = BLOCKS, 3 * HOURS
    small.doom["keeper", "list", "blocks/", 1] = "asleep"
    small.doom["slower", "get", "sessions/", 1] = "asleep"
    talks(small, (0.0, "q1"), (2 * HOURS, "q2"))
    keeps(small, "keeper", 2 * HOURS - 60.0, "gc")
    keeps(small, "slower", 2 * HOURS - 60.0, "gc")


def merged_meanwhile(small: SmallWorld) -> None:
    """gc has listed blocks and values when a worker merges the only block that names an old value; nothing
    else does, since the log was trimmed."""
    small.sizes, small.sleep = MERGING_APART, 60.0
    small.doom["keeper", "get", "sessions/", 1] = "asleep"

    talks(small, (0.0, "q1"), (10.0, "q2"))
    talks_later(small, 3 * HOURS + 30.0, "q3")
    talks_later(small, 3 * HOURS + 40.0, "q4")
    keeps(small, "keeper", 3 * HOURS, "gc")


def sealed_again(small: SmallWorld) -> None:
    """A worker died between its blocks and its snapshot; hours later the next one seals the same messages,
    when gc has read what is named and is about to delete the first one's block."""
    small.sizes, small.sleep = BLOCKS, 60.0
    small.doom["w-q2", "put", "blocks/", 1] = "killed after"
    small.doom["keeper", "delete", "blocks/", 1] = "asleep"

    def again(db: Database, name: str) -> None:
        db.clock.sleep(3 * HOURS + 30.0)
        small.act(db, name, Deed(0.0, "stop", SESSION, "stop-q9", target="q9"))
        small.deliver("stop-q9", kind=Steady, redeliveries=0)

    talks(small, (0.0, "q1"), (10.0, "q2"))
    small.client("again", again)
    keeps(small, "keeper", 3 * HOURS, "gc")


def trimmed(small: SmallWorld) -> None:
    """Four turns of which the snapshot holds the first; a trim hours later, and two more turns."""
    small.sizes = LAGGING
    talks(small, (0.0, "q1"), (10.0, "q2"), (10.0, "q3"), (10.0, "q4"), (5 * HOURS, "q5"))
    keeps(small, "keeper", 3 * HOURS, "trim", keep=1)


def covered(small: SmallWorld) -> None:
    """A trim of a session that is saved after each turn."""
    talks(small, (0.0, "q1"), (10.0, "q2"), (10.0, "q3"), (5 * HOURS, "q4"))
    keeps(small, "keeper", 3 * HOURS, "trim", keep=1)


def newest_turn(small: SmallWorld) -> None:
    """A worker sleeps before it writes; another one takes over and ends the turn. Hours later somebody
    compacts, then the sleeper wakes and finds its place free."""
    small.sleep = 4 * HOURS

    def send(db: Database, name: str) -> None:
        say(small, db, name, "q1", "tool 2")
        small.doom["w-q1", "put", "out/", 3] = "asleep"
        small.deliver("q1", kind=Steady, pause=200.0, name="w-q1")

    small.client("sender", send)
    keeps(small, "keeper", 2 * HOURS, "compact")


def deleted(small: SmallWorld) -> None:
    """A deletion, and gc hours later; a worker comes that knows nothing of it, and one who opens it again."""
    small.sizes = BLOCKS
    talks(small, (0.0, "q1"), (10.0, "q2"))
    keeps(small, "deleter", 100.0, "delete")
    keeps(small, "keeper", 3 * HOURS, "gc")
    keeps(small, "creator", 6 * HOURS, "create")
    talks_later(small, 7 * HOURS, "q3")


def swept(small: SmallWorld) -> None:
    """A deletion, and gc hours later. Nobody opens it again."""
    talks(small, (0.0, "q1"), (10.0, "q2"))
    keeps(small, "deleter", 100.0, "delete")
    keeps(small, "keeper", 3 * HOURS, "gc")


def windowed(small: SmallWorld) -> None:
    """An edit of a message that stands before the window that its worker reads."""
    small.sizes = BLOCKS
    talks(small, *((10.0, f"q{number}") for number in range(1, 6)))

    def edit(db: Database, name: str) -> None:
        db.clock.sleep(200.0)
        small.act(db, name, Deed(0.0, "edit", SESSION, "e1", "e1 say 2", target="q1"))
        small.deliver("e1", kind=Steady, window=1)

    small.client("editor", edit)


def sealed_before(small: SmallWorld) -> None:
    """A client's tool is called and answered; when the message is sealed it is redacted."""
    small.sizes = BLOCKS

    def send(db: Database, name: str) -> None:
        say(small, db, name, "q1", "client 1")
        small.deliver("q1", kind=Steady)
        db.clock.sleep(10.0)
        small.act(db, name, Deed(0.0, "answer", SESSION))
        small.deliver("q1", kind=Steady)
        db.clock.sleep(10.0)
        say(small, db, name, "q2")
        small.deliver("q2", kind=Steady)

    small.client("sender", send)
    keeps(small, "redactor", 100.0, "redact", token="q1", text="q1 client 1", alone=True)


def large(small: SmallWorld) -> None:
    """A sender of a large message dies when its record is stored."""
    small.sizes = APART
    small.doom["sender", "put", "in/", 1] = "killed after"
    small.client("sender", lambda db, name: say(small, db, name, "q1", "say 2"))
    small.client("reader", lambda db, name: (db.clock.sleep(10.0), small.look(db, name, SESSION)))


def redacted(small: SmallWorld) -> None:
    """A message that stands in values, blocks and a checkpoint is redacted; nobody else is at work."""
    small.sizes = APART
    talks(small, (0.0, "q1"), (10.0, "q2"), (10.0, "q3"))
    keeps(small, "keeper", 3 * HOURS, "trim", keep=1)
    keeps(small, "redactor", 4 * HOURS, "redact", token="q2", text="q2 say 2", alone=True)


def unseen(small: SmallWorld) -> None:
    """A worker saves late, in new blocks, what another one has booted from before; gc takes the old ones."""
    small.sizes, small.sleep = MERGING, 8.0
    small.doom["w-q2", "put", "blocks/", 1] = "asleep"
    talks(small, (0.0, "q1"), (3 * HOURS, "q2"))
    talks_later(small, 3 * HOURS + 2.0, "q3", kind=Talking, takeover=True)
    keeps(small, "keeper", 3 * HOURS + 8.5, "gc")


def copied(small: SmallWorld) -> None:
    """A trim sleeps before it writes its checkpoint; a worker merges the blocks that this names, and gc takes
    them."""
    small.sizes, small.sleep = MERGING, 60.0
    small.doom["keeper", "put", "checkpoints/", 1] = "asleep"
    _merged_behind(small)
    keeps(small, "keeper", 3 * HOURS, "trim", keep=1)
    keeps(small, "sweeper", 3 * HOURS + 40.0, "gc")


def copied_behind_gc(small: SmallWorld) -> None:
    """gc sleeps before it reads the snapshot; a trim writes its checkpoint, a worker merges the blocks."""
    small.sizes, small.sleep = MERGING, 60.0
    small.doom["sweeper", "get", "sessions/", 1] = "asleep"
    _merged_behind(small)
    keeps(small, "sweeper", 3 * HOURS, "gc")
    keeps(small, "keeper", 3 * HOURS + 5.0, "trim", keep=1)


def _merged_behind(small: SmallWorld) -> None:
    """Three turns; one more, hours later, that merges the third one's block."""
    talks(small, (0.0, "q1"), (10.0, "q2"), (10.0, "q3"))
    talks_later(small, 3 * HOURS + 10.0, "q4")


def left_below(small: SmallWorld) -> None:
    """A worker sleeps for hours before it writes; the session is deleted, opened again and swept, and what it
    then leaves in a freed place stops nobody who tidies up."""
    small.sleep = 9 * HOURS
    small.doom["w-q1", "put", "out/", 3] = "asleep"
    talks(small, (0.0, "q1"), (100.0, "q2"), takeover=True)
    keeps(small, "deleter", HOURS, "delete")
    keeps(small, "opener", HOURS + 60.0, "create")
    talks_later(small, HOURS + 120.0, "q3")
    talks_later(small, HOURS + 180.0, "q4")
    keeps(small, "sweeper", 5 * HOURS, "gc")
    keeps(small, "keeper", 10 * HOURS, "trim", keep=1)


def owed(small: SmallWorld) -> None:
    """A message is redacted that nobody has answered yet; a worker comes behind the takeover, and ends its
    turn when the redaction is through."""
    small.sleep = 60.0
    small.doom["redactor", "put", "in/", 2] = "asleep"  # the first says what is redacted
    small.doom["w-q1", "put", "out/", 2] = "asleep"

    def send(db: Database, name: str) -> None:
        say(small, db, name, "q1", "say 2")
        db.clock.sleep(20.0)
        small.deliver("q1", kind=Steady, redeliveries=0, name="w-q1")

    small.client("sender", send)
    keeps(small, "redactor", 10.0, "redact", token="q1", text="q1 say 2")
    small.client("reader", lambda db, name: (db.clock.sleep(300.0), small.look(db, name, SESSION)))


def sent_again(small: SmallWorld) -> None:
    """A message is redacted that was answered. Before the in log is told it is sent once more, and a worker
    comes for that; then the redaction goes on."""
    small.sleep = 600.0
    small.doom["redactor", "put", "in/", 1] = "asleep"
    talks(small, (0.0, "q1"))
    keeps(small, "redactor", 100.0, "redact", token="q1", text="q1 say 2")

    def send(db: Database, name: str) -> None:
        db.clock.sleep(400.0)  # a sender looks for what it may have sent before, for two minutes
        say(small, db, name, "q1")
        small.deliver("q1", kind=Steady, redeliveries=0, name="w-again")

    small.client("again", send)


def _story(told: Callable[[SmallWorld], object], most: int = 0) -> Story:
    return Story(told.__name__.replace("_", " "), told, 0, most, most + 1, limit=300)


KEPT = [
    _story(told)
    for told in (
        *(fast_clock, slow_gc, merged_meanwhile, sealed_again, trimmed, covered, newest_turn, deleted, swept),
        *(windowed, sealed_before, large, redacted, unseen, copied, copied_behind_gc, left_below, owed),
        sent_again,
    )
]
