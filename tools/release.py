"""Builds a release from a commit: wheel, sdist, bill of materials, provenance, checksums.

Usage: python -m tools.release [FOLDER]      (default: dist)

What is built is the commit HEAD, exported to a folder of its own: nothing that merely lies in the checkout gets in. It
is built twice, in different places and with different rights; if a byte differs, there is no release.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from tools.locks import LOCKS
from tools.sbom import bill_of_materials

BUILD_TYPE = "urn:phasegate:make-dist:1"


class NotReproducible(Exception):
    """Two builds of one commit differ; the message names the files."""


def build(
    source: Path, commit: str, folder: Path, made_at: int, umask: int = 0o022
) -> dict[str, bytes]:
    """Export a commit and build it there: the files that came out, by name."""
    exported, out = folder / "source", folder / "out"
    exported.mkdir(parents=True)
    archive = subprocess.run(
        ["git", "-C", source, "archive", commit], check=True, capture_output=True
    ).stdout
    subprocess.run(["tar", "-x", "-C", exported], input=archive, check=True)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(made_at), "PYTHONDONTWRITEBYTECODE": "1"}
    argv = [sys.executable, "-m", "hatchling", "build", "-d", str(out)]
    done = subprocess.run(
        argv, cwd=exported, env=environment, umask=umask, check=False, capture_output=True
    )
    if done.returncode != 0:
        raise SystemExit(os.fsdecode(done.stdout + done.stderr))
    built = {path.name: path.read_bytes() for path in sorted(out.iterdir())}
    project = tomllib.loads((exported / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    stem = f"{project['name']}-{project['version']}"
    built[f"{stem}.cdx.json"] = bill_of_materials(exported, made_at).encode()
    built[f"{stem}.provenance.json"] = provenance(exported, commit, built).encode()
    return built


def provenance(source: Path, commit: str, built: dict[str, bytes]) -> str:
    """What was made from what: an in-toto statement with a SLSA predicate. It is not signed."""
    locks = [source / "requirements" / f"{name}.txt" for name in LOCKS]
    used = [
        {"uri": f"file:requirements/{lock.name}", "digest": {"sha256": _sha256(lock.read_bytes())}}
        for lock in locks
    ]
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [
            {"name": name, "digest": {"sha256": _sha256(content)}}
            for name, content in sorted(built.items())
        ],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"commit": commit},
                "resolvedDependencies": [
                    {"uri": "git:phasegate", "digest": {"gitCommit": commit}},
                    *used,
                ],
            },
            "runDetails": {"builder": {"id": "urn:phasegate:make-dist"}},
        },
    }
    return json.dumps(statement, indent=2, sort_keys=True) + "\n"


def release(source: Path, out: Path) -> list[Path]:
    """Build HEAD twice and keep one of the two, with checksums."""
    commit = _git(source, "rev-parse", "HEAD")
    made_at = int(_git(source, "log", "-1", "--format=%ct", commit))
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        built = build(source, commit, Path(one), made_at)
        again = build(source, commit, Path(two), made_at, umask=0o077)
    if built != again:
        names = sorted(
            name for name in built.keys() | again.keys() if built.get(name) != again.get(name)
        )
        raise NotReproducible(f"two builds of {commit} differ in {', '.join(names)}")
    sums = "".join(f"{_sha256(content)}  {name}\n" for name, content in sorted(built.items()))
    out.mkdir(parents=True, exist_ok=True)
    for name, content in {**built, "SHA256SUMS": sums.encode()}.items():
        (out / name).write_bytes(content)
    return sorted(out / name for name in [*built, "SHA256SUMS"])


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _git(source: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", source, *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


if __name__ == "__main__":
    root = Path(__file__).parents[1]
    for made in release(root, Path(sys.argv[1]) if len(sys.argv) > 1 else root / "dist"):
        print(made)
