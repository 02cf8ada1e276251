"""`extract` in a confined process, for untrusted files.

Facts come back as JSON, text and thumbnail as the binary parts of the response, members as files in the scratch folder.

Laws:
- The outcome is that of `extract`: an `Extraction`, or an `Unreadable` with the same codes.
- Nothing that comes back is trusted: see `validation`.
- Afterwards the scratch folder contains the members and nothing else; after a failure, nothing.
"""

from __future__ import annotations

import atexit
import math
import os
import shutil
from contextlib import suppress
from functools import cache
from importlib import util
from pathlib import Path
from typing import Any

from fairlane import sandbox
from fairlane.core.errors import BadValue

from . import Extraction, Limits, sandbox_entry, warm
from .builder import CHARACTER_BYTES_MAX, check_size, file_sha256
from .failure import CAN_RETRY, Unreadable
from .ocr import PROGRAM
from .validation import THUMBNAIL_BYTES_MAX, validate_response

MEMORY_MAX = sandbox.ResourceLimits.memory_max
PACKAGES = ("PIL", "pypdfium2", "pypdfium2_raw", "charset_normalizer", "fairlane")  # what the confined process may load
_fork_server: sandbox.SandboxForkServer | None = None


def prepare() -> None:
    """Start the fork server, once for this process and its forks; a `Mistake` where files cannot be confined.

    Attempts then begin faster, and nothing in the memory of this process can leak into them.
    """
    global _fork_server
    sandbox.require()
    if _fork_server is None:
        try:
            _fork_server = sandbox.SandboxForkServer.start(sandbox_entry.__name__)
            atexit.register(release)
        except sandbox.ForkServerGone:
            warm()  # attempts will be forks of this process


def release() -> None:
    """Close the fork server: attempts are forks of this process again."""
    global _fork_server
    if _fork_server is not None:
        _fork_server.close()
        _fork_server = None


def extract_isolated(
    path: Path,
    name: str,
    scratch: Path,
    limits: Limits | None = None,
    depth: int = 0,
    memory_max: int = MEMORY_MAX,
    *,
    sha256: str | None = None,
    without: frozenset[str] = frozenset(),
    fork_server: sandbox.SandboxForkServer | None = None,
) -> Extraction:
    """Read a file as `extract` does, in a confined process; `scratch` is an empty folder for this attempt alone.

    It is a fork of `fork_server`, by default of the one that `prepare` has started, else of this process.
    """
    limits = limits or Limits()
    if next(scratch.iterdir(), None) is not None:
        raise BadValue("scratch", str(scratch), "an empty folder")
    path, absolute_scratch = path.absolute(), scratch.absolute()
    size = check_size(path, limits)
    sha256 = sha256 or file_sha256(path)
    try:
        response = _run(
            [str(path), name, str(absolute_scratch), vars(limits), depth, sha256],
            resource_limits(limits, memory_max),
            fork_server or _fork_server,
            without,
        )
        result = validate_response(response, size, sha256, scratch, limits)
    except BaseException as error:
        _clear(scratch, keep=())
        if isinstance(error, sandbox.AttemptFailed):
            raise _unreadable(error) from error
        raise
    _clear(scratch, keep=[member.path.name for member in result.members])
    return result


def _run(
    arguments: list[Any], limits: sandbox.ResourceLimits, fork_server: sandbox.SandboxForkServer | None, without: frozenset[str]
) -> sandbox.Response:
    """Run `sandbox_entry.work` with these arguments in a fork of the fork server, or of this process if that has ended."""
    path, _, scratch, *_ = arguments
    program = shutil.which(PROGRAM)  # for each file: it may be installed while a worker runs
    libraries = [*_library_paths(), *([program] if program is not None else [])]
    if fork_server is not None:
        with suppress(sandbox.ForkServerGone):
            return sandbox.run_in_fork_server(fork_server, arguments, scratch, limits, (path,), libraries, without=without)
    return sandbox.run(sandbox_entry.work(*arguments), scratch, limits, (path,), libraries, without=without)


def _unreadable(failure: sandbox.AttemptFailed) -> Unreadable:
    """Translate a failure of the sandbox; the code of a `WorkFailed` is checked, because the confined process sent it."""
    for code in CAN_RETRY:
        if failure.code == code:
            return Unreadable(code, failure.detail)
    return Unreadable("crashed", "the response is malformed")


@cache
def _library_paths() -> tuple[str, ...]:
    """Return the folders of the parsers and of tesseract's languages."""
    specs = [util.find_spec(package) for package in PACKAGES]
    folders = {folder for spec in specs if spec is not None for folder in spec.submodule_search_locations or ()}
    if "TESSDATA_PREFIX" in os.environ:
        folders.add(os.environ["TESSDATA_PREFIX"])
    return tuple(sorted(map(os.path.realpath, folders)))


def resource_limits(limits: Limits, memory_max: int = MEMORY_MAX) -> sandbox.ResourceLimits:
    """Return the limits of the process: slightly above those of the file, so that the extractor's own errors come first."""
    parts_max = limits.text_max * CHARACTER_BYTES_MAX + THUMBNAIL_BYTES_MAX
    return sandbox.ResourceLimits(
        seconds_max=limits.seconds_max + 2,
        cpu_seconds_max=math.ceil(limits.seconds_max) + 1,
        memory_max=memory_max,
        file_max=max(limits.unpacked_max, parts_max + sandbox.ResourceLimits.response_max) + 4096,
        scratch_max=limits.unpacked_max + 4096 * limits.members_max,
        files_max=limits.members_max + 10,
        parts_max=parts_max,
    )


def _clear(scratch: Path, keep: list[str] | tuple[()]) -> None:
    with os.scandir(scratch) as entries:
        for entry in list(entries):
            if entry.name in keep:
                continue
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)
