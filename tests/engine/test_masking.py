"""Passwords in URLs: none is ever in a message, whatever the scheme, and however the URL was mistyped."""

from __future__ import annotations

import traceback

import pytest

from fairlane.client import Client
from fairlane.core.errors import FairlaneError
from fairlane.engine import open_engine
from fairlane.masking import mask_url
from fairlane.transfer import move
from tests.servers.postgres import free_port


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("postgresql://ada:hunter2@db.example/queue", "postgresql://ada:***@db.example/queue"),
        ("POSTGRESQL://ada:hunter2@db.example/queue", "POSTGRESQL://ada:***@db.example/queue"),
        ("postgresql+psycopg://ada:hunter2@h:5432/q?schema=two", "postgresql+psycopg://ada:***@h:5432/q?schema=two"),
        ("mysql://ada:hunter2@h/q", "mysql://ada:***@h/q"),
        ("redis://:hunter2@db.example:6379/0", "redis://:***@db.example:6379/0"),
        ("rediss://ada:hunter2%40@h/0?queue=two", "rediss://ada:***@h/0?queue=two"),
        ("redis+unix:///run/redis.sock?password=hunter2&queue=two", "redis+unix:///run/redis.sock?password=***&queue=two"),
        ("redis://ada:hunter2@/x?y#z@h:1/0", "redis://ada:***@h:1/0"),
        ("redis://ada:hunter2://hunter2@h", "redis://ada:***@h"),
        ("redis://ada:pass=hunter2@h", "redis://ada:***@h"),
        ("postgresql://h/q?password=hunter2", "postgresql://h/q?password=***"),
        ("postgresql://h/q?user=ada&password=hunter2&schema=two", "postgresql://h/q?user=ada&password=***&schema=two"),
        ("postgresql://h:5432/q?password=hunter2@hunter2", "postgresql://h:5432/q?password=***"),
        ("postgresql://h/q?password=hunter2&hunter2", "postgresql://h/q?password=***"),
        ("postgresql://h/q?PassWord=hunter2#hunter2", "postgresql://h/q?PassWord=***"),
        ("postgresql://h/q?sslpassword=hunter2&passfile=/hunter2", "postgresql://h/q?sslpassword=***&passfile=***"),
        ("host=h password=hunter2 dbname=q", "host=h password=*** dbname=q"),
        ("host=h password = 'hunter2 hunter2' dbname=q", "host=h password = *** dbname=q"),
        ("ada:hunter2@h/q", "ada:***@h/q"),
        ("https://ada:hunter2@h/?token=hunter2", "https://ada:***@h/?token=***"),
        ("s3://ada:hunter2@bucket/prefix", "s3://ada:***@bucket/prefix"),
        ("postgresql://ada@h/q", "postgresql://ada@h/q"),
        ("redis://h:6379/0", "redis://h:6379/0"),
        ("sqlite:////srv/a:b@c/fairlane.db", "sqlite:////srv/a:b@c/fairlane.db"),
        ("memory://", "memory://"),
        ("", ""),
    ],
)
def test_a_url_is_masked(url: str, masked: str) -> None:
    assert mask_url(url) == masked


@pytest.mark.parametrize(
    "url",
    [
        "mysql://ada:hunter2@h/q",
        "POSTGRESQL://ada:hunter2@h/q",
        "postgresql+psycopg://ada:hunter2@h/q",
        "postgresql://ada:hunter2@127.0.0.1:{port}/q",
        "postgresql://ada:x@hunter2@127.0.0.1:{port}/q",
        "postgresql://ada:x/hunter2@127.0.0.1:{port}/q",
        "postgresql://ada:hunter2/x@127.0.0.1:{port}/q",
        "postgresql://ada:hunter2#x@127.0.0.1:{port}/q",
        "postgresql://ada:hunter2?x@127.0.0.1:{port}/q",
        "postgresql://ada:hunter2%zz@127.0.0.1:{port}/q",
        "postgresql://ada:[hunter2@127.0.0.1:{port}/q",
        "postgresql://ada:hunter2\u2100@127.0.0.1:{port}/q",
        "postgresql://127.0.0.1:{port}/q?password=hunter2",
        "postgresql://127.0.0.1:{port}/q?pasword=hunter2",
        "postgresql://127.0.0.1:{port}/q?schema=PUBLIC&password=hunter2",
        "host=127.0.0.1 password=hunter2",
        "redis://ada:hunter2@127.0.0.1:{port}/0",
        "redis://ada:hunter2@127.0.0.1:{port}/zero",
        "redis://ada:hunter2/x@127.0.0.1:{port}/0",
        "redis://ada:hunter2@127.0.0.1:{port}/0?color=red",
        "redis://127.0.0.1:{port}/0?password=hunter2",
        "redis+unix://ada:hunter2@h/x.sock",
        "valkey://:hunter2@127.0.0.1:{port}",
        "REDIS://:hunter2@127.0.0.1:{port}",
    ],
)
def test_no_error_shows_a_password(url: str) -> None:
    with pytest.raises(FairlaneError) as refused:
        open_engine(url.format(port=free_port()))
    assert "hunter2" not in "".join(traceback.format_exception(refused.value, chain=True))


def test_neither_a_move_nor_a_client_shows_a_password() -> None:
    with pytest.raises(FairlaneError) as refused:
        move("redis://:hunter2@127.0.0.1:1/0", "redis://:hunter2@127.0.0.1:1/0")
    assert "redis://:***@127.0.0.1:1/0" in str(refused.value)
    for url in ("https://ada:hunter2@h", "https://h/?token=hunter2"):
        with pytest.raises(FairlaneError) as refused:
            Client(url, "fl_key")
        assert "hunter2" not in str(refused.value)
