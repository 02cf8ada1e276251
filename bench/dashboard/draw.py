"""A picture of the dashboard, drawn by Grafana's own components from npm in Chromium.

Grafana itself is not installed: its packages @grafana/ui and @grafana/data are what it draws its panels with. They are put into
build/grafana, half a gigabyte, and nothing of them into the repository. Icons, menus and Grafana's font are left out.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from PIL import Image

from tests.chromium import chromium

from .prometheus import DASHBOARD

FOLDER = Path(__file__).parents[2] / "build/grafana"
SCRIPT = Path(__file__).with_name("panels.js")
PACKAGES = ("@grafana/ui@13.2.2", "@grafana/data@13.2.2", "react@19.3.1", "react-dom@19.3.1", "esbuild@0.28.2")
WIDTH, COLOURS, MODE = 1500, 256, "dark"  # what Grafana is as long as nobody chooses
PAGE = """<!DOCTYPE html><meta charset="utf-8"><title>Fairlane</title>
<link rel="stylesheet" href="panels.css"><style>.row { font-size: 16px; line-height: 30px }</style>
<body><script src="panels.js"></script>
"""


def _bundle() -> Path:
    """Return the script with all that it imports as one file; the packages are installed at the first time."""
    if shutil.which("npm") is None:
        raise SystemExit("npm is not installed; as root: apt-get install npm")
    modules, bundle = FOLDER / "node_modules", FOLDER / "panels.js"
    if not (modules / ".package-lock.json").exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        (FOLDER / "package.json").write_text("{}")
        install = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--silent", "--save-exact", *PACKAGES]
        subprocess.run(install, cwd=FOLDER, check=True)
    options = ("--bundle", "--minify", "--log-level=error", "--loader:.ttf=empty", '--define:process.env.NODE_ENV="production"')
    command: list[str | Path] = [modules / ".bin/esbuild", SCRIPT, *options, f"--outfile={bundle}"]
    subprocess.run(command, env=os.environ | {"NODE_PATH": str(modules)}, check=True)
    bundle.with_name("page.html").write_text(PAGE)
    return bundle


def _refuse(faults: list[str]) -> None:
    if faults:
        raise SystemExit("\n".join(faults))


def draw(recording: dict[str, Any], path: Path) -> None:
    """Draw the dashboard with what was recorded."""
    bundle = _bundle()
    with chromium() as browser:
        page = browser.new_page(viewport={"width": WIDTH, "height": 1000}, locale="en-GB")
        faults: list[str] = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto(bundle.with_name("page.html").as_uri())
        targets = [target._asdict() for target in recording["targets"]]
        dashboard = json.loads(DASHBOARD.read_text())
        _refuse(faults)
        page.evaluate("parts => drawDashboard(...parts)", [dashboard, recording | {"targets": targets}, MODE])
        page.wait_for_timeout(2000)
        _refuse(faults)
        picture = page.screenshot(full_page=True)
    with Image.open(io.BytesIO(picture)) as shot:
        shot.convert("RGB").quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE).save(path, optimize=True)
