"""Check the licences of what the wheel installs: python requirements/licences.py SBOM FILE…

Reads CycloneDX lists (`make sbom` writes them), prints each licence with its packages, and exits with 1 if a package has none,
or one that is not known here. What the plain wheel brings must be permissive; extras may also bring libraries under weak
copyleft, which are used as they are.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

PERMISSIVE = {
    "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "HPND", "ISC", "MIT", "MIT-0", "MIT-CMU", "PSF-2.0",
    "Python-2.0", "Unlicense", "Zlib", "any-OSI",
}  # fmt: skip
WEAK_COPYLEFT = {"LGPL-3.0-only", "LGPL-3.0-or-later", "LGPL-2.1-or-later", "MPL-2.0"}
CLASSIFIER = "License :: OSI Approved :: "
NAMES = {  # what packages write in place of an identifier
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache License 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "GNU Lesser General Public License v3 (LGPLv3)": "LGPL-3.0-only",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}


READ = {  # from the files that a package comes with, where its metadata has no identifier
    "protobuf": "BSD-3-Clause",
    "pypdfium2": "Apache-2.0 AND BSD-3-Clause",
}


def licences(component: dict[str, Any]) -> list[str]:
    """Return what a component says of its licence: identifiers, names, or an expression."""
    found = [READ[component["name"]]] if component["name"] in READ else []
    for entry in component.get("licenses", ()):
        licence = entry.get("license", {})
        text = entry.get("expression") or licence.get("id") or licence.get("name") or ""
        name = text.strip().removeprefix(CLASSIFIER)
        found.append(NAMES.get(name, name))
    return found


def is_allowed(said: list[str], allowed: set[str]) -> bool:
    """Whether a package may be used: of alternatives one is enough, and of several names in its metadata one that is known."""
    return any(
        any(set(re.findall(r"[\w.-]+", part)) - {"AND", "WITH"} <= allowed for part in re.split(r"\bOR\b", text))
        for text in said
        if text
    )


def main(paths: list[Path]) -> int:
    """Check each list; return the exit code."""
    refused = 0
    for path in paths:
        allowed = PERMISSIVE if "alone" in path.name else PERMISSIVE | WEAK_COPYLEFT
        components = json.loads(path.read_text())["components"]
        by_licence: dict[str, list[str]] = {}
        for component in components:
            said = licences(component)
            name = f"{component['name']} {component['version']}"
            shown = next((text for text in said if is_allowed([text], allowed)), "not allowed")
            by_licence.setdefault(shown, []).append(name)
            if shown == "not allowed":
                refused += 1
                print(f"{path.name}: {name} has a licence that is not known to be allowed: {'; '.join(said)[:200] or 'none'}")
        print(f"{path.name}: {len(components)} packages")
        for licence, names in sorted(by_licence.items()):
            print(f"  {licence}: {', '.join(sorted(names, key=str.lower))}")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main([Path(argument) for argument in sys.argv[1:]]))
