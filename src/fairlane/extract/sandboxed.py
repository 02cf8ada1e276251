"""`extract` in a confined process, for untrusted files.

Facts come back as JSON, text and thumbnail as the binary parts of the response, members in a row in the output file, which is
cut into files then.

Laws:
- The outcome is that of `extract`: an `Extraction`, or an `Unreadable` with the same codes.
- Nothing that comes back is trusted: see `validation`.
- A fork server that has ended is replaced: what `prepare` has promised about memory holds for every attempt after it.
- Afterwards the scratch folder contains the members and nothing else; after a failure, nothing.
"""

from __future__ import annotations

import atexit
import logging
import math
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import util
from pathlib import Path
from typing import Any, TypedDict

from fairlane import sandbox
from fairlane.core.errors import BadValue, Mistake

from . import Extraction, Limits, Member, sandbox_entry
from .builder import CHARACTER_BYTES_MAX, check_size, file_sha256
from .custom_reader import CustomReader
from .failure import CAN_RETRY, Unreadable
from .image import HEIC_DECODERS
from .member_store import cut_row
from .sniff import needs_threads
from .tesseract import PROGRAM
from .validation import THUMBNAIL_BYTES_MAX, validate_response

MEMORY_MAX = sandbox.ResourceLimits.memory_max
PACKAGES = (
    "PIL",
    "pypdfium2",
    "pypdfium2_raw",
    "charset_normalizer",
    *HEIC_DECODERS,
    "fairlane",
)  # what the confined process may load
log = logging.getLogger("fairlane.sandbox")
_fork_server: sandbox.SandboxForkServer | None = None
_loaded_readers: frozenset[str] = frozenset()  # by the fork server


def prepare(may_read_everything: bool = False, readers: Iterable[CustomReader] = ()) -> None:
    """Start the fork server, once for this process and its forks; a `Mistake` where files cannot be confined.

    Attempts then begin faster, and nothing in the memory of this process can leak into them. `may_read_everything` is as in
    `extract_isolated`. The fork server loads the readers that run in the sandbox; it is replaced when there are more of them.
    """
    global _loaded_readers
    if sandbox_entry.is_fork_server:
        raise Mistake("the module of a reader makes a worker; put the reader into a module of its own, which makes none")
    sandbox.require(may_read_everything=may_read_everything)
    if (reason := sandbox.unsafe_reason(may_read_everything)) is not None:
        log.warning("UNSAFE: %s", reason)
    names = _loaded_readers | {reader.name for reader in readers if reader.sandbox}
    for name in names - _loaded_readers:
        _require_module(name)
    if _fork_server is None or names != _loaded_readers:
        release()
        _loaded_readers = names
        try:
            _start_fork_server()
        except sandbox.ForkServerGone as error:
            _loaded_readers = frozenset()
            raise Mistake(f"untrusted files are not opened here: {error}") from error


def _require_module(reader: str) -> None:
    """Refuse a reader whose module is nowhere, before another process looks for it."""
    module = reader.partition(":")[0]
    try:
        is_found = util.find_spec(module) is not None
    except (ImportError, ValueError):
        is_found = False
    if not is_found:
        raise Mistake(f"the reader {reader} cannot be imported: there is no module {module} on Python's path")


def _start_fork_server() -> sandbox.SandboxForkServer:
    global _fork_server
    _fork_server = sandbox.SandboxForkServer.start(
        sandbox_entry.__name__, sorted(_loaded_readers), imports=[name.partition(":")[0] for name in _loaded_readers]
    )
    atexit.register(release)
    return _fork_server


def release() -> None:
    """Close the fork server: attempts are forks of this process again."""
    global _fork_server, _loaded_readers
    _loaded_readers = frozenset()
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
    may_read_everything: bool = False,
    readers: Mapping[str, CustomReader] | None = None,
) -> Extraction:
    """Read a file as `extract` does, in a confined process; `scratch` is an empty folder for this attempt alone.

    Of your own `readers`, by media type, it calls those for the sandbox; a file for the others is read without OCR.
    It is a fork of `fork_server`, by default of the one that `prepare` has started, else of this process. With
    `may_read_everything` the file is read also where nothing keeps it from reading other customers' files.
    """
    limits = limits or Limits()
    if next(scratch.iterdir(), None) is not None:
        raise BadValue("scratch", str(scratch), "an empty folder")
    path = path.resolve()  # in the sandbox there may be no links that lead there
    size = check_size(path, limits)
    sha256 = sha256 or file_sha256(path)
    own = {media_type: reader.name if reader.sandbox else None for media_type, reader in (readers or {}).items()}
    own_files = [file for reader in (readers or {}).values() for file in reader.files]
    ocr_program = shutil.which(PROGRAM) if limits.ocr_pages_max else None  # each time: it may be installed while a worker runs
    with tempfile.TemporaryFile(dir=scratch, buffering=0) as output:
        try:
            response = _run(
                [str(path), name, vars(limits), depth, sha256, own],
                resource_limits(
                    limits, memory_max, can_start=ocr_program is not None or any(own.values()) or needs_threads(path)
                ),
                [
                    *_library_paths(),
                    *_reader_paths(own.values()),
                    *own_files,
                    *([ocr_program] if ocr_program is not None else []),
                ],
                fork_server or _fork_server,
                AttemptOptions(output=output.fileno(), without=without, may_read_everything=may_read_everything),
            )
        except sandbox.AttemptFailed as failure:
            raise _unreadable(failure) from failure
        except sandbox.ForkServerGone as error:
            raise Unreadable("crashed", str(error)) from error
        row_size = os.fstat(output.fileno()).st_size
        result = validate_response(response, size, sha256, row_size, scratch, limits)
        _store_members(output.fileno(), result.members)
    return result


def _store_members(row: int, members: Sequence[Member]) -> None:
    """Make files of the members that are in the output file."""
    try:
        cut_row(row, members)
    except BaseException as error:
        for member in members:
            member.path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise Unreadable("crashed", f"the files inside cannot be stored: {error}") from error
        raise


class AttemptOptions(TypedDict):
    """How an attempt is run: its output file, layers that are switched off, and whether it may do without a promise."""

    output: int
    without: frozenset[str]
    may_read_everything: bool


def _run(
    arguments: list[Any],
    limits: sandbox.ResourceLimits,
    libraries: list[str],
    fork_server: sandbox.SandboxForkServer | None,
    options: AttemptOptions,
) -> sandbox.Response:
    """Run `sandbox_entry.work` with these arguments in a fork of the fork server; of this process if there never was one."""
    readable = arguments[:1]
    if fork_server is None:
        return sandbox.run(sandbox_entry.work(*arguments), limits, readable, libraries, **options)
    try:
        return sandbox.run_in_fork_server(fork_server, arguments, limits, readable, libraries, **options)
    except sandbox.ForkServerGone:
        if fork_server is not _fork_server:
            raise  # it is the caller's own
        # Never in a fork of this process instead: its memory has the queue's password and other customers' documents.
        log.warning("the fork server of the sandbox has ended, another one is started; was it killed?")
        replacement = _start_fork_server()
        fork_server.close()
        return sandbox.run_in_fork_server(replacement, arguments, limits, readable, libraries, **options)


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
    return tuple(sorted(map(os.path.abspath, folders)))


def _reader_paths(names: Iterable[str | None]) -> list[str]:
    """Return the folders of readers that are in packages; of a single module nothing is left to load, nor of its neighbours."""
    specs = [util.find_spec(name.partition(":")[0].partition(".")[0]) for name in names if name is not None]
    return [os.path.abspath(folder) for spec in specs if spec is not None for folder in spec.submodule_search_locations or ()]


def resource_limits(limits: Limits, memory_max: int = MEMORY_MAX, *, can_start: bool = True) -> sandbox.ResourceLimits:
    """Return the limits of the process: slightly above those of the file, so that the extractor's own errors come first.

    Only OCR starts another process, and only the decoder of HEIC a thread; readers of your own may do both.
    """
    parts_max = limits.text_max * CHARACTER_BYTES_MAX + THUMBNAIL_BYTES_MAX
    return sandbox.ResourceLimits(
        seconds_max=limits.seconds_max + 2,
        cpu_seconds_max=math.ceil(limits.seconds_max) + 1,
        memory_max=memory_max,
        memory_sum_max=memory_max * 3 // 2,
        output_max=limits.unpacked_max + 4096,
        parts_max=parts_max,
        processes_max=sandbox.ResourceLimits.processes_max if can_start else 1,
    )
