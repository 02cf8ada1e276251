"""Programs of the system that tests need, and the one step that installs them: python -m tests.system.

Laws:
- Nothing is installed while tests run: `make test` takes this step before the first one. It does not ask, and is quick when
  everything is installed.
- It installs only as root and with apt-get. Elsewhere it lists what is missing, and the tests that need it are skipped with
  that reason, which CI counts as a failure.
- Standard library only: benchmarks and chaos runs use it too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

POSTGRES = "usr/lib/postgresql/*/bin"  # Debian keeps its programs in a folder a version, off the PATH
LANGUAGES = ("deu", "pol", "por", "spa")  # beside English, which comes with tesseract


def postgres_programs() -> Path | None:
    """Return the folder of the newest PostgreSQL of the system."""
    folders = sorted(Path("/").glob(POSTGRES), key=lambda path: int(path.parent.name), reverse=True)
    installed = [path for path in folders if (path / "initdb").exists()]
    on_path = shutil.which("initdb")
    return installed[0] if installed else Path(on_path).resolve().parent if on_path else None


def chromium_program() -> str | None:
    """Return the program of Chromium; the one that is made to run without a window takes half the processor time."""
    return next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "chromium-browser"))), None)


def carried_program(name: str) -> str | None:
    """Return a program that a Python package brings into the environment, or else the system's."""
    return shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)


def has_language(language: str) -> bool:
    """Whether tesseract reads this language."""
    program = shutil.which("tesseract")
    if program is None:
        return False
    listed = subprocess.run([program, "--list-langs"], capture_output=True, text=True, check=False)
    return language in listed.stdout.split()


class Need(NamedTuple):
    """A package of the system, and what is tested with it."""

    package: str
    purpose: str
    is_installed: Callable[[], bool]


def _program(name: str, purpose: str, package: str | None = None) -> Need:
    return Need(package or name, purpose, lambda: shutil.which(name) is not None)


NEEDS = {
    "caddy": _program("caddy", "the service behind Caddy"),
    "chromium": Need("chromium-headless-shell", "the page in a real browser", lambda: chromium_program() is not None),
    "curl": _program("curl", "the README's requests"),
    "nginx": _program("nginx", "the service behind nginx"),
    "openssl": _program("openssl", "certificates for HTTPS"),
    "postgres": Need(
        "postgresql",
        "the PostgreSQL engine; else on the server that a Python package carries",
        lambda: postgres_programs() is not None,
    ),
    "rabbitmq-server": _program("rabbitmq-server", "Celery and other queues on RabbitMQ"),
    "redis-server": _program("redis-server", "the Redis engine"),
    "strace": _program("strace", "disks that fail, kills at every write"),
    "tesseract": _program("tesseract", "words on pictures", "tesseract-ocr"),
    **{code: Need(f"tesseract-ocr-{code}", f"words on pictures, {code}", partial(has_language, code)) for code in LANGUAGES},
    "unshare": _program("unshare", "full disks", "util-linux"),
}


def why_missing(name: str) -> str | None:
    """Explain how to install a missing package; None if it is installed."""
    need = NEEDS[name]
    if need.is_installed():
        return None
    return f"{name} is not installed, so {need.purpose} cannot be tested; as root: apt-get install {need.package}"


def install() -> None:
    """Install what is missing, as root with apt-get; else list it."""
    missing = [need for need in NEEDS.values() if not need.is_installed()]
    if not missing:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        for need in missing:
            _say(f"not here: {need.package} ({need.purpose})")
        _say(f"tests that need one of these are skipped; as root: apt-get install {' '.join(need.package for need in missing)}")
        return
    for need in missing:
        _say(f"to be installed: {need.package} ({need.purpose})")
    _apt("update", "-qq")
    _apt("install", "-y", "--no-install-recommends", *(need.package for need in missing))
    for need in missing:
        if not need.is_installed():
            _say(f"could not be installed: {need.package}; its tests fail in CI and are skipped elsewhere")


def _apt(*arguments: str) -> None:
    """Run apt-get and show its progress and errors."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "-o", "Dpkg::Use-Pty=0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment) as apt:
        assert apt.stdout is not None
        for line in apt.stdout:
            word = line.partition(" ")[0]
            if word.startswith(("E:", "W:")):
                _say(line.strip())
            elif word in ("Need", "Unpacking", "Setting"):
                _show(line.strip())
    _show("")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _show(text: str) -> None:
    """Replace the current line of a terminal; print nothing to a log."""
    if sys.stdout.isatty():
        sys.stdout.write(f"\r\033[K{text[: shutil.get_terminal_size().columns - 1]}")
        sys.stdout.flush()


if __name__ == "__main__":
    install()
