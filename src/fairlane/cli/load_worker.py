"""How is a worker found by its name, `module:worker`? What is wrong with the name or the module is told in one line."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from types import ModuleType

from fairlane.core.errors import Mistake
from fairlane.worker import Worker


def load_worker(told: str) -> Worker:
    """The worker that a name says; the module is looked for in this folder first."""
    module_name, _, name = told.partition(":")
    module = _module(module_name)
    if name:
        return _named(module, name)
    found = _workers(module)
    if len(found) == 1:
        return found.popitem()[1]
    if not found:
        raise Mistake(f"the module {module_name} has no worker; make one there, as in worker = Worker(...)")
    raise Mistake(f"the module {module_name} has several workers; write one of {', '.join(_names(module))}")


def _module(name: str) -> ModuleType:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and f"{name}.".startswith(f"{error.name}."):
            hint = f"; write it without .py, as in {name[:-3]}:worker" if name.endswith(".py") else ""
            raise Mistake(f"there is no module {name} in {here} or on Python's path{hint}") from None
        raise _broken(name, error) from error
    except (Exception, SystemExit) as error:  # whatever somebody else's module does
        raise _broken(name, error) from error


def _broken(name: str, error: BaseException) -> Mistake:
    """What a module raised, and where."""
    if isinstance(error, SyntaxError):
        where = f"{error.filename}, line {error.lineno}"
        return Mistake(f"the module {name} cannot be imported: {error.msg} ({where})")
    frames = [one for one in traceback.extract_tb(error.__traceback__) if not one.filename.startswith("<frozen")]
    where = f" ({frames[-1].filename}, line {frames[-1].lineno})" if len(frames) > 1 else ""
    return Mistake(f"the module {name} cannot be imported: {type(error).__name__}: {error}{where}")


def _named(module: ModuleType, name: str) -> Worker:
    found = getattr(module, name, None)
    if isinstance(found, Worker):
        return found
    others = ", ".join(_names(module)) or "none"
    what = f"has no {name}" if found is None else f"has a {name} that is no Worker but a {type(found).__name__}"
    raise Mistake(f"the module {module.__name__} {what}; its workers: {others}")


def _workers(module: ModuleType) -> dict[str, Worker]:
    return {name: one for name, one in vars(module).items() if isinstance(one, Worker) and not name.startswith("_")}


def _names(module: ModuleType) -> list[str]:
    return [f"{module.__name__}:{name}" for name in _workers(module)]
