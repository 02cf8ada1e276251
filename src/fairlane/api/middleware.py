"""What must hold before a route sees a request: a key that may do this, a free slot, a body of an accepted size and type.

Laws:
- No key, no body read: everything here is decided from the headers, and the body is counted while it is read.
- Who may use a route is decided here alone, by `permissions.ROUTES`.
- Without a key every address responds alike, so that nobody learns what exists.
- A request that changes something with a credential that browsers send by themselves must prove that it is our own page's.
- HEAD is answered wherever GET is, by the same route, without the body.
- The path is matched as it was sent, without decoding: an encoded slash is part of a name, never of an address.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import Response

from fairlane.core.errors import FairlaneError

from .auth import Caller
from .client_address import client_address, is_https, without_forged
from .cors import PREFLIGHT
from .cors import ROUTE as UPLOADS
from .dependencies import RequestContext, context_of
from .permissions import ROLE_NAMES, ROUTES, STAFF, Permission, missing, of_path
from .problems import Problem, nothing_here, problem_of, too_many_strangers
from .service import Service
from .shares import HOLDER, SERVICE, STRANGERS, RequestSlot, holder_of
from .upload_tokens import is_upload_token

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
DirectRoute = Callable[[RequestContext, Request], Awaitable[Response]]

SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))
DOCUMENTS, BATCHES = "/v1/documents", "/v1/batches"
CREDENTIAL_MAX = 200
PARAMETERS_MAX = 100
PIECE_BYTES = 16 * 1024  # of a response, sent at once
HEALTH_PATHS = frozenset(("/healthz", "/readyz"))  # answered however many other requests there are
SINGLE_HEADERS = frozenset(
    (b"authorization", b"content-encoding", b"content-type", b"host", b"idempotency-key", b"last-event-id", b"x-fairlane-csrf")
)
STRICT_TRANSPORT = (b"strict-transport-security", b"max-age=31536000")  # browsers come back with https for a year


class ClientGone(Exception):
    """The client disconnected before it had sent everything."""


class HeadersSent(Exception):
    """The response to a HEAD request is complete; what would follow is not needed."""


class RequestMiddleware:
    """The outermost layer of the app; `direct` are routes that are called past the framework."""

    def __init__(
        self,
        app: App,
        service: Service,
        routes: Mapping[tuple[str, str], frozenset[str] | None],
        direct: dict[tuple[str, str], DirectRoute],
    ) -> None:
        self._app = app
        self._service = service
        self._query_names = routes  # by method and path; None: the route may be called with any
        paths = sorted({path for _, path in routes})
        self._direct = direct
        self._paths = {path for path in paths if "{" not in path}
        self._patterns = [(_pattern(path), path) for path in paths if "{" in path]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        service, began = self._service, time.perf_counter()
        scope["path"] = scope["raw_path"].decode("ascii", "replace") if scope.get("raw_path") else scope["path"]
        scope["source"] = source = service.options.proxies.source(scope)
        if service.extension.proxy_headers:
            scope["headers"] = without_forged(scope["headers"], service.extension.proxy_headers, source)
        log_fields: dict[str, Any] = {"client": source.address}
        scope["log"] = log_fields
        is_safe_only = source.is_https and not _is_local_name(dict(scope["headers"]).get(b"host", b""))
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        route = scope["fairlane.route"] = self._route(method, scope["path"])
        headers = service.options.upload_origins.headers(route, dict(scope["headers"]))
        sender = Sender(send, scope, [*headers, STRICT_TRANSPORT] if is_safe_only else headers)
        HOLDER.set(STRANGERS)  # this task may have been started by the request before it
        try:
            await self._handle({**scope, "method": "GET"} if sender.is_head else scope, receive, sender)
        except HeadersSent:
            pass
        except ClientGone:
            sender.status = 499
        except Problem as problem:
            await sender.problem(problem)
        except FairlaneError as error:
            service.log_store_error(error)
            await sender.problem(problem_of(error))
        except Exception as error:  # noqa: BLE001 the last chance to log it and to respond
            service.log.failed(f"{scope['method']} {scope['path'][:100]}", error)
            await sender.problem(Problem("broken", "something broke while answering; it was written to the log", close=True))
        finally:
            seconds = time.perf_counter() - began
            service.metrics.on_response(scope["method"], route, sender.status, seconds)
            milliseconds = round(seconds * 1000, 1)
            service.log.request(method=scope["method"], route=route, status=sender.status, ms=milliseconds, **log_fields)

    def _route(self, method: str, path: str) -> str:
        """Return the route of a path: of this method, as the framework finds it, or of another one; they hold no ids."""
        if (method, path) in self._query_names:
            return path
        matching = [route for pattern, route in self._patterns if pattern.fullmatch(path)]
        own = next((route for route in matching if (method, route) in self._query_names), None)
        return own or (path if path in self._paths else matching[0] if matching else "other")

    async def _handle(self, scope: Scope, receive: Receive, sender: Sender) -> None:
        path, headers, route = scope["path"], dict(scope["headers"]), scope["fairlane.route"]
        permission = ROUTES.get((scope["method"], route))
        is_public = permission == "public" or (permission is None and set(of_path(route)) == {"public"})
        _refuse_repeated(scope["headers"], headers)
        if self._service.options.upload_origins.is_preflight(scope["method"], route, headers):
            self._charge_stranger(scope)
            return await sender.empty(204, PREFLIGHT)
        if is_public:
            return await self._answer_stranger(scope, receive, sender, headers)
        scope["credential"], caller = await self._authenticate(scope, headers)
        scope["caller"] = caller
        if not caller.is_person and not caller.is_upload_token:
            self._service.key_uses.note(caller.id)
        scope["log"].update(caller.log_fields)
        holder = holder_of(caller)
        HOLDER.set(holder)
        if (connection := scope.get("connection")) is not None:
            connection.show_key(holder)
        with self._service.answering(holder):
            self._refuse(caller, headers)
            _refuse_without_permission(permission, route, caller, headers)
            self._refuse_unknown_query(scope)
            limited = LimitedReceive(receive, self._bytes_max(scope["method"], path, headers))
            direct = self._direct.get((scope["method"], path))
            if direct is None:
                return await self._app(scope, limited, sender)
            scope["app"] = self._app
            request = Request(scope, limited)
            response = await direct(context_of(self._service, scope), request)
            return await response(scope, limited, sender)

    async def _answer_stranger(self, scope: Scope, receive: Receive, sender: Sender, headers: dict[bytes, bytes]) -> None:
        """Answer a request that needs no key; a body that is slow to come occupies nothing but its connection."""
        service = self._service
        self._charge_stranger(scope)
        self._refuse_unknown_query(scope)
        body = b""
        if _has_body(headers):
            bytes_max = service.limits.open_body_bytes
            _refuse_longer(headers, bytes_max)
            try:
                async with asyncio.timeout(service.limits.open_body_seconds):
                    body = await read_body(LimitedReceive(receive, bytes_max))
            except TimeoutError:
                raise Problem("too-slow", "the body took too long to arrive", close=True) from None
        if scope["path"] in HEALTH_PATHS:
            return await self._app(scope, ReceivedBody(receive, body), sender)
        slot = RequestSlot(service.open_requests, STRANGERS)
        sender.on_start = slot.end  # from then on a client that reads slowly occupies nothing but its connection
        try:
            return await self._app(scope, ReceivedBody(receive, body), sender)
        finally:
            slot.end()

    def _charge_stranger(self, scope: Scope) -> None:
        """Count a request without a valid key for its address; refuse it if there were too many."""
        group = self._service.stranger_group(client_address(scope))
        if group and not self._service.addresses.take(group):
            raise too_many_strangers()

    async def _authenticate(self, scope: Scope, headers: dict[bytes, bytes]) -> tuple[str, Caller]:
        """Identify the caller by its credential, a key or one of the extension, before the body is read."""
        extension = self._service.extension
        has_body = _has_body(headers)
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        is_key = scheme.lower() == b"bearer"  # another scheme is for a proxy in front, which may pass it on
        sent_by_browser = "" if is_key else extension.credential(headers, is_https=is_https(scope))
        credential = token.strip().decode("ascii", "replace") if is_key else sent_by_browser
        caller = await self._find_caller(scope, credential) if 0 < len(credential) <= CREDENTIAL_MAX else None
        if caller is None or not extension.is_vouched(caller, headers):
            self._charge_stranger(scope)
            if credential and not sent_by_browser and not is_upload_token(credential):
                self._service.refused_sign_in(credential, client_address(scope))
            raise Problem("no-key", "send a key that is in use, as in Authorization: Bearer fl_...", close=has_body)
        if sent_by_browser and scope["method"] not in SAFE_METHODS:
            extension.refuse_forged(credential, headers, close=has_body)
        return credential, caller

    async def _find_caller(self, scope: Scope, credential: str) -> Caller | None:
        """Look a credential up; for an address that sent too many wrong ones only if it is known."""
        service = self._service
        if service.is_known(credential):
            HOLDER.set(SERVICE)  # does not wait behind lookups that strangers cause
        elif (group := service.stranger_group(client_address(scope))) and not service.addresses.has(group):
            raise too_many_strangers()
        return await (service.upload_caller if is_upload_token(credential) else service.caller)(credential)

    def _refuse(self, caller: Caller, headers: dict[bytes, bytes]) -> None:
        """Refuse what can be refused before the body is read."""
        service = self._service
        if service.is_stopping:
            raise Problem(
                "stopping", "this server stops; another one, or this one again, will answer", retry_after=5, close=True
            )
        if not service.rate_limiter.take(caller.id):
            most = service.limits.requests_a_second
            raise Problem("too-many-requests", f"more than {most} requests a second with this key", retry_after=1, close=True)
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise Problem("wrong-media-type", "a compressed body is not taken; send it as it is", close=True)

    def _refuse_unknown_query(self, scope: Scope) -> None:
        """Refuse parameters that a route does not have: ignored, they would look as if they had been obeyed."""
        known = self._query_names.get((scope["method"], scope["fairlane.route"])) if scope["query_string"] else None
        if known is not None:
            refuse_unknown_query(scope["query_string"], known)

    def _bytes_max(self, method: str, path: str, headers: dict[bytes, bytes]) -> int:
        limits = self._service.limits
        bytes_max = limits.json_bytes
        is_file = path in (DOCUMENTS, BATCHES) and not is_json(headers.get(b"content-type", b""))
        if method == "POST" and (is_file or path == UPLOADS):
            bytes_max = limits.upload_bytes
        elif method == "POST" and path == BATCHES:
            bytes_max = limits.batch_bytes
        _refuse_longer(headers, bytes_max)
        return bytes_max


def _pattern(path: str) -> re.Pattern[str]:
    """Return the pattern of a path with names in it."""
    return re.compile(re.sub(r"\{\w+\}", "[^/]+", re.sub(r"\{\w+:path\}", ".*", path)))


def _has_body(headers: dict[bytes, bytes]) -> bool:
    return headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers


def _refuse_longer(headers: dict[bytes, bytes], bytes_max: int) -> None:
    """Refuse a body that says it is longer than this."""
    length = headers.get(b"content-length")
    if length is not None and int(length) > bytes_max:  # the parser has seen that it is a number
        raise too_large(bytes_max)


def _refuse_repeated(headers: list[tuple[bytes, bytes]], by_name: dict[bytes, bytes]) -> None:
    """Refuse headers that must not come twice: a proxy in front may have looked at the other one."""
    if len(by_name) == len(headers):
        return
    names = [name for name, _ in headers if name in SINGLE_HEADERS]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise Problem("bad-request", f"the header {repeated.decode()} comes more than once", close=True)


def _refuse_without_permission(permission: Permission | None, route: str, caller: Caller, headers: dict[bytes, bytes]) -> None:
    """Refuse what the caller may not do: as something that is not there, or with what it would need."""
    if permission is None:  # no route, or another method of one: the framework answers, unless that would tell of the route
        if caller.role == "customer" and of_path(route) and STAFF.issuperset(of_path(route)):
            raise nothing_here()
        return
    lacking = missing(permission, caller.role, caller.permissions)
    if lacking is not None and lacking.is_hidden:
        raise nothing_here()
    if lacking is not None:
        who = f"{'you are' if caller.is_person else 'this is the key of'} {ROLE_NAMES[caller.role]}"
        detail = f"{who}, and may not do this; it takes {lacking.needed}"
        if caller.is_upload_token:
            detail = f"this is an upload token, which does nothing but upload one document: POST {UPLOADS}"
        raise Problem("not-allowed", detail, close=_has_body(headers))


class LimitedReceive:
    """Receives the body, and refuses it once it is larger than allowed."""

    def __init__(self, receive: Receive, bytes_max: int) -> None:
        self._receive = receive
        self._left = bytes_max
        self._bytes_max = bytes_max

    async def __call__(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            if self._left < 0:
                raise too_large(self._bytes_max)
        return message


class ReceivedBody:
    """Receives a body that was read already, and then what comes after it."""

    def __init__(self, receive: Receive, body: bytes) -> None:
        self._receive = receive
        self._body: bytes | None = body

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


class Sender:
    """Sends the response, to a HEAD request without its body, and remembers its status."""

    def __init__(self, send: Send, scope: Scope, more_headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        self._send = send
        self.is_head = scope["method"] == "HEAD"
        self._connection = scope.get("connection")
        self._request_headers = scope["headers"]  # now: the framework replaces the list
        self._more_headers = more_headers
        self.on_start: Callable[[], None] | None = None  # called when the response begins
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            if self.on_start is not None:
                self.on_start()
            headers = message["headers"] = list(message.get("headers", ()))
            if not any(name == b"cache-control" for name, _ in headers):
                headers.append((b"cache-control", b"no-store"))
            headers += self._more_headers
            if self._connection is not None and self._connection.has_body_left(self._request_headers):
                headers.append((b"connection", b"close"))  # nobody will read the rest
        elif self.is_head and message["type"] == "http.response.body":
            await self._send({"type": "http.response.body"})
            raise HeadersSent  # a stream would go on for ever
        await self._send_pieces(message)

    async def _send_pieces(self, message: Message) -> None:
        """Send a long body piece by piece: of what a client does not read, only a piece is in the connection's buffers."""
        body = message.get("body", b"")
        for start in range(0, len(body) - PIECE_BYTES, PIECE_BYTES):
            await self._send({**message, "body": body[start : start + PIECE_BYTES], "more_body": True})
        rest = (len(body) - 1) // PIECE_BYTES * PIECE_BYTES
        await self._send({**message, "body": body[rest:]} if rest > 0 else message)

    async def empty(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Respond without a body."""
        await self({"type": "http.response.start", "status": status, "headers": headers})
        await self({"type": "http.response.body"})

    async def problem(self, problem: Problem) -> None:
        """Respond with a problem, unless a response has begun."""
        if not self.status:
            body = problem.body()
            headers = [*problem.headers(), (b"content-length", b"%d" % len(body))]
            await self({"type": "http.response.start", "status": problem.status, "headers": headers})
            with contextlib.suppress(HeadersSent):
                await self({"type": "http.response.body", "body": body})


async def read_body(receive: Receive) -> bytes:
    """Read the whole body, as far as its limit allows."""
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body"):
        return bytes(message.get("body", b""))
    pieces = []
    while message["type"] == "http.request":
        pieces.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(pieces)
        message = await receive()
    raise ClientGone


def refuse_unknown_query(query: bytes, known: frozenset[str]) -> None:
    """Refuse a query with a parameter that is not known."""
    try:
        names = [name for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=PARAMETERS_MAX)]
    except ValueError:
        raise Problem("bad-value", f"the query has more than {PARAMETERS_MAX} parameters", close=True) from None
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None:
        expected = f"it takes {', '.join(sorted(known))}" if known else "it takes none"
        raise Problem("bad-value", f"{unknown[:100]!r} is not a parameter of this address; {expected}", close=True)


def is_json(content_type: bytes) -> bool:
    return content_type.partition(b";")[0].strip().lower() == b"application/json"


def too_large(bytes_max: int) -> Problem:
    return Problem(
        "too-large", f"the body is larger than {bytes_max:,} bytes, which is the most that is taken here", close=True
    )


def _is_local_name(host: bytes) -> bool:
    """Whether this is the name of a browser's own machine, where other programs may be served without TLS."""
    name = host.partition(b":")[0].lower()
    return name == b"localhost" or name.endswith(b".localhost")
