"""What a driver is: how one peer is used. See `child.py` for who calls it."""

from __future__ import annotations


class Driver:
    """It is told where the store is by the environment (AWS_ENDPOINT_URL …)."""

    def open(self, turns: int) -> None:
        """Make what a new process would make, clients included, and ask nothing of the store. `turns` tells
        apart the sessions of one that keeps several; most keep one, and it grows."""
        raise NotImplementedError

    def boot(self) -> int:
        """Read the session; how many messages it has."""
        raise NotImplementedError

    def send(self, number: int) -> None:
        """Hand in the message of this number; of most peers that is a part of answering it."""

    def turn(self, number: int) -> None:
        """Answer the message of this number (`texts`), and save what is to be saved."""
        raise NotImplementedError

    def end(self) -> None:
        """Do what a process does when nothing more is to be answered."""

    def grow(self, done: int, turns: int) -> None:
        """Let the session, which has been booted and has `done` turns, have so many."""
        for number in range(done, turns):
            self.turn(number)
