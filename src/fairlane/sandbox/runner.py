"""Running work in the sandbox: `run` in a fork of this process, `run_in_fork_server` in a fork of the fork server.

Laws:
- An attempt begins only if every promise of the plan can be kept, and with every layer of it in force; else a `Mistake`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fairlane.core.errors import Mistake

from .attempt import run_attempt
from .confine import AttemptSpec
from .errors import LayerRefused
from .fork_server import SandboxForkServer
from .limits import ResourceLimits
from .output import check_output
from .plan import require
from .response import Response


def run(
    work: Callable[[], object],
    limits: ResourceLimits | None = None,
    readable: Iterable[Path | str] = (),
    libraries: Sequence[str] = (),
    *,
    output: int | None = None,
    without: frozenset[str] = frozenset(),
    may_read_everything: bool = False,
) -> Response:
    """Call `work` in a confined fork of this process; it returns JSON or a `Response`.

    It may read `readable`; `libraries` are folders and programs that it may load and start. It may write to `output` only, the
    descriptor of an open file, which the work gets from `output_file()`. With `may_read_everything` it runs also where no
    layer keeps it from reading other files. Call this from a trusted process with one thread, which has imported what the
    work needs.
    """
    limits = limits or ResourceLimits()
    layers = require(without, may_read_everything).layers
    with _refusals_explained():
        response = run_attempt(AttemptSpec(layers, work, _real_paths(readable), libraries, limits), output)
    check_output(output, limits)
    return response


def run_in_fork_server(
    fork_server: SandboxForkServer,
    arguments: Sequence[object],
    limits: ResourceLimits | None = None,
    readable: Iterable[Path | str] = (),
    libraries: Sequence[str] = (),
    *,
    output: int | None = None,
    without: frozenset[str] = frozenset(),
    may_read_everything: bool = False,
) -> Response:
    """Do the same with the work of a fork server and JSON arguments; `ForkServerGone` if the fork server has ended."""
    limits = limits or ResourceLimits()
    layers = require(without, may_read_everything).layers
    with _refusals_explained():
        response = fork_server.run_attempt(layers, arguments, _real_paths(readable), libraries, limits, output)
    check_output(output, limits)
    return response


def _real_paths(paths: Iterable[Path | str]) -> list[str]:
    return [os.path.realpath(path) for path in paths]


@contextmanager
def _refusals_explained() -> Iterator[None]:
    try:
        yield
    except LayerRefused as refused:
        raise Mistake(
            f"the attempt was not begun, because a layer of the sandbox could not be put in force: "
            f"{refused.layer} ({refused.why}); fairlane doctor lists the layers that can"
        ) from refused
