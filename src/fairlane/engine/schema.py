"""Schema versions: which one a store has, which programs may use it, and the sentence for those that may not.

Laws:
- A version is a script; a store that has it says so, and says the oldest version whose programs may go on using it.
- A version that only adds lets programs of the version before go on, so that machines are upgraded one after the other. One
  that does not says so, and older programs refuse the store: at their next call, not when something is damaged.
"""

from __future__ import annotations

from typing import NamedTuple

from fairlane.core.errors import StoreUnfit

_OLDEST_BITS = 16  # one number holds both: the version below, the oldest program above; 0 there is the version itself


def mark_of(version: int, oldest: int) -> int:
    """Return the number for a version, and for the oldest one whose programs may use it."""
    return version | (oldest << _OLDEST_BITS if oldest < version else 0)


class Schema(NamedTuple):
    """The versions that a program knows: scripts in order, the first of which makes version `first`."""

    scripts: tuple[str, ...]
    oldest: int  # of the programs that may use a store in the newest version
    first: int = 1

    @property
    def version(self) -> int:
        """The newest version, to which this program brings a store."""
        return self.first + len(self.scripts) - 1

    @property
    def mark(self) -> int:
        """The number that a store in the newest version keeps."""
        return mark_of(self.version, self.oldest)

    def scripts_after(self, version: int) -> tuple[str, ...]:
        """Return the scripts that bring a store of that version to the newest."""
        return self.scripts[max(0, version + 1 - self.first) :]

    def refuse_newer(self, name: str, mark: int) -> int:
        """Return the version of a store that keeps this number; raise StoreUnfit if it is too new for this program."""
        version, oldest = mark & (1 << _OLDEST_BITS) - 1, mark >> _OLDEST_BITS
        if self.version < (oldest or version):
            raise StoreUnfit(
                f"{name} has schema version {version}, made by a newer Fairlane; this one knows up to version "
                f"{self.version}: install the newer Fairlane here too, and start this program again"
            )
        return version
