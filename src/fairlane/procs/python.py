"""Starting another Python: which interpreter, and the folders that it imports modules from.

Laws:
- The working directory is not among them. It may be a folder that others write to, and a file there that has the name of a
  library would run with the rights of the worker. The exception is a working directory that Fairlane itself was imported from.
- All else is as in this process, so that the same modules are found.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

SAFE_PATH = "-P"  # this option keeps the working directory off the path while Python starts


def python_command(module: str) -> tuple[str, ...]:
    """Return the command that runs a module of Fairlane as a program; its arguments follow."""
    is_in_working_directory = os.path.realpath(_working_directory()) in _folders_of(module)
    return (sys.executable, *(() if is_in_working_directory else (SAFE_PATH,)), "-m", module)


def module_path(*modules: str) -> list[str]:
    """Return the folders to import from, for a process that needs these modules of this one."""
    working_directory = os.path.realpath(_working_directory())
    is_needed = any(working_directory in _folders_of(module) for module in modules)
    path = [os.path.abspath(folder) if is_needed else folder for folder in sys.path]
    return [folder for folder in path if os.path.isabs(folder) and (is_needed or os.path.realpath(folder) != working_directory)]


def drop_working_directory() -> None:
    """In a program that was started with `python -m`: import nothing more from the working directory, which that puts first."""
    first = os.path.realpath(sys.path[0]) if sys.path else ""
    if first == os.path.realpath(_working_directory()) and first not in _folders_of(__name__):
        del sys.path[0]


def _working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return os.sep


def _folders_of(module: str) -> set[str]:
    """Return the folders that the package of a module is imported from."""
    spec = find_spec(module.partition(".")[0])
    if spec is None:
        return set()
    files = [*(spec.submodule_search_locations or ()), *([spec.origin] if not spec.submodule_search_locations else [])]
    return {os.path.dirname(os.path.realpath(file)) for file in files if file is not None}
