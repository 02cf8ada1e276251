"""Groups of records: what each holds, and which of its records belong to a customer.

One table for whoever must find everything of a customer (`forget`, `export`) or everything that is personal (encryption). Every
group that some module reads or writes is in it: a test compares.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from fairlane.core.document import Record
from fairlane.engine import Engine

PAGE_SIZE = 500
WEBHOOKS = "webhooks"
FORGETTING = "forgetting"
CELERY_RETRIES = "celery retries"
SECRETS = {"digest", "id_token", "secret"}  # fields of records, at any depth, that grant access or prove it

OwnerOf = Callable[[Record], str | None]


class RecordGroup(NamedTuple):
    """One group. With `follows`, the keys of its records are keys of that group, alone or with `/` and more behind them."""

    name: str
    owner: OwnerOf | None = None  # which customer a record belongs to; None: records of this group name no customer
    follows: str | None = None  # the group whose records decide to whom its own belong
    of_documents: bool = False  # the engine deletes its records with their documents


def _by_key(record: Record) -> str | None:
    return record.key


def _by_value(record: Record) -> str | None:
    value = json.loads(record.value)
    return value.get("customer") if isinstance(value, dict) else None


def _behind_slash(record: Record) -> str | None:
    return record.key.partition("/")[2]


GROUPS = (  # keys first: a customer that is being forgotten sends no more
    RecordGroup("sessions", follows="keys"),
    RecordGroup("key uses", follows="keys"),
    RecordGroup("keys", _by_value),
    RecordGroup("upload tokens", _by_value),
    RecordGroup("people", _by_value),
    RecordGroup(WEBHOOKS, _by_key),
    RecordGroup("webhook customers", _behind_slash),
    RecordGroup("webhook deliveries", _by_value),
    RecordGroup("webhook failures", _by_value),
    RecordGroup("webhook status", _by_key),
    RecordGroup("batches to check", follows="batches"),
    RecordGroup("batch ends", follows="batches"),
    RecordGroup("batches", _by_value),
    RecordGroup(CELERY_RETRIES, _by_value),
    RecordGroup("progress", of_documents=True),
    RecordGroup("attempts", of_documents=True),
    RecordGroup(FORGETTING),  # documents of a customer that is being forgotten; `forget` removes them itself
    RecordGroup("audit"),  # its entries stay; `forget` takes the customer out of them itself
    RecordGroup("webhook sender"),
    RecordGroup("workers"),
    RecordGroup("start estimates"),
    RecordGroup("blobs"),
    RecordGroup("file holds"),
    RecordGroup("fairlane"),
    RecordGroup("cursors"),
    RecordGroup("encryption"),
)


def records_of(engine: Engine, customer: str) -> Iterator[Record]:
    """Yield the records that belong to a customer, those that follow others before these; deleting them meanwhile is fine."""
    for group in GROUPS:
        if group.owner is _by_key:
            record = engine.record(group.name, customer)
            if record is not None:
                yield record
        elif group.owner is not None:
            followers = [follower.name for follower in GROUPS if follower.follows == group.name]
            for record in walk_records(engine, group.name):
                if group.owner(record) == customer:
                    for follower in followers:
                        yield from _followers(engine, follower, record.key)
                    yield record


def exported_records(engine: Engine, customer: str) -> Iterator[dict[str, Any]]:
    """Yield a customer's records as they may be given away: without what grants access, and without what only others follow."""
    inner = {group.name for group in GROUPS if group.follows is not None}
    for record in records_of(engine, customer):
        if record.group not in inner:
            yield {"group": record.group, "key": record.key, "value": _without_secrets(json.loads(record.value))}


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_secrets(item) for name, item in value.items() if name not in SECRETS}
    return [_without_secrets(item) for item in value] if isinstance(value, list) else value


def walk_records(engine: Engine, group: str, after: str = "") -> Iterator[Record]:
    """Yield the records of a group by key, page by page."""
    while page := engine.records(group, after, PAGE_SIZE):
        yield from page
        after = page[-1].key


def _followers(engine: Engine, group: str, key: str) -> Iterator[Record]:
    record = engine.record(group, key)
    if record is not None:
        yield record
    for follower in walk_records(engine, group, f"{key}/"):
        if not follower.key.startswith(f"{key}/"):
            return
        yield follower
