"""Settings: the location of the queue (a store or a server) and of its files, and one promise that can be given up.

One frozen object, made once from arguments, the environment and fairlane.toml, in that order. The first of them that names a
store or a server decides which of the two is used.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fairlane.core.errors import BadValue, Mistake
from fairlane.file_modes import warn_if_open
from fairlane.masking import mask_url

FILE = "fairlane.toml"
DEFAULT_URL = "sqlite:///fairlane.db"
OCR = "ocr_languages"
UNSAFE = "unsafe_files_may_read_everything"


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings that every command needs."""

    url: str = DEFAULT_URL  # empty: only a server is configured
    blobs: str | None = None  # a folder or s3://bucket/prefix; None: beside the queue, if that is a file
    server: str | None = None  # the address of a server; None: use the store directly
    ocr_languages: str | None = None  # of the built-in worker, as in eng+ces; None: its own five
    unsafe_files_may_read_everything: bool = False  # read files also where nothing keeps them from reading all others


NAMES = {  # of the settings, and what each has to be
    "url": "a URL",
    "blobs": "a folder or s3://bucket/prefix",
    "server": "a server's address",
    OCR: "tesseract's names of languages, such as eng+ces",
    UNSAFE: "yes",
}


def load_settings(
    url: str | None,
    environment: Mapping[str, str],
    folder: Path,
    blobs: str | None = None,
    server: str | None = None,
    is_unsafe: bool = False,
    ocr_languages: str | None = None,
) -> Settings:
    """Load the settings: arguments win over the variables, FAIRLANE_URL and so on, which win over the file."""
    if url is not None and server is not None:
        raise Mistake("--url and --server cannot be used together: use --url for a store, or --server for a server")
    values = {"url": url, "blobs": blobs, "server": server, OCR: ocr_languages}
    arguments = {name: value for name, value in values.items() if value is not None}
    levels = (arguments, _from_environment(environment), _from_file(folder / FILE))
    queue_level = next((level for level in levels if level.keys() & {"url", "server"}), {"url": DEFAULT_URL})
    files = next((level["blobs"] for level in levels if "blobs" in level), None)
    languages = next((level[OCR] for level in levels if OCR in level), None)
    is_unsafe = is_unsafe or any(UNSAFE in level for level in levels)
    return Settings(queue_level.get("url", ""), files, queue_level.get("server"), languages, is_unsafe)


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    values = {}
    for name, expected in NAMES.items():
        variable = f"FAIRLANE_{name.upper()}"
        value = environment.get(variable)
        if value == "" or (name == UNSAFE and value not in (None, "yes")):
            raise BadValue(variable, value, f"{expected}; unset it to use the default")
        if value is not None:
            values[name] = value
    return values


def _from_file(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Mistake(f"{path} cannot be read: {error}; fix it or remove it") from error
    for name, value in values.items():
        if name not in NAMES:
            raise Mistake(f"{path} sets {name!r}, which is not a setting; the settings are: {', '.join(NAMES)}")
        if not isinstance(value, str):
            raise BadValue(f"{name} in {path}", value, "text in quotes")
        if mask_url(value) != value:
            warn_if_open(str(path), "a password")
        if name == UNSAFE and value != "yes":
            raise BadValue(f"{name} in {path}", value, '"yes"; remove the line to have the default')
    return values
