"""A release is the same bytes wherever it is built, with a list of what is in it and what it was made from."""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from tools.locks import EXTRAS, UnreadableLock, read_lock
from tools.release import NotReproducible, build, release
from tools.sbom import bill_of_materials

from support.git_project import git
from tools import release as releasing

ROOT = Path(__file__).parents[2]
PARTS = ["pyproject.toml", "README.md", "LICENSE", "requirements"]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
LOCKED = ("runtime", "build", "dev", "board", "otel", "s3", "fleet")
MADE_AT = 1_800_000_000


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A repository with our build files and a little package."""
    folder = tmp_path / "source"
    package = folder / "src/phasegate"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("SAID = 1\n")
    (package / "run.sh").write_text("#!/bin/sh\n")
    (package / "run.sh").chmod(0o755)
    for path in [ROOT / name for name in PARTS]:
        for file in [path] if path.is_file() else sorted(path.iterdir()):
            target = folder / file.relative_to(ROOT)
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(file.read_bytes())
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "Begin")
    return folder


def test_a_release_is_the_same_bytes_wherever_and_whenever_it_is_built(
    source: Path, tmp_path: Path
) -> None:
    git(tmp_path, "clone", "-q", str(source), "elsewhere")
    (source / "src/phasegate/left_lying.py").write_text("print('not committed')\n")
    made = {path.name: path.read_bytes() for path in release(source, tmp_path / "one")}
    assert made == {
        path.name: path.read_bytes() for path in release(tmp_path / "elsewhere", tmp_path / "two")
    }
    assert sorted(made) == [
        "SHA256SUMS",
        f"phasegate-{VERSION}-py3-none-any.whl",
        f"phasegate-{VERSION}.cdx.json",
        f"phasegate-{VERSION}.provenance.json",
        f"phasegate-{VERSION}.tar.gz",
    ]
    wheel = zipfile.ZipFile(io.BytesIO(made[f"phasegate-{VERSION}-py3-none-any.whl"])).namelist()
    assert "phasegate/__init__.py" in wheel
    assert "phasegate/left_lying.py" not in wheel
    with tarfile.open(fileobj=io.BytesIO(made[f"phasegate-{VERSION}.tar.gz"])) as sdist:
        assert not [name for name in sdist.getnames() if "left_lying" in name]


def test_builds_that_differ_are_no_release(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([MADE_AT, MADE_AT + 86_400])

    def at_another_time(*arguments: object, **options: object) -> dict[str, bytes]:
        return build(source, "HEAD", tmp_path / f"built-{len([*tmp_path.iterdir()])}", next(times))

    monkeypatch.setattr(releasing, "build", at_another_time)
    with pytest.raises(NotReproducible, match=r"differ in .*whl"):
        release(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_provenance_names_the_commit_the_locks_and_the_digest_of_every_file(
    source: Path, tmp_path: Path
) -> None:
    commit = git(source, "rev-parse", "HEAD").strip()
    made = build(source, commit, tmp_path / "built", MADE_AT)
    statement = json.loads(made[f"phasegate-{VERSION}.provenance.json"])
    told = {one["name"]: one["digest"]["sha256"] for one in statement["subject"]}
    others = {name: content for name, content in made.items() if "provenance" not in name}
    assert told == {name: hashlib.sha256(content).hexdigest() for name, content in others.items()}
    used = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert used[0]["digest"] == {"gitCommit": commit}
    locks = {one["uri"].partition("/")[2]: one["digest"]["sha256"] for one in used[1:]}
    there = {
        name: (source / "requirements" / name).read_bytes() for name in map("{}.txt".format, LOCKED)
    }
    assert locks == {name: hashlib.sha256(content).hexdigest() for name, content in there.items()}


def test_the_bill_of_materials_has_every_locked_package_and_says_which_are_shipped() -> None:
    bill = json.loads(bill_of_materials(ROOT, MADE_AT))
    scopes = {f"{one['name']}=={one['version']}": one["scope"] for one in bill["components"]}
    pinned = {
        name: {
            line.partition(" ")[0]
            for line in (ROOT / f"requirements/{name}.txt").read_text().splitlines()
            if "==" in line
        }
        for name in LOCKED
    }
    assert scopes.keys() == set().union(*pinned.values())
    assert {name for name, scope in scopes.items() if scope == "required"} == pinned["runtime"]
    extras = pinned["board"] | pinned["otel"] | pinned["s3"] | pinned["fleet"]
    assert {name for name, scope in scopes.items() if scope == "optional"} == extras - pinned[
        "runtime"
    ]
    assert all(one["hashes"] for one in bill["components"])
    asked = {one["ref"]: one["dependsOn"] for one in bill["dependencies"]}
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    product = {re.split("[@/]", ref)[-2] for ref in asked[bill["metadata"]["component"]["bom-ref"]]}
    assert product == {re.split("[<>=]", one)[0] for one in declared}
    assert [
        ref
        for ref in asked["pkg:pypi/pytest-xdist@" + _version("pytest-xdist")]
        if "execnet" in ref
    ]
    assert bill["metadata"]["timestamp"] == "2027-01-15T08:00:00Z"


def test_every_extra_that_users_can_ask_for_is_locked_and_looked_at() -> None:
    assert {
        *tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    } == {*EXTRAS}


def _version(name: str) -> str:
    return next(pin.version for pin in read_lock(ROOT / "requirements/dev.txt") if pin.name == name)


@pytest.mark.parametrize(
    "line",
    [
        "click",
        "click>=8",
        "click @ https://example.invalid/click.whl",
        "-e .",
        "click==8.1 \\\n    --hash=md5:00",
        "click==8.1 \\",
    ],
)
def test_a_lock_that_pins_less_is_refused(tmp_path: Path, line: str) -> None:
    lock = tmp_path / "runtime.txt"
    lock.write_text(f"{line}\n")
    with pytest.raises(UnreadableLock):
        read_lock(lock)
