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
from functools import partial
from pathlib import Path

from fairlane import sandbox
from fairlane.core.errors import BadValue

from . import Extraction, Limits, sandbox_entry, warm
from .builder import CHARACTER_BYTES_MAX, check_size, file_sha256
from .sandbox_entry import read
from .validation import THUMBNAIL_BYTES_MAX, validate_response

MEMORY_MAX = sandbox.Bounds.memory_max
_template: sandbox.Template | None = None


def prepare() -> None:
    """Start the fork server, once for this process and its forks; a `Mistake` where files cannot be confined.

    Attempts then begin faster, and nothing in the memory of this process can leak into them.
    """
    global _template
    sandbox.require()
    if _template is None:
        try:
            _template = sandbox.Template.started(sandbox_entry.__name__)
            atexit.register(release)
        except sandbox.Gone:
            warm()  # attempts will be forks of this process


def release() -> None:
    """Close the fork server: attempts are forks of this process again."""
    global _template
    if _template is not None:
        _template.close()
        _template = None


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
) -> Extraction:
    """Read a file as `extract` does, in a confined process; `scratch` is an empty folder for this attempt alone."""
    limits = limits or Limits()
    if next(scratch.iterdir(), None) is not None:
        raise BadValue("scratch", str(scratch), "an empty folder")
    path, absolute_scratch = path.absolute(), scratch.absolute()
    size = check_size(path, limits)
    sha256 = sha256 or file_sha256(path)
    try:
        bounds = resource_limits(limits, memory_max)
        try:
            if _template is None:
                raise sandbox.Gone("there was none")
            arguments = [str(path), name, str(absolute_scratch), vars(limits), depth, sha256]
            response = sandbox.run_in(_template, arguments, scratch, bounds, (path,), without=without)
        except sandbox.Gone:
            work = partial(read, path, name, absolute_scratch, limits, depth, sha256)
            response = sandbox.run(work, scratch, bounds, (path,), without=without)
        result = validate_response(response, size, sha256, scratch, limits)
    except BaseException:
        _clear(scratch, keep=())
        raise
    _clear(scratch, keep=[member.path.name for member in result.members])
    return result


def resource_limits(limits: Limits, memory_max: int = MEMORY_MAX) -> sandbox.Bounds:
    """Return the limits of the process: slightly above those of the file, so that the extractor's own errors come first."""
    parts_max = limits.text_max * CHARACTER_BYTES_MAX + THUMBNAIL_BYTES_MAX
    return sandbox.Bounds(
        seconds_max=limits.seconds_max + 2,
        cpu_seconds_max=math.ceil(limits.seconds_max) + 1,
        memory_max=memory_max,
        file_max=max(limits.unpacked_max, parts_max + sandbox.Bounds.answer_max) + 4096,
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
