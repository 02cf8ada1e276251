"""One big and five small customers share a queue; watch who is served next, and why.

A fresh queue in a temporary folder. "northwind" drops 150 documents at once; five small customers send one now and then.
Two workers serve them, 0.1 s a document. The big sender sinks to priority 9, the small ones hardly wait.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from collections import defaultdict, deque
from pathlib import Path

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from fairlane import Queue
from fairlane.core.document import Claim, Done

BIG = "northwind"
SMALL = {"ada-law": "cyan", "bakery": "green", "clinic": "magenta", "dentist": "yellow", "elm-school": "red"}
COLOURS = {BIG: "blue", **SMALL}
WORKERS = 2
WORK_SECONDS = 0.1
LEASE_MS = 30_000
LANE_WIDTH = 50


class Show:
    """What happened so far, for the screen."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.lock = threading.Lock()
        self.served: deque[Text] = deque(maxlen=10)
        self.waits: dict[str, list[float]] = defaultdict(list)
        self.priorities: dict[str, list[int]] = defaultdict(list)

    def took(self, claim: Claim) -> Text:
        """A worker took a document: remember who, and why it was their turn."""
        document = self.queue.document(claim.id)
        wait = max(0.0, time.time() - document.submitted_ms / 1000)
        line = Text.assemble(
            (f"{claim.turn:4}  ", "dim"),
            (f"{claim.customer:11}", COLOURS[claim.customer]),
            f" priority {claim.priority}  waited {wait:4.1f} s  ",
            (why(claim), "dim"),
        )
        with self.lock:
            self.waits[claim.customer].append(wait)
            self.priorities[claim.customer].append(claim.priority)
            self.served.append(line)
        return line

    def screen(self, height: int) -> Group:
        """The whole picture: as many of the last served as there is room for."""
        lanes, customers = self._lanes(), self._customers()
        room = max(3, min(10, height - len(lanes.renderables) - len(COLOURS) - 8))
        with self.lock:
            served = Group(*list(self.served)[-room:])
        return Group(
            Panel(served, title="served, newest last: who, and why it was their turn", box=box.ROUNDED, height=room + 2),
            Panel(lanes, title="waiting, by priority", box=box.ROUNDED),
            customers,
        )

    def _lanes(self) -> Group:
        waiting: dict[int, list[str]] = defaultdict(list)
        for document in self.queue.documents(state="ready"):
            waiting[document.priority].append(document.customer)
        lines = []
        for priority in sorted(waiting) or [1]:
            customers = sorted(waiting[priority], key=list(COLOURS).index)
            line = Text(f"{priority} ")
            for customer in customers[:LANE_WIDTH]:
                line.append("■", COLOURS[customer])
            more = len(customers) - LANE_WIDTH
            line.append(f" +{more}" if more > 0 else "")
            lines.append(line)
        return Group(*lines)

    def _customers(self) -> Table:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for name in ("customer", "counter", "next priority", "waiting", "running", "done", "longest wait"):
            table.add_column(name, justify="left" if name == "customer" else "right")
        for look in sorted(self.queue.customers(), key=lambda one: list(COLOURS).index(one.customer)):
            with self.lock:
                longest = max(self.waits[look.customer], default=0.0)
            figures = (look.counter, look.next_priority, look.waiting, look.running, look.done)
            table.add_row(Text(look.customer, COLOURS[look.customer]), *(str(one) for one in figures), f"{longest:.1f} s")
        return table

    def summary(self) -> Table:
        """What everybody got in the end."""
        table = Table(title="Who waited how long", box=box.SIMPLE_HEAD)
        for name in ("customer", "documents", "priorities", "median wait", "longest wait"):
            table.add_column(name, justify="left" if name == "customer" else "right")
        for customer, waits in sorted(self.waits.items(), key=lambda one: list(COLOURS).index(one[0])):
            used = self.priorities[customer]
            spread = f"{min(used)}" if min(used) == max(used) else f"{min(used)} to {max(used)}"
            table.add_row(
                Text(customer, COLOURS[customer]),
                str(len(waits)),
                spread,
                f"{statistics.median(waits):.2f} s",
                f"{max(waits):.2f} s",
            )
        return table


def why(claim: Claim) -> str:
    """The rule that made it this document's turn."""
    if claim.is_open_turn:
        return "open turn: ready longest of all"
    return "nothing more urgent was ready" if claim.priority > 1 else "first priority, its turn"


def send(queue: Queue, started: threading.Event, stop: threading.Event, small_documents: int) -> None:
    """The big customer drops everything at once, the small ones come by now and then."""
    queue.submit_many(BIG, [{"file": f"scan-{number:04}.pdf"} for number in range(150)])
    started.set()
    for number in range(small_documents):
        if stop.wait(0.4):
            return
        customer = list(SMALL)[number % len(SMALL)]
        queue.submit(customer, {"file": f"invoice-{number:02}.pdf"})


def work(show: Show, name: str, sending: threading.Thread, stop: threading.Event, console: Console | None) -> None:
    """Serve documents one by one until all are served."""
    engine = show.queue.engine
    while not stop.is_set():
        claims = engine.claim(name, 1, LEASE_MS)
        for claim in claims:
            line = show.took(claim)
            if console is not None:
                console.print(line, soft_wrap=True)
            time.sleep(WORK_SECONDS)  # a real worker would read the document here
            engine.settle([(claim, Done('{"pages":1}'))])
        if not claims and not sending.is_alive():
            return
        if not claims:
            engine.wait(0.2)


def main() -> None:
    """Run the show on a fresh queue."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--small-documents", type=int, default=18, help="how many the small customers send in all")
    chosen = options.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory(prefix="fairlane-") as folder, Queue(f"sqlite:///{Path(folder)}/live.db") as queue:
        show, stop = Show(queue), threading.Event()
        threads = start(show, stop, None if console.is_terminal else console, chosen.small_documents)
        try:
            if console.is_terminal:
                watch(show, threads, console)
            for thread in threads:
                thread.join()
        except KeyboardInterrupt:
            stop.set()
            for thread in threads:
                thread.join()
        console.print(show.summary())
        if not stop.is_set():
            console.print("The big customer waited for its own documents; nobody else waited for them.")


def start(show: Show, stop: threading.Event, lines: Console | None, small_documents: int) -> list[threading.Thread]:
    """The customers start sending, then the workers start serving."""
    started = threading.Event()
    sending = threading.Thread(target=send, args=(show.queue, started, stop, small_documents))
    sending.start()
    started.wait()
    workers = [
        threading.Thread(target=work, args=(show, f"worker-{number}", sending, stop, lines)) for number in range(WORKERS)
    ]
    for worker in workers:
        worker.start()
    return [*workers, sending]


def watch(show: Show, threads: list[threading.Thread], console: Console) -> None:
    """Draw the picture until everything is served."""
    with Live(console=console, refresh_per_second=10, get_renderable=lambda: show.screen(console.height)):
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main()
