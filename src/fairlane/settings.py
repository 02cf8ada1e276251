"""Where is the queue? One frozen object, made once from arguments, the environment and fairlane.toml, in that order."""

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


def load_settings(url: str | None, environment: Mapping[str, str], folder: Path) -> Settings:
    """An argument wins over FAIRLANE_URL, which wins over the file in this folder."""
    told = {**_from_file(folder / FILE), **_from_environment(environment)}
    if url is not None:
        told["url"] = url
    return Settings(**told)


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    url = environment.get("FAIRLANE_URL")
    if url is None:
        return {}
    if not url:
        raise BadValue("FAIRLANE_URL", url, "a URL; unset it to use the default")
    return {"url": url}


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
