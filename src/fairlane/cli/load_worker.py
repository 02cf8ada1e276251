"""Import of a worker by its name, `module:worker`; every error is one line that names the module."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from types import ModuleType

from fairlane.core.errors import Mistake
from fairlane.worker import Worker


def load_worker(name: str) -> Worker:
    """Import the worker `module:worker`, from the current folder if the module is there."""
    module_name, _, attribute = name.partition(":")
    module = _import_module(module_name)
    if attribute:
        return _worker_named(module, attribute)
    workers = _workers(module)
    if len(workers) == 1:
        return workers.popitem()[1]
    if not workers:
        raise Mistake(f"the module {module_name} has no worker; define one there, as in worker = Worker(...)")
    raise Mistake(f"the module {module_name} has several workers; use one of {', '.join(_full_names(module))}")


def _import_module(name: str) -> ModuleType:
    folder = os.getcwd()
    top = os.path.join(folder, name.partition(".")[0])
    if folder not in sys.path and (os.path.isdir(top) or os.path.exists(f"{top}.py")):
        sys.path.insert(0, folder)  # only then: a file there that has a library's name would be imported instead of that
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and f"{name}.".startswith(f"{error.name}."):
            hint = f"; leave out .py, as in {name[:-3]}:worker" if name.endswith(".py") else ""
            raise Mistake(f"there is no module {name} in {folder} or on Python's path{hint}") from None
        raise _import_error(name, error) from error
    except (Exception, SystemExit) as error:  # the module is the user's own and may raise anything
        raise _import_error(name, error) from error


def _import_error(name: str, error: BaseException) -> Mistake:
    """Describe what a module raised, with file and line."""
    if isinstance(error, SyntaxError):
        location = f"{error.filename}, line {error.lineno}"
        return Mistake(f"the module {name} cannot be imported: {error.msg} ({location})")
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<frozen")]
    location = f" ({frames[-1].filename}, line {frames[-1].lineno})" if len(frames) > 1 else ""
    return Mistake(f"the module {name} cannot be imported: {type(error).__name__}: {error}{location}")


def _worker_named(module: ModuleType, name: str) -> Worker:
    value = getattr(module, name, None)
    if isinstance(value, Worker):
        return value
    names = ", ".join(_full_names(module)) or "none"
    problem = f"has no {name}" if value is None else f"has a {name} that is a {type(value).__name__}, not a Worker"
    raise Mistake(f"the module {module.__name__} {problem}; its workers: {names}")


def _workers(module: ModuleType) -> dict[str, Worker]:
    return {name: value for name, value in vars(module).items() if isinstance(value, Worker) and not name.startswith("_")}


def _full_names(module: ModuleType) -> list[str]:
    return [f"{module.__name__}:{name}" for name in _workers(module)]
