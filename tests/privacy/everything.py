"""A customer that uses every feature, all of it marked with one word; and everything that is stored, to look for the word."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import psycopg

from fairlane import Queue
from fairlane.api import auth, upload_tokens
from fairlane.api.access.batches import BatchAccess, BatchRecord, batch_id
from fairlane.api.key_uses import write_uses
from fairlane.api.sign_ins import SignIn, write_sign_in
from fairlane.api.upload_tokens import TokenOptions
from fairlane.api.webhook_deliveries import Delivery, DeliveryStore, document_event
from fairlane.api.webhook_events import mark_batch_ended
from fairlane.api.webhooks import put_webhook
from fairlane.console.people import make_person
from fairlane.console.sessions import SessionStore
from fairlane.core.document import Done, Failed, Retried
from fairlane.encryption import inner_engine
from fairlane.engine.memory import MemoryEngine
from fairlane.engine.postgres.url import parse_url as parse_postgres
from fairlane.engine.redis.url import parse_url as parse_redis
from fairlane.queue.audit import Actor, recorded
from fairlane.queue.audited_queue import AuditedQueue
from fairlane.queue.record_groups import CELERY_RETRIES
from fairlane.worker.progress import ProgressStore
from tests.api.running import Server, until
from tests.servers import postgres, redis

MARK = "qzx7731"
STAFF = Actor("key", "0123456789abcdef", "ada's laptop", "operator", "192.0.2.7")
CUSTOMER = f"{MARK}/100% Łódź"  # with every character that keys of records and paths treat in a way of their own


def marked(text: str) -> str:
    return f"{MARK} {text}"


class Derived:
    """What follows from a customer without containing its name, and would identify it just as well."""

    def __init__(self, queue: Queue, customer: str) -> None:
        self.words = {hashlib.sha256(customer.encode()).hexdigest()[:40]}
        self.words |= {document.id for document in queue.documents(customer)}
        for group in ("keys", "upload tokens", "batches"):
            records = queue.engine.records(group, "", 1000)
            self.words |= {record.key for record in records if json.loads(record.value)["customer"] == customer}


def fill(queue: Queue, customer: str, mark: str = MARK, kind: str = "extract") -> None:
    """Have documents in every state, with files, results, reasons, details of attempts, progress and terms."""
    engine, kinds = queue.engine, {kind: 3}

    def marked(text: str) -> str:
        return f"{mark} {text}"

    queue.tune(customer, weight=2, cap=100, documents_max=1000, bytes_max=10**9, retries_max=7, cost_min=0.5)
    queue.check(customer)
    queue.reset(customer)
    for number in range(8):
        content = marked(f"content {number}").encode()
        name, key = marked(f"{number}.txt"), marked(f"{number}")
        queue.submit(customer, {"note": marked("payload")}, content=content, name=name, key=key, kind=kind)
    queue.submit(customer, {"iban": marked("delayed")}, kind=kind, delay=3600)
    queue.cancel(queue.submit(customer, {"iban": marked("cancelled")}, kind=kind).id)
    done, failed, retried, spent, expired, progressing = engine.claim(marked("worker"), 6, 600_000, kinds)
    results = queue.put_results(
        customer, done.id, done.token, text=marked("text"), facts={"author": marked("author")}, thumbnail=marked("png").encode()
    )
    details = json.dumps({"traceback": marked("traceback")})
    engine.settle(
        [
            (done, Done(json.dumps({**results, "title": marked("result")}), cost=5000)),
            (failed, Failed(marked("reason"), details=details)),
            (retried, Retried(1000, marked("try again"), details=details)),
            (spent, Retried(0, marked("once more"), counted=False)),
        ]
    )
    queue.retry(failed.id)
    engine.extend([expired], 1)
    engine.reclaim(10, now_ms=engine.now() + 60_000)
    queue.put_results(customer, progressing.id, progressing.token, text=marked("half"))
    progress = ProgressStore(engine)
    progress.record(progressing, marked("page 3"), json.dumps({"partial": marked("so far")}))
    progress.write(progress.take_unwritten())


def fill_records(queue: Queue, customer: str) -> None:
    """Have a record in every group that names customers."""
    engine = queue.engine
    _, key = auth.create(engine, customer=customer, name=marked("laptop"))
    SessionStore(engine).begin(key.id)
    write_uses(engine, [(key.id, 1)])
    person = make_person(f"https://login.example/{MARK}", marked("subject"), marked("name"))
    SessionStore(engine).begin(person._replace(role="customer", customer=customer), None, marked("token"))
    _, token = upload_tokens.create(engine, customer, TokenOptions(payload=marked("upload")), made_by=key.id)
    upload_tokens.spend(engine, token.id, next(queue.documents(customer)).id)
    put_webhook(engine, customer, f"https://example.com/{MARK}", None, is_by_operator=True)
    documents = list(islice(queue.documents(customer), 3))
    delivered = add_deliveries(queue, customer)
    DeliveryStore(engine).note(customer, [delivered], [delivered])
    DeliveryStore(engine).wake(customer)
    batch = BatchRecord(batch_id(customer, MARK), customer, "digest", 1, tuple(document.id for document in documents), MARK)
    batches = BatchAccess(queue, key.caller)
    batches.create(batch, MARK, 1)
    batches.put(batch)  # a customer with a webhook has its batches checked
    mark_batch_ended(engine, batch)
    retry = {"customer": customer, "changed": {"body": marked("arguments of the next attempt")}}  # as the bridge keeps it
    engine.put_record(CELERY_RETRIES, documents[0].id, json.dumps(retry))


def fill_audit(queue: Queue, customer: str) -> None:
    """Have entries of the audit log: by staff about the customer, and by the customer's own keys."""
    engine, known = queue.engine, AuditedQueue(queue, STAFF)
    known.pause(customer)
    known.resume(customer)
    known.tune(customer, weight=3)
    known.reset(customer)
    known.cancel(queue.submit(customer, marked("mistaken"), delay=3600).id)
    known.bulk("cancel", customer=customer, kind=marked("none of these"))
    auth.revoke(engine, auth.create(engine, customer=customer, name=marked("lost"), actor=STAFF)[1].id, actor=STAFF)
    key = auth.create(engine, customer=customer, name=marked("phone"))[1]
    own = key.caller.actor(f"{MARK}.example.com")
    write_sign_in(engine, SignIn(own, customer, None), 3)
    write_sign_in(engine, SignIn(own, customer, "wrong"), 1)
    with recorded(engine, STAFF, "webhook.set", customer=customer, before={"url": f"https://{MARK}.example.com"}) as change:
        change.after = {"url": f"https://example.com/{MARK}"}


def add_deliveries(queue: Queue, customer: str) -> Delivery:
    """Have a delivery that is due in an hour, and one that was given up."""
    deliveries, later = DeliveryStore(queue.engine), queue.engine.now() + 3_600_000
    documents = islice(queue.documents(customer), 2)
    pending, failed = (document_event(customer, document.id, "failed", later, marked("reason")) for document in documents)
    deliveries.add(pending)
    deliveries.give_up(failed)
    return pending


def use_service(server: Server, customer: str, hook: str) -> None:
    """Have keys, a session, a webhook with deliveries of every state, batches, uploads, and lines in the log."""
    with server.client(server.operator) as operator:
        hooked = operator.put("/v1/webhook", params={"customer": customer}, json={"url": hook})
        assert hooked.status_code == 200, hooked.text
        assert operator.get("/v1/documents", params={"customer": customer}).status_code == 200
        change_customer(operator, customer)
    with server.client(server.key(customer, name=marked("laptop"))) as client:
        session = client.post("/page/session", json={"key": client.headers["Authorization"].removeprefix("Bearer ")})
        assert session.status_code == 200, session.text
        for number in range(4):
            _submit_batch(client, number)
        name = {"Content-Disposition": f'attachment; filename="{MARK}.txt"', "Content-Type": "text/plain"}
        uploaded = client.post("/v1/documents", content=marked("uploaded").encode(), headers=name)
        assert uploaded.status_code == 202, uploaded.text
        wrong = client.get(f"/v1/documents/{MARK}")
        assert wrong.status_code == 404
        refuse(server, client)
    key = auth.create(server.queue.engine, customer=customer)[1]
    auth.revoke(server.queue.engine, key.id)
    claims = server.queue.engine.claim("worker", 100, 600_000, {"extract": 3, "default": 3})
    assert {claim.customer for claim in claims} == {customer}
    assert not server.queue.engine.settle([(claim, Done(json.dumps({"title": marked("result")}))) for claim in claims])
    wanted = {f"document.done {claim.id}" for claim in claims}
    until(lambda: wanted <= _delivered(server.queue, customer), "all deliveries")
    add_deliveries(server.queue, customer)


def refuse(server: Server, client: httpx.Client) -> None:
    """Have sign-ins with a wrong key; the service writes them to the audit log in its own time."""
    with server.client(client.headers["Authorization"].removeprefix("Bearer ")[:-4] + "AAAA") as stranger:
        assert [stranger.get("/v1/me").status_code for _ in range(3)] == [401] * 3


def change_customer(operator: httpx.Client, customer: str) -> None:
    """Have everything in the audit log that staff does over HTTP to a customer."""
    (document, *_) = operator.get("/v1/documents", params={"customer": customer, "state": "delayed"}).json()["documents"]
    path = f"/v1/customers/{quote(customer, safe='')}"
    of_customer = {"customer": customer}
    changes = [
        operator.patch(path, json={"weight": 4}), operator.post(f"{path}/reset"),
        operator.delete(f"/v1/documents/{document['id']}"), operator.post("/v1/webhook/rotate", params=of_customer, json={}),
        operator.post("/v1/documents/bulk", json={"action": "cancel", "filter": of_customer | {"kind": marked("no")}}),
    ]  # fmt: skip
    assert [answer.status_code for answer in changes] == [200] * len(changes), [answer.text for answer in changes]


def _delivered(queue: Queue, customer: str) -> set[str]:
    return {f"{delivery.type} {delivery.document}" for delivery in DeliveryStore(queue.engine).status(customer).recent}


def _submit_batch(client: httpx.Client, number: int) -> None:
    documents = [{"payload": {"iban": marked(f"batch {number}")}} for _ in range(3)]
    answer = client.post("/v1/batches", json={"documents": documents}, headers={"Idempotency-Key": f"{MARK}-{number}"})
    assert answer.status_code == 202, answer.text


def groups(queue: Queue) -> set[str]:
    """Return the groups of which there are records."""
    cursor, found = json.dumps(["records", None]), set[str]()
    while cursor:
        packed = queue.engine.pack(cursor, 1000)
        found |= {record.group for record in packed.records}
        cursor = packed.cursor or ""
    return found


# -- everything that is stored ---------------------------------------------------------------------------------------


def stored(queue: Queue, folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield everything that a queue keeps in its store and that is in a folder: names with bytes."""
    scheme = queue.url.partition(":")[0].partition("+")[0]
    if scheme == "memory":
        yield from _memory(queue)
    elif scheme == "postgresql":
        yield from _tables(queue.url)
    elif scheme in redis.PRODUCTS:
        yield from _keys(scheme, queue.url)
    for path in folder.rglob("*"):  # the file of a queue on SQLite, too, byte by byte
        yield str(path.relative_to(folder)), path.read_bytes() if path.is_file() else b""


def _memory(queue: Queue) -> Iterator[tuple[str, bytes]]:
    def text(value: Any, depth: int = 0) -> str:
        if depth > 6 or isinstance(value, str | int | float | bytes | None):
            return repr(value)
        if isinstance(value, dict):
            return " ".join(f"{text(key, depth + 1)} {text(item, depth + 1)}" for key, item in value.items())
        if isinstance(value, list | tuple | set | frozenset):
            return " ".join(text(item, depth + 1) for item in value)
        names = getattr(value, "__slots__", None) or vars(value)
        return " ".join(text(getattr(value, name), depth + 1) for name in names)

    engine = inner_engine(queue.engine)
    assert isinstance(engine, MemoryEngine)
    state = next(value for value in vars(engine).values() if type(value).__name__ == "QueueState")
    for name, value in vars(state).items():
        yield name, text(value).encode()


def _tables(url: str) -> Iterator[tuple[str, bytes]]:
    schema = parse_postgres(url).schema
    with psycopg.connect(postgres.shared().url) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,)).fetchall()
        assert tables
        for (table,) in tables:
            for (row,) in connection.execute(f'SELECT t::text FROM "{schema}"."{table}" AS t'.encode()):
                yield table, row.encode()


def _keys(product: str, url: str) -> Iterator[tuple[str, bytes]]:
    with redis.shared(product).client() as client:
        names = client.keys("{fairlane:" + parse_redis(url).queue + "}:*")
        assert names
        for name in names:
            yield name, _values(client, name)


def _values(client: Any, name: str) -> bytes:
    """Return the whole value of a key; not by DUMP, which compresses."""
    command = {
        "string": ("GET", name), "hash": ("HGETALL", name), "list": ("LRANGE", name, 0, -1), "set": ("SMEMBERS", name),
        "zset": ("ZRANGE", name, 0, -1),
    }[client.type(name)]  # fmt: skip
    connection = client.connection_pool.get_connection()
    connection.send_command(*command)
    reply = connection.read_response(disable_decoding=True)
    if isinstance(reply, dict):
        reply = [*reply, *reply.values()]
    return reply if isinstance(reply, bytes) else b" ".join(reply)


def holding(words: set[str], items: Iterator[tuple[str, bytes]]) -> list[str]:
    """Return the names of what holds one of these words, in its name or its bytes."""
    wanted = [word.encode() for word in words]
    return [name for name, content in items if any(word in name.encode() or word in content for word in wanted)]
