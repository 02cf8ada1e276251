"""Running work in the sandbox: `run` in a fork of this process, `run_in_fork_server` in a fork of the fork server.

Laws:
- An attempt begins only if every promise of the plan can be kept, and with every layer of it in force; else a `Mistake`.
- Afterwards the scratch folder belongs to its owner again.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fairlane.core.errors import BadValue, Mistake

from .attempt import check_scratch, run_attempt
from .confine import AttemptSpec
from .errors import LayerRefused
from .fork_server import SandboxForkServer
from .limits import ResourceLimits
from .plan import require
from .response import Response


def run(
    work: Callable[[], object],
    scratch: Path | str,
    limits: ResourceLimits | None = None,
    readable: Iterable[Path | str] = (),
    libraries: Sequence[str] = (),
    *,
    without: frozenset[str] = frozenset(),
) -> Response:
    """Call `work` in a confined fork of this process; it returns JSON or a `Response`.

    It may write to `scratch` only and read `readable`; `libraries` are folders and programs that it may load and start. Call
    this from a trusted process with one thread, which has imported what the work needs.
    """
    limits = limits or ResourceLimits()
    layers = require(without).layers
    with _scratch_folder(scratch, limits) as folder:
        return run_attempt(AttemptSpec(layers, work, folder, _real_paths(readable), libraries, limits))


def run_in_fork_server(
    fork_server: SandboxForkServer,
    arguments: Sequence[object],
    scratch: Path | str,
    limits: ResourceLimits | None = None,
    readable: Iterable[Path | str] = (),
    libraries: Sequence[str] = (),
    *,
    without: frozenset[str] = frozenset(),
) -> Response:
    """Do the same with the work of a fork server and JSON arguments; `ForkServerGone` if the fork server has ended."""
    limits = limits or ResourceLimits()
    layers = require(without).layers
    with _scratch_folder(scratch, limits) as folder:
        return fork_server.run_attempt(layers, arguments, folder, _real_paths(readable), libraries, limits)


def _real_paths(paths: Iterable[Path | str]) -> list[str]:
    return [os.path.realpath(path) for path in paths]


@contextmanager
def _scratch_folder(scratch: Path | str, limits: ResourceLimits) -> Iterator[str]:
    """Give the real path of the scratch folder to an attempt, take the folder back, and check what is in it."""
    folder = os.path.realpath(scratch)
    before = os.stat(folder)
    if not stat.S_ISDIR(before.st_mode):
        raise BadValue("scratch", folder, "a folder")
    try:
        yield folder
    except LayerRefused as refused:
        raise Mistake(
            f"the attempt was not begun, because a layer of the sandbox could not be put in force: "
            f"{refused.layer} ({refused.why}); fairlane doctor lists the layers that can"
        ) from refused
    finally:
        if os.geteuid() == 0:
            os.chown(folder, before.st_uid, before.st_gid)
    if (excess := check_scratch(folder, limits)) is not None:
        raise excess
