"""How does a program use a server? `Client`: the verbs of the queue, over HTTP; `AsyncClient` has the same verbs awaited.

Laws:
- A submission always carries a key, made once for all its repeats: nothing is doubled.
- The key that opens the server is sent to it and shown nowhere.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, Self, get_args
from urllib.parse import quote, urlencode
from weakref import WeakSet

from fairlane.core.document import State, validate_text
from fairlane.core.errors import BadValue, Unknown, WrongState
from fairlane.core.policy import Dispatch, Reset, Rules, Terms, to_milliseconds
from fairlane.queue import DEFAULT_KIND, KEEP, Cost, Input, Keep, Look
from fairlane.queue.explain import Explanation
from fairlane.queue.files import shown_name
from fairlane.queue.validation import document_id, payload_text

from . import models
from .events import Events
from .models import Batch, BatchReceipt, Check, Document, Me, Receipt, member, members, odd
from .retries import Asking
from .transport import Advance, Line, json_body
from .uploads import body_of

DOCUMENTS, BATCHES, CUSTOMERS = "/v1/documents", "/v1/batches", "/v1/customers"
PAGE = 500
WAIT_SECONDS = 30.0  # that one request waits for an ending
SECONDS_MAX_MS = 24 * 3600 * 1000


class Client:
    """A server at an address, as in `http://127.0.0.1:8000`, and a key that opens it; may be used by many threads at once."""

    def __init__(self, url: str, key: str, *, timeout: float = 30.0, patience: float = 60.0) -> None:
        for name, seconds in (("timeout", timeout), ("patience", patience)):
            to_milliseconds(name, seconds, 1 if name == "timeout" else 0, SECONDS_MAX_MS)
        self._asking = Asking(Line(url, key, timeout), timeout, patience)
        self._streams: WeakSet[Events] = WeakSet()

    def __repr__(self) -> str:
        return f"Client({self._asking.line.address!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of every connection; streams of events end."""
        self._asking.close()
        for stream in list(self._streams):
            stream.close()

    # -- submitting ----------------------------------------------------------------------------------------------------

    def submit(
        self,
        payload: Any = None,
        *,
        path: str | os.PathLike[str] | None = None,
        content: bytes | BinaryIO | None = None,
        name: str | None = None,
        kind: str = DEFAULT_KIND,
        key: str | None = None,
        cost: Cost = 1,
        delay: float = 0,
        customer: str | None = None,
        progress: Advance | None = None,
    ) -> Receipt:
        """Submit one document: JSON, or a file that is streamed from a path or from content, `progress` being told how far.

        A repeated `key` gives the first receipt; without one a key is made, so that a repeat after a lost connection doubles
        nothing. An operator says whose it is with `customer`.
        """
        headers = {"Idempotency-Key": _made_key(key)}
        told = {"kind": kind, "cost": cost, "delay": delay, "customer": customer}
        told = {member: value for member, value in told.items() if value is not None}
        if path is None and content is None and name is None:
            whole = f'{{"payload":{payload_text(payload)},{_json(told)[1:]}'
            answer = self._asking.answer("POST", DOCUMENTS, json_body(whole.encode()), headers)
            return models.receipt(json.loads(answer.body))
        named = shown_name(Input(path, None, name))
        query = {**told, **({} if named is None else {"name": named})}
        if payload is not None:
            query["payload"] = payload_text(payload)
        with body_of(path, content, progress) as body:
            answer = self._asking.answer("POST", f"{DOCUMENTS}?{urlencode(query)}", body, headers)
        return models.receipt(json.loads(answer.body))

    def submit_many(
        self,
        payloads: Iterable[Any],
        *,
        kind: str = DEFAULT_KIND,
        key: str | None = None,
        cost: float = 1,
        delay: float = 0,
        customer: str | None = None,
    ) -> BatchReceipt:
        """Submit many documents of one customer as a batch: as many checks, all or none; a repeated `key` finds it again."""
        if isinstance(payloads, str | bytes | dict) or not isinstance(payloads, Iterable):
            raise BadValue("payloads", payloads, "a list of payloads")
        told: dict[str, Any] = {"kind": kind, "delay": delay}
        if customer is not None:
            told["customer"] = customer
        members = ",".join(f'{{"payload":{payload_text(one)},"cost":{_json(cost)}}}' for one in payloads)
        whole = f'{{"documents":[{members}],{_json(told)[1:]}'
        headers = {"Idempotency-Key": _made_key(key)}
        return models.batch_receipt(json.loads(self._asking.answer("POST", BATCHES, json_body(whole.encode()), headers).body))

    def check(self, customer: str | None = None, *, cost: float = 1) -> Check:
        """One check without a document, for use beside another queue; never repeated by itself, as it moves the counter."""
        told = {"cost": cost, **({} if customer is None else {"customer": customer})}
        return models.read(Check, self._asking.send("POST", "/v1/checks", told, repeats=False))

    # -- looking -------------------------------------------------------------------------------------------------------

    def me(self) -> Me:
        """Whose key this is, and where that customer stands."""
        return models.me(self._asking.get("/v1/me"))

    def look(self, customer: str | None = None) -> Look:
        """Where a customer stands, the key's own if none is named; moves nothing."""
        if customer is not None:
            try:
                return models.look(self._asking.get(_customer(customer)))
            except Unknown:  # for a customer's key there is nothing there, but it may look at itself
                pass
        me = self.me()
        if me.standing is None or customer not in (None, me.customer):
            raise Unknown(
                "say which customer: this is an operator's key"
                if customer is None
                else f"this key may not look at customer {customer!r}; use an operator's key"
            )
        return me.standing

    def customers(self) -> Iterator[Look]:
        """Where every customer stands, by id; with a customer's key that one alone."""
        me = self.me()
        if me.standing is not None:
            yield me.standing
            return
        yield from map(models.look, self._pages(f"{CUSTOMERS}?limit={PAGE}", "customers"))

    def document(self, id: str) -> Document:
        """One document as it is now."""
        return models.document(self._asking.get(_document(id)))

    def documents(self, customer: str | None = None, state: State | None = None) -> Iterator[Document]:
        """Documents, newest first; of one customer, or in one state, or both."""
        if state is not None and state not in get_args(State):
            raise BadValue("state", state, "one of " + ", ".join(get_args(State)))
        told = {"customer": customer, "state": state, "limit": PAGE}
        query = urlencode({name: value for name, value in told.items() if value is not None})
        yield from map(models.document, self._pages(f"{DOCUMENTS}?{query}", "documents"))

    def _pages(self, path: str, name: str) -> Iterator[Any]:
        following: str | None = path
        while following is not None:
            page = self._asking.get(following)
            yield from member(page, name)
            following = members(page).get("next")
            if following is not None and not str(following).startswith("/v1/"):
                raise odd("the next page is somewhere else")

    def wait(self, id: str, timeout: float | None = None) -> Document:
        """Wait until a document has ended, and return it; after `timeout` seconds as it is then."""
        deadline = None if timeout is None else time.monotonic() + to_milliseconds("timeout", timeout, 0, 2**53) / 1000
        while True:
            left = WAIT_SECONDS if deadline is None else min(WAIT_SECONDS, max(0.0, deadline - time.monotonic()))
            document = models.document(self._asking.get(f"{_document(id)}?wait={left:.3f}", left))
            if document.is_ended or (deadline is not None and time.monotonic() >= deadline):
                return document

    def result(self, id: str) -> Any:
        """What came out of a document that is done."""
        return self._asking.get(f"{_document(id)}/result")

    def text(self, id: str) -> str:
        """The text that came out of a document that is done."""
        return self._came_out(id, "text").decode()

    def thumbnail(self, id: str) -> bytes:
        """The picture that came out of a document that is done."""
        return self._came_out(id, "thumbnail")

    def _came_out(self, id: str, name: str) -> bytes:
        return self._asking.answer("GET", f"{_document(id)}/{name}").body

    def batch(self, id: str) -> Batch:
        """How far a batch is."""
        return models.batch(self._asking.get(f"{BATCHES}/{quote(validate_text('batch id', id), safe='')}"))

    def explain(self, id: str) -> Explanation:
        """Why a document has its priority, about how much is ahead of it, and about when it will be served."""
        return _explanation(self._asking.get(f"{_document(id)}/explain"))

    def explain_customer(self, customer: str) -> Explanation:
        """Where a customer stands, when that changes and what it has of its own; for operators."""
        return _explanation(self._asking.get(f"{_customer(customer)}/explain"))

    def events(self, after: int | None = None) -> Events:
        """What happens, as it happens: from now on, or everything after an event's number, 0 being all that is kept."""
        stream = Events(self._asking, after)
        self._streams.add(stream)
        return stream

    # -- changing ------------------------------------------------------------------------------------------------------

    def cancel(self, id: str) -> bool:
        """End a document that has not ended; False if it already has."""
        try:
            self._asking.send("DELETE", _document(id), repeats=True)
        except WrongState:
            return False
        return True

    def retry(self, id: str) -> None:
        """Give a failed document another round of attempts; not a new document, so no check."""
        self._asking.send("POST", f"{_document(id)}/retry", repeats=False)

    def pause(self, customer: str) -> None:
        """Serve nothing of a customer until it is resumed; for operators, as all that follows."""
        self.tune(customer, paused=True)

    def resume(self, customer: str) -> None:
        """Serve a paused customer again."""
        self.tune(customer, paused=False)

    def tune(
        self,
        customer: str,
        *,
        weight: float | Keep = KEEP,
        cap: int | Keep | None = KEEP,
        paused: bool | Keep = KEEP,
        reset_interval: float | Keep | None = KEEP,
        thresholds: tuple[float, ...] | Keep | None = KEEP,
        reset: Reset | Keep | None = KEEP,
    ) -> Terms:
        """Give a customer its own weight, cap, pause or policy; what is not named stays, None is as everybody."""
        wanted = {
            "weight": weight, "cap": cap, "paused": paused, "reset_interval": reset_interval, "thresholds": thresholds,
            "reset": reset,
        }  # fmt: skip
        changes = {name: value for name, value in wanted.items() if value is not KEEP}
        if not changes:
            return self.terms(customer)
        return models.terms(member(self._asking.send("PATCH", _customer(customer), changes, repeats=True), "terms"))

    def terms(self, customer: str) -> Terms:
        """What a customer has of its own."""
        return models.terms(member(self._asking.get(_customer(customer)), "terms"))

    def rules(self) -> Rules:
        """The policy, the dispatch and the open-turn share that hold for everybody, with their version."""
        return models.rules(self._asking.get("/v1/policy"))

    def configure(
        self,
        *,
        reset_interval: float | None = None,
        thresholds: tuple[float, ...] | None = None,
        reset: Reset | None = None,
        dispatch: Dispatch | None = None,
        open_turn_every: int | None = None,
    ) -> Rules:
        """Change the rules for everybody from the next check or claim; what is not named stays."""
        wanted = {
            "reset_interval": reset_interval, "thresholds": thresholds, "reset": reset, "dispatch": dispatch,
            "open_turn_every": open_turn_every,
        }  # fmt: skip
        changes = {name: value for name, value in wanted.items() if value is not None}
        return models.rules(self._asking.send("PUT", "/v1/policy", changes, repeats=True)) if changes else self.rules()

    def reset(self, customer: str) -> None:
        """Set a customer back as if it had never been seen; its documents keep their priorities."""
        self._asking.send("POST", f"{_customer(customer)}/reset", repeats=False)


def _made_key(key: str | None) -> str:
    return secrets.token_hex(16) if key is None else validate_text("key", key)


def _json(told: Any) -> str:
    try:
        return json.dumps(told, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise BadValue("a value", told, f"JSON ({error})") from None


def _document(id: str) -> str:
    return f"{DOCUMENTS}/{quote(document_id(id), safe='')}"


def _customer(customer: str) -> str:
    return f"{CUSTOMERS}/{quote(validate_text('customer', customer), safe='')}"


def _explanation(told: Any) -> Explanation:
    facts = dict(members(told))
    return Explanation(str(member(facts, "sentence")), {name: value for name, value in facts.items() if name != "sentence"})
