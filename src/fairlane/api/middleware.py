"""What must hold before a route sees a request? A key, a place in the line, a body of a size and kind that is taken.

Laws:
- No key, no body read: everything here is decided from the headers, and the body is counted while it is read.
- Without a key every address answers alike, so that nobody learns what there is.
- A cookie opens what its key opens; to change something it takes the word that our own page was told, too.
- The path is matched as it was sent, without decoding: an encoded slash is part of a name, never of an address.
"""

from __future__ import annotations

import hmac
import re
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from fairlane.console.sessions import CSRF_HEADER, cookie_in, csrf_of
from fairlane.core.errors import FairlaneError

from .auth import Caller
from .problems import Problem, nothing_here, problem_of
from .service import Service

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Quick = Callable[[Scope, Receive, "Answer"], Awaitable[None]]

OPEN = frozenset(("/", "/healthz", "/readyz", "/v1/openapi.json"))
OPEN_FOLDER = "/static/"
SIGN_IN = ("POST", "/page/session")
FOR_OPERATORS = ("/v1/customers", "/v1/policy", "/metrics", "/page/frames", "/page/history", "/page/customers", "/page/what-if")
LOOKING = frozenset(("GET", "HEAD", "OPTIONS"))
DOCUMENTS, BATCHES = "/v1/documents", "/v1/batches"


class Gone(Exception):
    """The client went away before it had sent everything."""


class Edge:
    """The outermost layer; `quick` are routes that are answered without the framework."""

    def __init__(self, app: App, service: Service, paths: Iterable[str], quick: dict[tuple[str, str], Quick]) -> None:
        self._app = app
        self._service = service
        self._quick = quick
        self._paths = {path for path in paths if "{" not in path}
        self._patterns = [(re.compile(re.sub(r"\{\w+\}", "[^/]+", path)), path) for path in paths if "{" in path]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        service, began = self._service, time.perf_counter()
        scope["path"] = scope["raw_path"].decode("ascii", "replace") if scope.get("raw_path") else scope["path"]
        told: dict[str, Any] = {}
        scope["told"] = told  # what the log should say of this request
        answer = Answer(send, scope.get("whole"))
        service.at_work += 1
        try:
            await self._through(scope, receive, answer)
        except Gone:
            answer.status = 499
        except Problem as problem:
            await answer.problem(problem)
        except FairlaneError as error:
            service.tell_store(error)
            await answer.problem(problem_of(error))
        except Exception as error:  # noqa: BLE001 the last place where it can be told
            service.log.failed(f"{scope['method']} {scope['path'][:100]}", error)
            await answer.problem(Problem("broken", "something broke while answering; it was written to the log", close=True))
        finally:
            service.at_work -= 1
            seconds = time.perf_counter() - began
            route = self._route(scope["path"])
            service.metrics.answered(scope["method"], route, answer.status, seconds)
            service.log.request(method=scope["method"], route=route, status=answer.status, ms=round(seconds * 1000, 1), **told)

    def _route(self, path: str) -> str:
        """The route that a path belongs to, for figures and the log: there are few of them, and they hold no ids."""
        if path in self._paths:
            return path
        return next((route for pattern, route in self._patterns if pattern.fullmatch(path)), "other")

    async def _through(self, scope: Scope, receive: Receive, answer: Answer) -> None:
        path, headers = scope["path"], dict(scope["headers"])
        is_open = _is_open(scope["method"], path)
        limit = self._service.limits.requests_at_once
        if self._service.at_work > (2 * limit if is_open else limit):
            raise _overloaded()
        if not is_open:
            scope["shown"], caller = await self._known(scope["method"], headers)
            scope["caller"] = caller
            scope["told"]["key"] = caller.key_id
            if caller.customer is not None:
                scope["told"]["customer"] = caller.customer
            self._refuse(path, caller, headers)
        counted = Counted(receive, self._bytes_max(scope["method"], path, headers))
        app: App | Quick = self._quick.get((scope["method"], path), self._app)
        await app(scope, counted, answer)

    async def _known(self, method: str, headers: dict[bytes, bytes]) -> tuple[str, Caller]:
        """What was shown, a key or a session's cookie, and who calls with it; refused without a look at the body."""
        has_body = headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
        scheme, _, told = headers.get(b"authorization", b"").partition(b" ")
        cookie = "" if scheme else cookie_in(headers)
        shown = told.strip().decode("ascii", "replace") if scheme.lower() == b"bearer" else cookie
        caller = await self._service.caller(shown) if 0 < len(shown) <= 200 else None
        if caller is not None:
            if cookie and method not in LOOKING and not _is_from_page(cookie, headers):
                told_why = f"a change that is asked for with a cookie needs the header {CSRF_HEADER.decode()}"
                raise Problem("not-from-page", told_why, close=has_body)
            return shown, caller
        raise Problem("no-key", "send a key that is in use, as in Authorization: Bearer fl_...", close=has_body)

    def _refuse(self, path: str, caller: Caller, headers: dict[bytes, bytes]) -> None:
        """What is decided before the body is read."""
        service = self._service
        if service.is_stopping:
            raise Problem(
                "stopping", "this server stops; another one, or this one again, will answer", retry_after=5, close=True
            )
        if not service.buckets.take(caller.key_id):
            most = service.limits.requests_a_second
            raise Problem("too-many-requests", f"more than {most} requests a second with this key", retry_after=1, close=True)
        if caller.customer is not None and path.startswith(FOR_OPERATORS):
            raise nothing_here()
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise Problem("wrong-media-type", "a compressed body is not taken; send it as it is", close=True)

    def _bytes_max(self, method: str, path: str, headers: dict[bytes, bytes]) -> int:
        limits = self._service.limits
        most = limits.json_bytes
        if method == "POST" and path in (DOCUMENTS, BATCHES) and not is_json(headers.get(b"content-type", b"")):
            most = limits.upload_bytes
        elif method == "POST" and path == BATCHES:
            most = limits.batch_bytes
        told = headers.get(b"content-length")
        if told is not None and int(told) > most:  # the parser has seen that it is a number
            raise too_large(most)
        return most


def _is_open(method: str, path: str) -> bool:
    return path in OPEN or path.startswith(OPEN_FOLDER) or (method, path) == SIGN_IN


def _is_from_page(cookie: str, headers: dict[bytes, bytes]) -> bool:
    return hmac.compare_digest(headers.get(CSRF_HEADER, b""), csrf_of(cookie).encode())


class Counted:
    """Receives the body and counts it."""

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


class Answer:
    """Sends, and remembers what was answered."""

    def __init__(self, send: Send, sent_whole: Callable[[int, bytes, bytes], bool] | None) -> None:
        self._send = send
        self._sent_whole = sent_whole  # how the server sends a short answer in one piece, if it can
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = message["headers"] = list(message.get("headers", ()))
            if not any(name == b"cache-control" for name, _ in headers):
                headers.append((b"cache-control", b"no-store"))
        await self._send(message)

    async def accepted(self, location: bytes, body: bytes) -> None:
        """Answer that something was taken, and where it is."""
        lines = b"content-type: application/json\r\ncache-control: no-store\r\nlocation: %b\r\n" % location
        if self._sent_whole is not None and self._sent_whole(202, lines, body):
            self.status = 202
        else:
            await answer(self, 202, [(b"content-type", b"application/json"), (b"location", location)], body)

    async def problem(self, problem: Problem) -> None:
        """Answer with a problem, unless an answer has begun."""
        if not self.status:
            await answer(self, problem.status, problem.headers(), problem.body())


async def answer(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    """A whole answer."""
    headers = [*headers, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def whole_body(receive: Receive) -> bytes:
    """The body, as far as its limit allows."""
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body"):
        return bytes(message.get("body", b""))
    pieces = []
    while message["type"] == "http.request":
        pieces.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(pieces)
        message = await receive()
    raise Gone


def is_json(content_type: bytes) -> bool:
    return content_type.partition(b";")[0].strip().lower() == b"application/json"


def too_large(bytes_max: int) -> Problem:
    return Problem(
        "too-large", f"the body is larger than {bytes_max:,} bytes, which is the most that is taken here", close=True
    )


def _overloaded() -> Problem:
    return Problem(
        "overloaded", "too many requests are being answered at once; try again in a moment", retry_after=1, close=True
    )
