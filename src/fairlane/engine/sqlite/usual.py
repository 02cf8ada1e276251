"""What attempts of customers usually take, kept beside their lanes: a claim and a settlement touch no other page for it."""

from __future__ import annotations

from fairlane.core.dispatch import USUAL_SHARE, next_usual

from .queries import Execute, sql


class Usuals:
    """The figures that a transaction has read, written back by `write`; in thousandths of a millisecond."""

    def __init__(self, execute: Execute, executemany: Execute) -> None:
        self._execute = execute
        self._executemany = executemany
        self._read: dict[int, int | None] = {}
        self._changed: set[int] = set()

    def get(self, customer: int) -> int | None:
        """Return what attempts of a customer usually take; None: none has ended."""
        if customer not in self._read:
            self._read[customer] = read_usual(self._execute, customer)
        return self._read[customer]

    def remember(self, customer: int, usual: int | None) -> None:
        """Remember what was read with a lane, unless it has changed since."""
        self._read.setdefault(customer, usual)

    def put(self, customer: int, usual: int | None) -> None:
        """Set it to what another store had."""
        self._read[customer] = usual
        if usual is not None:
            self._changed.add(customer)

    def add(self, customer: int, taken: int) -> None:
        """Follow an attempt that has ended."""
        self.put(customer, next_usual(self.get(customer), taken, USUAL_SHARE))

    def forget(self, customer: int) -> None:
        """Forget a customer that is deleted."""
        self._read.pop(customer, None)
        self._changed.discard(customer)

    def write(self) -> None:
        """Write what has changed."""
        if self._changed:
            self._executemany(sql.write_usual, [(customer, self._read[customer]) for customer in self._changed])
            self._changed.clear()


def read_usual(execute: Execute, customer: int) -> int | None:
    row = execute(sql.read_usual, (customer,)).fetchone()
    return None if row is None else row[0]
