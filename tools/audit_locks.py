"""Asks a vulnerability service about every package of the locks, with pip-audit in an environment of its own.

Usage: python -m tools.audit_locks ENVIRONMENT [--once-a-day]

A known vulnerability is exit 1. Where no service answers, or it does not know a package, nothing is claimed: that is
said, and the exit status is 0. With `--once-a-day`, an answer about the same locks is not asked for twice on one day.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import venv
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from tools.locks import LOCKS

TOOL_LOCK = Path("requirements/audit.txt")
WITHIN_S = 300
SHOWN = 5


class Findings(NamedTuple):
    """What a service said: a line for each vulnerability, and the packages that it could say nothing about."""

    vulnerable: list[str]
    unknown: list[str]


def findings_in(report: str) -> Findings:
    """Read pip-audit's JSON. A package without an answer counts as unknown, never as sound."""
    vulnerable, unknown = [], []
    for package in json.loads(report)["dependencies"]:
        found: list[dict[str, Any]] | None = package.get("vulns")
        if found is None:
            unknown.append(package["name"])
        for one in found or ():
            fixed = ", ".join(one.get("fix_versions") or ()) or "no version yet"
            vulnerable.append(
                f"{package['name']} {package['version']}: {one['id']}, fixed in {fixed}"
            )
    return Findings(vulnerable, unknown)


def verdict(found: Findings) -> tuple[int, str]:
    """Exit status and the line to print."""
    if found.vulnerable:
        return 1, "\n".join(
            ["known vulnerabilities in the locks:", *(f"  {line}" for line in found.vulnerable)]
        )
    if found.unknown:
        more = f" and {len(found.unknown) - SHOWN} more" if len(found.unknown) > SHOWN else ""
        return (
            0,
            f"*** NOT AUDITED: the service knows nothing of {', '.join(found.unknown[:SHOWN])}{more}",
        )
    return 0, "no known vulnerability in the locks"


def audit(environment: Path, locks: Iterable[Path]) -> tuple[int, str]:
    """Install the auditor if need be, and ask it."""
    python = environment / "bin/python"
    if not python.exists():
        venv.create(environment, with_pip=True)
    install = [
        str(python),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--require-hashes",
        "-r",
        str(TOOL_LOCK),
    ]
    ask = [
        str(python),
        "-m",
        "pip_audit",
        "--disable-pip",
        "--require-hashes",
        "--progress-spinner=off",
        "--format=json",
    ]
    try:
        subprocess.run(install, check=True, capture_output=True, text=True, timeout=WITHIN_S)
        argv = [*ask, *(word for lock in locks for word in ("-r", str(lock)))]
        done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=WITHIN_S)
        return verdict(findings_in(done.stdout))
    except (subprocess.SubprocessError, ValueError, KeyError) as error:
        why = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
        return (
            0,
            f"*** NOT AUDITED: no answer from a vulnerability service ({why[-1] if why else error!r})",
        )


def main(environment: Path, once_a_day: bool) -> int:
    locks = [Path("requirements") / f"{name}.txt" for name in LOCKS]
    identity = hashlib.sha256(b"".join(lock.read_bytes() for lock in locks)).hexdigest()
    asked, stamp = f"{identity} {datetime.now(UTC):%Y-%m-%d}", environment / ".asked"
    if once_a_day and stamp.exists() and stamp.read_text(encoding="utf-8") == asked:
        return 0
    code, said = audit(environment, locks)
    print(said, file=sys.stderr)
    if code == 0 and environment.is_dir():
        stamp.write_text(asked, encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), "--once-a-day" in sys.argv))
