"""SQLite's errors translated into Fairlane's: what was wrong, with which file, what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from fairlane.core.errors import StoreBusy, StoreError, StoreFull, StoreUnfit

BUSY_SECONDS = 30.0  # how long a connection waits for the write lock


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Raise every error of SQLite inside this context as a StoreError that names the file."""
    try:
        yield
    except apsw.BusyError as error:
        raise StoreBusy(
            f"{path} was locked by other processes for more than {BUSY_SECONDS:g} s; try again, and look for a process that "
            "keeps a transaction open"
        ) from error
    except apsw.FullError as error:
        raise StoreFull(
            f"no space left to write {path}; nothing was changed: free space on its disk, then try again"
        ) from error
    except apsw.NotADBError as error:
        raise StoreUnfit(f"{path} is not an SQLite file; give another path") from error
    except apsw.CorruptError as error:
        raise StoreUnfit(f"{path} is damaged ({error}); stop using it and restore a backup") from error
    except (apsw.CantOpenError, apsw.ReadOnlyError, apsw.PermissionsError) as error:
        if path.is_dir():
            raise StoreUnfit(f"{path} is a folder, not the file of a queue; name a file in it") from error
        raise StoreError(
            f"{path} cannot be opened for writing ({error}); check that its folder exists and may be written"
        ) from error
    except apsw.IOError as error:
        raise StoreError(
            f"the disk under {path} failed ({error}); whether this call took effect is not known: check the disk, then look, "
            "or submit again with the same key"
        ) from error
    except apsw.Error as error:
        raise StoreError(f"{path}: {error}") from error
