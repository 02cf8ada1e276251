"""Create a virtual environment, or add to it: python requirements/install.py FOLDER FILE…

Installs the pinned packages of requirements/FILE.txt, with their hashes checked, and this project in editable mode. Standard
library only: it runs before anything is installed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

REQUIREMENTS = Path(__file__).parent
BAR = 24  # characters


def main(folder: Path, names: list[str]) -> None:
    """Create the environment if there is none, then install into it."""
    if sys.version_info < (3, 11):  # noqa: UP036 - an older Python gets this message instead of a syntax error
        sys.exit(
            f"Fairlane needs Python 3.11 or newer; {sys.executable} is {sys.version.split()[0]}. Try: make PYTHON=python3.12"
        )
    if not (folder / "bin/pip").exists():
        say(f"Python environment in {folder}, with {sys.executable} ({sys.version.split()[0]})")
        if subprocess.run([sys.executable, "-m", "venv", str(folder)], check=False).returncode:
            sys.exit(f"{sys.executable} -m venv failed; on Debian and Ubuntu: apt install python3-venv")
    pip = [str(folder / "bin/python"), "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    files = [REQUIREMENTS / f"{name}.txt" for name in names]
    pins = [option for file in files for option in ("-r", str(file))]
    # The files name every package. Without --no-deps pip refuses hashes where a package asks for another one with an extra.
    install([*pip, "--no-deps", "--require-hashes", *pins], files)
    install([*pip, "--no-deps", "--no-build-isolation", "--editable", str(REQUIREMENTS.parent)], [])


def install(command: list[str], files: list[Path]) -> None:
    """Run pip and show how many of the files' packages it has fetched; if it fails, print its last lines and exit."""
    began = time.monotonic()
    lines = (line for file in files for line in file.read_text().splitlines())
    packages = {line.split("==")[0] for line in lines if "==" in line and line[0].isalpha()}
    fetched, output = 0, []
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    pip = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    assert pip.stdout is not None
    for line in pip.stdout:
        output.append(line)
        word, _, rest = line.strip().partition(" ")
        name = rest.split("==")[0].split(":")[0]
        if word == "Ignoring":  # for another system or another Python
            packages.discard(name)
        elif word in ("Collecting", "Processing", "Requirement"):  # from an index, from a folder, or installed already
            fetched += 1
            show(fetched, len(packages), name if word == "Collecting" else "")
        elif word == "Installing":
            show(len(packages), len(packages), "unpacking and compiling")
    if pip.wait():
        say("".join(output[-30:]).rstrip())
        sys.exit("pip failed; its last lines are above")
    if packages:
        say(f"{len(packages)} packages in {time.monotonic() - began:.0f} s")


def show(done: int, of: int, what: str) -> None:
    """Draw a progress bar on one line of a terminal."""
    if of and sys.stdout.isatty():
        filled = "#" * (BAR * done // of)
        print(f"\r\033[K[{filled:<{BAR}}] {done} of {of} {what}", end="", flush=True)


def say(text: str) -> None:
    """Print a line in place of the progress bar."""
    print(f"\r\033[K{text}" if sys.stdout.isatty() else text, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
