"""A queue behind a server, with the methods that commands use on a queue in a store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fairlane.blobs.safe_open import display_path, open_regular_file
from fairlane.client import Client
from fairlane.core.errors import Mistake
from fairlane.queue import Check, Cost, Input, Receipt

PATIENCE_SECONDS = 10.0  # a person waits for the command to return
KEY_BYTES_MAX = 1000


class RemoteQueue(Client):
    """A client with the methods of a queue."""

    def __init__(self, address: str, key: str) -> None:
        super().__init__(address, key, patience=PATIENCE_SECONDS)

    def submit_files(
        self,
        customer: str,
        files: Iterable[Input],
        *,
        kind: str | None = None,
        cost: Cost = 1,
        delay: float = 0,
        no_better_than: int | None = None,
        steps: Sequence[str] | None = None,
        slices: int | None = None,
    ) -> Iterator[Receipt]:
        """Submit each file in a request of its own: if one is refused, those before it stay submitted."""
        for file in files:
            options: dict[str, Any] = {"kind": kind, "cost": cost, "delay": delay, "no_better_than": no_better_than}
            options |= {"steps": steps, "slices": slices}
            yield self.submit(path=file.path, key=file.key, customer=customer, **options)

    def check(self, customer: str | None = None, *, cost: float = 1, now: float | None = None) -> Check:
        """Make one check at the server's own time."""
        if now is not None:
            raise Mistake("--now does not work through a server, which uses its own clock; leave it out, or use --url")
        return super().check(customer, cost=cost)


def read_key(path: str | None, environment: Mapping[str, str]) -> str:
    """Read the key from a file, else from the environment; never from an option, which other users could see in `ps`."""
    if path is None:
        key = environment.get("FAIRLANE_KEY", "")
        if not key:
            raise Mistake("the server needs a key: put it in FAIRLANE_KEY, or in a file and name that with --key-file")
        return key
    with open_regular_file(path) as file:
        content = file.read(KEY_BYTES_MAX)
    key = content.decode("ascii", "replace").strip()
    if not key or not key.isascii() or len(key.split()) != 1:
        raise Mistake(
            f"{display_path(path)} does not contain a key; it must contain one line, as `fairlane keys create` printed it"
        )
    return key
