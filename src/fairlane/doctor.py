"""Findings of `fairlane doctor`: the store's own diagnostics, its latency, feed and workers, and this machine's sandbox."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType

from fairlane.core.errors import Mistake, StoreError
from fairlane.engine.codec import is_reset_gone
from fairlane.engine.protocol import Finding

from . import sandbox
from .encryption.engine import is_reencrypting, registered_keys
from .queue import Queue
from .queue.forget import being_forgotten
from .settings import UNSAFE

TRIES = 7
SLOW_SECONDS = 0.05
FEED_DAYS = 30
STEP_SECONDS = 2.0
GROUP, KEY = "fairlane", "doctor"


Examinations = Mapping[str, Callable[[], list[Finding]]]


def findings(queue: Queue, may_read_everything: bool = False, more: Examinations = MappingProxyType({})) -> list[Finding]:
    """Examine the queue, and what more there is by name; return every finding, fine or not.

    What fails because something else is bad is a finding too. `may_read_everything` is the setting
    unsafe_files_may_read_everything.
    """
    found = _try("store", queue.engine.diagnose)
    is_whole = all(finding.level != "bad" for finding in found if finding.name in ("store", "indexes"))
    examinations: Examinations = {
        "schema": lambda: [_schema(queue)],
        "time": lambda: [_time(queue)],
        "reading": lambda: [_measure("reading", queue.engine.rules, 1)],
        "writing": lambda: [_measure("writing", lambda: _write(queue), 2)],
        "moving": lambda: [_frozen(queue)],
        "feed": lambda: [_feed(queue)],
        "workers": lambda: [_workers(queue)],
        "forgetting": lambda: _forgetting(queue),
        "encryption": lambda: _encryption(queue),
    }
    for name, examine in {**examinations, **more}.items():
        found += _try(name, examine) if is_whole else [_not_examined(name)]
    return [*found, *_sandbox(may_read_everything)]


def findings_without_queue(message: str, may_read_everything: bool = False) -> list[Finding]:
    """Return what can be found out where no queue was made yet."""
    advice = "fairlane migrate makes it, and so does the first program that submits; then examine it again"
    return [Finding("queue", "bad", message, advice), *_sandbox(may_read_everything)]


def _try(name: str, examine: Callable[[], list[Finding]]) -> list[Finding]:
    try:
        return examine()
    except StoreError as error:
        return [Finding(name, "bad", f"the store failed: {error}", "mend what it says, or restore the store from a backup")]


def _not_examined(name: str) -> Finding:
    return Finding(name, "warning", "not examined, because the store is not whole", "mend what is bad above, then run it again")


def _schema(queue: Queue) -> Finding:
    """Compare the version of the store's schema with the one that this program knows."""
    version, known = queue.engine.store_schema(), queue.engine.schema
    if version == known:
        return Finding("schema", "fine", f"version {version}, the newest that this Fairlane knows")
    message = f"a newer Fairlane brought the store to version {version}; this one knows up to {known} and may go on using it"
    return Finding("schema", "warning", message, "install the newer Fairlane here too, and start its programs again")


def _time(queue: Queue) -> Finding:
    """Compare the store's clock with the time at which the newest document came."""
    newest = next(iter(queue.documents()), None)
    ahead = 0.0 if newest is None else newest.submitted_at.timestamp() - queue.engine.now() / 1000
    if ahead <= STEP_SECONDS:
        return Finding("time", "fine", "the store's clock goes on from the newest document")
    message = (
        f"the store's clock was set back by {ahead:,.0f} s or more since the newest document: delayed and retried documents, "
        "and those of workers that died, wait so much longer"
    )
    return Finding(
        "time", "warning", message, "set the clock right, and keep it right by NTP, which corrects it in small steps"
    )


def _write(queue: Queue) -> None:
    queue.engine.put_record(GROUP, KEY, "1")
    queue.engine.put_record(GROUP, KEY, None)


def _measure(name: str, operation: Callable[[], object], calls: int) -> Finding:
    durations = []
    for _ in range(TRIES):
        began = time.perf_counter()
        operation()
        durations.append((time.perf_counter() - began) / calls)
    median = statistics.median(durations)
    message = f"{median * 1000:.2f} ms, the slowest of {TRIES} took {max(durations) * 1000:.2f} ms"
    if median <= SLOW_SECONDS:
        return Finding(name, "fine", message)
    return Finding(name, "warning", message, "every document waits for this: use a faster disk, or a store that is nearer")


def _frozen(queue: Queue) -> Finding:
    rules = queue.rules()
    frozen = rules.frozen
    if frozen is None:
        return Finding("moving", "fine", "the queue accepts documents")
    advice = "finish the move with fairlane move, or abandon it with fairlane move --stop; if it was moved, use the new URL"
    if is_reset_gone(rules):
        advice = "run fairlane policy --reset sliding; documents that wait keep their priorities"
    return Finding("moving", "bad", f"the queue accepts no documents: it {frozen}", advice)


def _feed(queue: Queue) -> Finding:
    oldest = next(queue.changes(limit=1), None)
    if oldest is None:
        return Finding("feed", "fine", "empty")
    days = max(0.0, time.time() - oldest.at.timestamp()) / 86_400
    message = f"goes back {days:,.0f} days"
    if days <= FEED_DAYS:
        return Finding("feed", "fine", message)
    return Finding("feed", "warning", message, "delete old changes and ended documents: fairlane purge --older-than 30d")


def _workers(queue: Queue) -> Finding:
    """Count the workers, and find those that are too old and kinds that none of them takes."""
    workers = queue.workers()
    counts = Counter(worker.state for worker in workers)
    message = ", ".join(f"{count:,} {state}" for state, count in sorted(counts.items())) or "none is running"
    outdated = [worker.name for worker in workers if worker.is_outdated and worker.state != "gone"]
    if outdated:
        message += f"; {outdated[0]} knows only an older schema than the store has"
        return Finding("workers", "warning", message, "upgrade Fairlane where this worker runs, and start it again")
    if unserved := queue.unserved_kinds():
        message += f"; documents of kind {unserved[0].kind!r} wait, and no worker takes them"
        return Finding("workers", "warning", message, "start a worker that takes this kind, or cancel them")
    return Finding("workers", "fine", message)


def _forgetting(queue: Queue) -> list[Finding]:
    """Find a customer that was not forgotten to the end."""
    customer = being_forgotten(queue.engine)
    if customer is None:
        return []
    message = f"customer {customer!r} is being forgotten, or that was interrupted before everything was erased"
    return [Finding("forgetting", "warning", message, "if nobody does it now, run fairlane forget again, with --yes")]


def _encryption(queue: Queue) -> list[Finding]:
    """Say whether texts and files are encrypted, and whether all of them are, with one key."""
    first, known = queue.keyring.first, registered_keys(queue.engine)
    others = [key_id for key_id in known if first is None or key_id != first.id]
    if first is None and not others:
        return [Finding("encryption", "fine", "off: payloads, results and files are stored as they are")]
    message = "new texts and files are stored as they are" if first is None else f"with key {first.id}"
    if is_reencrypting(queue.engine):
        return [
            Finding(
                "encryption", "warning", f"{message}; re-encryption is under way, or was interrupted", "run fairlane encrypt"
            )
        ]
    if others:
        message += f"; some texts or files may still be encrypted with key {', '.join(others)}"
        return [Finding("encryption", "warning", message, "start every program with the same keys, then run fairlane encrypt")]
    return [Finding("encryption", "fine", message)]


def _sandbox(may_read_everything: bool) -> list[Finding]:
    """List the sandbox layers of this machine, those in force first, and what it cannot promise."""
    layers = sorted(sandbox.layers(), key=lambda layer: not layer.is_in_force)
    findings = [
        Finding("sandbox", "fine", f"{'' if layer.is_in_force else 'not in force: '}{layer.name}: {layer.detail}")
        for layer in layers
    ]
    try:
        sandbox.require(may_read_everything=may_read_everything)
    except Mistake as error:
        advice = "until then files cannot be extracted on this machine; the queue itself works"
        return [*findings, Finding("sandbox", "bad", str(error), advice)]
    if (reason := sandbox.unsafe_reason(may_read_everything)) is not None:
        advice = f"have one of these layers, then remove the setting {UNSAFE}"
        return [*findings, Finding("sandbox", "bad", f"UNSAFE: {reason}", advice)]
    if may_read_everything:
        message = f"the setting {UNSAFE} is not needed here: nothing else is read"
        advice = "remove it, so that it does not take effect on the day that a layer is missing"
        return [*findings, Finding("sandbox", "warning", message, advice)]
    return findings
