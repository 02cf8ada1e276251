"""Where is the queue, and where are its files? In a store, or behind a server.

One frozen object, made once from arguments, the environment and fairlane.toml, in that order. The first of them that names a
store or a server decides which of the two it is.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from fairlane.core.errors import BadValue, Mistake

FILE = "fairlane.toml"
DEFAULT_URL = "sqlite:///fairlane.db"


@dataclass(frozen=True, slots=True)
class Settings:
    """What every command needs to know."""

    url: str = DEFAULT_URL  # empty: only a server was named
    blobs: str | None = None  # a folder or s3://bucket/prefix; None: beside the queue, if that is a file
    server: str | None = None  # the address of a server; None: the store is used itself


def load_settings(
    url: str | None, environment: Mapping[str, str], folder: Path, blobs: str | None = None, server: str | None = None
) -> Settings:
    """An argument wins over FAIRLANE_URL, FAIRLANE_BLOBS and FAIRLANE_SERVER, which win over the file in this folder."""
    if url is not None and server is not None:
        raise Mistake("--url and --server are both given; a queue is used either itself or through a server")
    given = {name: value for name, value in {"url": url, "blobs": blobs, "server": server}.items() if value is not None}
    levels = (given, _from_environment(environment), _from_file(folder / FILE))
    where = next((level for level in levels if level.keys() & {"url", "server"}), {"url": DEFAULT_URL})
    files = next((level["blobs"] for level in levels if "blobs" in level), None)
    return Settings(where.get("url", ""), files, where.get("server"))


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    told = {}
    for name, wanted in {"url": "a URL", "blobs": "a folder or s3://bucket/prefix", "server": "a server's address"}.items():
        variable = f"FAIRLANE_{name.upper()}"
        value = environment.get(variable)
        if value == "":
            raise BadValue(variable, value, f"{wanted}; unset it to use the default")
        if value is not None:
            told[name] = value
    return told


def _from_file(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    try:
        told = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Mistake(f"{path} cannot be read: {error}; mend it or remove it") from error
    known = [one.name for one in fields(Settings)]
    for name, value in told.items():
        if name not in known:
            raise Mistake(f"{path} sets {name!r}, which is not a setting; the settings are: {', '.join(known)}")
        if not isinstance(value, str):
            raise BadValue(f"{name} in {path}", value, "text in quotes")
    return told
