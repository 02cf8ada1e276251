"""Check what would be released: python requirements/release.py FOLDER

The folder has one sdist and one wheel of the version in src/fairlane/version.py, and CHANGELOG.md a section for it. Both hold
the licence and every file of the package.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def faults(folder: Path) -> list[str]:
    """Return what is wrong, a sentence each."""
    found = []
    (version,) = re.findall(r'^__version__ = "([^"]+)"$', (ROOT / "src/fairlane/version.py").read_text(), re.MULTILINE)
    if not re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE):
        found.append(f"CHANGELOG.md has no section [{version}] with a date")
    names = sorted(path.name for path in folder.iterdir())
    wheel, sdist = f"fairlane-{version}-py3-none-any.whl", f"fairlane-{version}.tar.gz"
    if names != [wheel, sdist]:
        return [*found, f"{folder} has {', '.join(names)} instead of {wheel} and {sdist}"]
    in_wheel = set(zipfile.ZipFile(folder / wheel).namelist())
    with tarfile.open(folder / sdist) as archive:
        in_sdist = {name.partition("/")[2] for name in archive.getnames()}
    command = ["git", "ls-files", "src/fairlane", "LICENSE"]
    tracked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    for path in tracked:
        name = path.removeprefix("src/") if path.startswith("src/") else f"fairlane-{version}.dist-info/licenses/{path}"
        if name not in in_wheel:
            found.append(f"{wheel} lacks {path}")
        if path not in in_sdist:
            found.append(f"{sdist} lacks {path}")
    return found


def main(folder: Path) -> int:
    """Print what is wrong; return the exit code."""
    found = faults(folder)
    print("\n".join(found) if found else f"ready: {', '.join(sorted(path.name for path in folder.iterdir()))}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
