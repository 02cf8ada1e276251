"""HEAD is answered wherever GET is, with the same status and headers and without a body."""

from __future__ import annotations

import httpx
import pytest

from .running import Server, problem_of, until

PATHS = ("/", "/healthz", "/readyz", "/v1/openapi.json", "/v1/me", "/v1/documents", "/v1/customers", "/v1/policy", "/metrics",
         "/static/main.js", "/v1/nowhere", "/v1/documents/unknown", "/v1/documents?color=red")  # fmt: skip
CHANGING = {"date", "content-length"}  # of metrics, for one


@pytest.mark.parametrize("path", PATHS)
def test_head_has_the_status_and_headers_of_get(operator: httpx.Client, path: str) -> None:
    got, head = operator.get(path), operator.head(path)
    assert (head.status_code, head.content) == (got.status_code, b"")
    assert head.headers.keys() == got.headers.keys()
    assert {name: value for name, value in head.headers.items() if name not in CHANGING} == {
        name: value for name, value in got.headers.items() if name not in CHANGING
    }


@pytest.mark.parametrize("path", ["/v1/events", "/v1/events?after=0", "/page/frames"])
def test_head_of_a_stream_ends(operator: httpx.Client, path: str) -> None:
    response = operator.head(path)
    assert (response.status_code, response.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert response.content == b""
    assert operator.get("/healthz").status_code == 200  # on the same connection


def test_head_needs_a_key_too(server: Server) -> None:
    with server.client(None) as client:
        for path, status in (("/v1/me", 401), ("/v1/events", 401), ("/healthz", 200)) * 5:  # all on one connection
            assert client.head(path).status_code == status
    assert {line["event"] for line in server.logged()} <= {"started", "unlimited", "request"}  # refused, and nothing went wrong


def test_head_of_what_only_changes_things_is_refused(operator: httpx.Client) -> None:
    response = operator.head("/v1/checks")
    assert (response.status_code, response.headers["allow"]) == (405, "POST")
    assert problem_of(operator.put("/healthz")) == "wrong-method"
    assert operator.put("/healthz").headers["allow"] == "GET, HEAD"


def test_the_log_and_metrics_say_head(server: Server, operator: httpx.Client) -> None:
    operator.head("/v1/policy")
    operator.head("/v1/events")
    wanted = {("HEAD", "/v1/policy"), ("HEAD", "/v1/events")}

    def are_logged() -> bool:
        operator.get("/healthz")  # lines of requests are kept for a moment, and written with a later one
        return wanted <= {(line.get("method"), line.get("route")) for line in server.logged()}

    until(are_logged, "two lines in the log")
    assert [line for line in server.logged() if line["event"] == "broken"] == []
