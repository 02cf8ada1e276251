"""Forgetting a customer: everything that names it or came from it is erased, wherever it is kept.

Laws:
- Its keys go first: who has nothing but a key sends nothing more.
- A document goes before its files, so that none is without its bytes. Which documents there are is written down before, so that
  a run which follows one that was killed finds their files; every step may be repeated.
- The audit log keeps who did what and when, with a random word instead of the customer.
- What is committed for the customer before the last step is erased with the rest. What comes later is a new customer's.
- Bytes that never had a document may belong to a submission under way: they are left to the sweep until they are a day old.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, islice, takewhile
from typing import NamedTuple

from fairlane.blobs.files import Files
from fairlane.blobs.gc import remove_leftovers
from fairlane.core.document import Record
from fairlane.core.errors import StoreFrozen
from fairlane.engine import Engine
from fairlane.engine.protocol import DocumentFilter, Removed
from fairlane.engine.walk import walk_documents

from .audit import forget_in_audit
from .files import QueueFiles, step_tokens
from .record_groups import FORGETTING, WEBHOOKS, records_of, walk_records

PAGE_SIZE = 1000  # documents erased in one transaction, or written down in one record

OnProgress = Callable[[str, int, int], None]  # what is done, how much of it, of how much (0: not known)


class Forgotten(NamedTuple):
    """What was erased of a customer, and what is not finished."""

    documents: int
    records: int  # keys, sessions, webhooks, deliveries, batches
    files_left: int  # without a document, not a day old: of submissions under way or cut off; the sweep removes them
    not_rewritten: str | None = None  # why the file of the queue was not rewritten; None: it was, or is not to be


def forget_customer(
    engine: Engine, queue_files: QueueFiles, customer: str, in_transaction: bool, on_progress: OnProgress
) -> Forgotten:
    """Erase a customer; the caller rewrites the file of the queue, if it is in one."""
    rules = engine.rules()
    if rules.frozen is not None:
        raise StoreFrozen(rules.frozen)
    records = _erase_records(engine, customer)
    files = None if in_transaction else queue_files.open_existing()  # a transaction may yet be rolled back: leave them
    if files is not None:
        _finish_interrupted(engine, files, customer)
        _write_down(engine, customer)
    documents, total = 0, _count(engine, customer)
    while erased := engine.forget(customer, PAGE_SIZE):
        documents += len(erased)
        if files is not None:
            files.remove_documents(erased)
        on_progress("documents", documents, total)
    records += _erase_records(engine, customer)  # what others wrote down meanwhile
    for record in _written_down(engine, customer):
        engine.put_record(FORGETTING, record.key, None)
    forget_in_audit(engine, customer)
    left = 0
    if files is not None and not queue_files.are_held():
        left = remove_leftovers(files, engine.document, partial(step_tokens, engine), customer)
    return Forgotten(documents, records, left)


def is_forgotten(engine: Engine, customer: str) -> bool:
    """Return whether the queue knows nothing of a customer: it was forgotten, or never seen."""
    known = engine.customer(customer)
    return known.standing.updated_ms is None and not known.terms_version


def being_forgotten(engine: Engine) -> str | None:
    """Return a customer that is being forgotten, or was until that was interrupted; None: there is none."""
    records = engine.records(FORGETTING, "", 1)
    return records[0].key.rpartition("/")[0].replace("%2F", "/").replace("%25", "%") if records else None


def erase_if_forgotten(engine: Engine, customer: str) -> None:
    """Erase what the caller has just written down for a customer, if that was forgotten meanwhile.

    Of a customer that is being forgotten, the webhook goes before everything that is written down for it.
    """
    if engine.record(WEBHOOKS, customer) is None and is_forgotten(engine, customer):
        _erase_records(engine, customer)


def _erase_records(engine: Engine, customer: str) -> int:
    erased = 0
    for record in records_of(engine, customer):
        engine.put_record(record.group, record.key, None)
        erased += 1
    return erased


def _count(engine: Engine, customer: str) -> int:
    known = engine.customer(customer)
    return known.waiting + known.running + known.done + known.failed + known.cancelled


def _write_down(engine: Engine, customer: str) -> None:
    """Write down the documents that a customer has now."""
    documents = ((document.id, document.token) for document in walk_documents(engine, DocumentFilter(customer=customer)))
    for index in count():
        page = list(islice(documents, PAGE_SIZE))
        if not page:
            return
        engine.put_record(FORGETTING, f"{_prefix(customer)}{index:09}", json.dumps(page))


def _finish_interrupted(engine: Engine, files: Files, customer: str) -> None:
    """Remove the files of documents that an interrupted run had written down and erased."""
    for record in _written_down(engine, customer):
        documents = [Removed(id, customer, token) for id, token in json.loads(record.value)]
        files.remove_documents([document for document in documents if engine.document(document.id) is None])
        engine.put_record(FORGETTING, record.key, None)


def _written_down(engine: Engine, customer: str) -> Iterator[Record]:
    prefix = _prefix(customer)
    return takewhile(lambda record: record.key.startswith(prefix), walk_records(engine, FORGETTING, prefix))


def _prefix(customer: str) -> str:
    """Return what the keys of a customer's records begin with; no other customer's do."""
    return customer.replace("%", "%25").replace("/", "%2F") + "/"
