"""Where is the queue? A URL names the server, the database and the schema; passwords are never told."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from fairlane.core.errors import BadValue

DEFAULT_SCHEMA = "fairlane"
WANTED = "postgresql://user:password@host:5432/database, with ?schema=name for another schema than fairlane"
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,39}")


class Place(NamedTuple):
    """A server's database, a schema in it, and how people call that."""

    address: str  # as psycopg takes it, with the password
    schema: str
    name: str  # without the password


def place_of(url: str) -> Place:
    """What a URL names; a schema's name is plain, so that it can be written into SQL."""
    parts = urlsplit(url)
    options = parse_qsl(parts.query, keep_blank_values=True)
    schema = dict(options).get("schema", DEFAULT_SCHEMA)
    if not _SCHEMA.fullmatch(schema) or schema.startswith("pg_") or schema in ("public", "information_schema"):
        wanted = "1 to 40 small letters, digits and underscores, a letter first, and not public or one of PostgreSQL's own"
        raise BadValue("schema", schema, wanted)
    address = urlunsplit(parts._replace(query=urlencode([one for one in options if one[0] != "schema"])))
    try:
        told = conninfo_to_dict(address)
    except ProgrammingError as error:
        reason = str(error).strip().split(":")[0]  # what follows may quote the URL, password included
        raise BadValue("url", f"{parts.scheme}://…", f"{WANTED} ({reason})") from None
    where = f"{told.get('host', 'the local socket')}:{told.get('port', 5432)}"
    return Place(address, schema, f"{where}/{told.get('dbname', told.get('user', ''))}, schema {schema}")
