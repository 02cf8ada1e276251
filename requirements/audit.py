"""Audit pinned packages for known vulnerabilities: python requirements/audit.py [--service pypi|osv] [--osv-url URL] [FILE…]

Runs pip-audit over every requirements/*.txt, or those that are named, and prints one report. A package that could not be looked
up counts as not audited, which is an error: pip-audit itself would call that a success.

Exit codes: 0 nothing is known, 1 something is, 2 some packages could not be audited, as the advisory database is out of reach.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

REQUIREMENTS = Path(__file__).parent
SHOWN = 5  # packages that are named when many could not be audited


class Report(NamedTuple):
    """What became of the packages of several files."""

    audited: dict[str, set[str]]  # names and versions, and the files that have them
    vulnerable: dict[str, list[str]]  # and what is known of them
    not_audited: dict[str, str]  # and why


def main(arguments: list[str]) -> int:
    """Audit the files, print the report, and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--service", default="pypi", choices=("pypi", "osv"))
    parser.add_argument("--osv-url")
    options = parser.parse_args(arguments)
    service = ["--vulnerability-service", options.service, *(["--osv-url", options.osv_url] if options.osv_url else [])]
    report = Report({}, {}, {})
    files = options.files or sorted(REQUIREMENTS.glob("*.txt"))
    for file in files:
        audit(file, service, report)
    print_report(report, len(files))
    return 1 if report.vulnerable else 2 if report.not_audited else 0


def audit(file: Path, service: list[str], report: Report) -> None:
    """Run pip-audit over one file, and add what it found to the report."""
    command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--require-hashes", "--progress-spinner", "off",
               "--format", "json", *service, "--requirement", str(file)]  # fmt: skip
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        dependencies: list[dict[str, Any]] = json.loads(ran.stdout)["dependencies"]
    except (ValueError, KeyError):
        lines = ran.stderr.strip().splitlines() or ["pip-audit said nothing"]
        report.not_audited[f"all of {file.name}"] = lines[-1][:300]
        return
    for dependency in dependencies:
        if "skip_reason" in dependency:
            report.not_audited[dependency["name"]] = dependency["skip_reason"][:300]
            continue
        package = f"{dependency['name']} {dependency['version']}"
        report.audited.setdefault(package, set()).add(file.name)
        known = [f"{found['id']}, fixed in {', '.join(found['fix_versions']) or 'no version'}" for found in dependency["vulns"]]
        if known:
            report.vulnerable[package] = known


def print_report(report: Report, files: int) -> None:
    print(
        f"{len(report.audited)} packages in {files} files audited, {len(report.vulnerable)} of them with known vulnerabilities"
    )
    for package, known in sorted(report.vulnerable.items()):
        print(f"  {package} ({', '.join(sorted(report.audited[package]))}): {'; '.join(known)}")
    if report.not_audited:
        print(f"NOT AUDITED: {len(report.not_audited)}, because the advisory database is out of reach or does not know them:")
        for package, reason in sorted(report.not_audited.items())[:SHOWN]:
            print(f"  {package}: {reason}")
        print("Run it again where the database can be reached, or with --service osv.")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
