"""The processes that chaos runs kill: submitters and claimers, each with its own log.

Run as `python -m chaos.actors ROLE NAME FOLDER SEED DOCUMENTS CUSTOMERS [URL]`. They stop when the file `stop` appears in
the folder, or when their parent process is gone. Without a URL the queue is a file in the folder. A server may fail during a
call: then its outcome is unknown, the log says so, and the actor goes on.
"""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path

from fairlane import Queue, StoreError, WrongState
from fairlane.core.document import Claim, Continued, Done, Failed, Outcome, Released, Retried, Submission
from fairlane.queue import new_ids

from .history import ClientLog, read_log

STALE_KEPT = 20
OPEN_SECONDS = 60.0


class Actor:
    """The base of both: a queue, a log, random choices, and when to stop."""

    def __init__(self, name: str, folder: Path, url: str | None, seed: int, documents: int, customers: int) -> None:
        self.name = name
        self.documents = documents
        self.customers = customers
        self.past = read_log(folder / f"{name}.log")
        self.log = ClientLog(folder / f"{name}.log")
        self.dice = random.Random(f"{seed} {name} {len(self.past)}")
        self.has_server = url is not None  # which may fail
        self.queue = _open_queue(url) if url else Queue(f"sqlite:///{folder / 'queue.db'}")
        self._stop = folder / "stop"
        self._parent = os.getppid()

    def should_continue(self) -> bool:
        """Sleep for a moment; return False when it is time to stop."""
        time.sleep(self.dice.choice((0, 0, 0.001, 0.003)))
        return not self._stop.exists() and os.getppid() == self._parent

    def run(self) -> None:
        """Make steps until it is time to stop."""
        self.log.write("started", os.getpid())
        while self.should_continue():
            self.try_step()
        self.log.write("stopped")

    def try_step(self) -> bool:
        """Make one step; return False if its outcome is unknown, because the server failed."""
        try:
            self.step()
            return True
        except StoreError as error:
            if not self.has_server:
                raise
            self.log.write("unknown", str(error)[:200])
            time.sleep(0.05)
            return False

    def step(self) -> None:
        raise NotImplementedError


class Submitter(Actor):
    """Submits with keys, repeats submissions that were not acknowledged and some that were, cancels a few."""

    def run(self) -> None:
        submitted = [(customer, key) for what, *facts in self.past if what == "submitted" for customer, key, _ in facts[0]]
        self.ids = [id for what, *facts in self.past if what == "submitted" for *_, id in facts[0]]
        attempted = [facts[0] for what, *facts in self.past if what == "submitting"]
        self.made = len({key for batch in attempted for _, key in batch})
        self.known = submitted
        self.log.write("started", os.getpid())
        acknowledged = set(submitted)
        self.open: list[list[tuple[str, str]]] = []  # submitted without a response: to be repeated
        for batch in attempted:
            left = [(customer, key) for customer, key in batch if (customer, key) not in acknowledged]
            if left:
                self.open.append(left)
                acknowledged.update(left)
        super().run()
        while self.open and self.has_server:  # leave no submission with an unknown outcome
            self.try_step()

    def step(self) -> None:
        chance = self.dice.random()
        if self.open:
            self.submit(self.open[0])
        elif chance < 0.05 and self.ids:
            self.cancel(self.dice.choice(self.ids[-50:]))
        elif (chance < 0.15 or self.made >= self.documents) and self.known:
            self.submit([self.dice.choice(self.known)])
        else:
            customer = f"customer-{self.dice.randrange(self.customers)}"
            size = self.dice.randint(2, 5) if chance < 0.3 else 1
            batch = [(customer, f"{self.name}-{self.made + index}") for index in range(size)]
            self.made += size
            self.submit(batch)

    def submit(self, batch: list[tuple[str, str]]) -> None:
        """Submit one document, or several of one customer in one call."""
        if batch not in self.open:
            self.open.append(batch)
        self.log.write("submitting", batch)
        customer = batch[0][0]
        keys = [key for _, key in batch]
        delay = self.dice.choice((0, 0, 0, 0.03))
        if len(batch) == 1:
            receipts = [self.queue.submit(customer, keys[0], key=keys[0], delay=delay)]
        else:
            receipts = self.queue.submit_many(customer, keys, keys=keys, delay=delay)
        self.log.write("submitted", [(customer, key, receipt.id) for key, receipt in zip(keys, receipts, strict=True)])
        self.open.remove(batch)
        self.known += batch
        self.ids += [receipt.id for receipt in receipts]

    def cancel(self, id: str) -> None:
        """Cancel a document that was submitted."""
        self.log.write("cancelling", id)
        self.log.write("cancelled", id, self.queue.cancel(id))


class Claimer(Actor):
    """Claims, extends, takes over, settles in every way, reclaims, and settles claims that are known to be stale."""

    def run(self) -> None:
        self.marks = 0
        self.stale: list[Claim] = []  # settled, or left until the lease expired
        super().run()

    def step(self) -> None:
        chance = self.dice.random()
        if chance < 0.2:
            self.log.write("reclaiming")
            self.log.write("reclaimed", self.queue.engine.reclaim(100))
        elif chance < 0.35 and self.stale:
            claims = self.dice.sample(self.stale, min(3, len(self.stale)))
            self.settle(claims, [self.outcome() for _ in claims])
        elif chance < 0.37 and self.stale:
            self.revive(self.dice.choice(self.stale).id)
        elif chance < 0.42 and self.stale:
            taken = self.take_over(self.dice.choice(self.stale))
            self.settle([claim for claim in (taken,) if claim], [self.outcome()])
        else:
            self.claim()

    def claim(self) -> None:
        """Claim documents and settle most of them, as a worker does."""
        self.log.write("claiming")
        claims = self.queue.engine.claim(self.name, self.dice.randint(1, 10), self.dice.randint(50, 300))
        self.log.write("claimed", [(claim.id, claim.token) for claim in claims])
        if claims and self.dice.random() < 0.2:
            self.log.write("extending")
            self.log.write("extended", len(self.queue.engine.extend(claims, 200)))
        for claim in claims if self.dice.random() < 0.2 else []:
            taken = self.take_over(claim)
            claims = [*claims, taken] if taken else claims
        time.sleep(self.dice.choice((0, 0, 0, 0.01)))
        kept = [claim for claim in claims if self.dice.random() < 0.9]
        self.settle(kept, [self.outcome() for _ in kept])
        self.stale = (self.stale + claims)[-STALE_KEPT:]

    def take_over(self, claim: Claim) -> Claim | None:
        """Let a claim change hands; with its old token nothing may be done any more."""
        self.log.write("taking_over", claim.id, claim.token)
        (taken,) = self.queue.engine.take_over([(claim.id, claim.token)], f"{self.name}, again", self.dice.randint(50, 300))
        self.log.write("taken_over", [(taken.id, taken.token)] if taken else [])
        return taken

    def outcome(self) -> Outcome:
        """Choose an outcome, mostly done; `settle` adds the mark."""
        outcomes: tuple[Outcome, ...] = (
            Done(), Retried(self.dice.choice((0, 30))), Retried(30, counted=False), Failed(""), Released(),
            Continued("extract", ""),
        )  # fmt: skip
        (chosen,) = self.dice.choices(outcomes, (12, 3, 1, 1, 2, 2))
        return chosen

    def settle(self, claims: list[Claim], outcomes: list[Outcome]) -> None:
        """Settle in one call, each outcome with a mark of its own."""
        if not claims:
            return
        marked = [(claim, *self.add_mark(self.with_parts(claim, each))) for claim, each in zip(claims, outcomes, strict=True)]
        self.log.write("settling", [(mark, claim.id, claim.token, word) for claim, mark, word, _ in marked])
        lost = self.queue.engine.settle([(claim, outcome) for claim, _, _, outcome in marked])
        refused = {(claim.id, claim.token) for claim in lost}
        self.log.write("settled", [(mark, (claim.id, claim.token) not in refused) for claim, mark, _, _ in marked])

    def with_parts(self, claim: Claim, outcome: Outcome) -> Outcome:
        """Split some of the documents that go on into parts."""
        if not isinstance(outcome, Continued) or self.dice.random() < 0.5:
            return outcome
        ids = new_ids(self.dice.randint(1, 4))
        return outcome._replace(
            parts=tuple(Submission(id, claim.customer, claim.kind, '"part"', made_from=claim.id) for id in ids)
        )

    def add_mark(self, outcome: Outcome) -> tuple[str, str, Outcome]:
        """Return a unique mark, the outcome's name, and the outcome with the mark in it."""
        self.marks += 1
        mark = f"{self.name}/{len(self.past)}/{self.marks}"
        match outcome:
            case Done():
                return mark, "done", outcome._replace(result=f'"{mark}"')
            case Retried():
                return mark, "retried" if outcome.counted else "postponed", outcome._replace(reason=mark, details=f'"{mark}"')
            case Failed():
                return mark, "failed", outcome._replace(reason=mark, details=f'"{mark}"')
            case Continued():
                return mark, "continued", outcome._replace(payload=f'"{mark}"')
            case Released():
                return mark, "released", outcome

    def revive(self, id: str) -> None:
        """Retry a failed document, as an operator does."""
        self.log.write("reviving", id)
        try:
            self.queue.retry(id)
            self.log.write("revived", id, True)
        except WrongState:
            self.log.write("revived", id, False)


def main() -> None:
    role, name, folder, seed, documents, customers, *url = sys.argv[1:]
    actor = {"submitter": Submitter, "claimer": Claimer}[role]
    actor(name, Path(folder), url[0] if url else None, int(seed), int(documents), int(customers)).run()


def _open_queue(url: str) -> Queue:
    """Open a queue on a server, which may be down at the moment."""
    deadline = time.monotonic() + OPEN_SECONDS
    while True:
        try:
            return Queue(url)
        except StoreError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


if __name__ == "__main__":
    main()
