"""Where is the queue, and where are its files?

One frozen object, made once from arguments, the environment and fairlane.toml, in that order.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from .core.errors import BadValue, Mistake

FILE = "fairlane.toml"
DEFAULT_URL = "sqlite:///fairlane.db"


@dataclass(frozen=True, slots=True)
class Settings:
    """What every command needs to know."""

    url: str = DEFAULT_URL
    blobs: str | None = None  # a folder or s3://bucket/prefix; None: beside the queue, if that is a file


def load_settings(url: str | None, environment: Mapping[str, str], folder: Path, blobs: str | None = None) -> Settings:
    """An argument wins over FAIRLANE_URL and FAIRLANE_BLOBS, which win over the file in this folder."""
    given = {name: value for name, value in {"url": url, "blobs": blobs}.items() if value is not None}
    return Settings(**{**_from_file(folder / FILE), **_from_environment(environment), **given})


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    told = {}
    for name, wanted in {"url": "a URL", "blobs": "a folder or s3://bucket/prefix"}.items():
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
