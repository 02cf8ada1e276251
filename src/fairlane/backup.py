"""Backup and restore of a queue in a file with its documents' files, while it is in use.

Laws:
- The copy is the queue at one moment. Every document in it has its files: they were there before it, and are held until they
  are copied.
- A backup is complete when its manifest is there, which is written last. Without it nothing is restored.
- A restored queue is another queue: claims made on the original are refused, and its files have a namespace of their own.
- Nothing that exists is overwritten.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from fairlane.blobs.copy import FileCopier
from fairlane.blobs.envelope import BlobDigest
from fairlane.blobs.files import Files
from fairlane.core.document import DocumentRow
from fairlane.core.errors import BlobDamaged, Mistake, StoreError, StoreUnfit, Unknown
from fairlane.encryption import inner_engine, load_keyring, open_store
from fairlane.encryption.files import FileCipher
from fairlane.engine import Engine, copy_queue_file, fence_queue_file
from fairlane.engine.walk import walk_documents
from fairlane.file_modes import create_private
from fairlane.procs.syscalls import sync_filesystem
from fairlane.queue import PAGE_SIZE
from fairlane.queue.audit import Actor, recorded
from fairlane.queue.files import HOLD_MS, HOLDS, NAMESPACE_KEY, RECORDS, QueueFiles, default_location
from fairlane.queue.forget import is_forgotten
from fairlane.queue.workers import WORKERS
from fairlane.version import __version__

FORMAT = 1
MANIFEST, QUEUE_FILE, FILES_FOLDER, UNFINISHED = "manifest.json", "queue.db", "files", ".restoring"
SUFFIXES = ("", "-wal", "-shm")  # of the files that SQLite keeps
RENEW_SECONDS = 60.0
NAMES_MAX = 20  # documents that are named in a report

OnProgress = Callable[[str, int, int], None]  # what is done, how much of it, of how much


class Copied(NamedTuple):
    """What a backup or a restore has copied."""

    documents: int
    files: int
    links: int  # of the files: hard links instead of copies
    bytes: int  # of the files
    lost: int  # files that are missing or damaged where they were copied from
    lost_documents: tuple[str, ...]  # ids of the first of these
    erased: int  # files of customers that were forgotten meanwhile


# -- backup ----------------------------------------------------------------------------------------------------------


def back_up(
    url: str,
    folder: Path,
    blobs: str | None = None,
    on_progress: OnProgress = lambda *_: None,
    *,
    check: bool = False,
    files_only: bool = False,
    actor: Actor | None = None,
) -> Copied:
    """Copy a queue and its files to a new folder; with `files_only` its files, for a queue that a server backs up.

    With an actor it is in the audit log.
    """
    if not files_only:
        _refuse_servers(url, folder)
    elif url.startswith("sqlite:"):
        raise Mistake("--files-only is for queues that a server keeps; this one is backed up whole: leave it out")
    keyring = load_keyring()
    engine = open_store(url, create=False, keyring=keyring)
    try:
        queue_files = QueueFiles(engine, url, blobs, keyring)
        files = queue_files.open_existing()
        before = {"folder": str(folder), "files_only": files_only}
        with (
            _new_folder(folder),
            recorded(engine, actor, "queue.backup", before=before) as change,
            _Hold(queue_files) as hold,
        ):

            def progress(what: str, done: int, total: int) -> None:
                hold.renew()
                on_progress(what, done, total)

            if files_only:
                copied, queue = _copy_listed(files, folder, progress), None
            else:
                copied, queue = _copy_all(engine, files, folder, progress, check)
            sync_filesystem(str(folder))
            _write_manifest(folder, queue, files, copied)
            change.after = {"documents": copied.documents, "files": copied.files}
            return copied
    except OSError as error:
        raise StoreError(
            f"the backup cannot be written to {folder}: {error.strerror or error}; the queue is as it was"
        ) from error
    finally:
        engine.close()


def _copy_all(
    engine: Engine, files: Files | None, folder: Path, progress: OnProgress, check: bool
) -> tuple[Copied, dict[str, Any]]:
    path = folder / QUEUE_FILE
    copy_queue_file(inner_engine(engine), path, lambda done, total: progress("queue", done, total))
    copy = open_store(f"sqlite:///{path}", create=False)
    try:
        target = None if files is None else Files(str(folder / FILES_FOLDER), files.namespace)
        copied = _copy_owned(copy, files, target, progress, check, lambda customer: is_forgotten(engine, customer))
    finally:
        copy.close()
    return copied, {"file": QUEUE_FILE, "size": path.stat().st_size, "sha256": _sha256(path)}


def _copy_listed(files: Files | None, folder: Path, progress: OnProgress) -> Copied:
    """Copy every file that is there, whatever it belongs to."""
    if files is None:
        raise Mistake("this queue has no files; there is nothing to copy besides what its server keeps")
    copier, lost = FileCopier(files, Files(str(folder / FILES_FOLDER), files.namespace), False), list[str]()
    for file in files.list_files():
        try:
            copier.copy(file.key, None)
        except Unknown:  # of a submission that was refused, or of a customer that was forgotten
            lost.append(file.document)
        progress("files", copier.files, 0)
    return Copied(0, copier.files, copier.links, copier.bytes, 0, (), len(lost))


def _refuse_servers(url: str, folder: Path) -> None:
    scheme = url.partition(":")[0]
    if scheme == "memory":
        raise Mistake("a queue in memory ends with its process; there is nothing to back up")
    files = f"then copy its files, if it has any: fairlane backup {folder} --files-only"
    if scheme.startswith("postgres"):
        raise Mistake(
            "a queue on PostgreSQL is backed up by PostgreSQL, at one moment and while it is in use: first pg_dump "
            f"--format=custom --schema=SCHEMA --file={folder}.dump DATABASE-URL (SCHEMA is fairlane unless the queue's URL "
            f"names another), or archive its WAL; {files}"
        )
    if scheme != "sqlite":
        raise Mistake(
            "a queue on Redis or Valkey is backed up by its server: first redis-cli -u SERVER-URL --rdb "
            f"{folder}.rdb, or copy its RDB and AOF files; {files}"
        )


@contextmanager
def _new_folder(folder: Path) -> Iterator[None]:
    """Make a folder that is not there yet, and remove it again if what follows fails."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        half = "" if (folder / MANIFEST).exists() else "; if it is a backup that was interrupted, remove it"
        raise Mistake(f"{folder} exists; name a new folder{half}") from None
    except FileNotFoundError:
        raise Mistake(f"there is no folder {folder.parent}; make it, or name another one") from None
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


class _Hold:
    """Keeps every file of a queue while it is entered; renewed as the work goes on, so that it ends if the process dies."""

    def __init__(self, queue_files: QueueFiles) -> None:
        self._queue_files = queue_files
        self._name = secrets.token_hex(8)

    def __enter__(self) -> _Hold:
        self._renewed = time.monotonic()
        self._queue_files.hold(self._name)
        return self

    def __exit__(self, *_: object) -> None:
        self._queue_files.release(self._name)

    def renew(self) -> None:
        """Renew it from time to time; raise StoreError if that is too late, as after a stop of the process."""
        waited = time.monotonic() - self._renewed
        if waited * 1000 > HOLD_MS:
            raise StoreError(f"the backup stood still for {waited:.0f} s, and files may have been removed since; run it again")
        if waited > RENEW_SECONDS:
            self._renewed = time.monotonic()
            self._queue_files.hold(self._name)


def _write_manifest(folder: Path, queue: dict[str, Any] | None, files: Files | None, copied: Copied) -> None:
    manifest = {
        "fairlane_backup": FORMAT,
        "id": secrets.token_hex(16),
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "fairlane": __version__,
        "queue": queue,
        "namespace": None if files is None else files.namespace,
        **copied._asdict(),
    }
    draft = folder / f"{MANIFEST}{UNFINISHED}"
    create_private(str(draft))
    draft.write_text(json.dumps(manifest, indent=2) + "\n")
    draft.rename(folder / MANIFEST)
    sync_filesystem(str(folder))


# -- restore ---------------------------------------------------------------------------------------------------------


def restore(
    folder: Path,
    url: str,
    blobs: str | None = None,
    on_progress: OnProgress = lambda *_: None,
    *,
    actor: Actor | None = None,
) -> Copied:
    """Make a new queue of a backup; a backup of files only is copied back to where the server's queue looks for them.

    With an actor it is in the audit log of the queue.
    """
    manifest = _read_manifest(folder)
    try:
        if manifest["queue"] is None:
            return _restore_files(folder, manifest, url, blobs, on_progress, actor)
        return _restore_queue(folder, manifest, url, blobs, on_progress, actor)
    except OSError as error:
        raise StoreError(f"{folder} cannot be restored: {error}; nothing was put in place") from error


def _read_manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
    except FileNotFoundError:
        what = "a backup that was interrupted: make another one" if (folder / QUEUE_FILE).exists() else "no backup"
        raise Mistake(f"{folder} has no {MANIFEST}; it is {what}") from None
    except (OSError, ValueError) as error:
        raise StoreUnfit(f"{folder / MANIFEST} cannot be read: {error}") from None
    if not isinstance(manifest, dict) or manifest.get("fairlane_backup") != FORMAT:
        raise StoreUnfit(f"{folder} is not a backup that this version of Fairlane knows; it was made by another one")
    return manifest


def _restore_queue(
    folder: Path, manifest: dict[str, Any], url: str, blobs: str | None, on_progress: OnProgress, actor: Actor | None
) -> Copied:
    if not url.startswith("sqlite:///"):
        raise Mistake("this backup is of a queue in a file; restore it with --url sqlite:///PATH, then `fairlane move` it")
    path = Path(url.removeprefix("sqlite:///")).absolute()
    location = blobs or default_location(url)
    assert location is not None
    for existing in (f"{path}{suffix}" for suffix in SUFFIXES):
        if os.path.lexists(existing):
            raise Mistake(f"{existing} exists; a restore overwrites nothing: move it away, or restore to another --url")
    draft = Path(f"{path}{UNFINISHED}")
    try:
        _remove_queue(draft)  # of a restore that was interrupted
        _copy_queue(folder / manifest["queue"]["file"], draft, manifest["queue"])
        fence_queue_file(draft)
        engine = open_store(f"sqlite:///{draft}", create=False)
        try:
            source = target = None
            if manifest["namespace"] is not None:
                source = Files(str(folder / FILES_FOLDER), manifest["namespace"], FileCipher(load_keyring()))
                # From the backup and the path, so that a restore that was interrupted is continued in the same place.
                name = hashlib.sha256(f"{manifest['id']} {path}".encode()).hexdigest()[:16]
                target = Files(location, name)
                engine.put_record(RECORDS, NAMESPACE_KEY, json.dumps(name))
            for group in (HOLDS, WORKERS):  # of programs that use the original
                for record in engine.records(group, "", PAGE_SIZE):
                    engine.put_record(group, record.key, None)
            with recorded(
                engine, actor, "queue.restore", before={"folder": str(folder), "made_at": manifest["made_at"]}
            ) as change:
                copied = _copy_owned(engine, source, target, on_progress, True, lambda _: False)
                change.after = {"documents": copied.documents, "files": copied.files}
        finally:
            engine.close()
        for name in {str(path.parent)} | ({location} if os.path.isdir(location) else set()):
            sync_filesystem(name)
        os.link(draft, path)  # fails if it is there by now
        sync_filesystem(str(path.parent))
        return copied
    finally:
        _remove_queue(draft)


def _remove_queue(path: Path) -> None:
    for suffix in SUFFIXES:
        with suppress(FileNotFoundError):
            os.unlink(f"{path}{suffix}")


def _copy_queue(source: Path, target: Path, expected: dict[str, Any]) -> None:
    create_private(str(target))
    shutil.copyfile(source, target)
    found = {"size": target.stat().st_size, "sha256": _sha256(target)}
    if found != {name: expected[name] for name in found}:
        raise StoreUnfit(f"{source} is damaged: it is not what was backed up; use another backup")


def _restore_files(
    folder: Path, manifest: dict[str, Any], url: str, blobs: str | None, on_progress: OnProgress, actor: Actor | None
) -> Copied:
    """Copy the files of a server's queue back, under the namespace that it has; what is there stays."""
    engine = open_store(url, create=False)
    try:
        target = QueueFiles(engine, url, blobs).open_existing()
        with recorded(engine, actor, "queue.restore", before={"folder": str(folder), "files_only": True}) as change:
            copied = _copy_files_back(folder, manifest, target, on_progress)
            change.after = {"files": copied.files}
        return copied
    finally:
        engine.close()


def _copy_files_back(folder: Path, manifest: dict[str, Any], target: Files | None, on_progress: OnProgress) -> Copied:
    if target is None or target.namespace != manifest["namespace"]:
        raise Mistake(
            "these files belong to another queue than the one at --url; restore the server's own backup first, so that the "
            "queue is the one that was backed up"
        )
    source = Files(str(folder / FILES_FOLDER), target.namespace)
    existing = {file.key for file in target.list_files()}
    copier = FileCopier(source, target, False)
    for file in source.list_files():
        if file.key not in existing:
            copier.copy(file.key, None)
        on_progress("files", copier.files, manifest["files"])
    if os.path.isdir(target.location):
        sync_filesystem(target.location)
    return Copied(0, copier.files, copier.links, copier.bytes, 0, (), 0)


# -- both ------------------------------------------------------------------------------------------------------------


def _copy_owned(
    queue: Engine,
    source: Files | None,
    target: Files | None,
    progress: OnProgress,
    check: bool,
    is_forgotten: Callable[[str], bool],
) -> Copied:
    """Copy the files of every document in a queue that nobody else uses."""
    copier = None if source is None or target is None else FileCopier(source, target, check)
    documents = erased = 0
    lost: list[str] = []
    newest = 0
    for document, owned in _owned(queue, source):
        documents, newest = documents + 1, newest or document.number
        for key, digest in owned.items():
            try:
                assert copier is not None
                copier.copy(key, digest)
            except (Unknown, BlobDamaged):
                if is_forgotten(document.customer):
                    erased += 1
                else:
                    lost.append(document.id)
        progress("documents", newest - document.number, newest)
    names = tuple(dict.fromkeys(lost))[:NAMES_MAX]
    files, links, size = (0, 0, 0) if copier is None else (copier.files, copier.links, copier.bytes)
    return Copied(documents, files, links, size, len(lost), names, erased)


def _owned(queue: Engine, files: Files | None) -> Iterator[tuple[DocumentRow, dict[str, BlobDigest]]]:
    """Yield every document, newest first, with the files that it owns."""
    for document in walk_documents(queue):
        body = None if files is None else queue.body(document.id)
        yield document, {} if files is None or body is None else files.owned_by(document, body.payload, body.result)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
