"""How do commands use a server? As they use a store: the same verbs, and a sentence for what a server cannot do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from fairlane.blobs.safe_open import display_path, open_regular_file
from fairlane.client import Check, Client, Receipt
from fairlane.core.errors import Mistake
from fairlane.queue import DEFAULT_KIND, Cost, Input

PATIENCE_SECONDS = 10.0  # somebody sits in front of it
KEY_BYTES_MAX = 1000


class Remote(Client):
    """A server, for commands."""

    def __init__(self, address: str, key: str) -> None:
        super().__init__(address, key, patience=PATIENCE_SECONDS)

    def submit_files(
        self, customer: str, files: Iterable[Input], *, kind: str = DEFAULT_KIND, cost: Cost = 1, delay: float = 0
    ) -> Iterator[Receipt]:
        """Submit files one by one; each is a request of its own, so what came before one that is refused stays."""
        for one in files:
            yield self.submit(path=one.path, key=one.key, kind=kind, cost=cost, delay=delay, customer=customer)

    def check(self, customer: str | None = None, *, cost: float = 1, now: float | None = None) -> Check:
        """One check, at the server's own time."""
        if now is not None:
            raise Mistake("--now cannot be told to a server: its own clock rules; leave it out, or use the store with --url")
        return super().check(customer, cost=cost)


def told_key(path: str | None, environment: Mapping[str, str]) -> str:
    """The key: from a file, else from the environment; never from the command line, where others could read it."""
    if path is None:
        key = environment.get("FAIRLANE_KEY", "")
        if not key:
            raise Mistake("a server wants a key: put it in FAIRLANE_KEY, or in a file and name that with --key-file")
        return key
    with open_regular_file(path) as file:
        told = file.read(KEY_BYTES_MAX)
    key = told.decode("ascii", "replace").strip()
    if not key or not key.isascii() or len(key.split()) != 1:
        raise Mistake(f"{display_path(path)} does not hold a key; it must hold one line, what `fairlane keys create` showed")
    return key
