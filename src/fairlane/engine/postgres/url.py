"""PostgreSQL URLs: the server, the database and the schema of a queue. Passwords never appear in messages."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from fairlane.core.errors import BadValue
from fairlane.engine.deadline import CALL_SECONDS, parse_timeout
from fairlane.masking import mask_url

DEFAULT_SCHEMA = "fairlane"
EXAMPLE = "postgresql://user:password@host:5432/database, with ?schema=name for another schema than fairlane"
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,39}")


class PostgresUrl(NamedTuple):
    """A database, and the schema in it that holds the queue."""

    conninfo: str  # for psycopg, with the password
    schema: str
    display: str  # for messages, without the password
    timeout: float  # seconds that a call may take


def parse_url(url: str) -> PostgresUrl:
    """Parse a URL; the schema's name must need no quoting, because it is written into SQL."""
    try:
        parts = urlsplit(url)
    except ValueError:  # its message may quote the password
        raise BadValue("url", mask_url(url), EXAMPLE) from None
    if "@" in parts.path + parts.fragment or parts.netloc.count("@") > 1:  # the server would be searched by half a password
        raise BadValue("url", mask_url(url), f"{EXAMPLE}; write special characters in a password as %40 (@), %2F (/), %23 (#)")
    options = parse_qsl(parts.query, keep_blank_values=True)
    schema = dict(options).get("schema", DEFAULT_SCHEMA)
    if not _SCHEMA.fullmatch(schema) or schema.startswith("pg_") or schema in ("public", "information_schema"):
        expected = "1 to 40 small letters, digits and underscores, a letter first, and not public or one of PostgreSQL's own"
        raise BadValue("schema", schema, expected)
    timeout = parse_timeout("timeout", dict(options).get("timeout"), CALL_SECONDS)
    theirs = [(name, value) for name, value in options if name not in ("schema", "timeout")]
    conninfo = urlunsplit(parts._replace(query=urlencode(theirs)))
    try:
        settings = conninfo_to_dict(conninfo)
    except ProgrammingError as error:
        reason = str(error).strip().split(":")[0]  # the rest may quote the URL, password included
        raise BadValue("url", mask_url(url), f"{EXAMPLE} ({reason})") from None
    server = f"{settings.get('host', 'the local socket')}:{settings.get('port', 5432)}"
    display = f"{server}/{settings.get('dbname', settings.get('user', ''))}, schema {schema}"
    return PostgresUrl(conninfo, schema, display, timeout)
