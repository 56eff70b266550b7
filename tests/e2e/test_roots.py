"""A repository with several projects: each root is found, and a package is checked by those that its scope touches."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.dispatch_project import DispatchProject, approves, make_project, package, turn

TEST = "import unittest\n\n\nclass T(unittest.TestCase):\n    def test_it(self):\n        {body}\n"
MANIFEST = '[project]\nname = "{name}"\nversion = "1"\n'
FILES = {
    "README.md": "Two services\n",
    "services/api/pyproject.toml": MANIFEST.format(name="the-api"),
    "services/api/tests/test_api.py": TEST.format(body="self.assertEqual(1 + 1, 2)"),
    "worker/pyproject.toml": MANIFEST.format(name="the-worker"),
    "worker/tests/test_worker.py": TEST.format(body="self.fail('old')"),
    "worker/examples/sample/pyproject.toml": MANIFEST.format(name="no-project-of-ours"),
}
API = "services/api/tests/test_new.py"


def played(
    folder: Path, path: str, *steps: dict[str, str], run: str = "max_review_cycles = 1\n"
) -> DispatchProject:
    project = make_project(folder, {"WP01": package(files=[path], checks={})}, files=FILES, run=run)
    wanted = steps or ({"write": path, "content": TEST.format(body="self.assertEqual(1 + 1, 2)")},)
    project.play(
        turn("implement", *wanted, {"commit": "{wp_id}: Add"}, {"result": "success"}), approves()
    )
    return project


def evidence_of(project: DispatchProject) -> str:
    return next((project.root / ".phasegate/evidence").rglob("WP01-1.md")).read_text()


@pytest.mark.demand("R1.g")
def test_every_root_is_checked_by_its_own_name_and_a_package_by_the_roots_that_it_touches(
    tmp_path: Path,
) -> None:
    project = played(tmp_path, API)
    told = project.command("check")
    assert told.code == 1
    assert "the-api, python in services/api" in told.stdout
    assert "the-worker, python in worker" in told.stdout
    assert "no-project-of-ours" not in told.stdout
    data = project.command("check", "--json").json
    tests = {
        row["root"]: (row["outcome"], row["tests"])
        for row in data["checks"]
        if row["name"] == "test"
    }
    assert tests == {"services/api": ("passed", 1), "worker": ("failed", 1)}
    report = project.dispatch()
    assert report.accepted, report.reason
    evidence = evidence_of(project)
    assert "test: passed - services/api: 2 tests ran and passed" in evidence
    assert "worker" not in evidence


@pytest.mark.demand("R1.g")
@pytest.mark.parametrize(
    "path",
    [API, "worker/tests/test_new.py"],
)
def test_a_new_failure_at_any_touched_root_rejects(tmp_path: Path, path: str) -> None:
    project = played(
        tmp_path, path, {"write": path, "content": TEST.format(body="self.fail('new')")}
    )
    report = project.dispatch()
    assert not report.accepted
    assert f"the last finding: test: {path.partition('/tests')[0]}: " in report.reason


@pytest.mark.demand("R1.g")
def test_a_table_with_a_root_sets_its_commands_and_no_others(tmp_path: Path) -> None:
    settings = (
        '\n[checks.job]\nroot = "worker"\ntest = "echo; python3 -m unittest discover -s tests"\n'
    )
    project = played(tmp_path, API, run=settings)
    data = project.command("check", "--json").json
    why = {
        row["root"]: (row["why"], row["command"][:5])
        for row in data["checks"]
        if row["name"] == "test"
    }
    assert why["worker"] == ("set by hand", "echo;")
    assert why["services/api"][0] != "set by hand"
    config = project.root / "phasegate.toml"
    config.write_text(config.read_text().replace('"worker"', '"../worker/"'))
    refused = project.command("check")
    assert refused.code == 2
    assert "is not a folder of the repository" in refused.stderr


@pytest.mark.demand("R1.g")
def test_a_root_that_the_work_takes_away_is_not_spared_its_tests(tmp_path: Path) -> None:
    """The folder becomes a link to one outside: nothing is set up or run there, and the package is refused."""
    outside = tmp_path / "outside"
    outside.mkdir()
    scope = ["services/**", "new.txt"]
    document = package(files=["new.txt"], file_scope=scope, checks={})
    project = make_project(tmp_path, {"WP01": document}, files=FILES, run="max_review_cycles = 1\n")
    steps = [
        {"run": f"rm -rf services/api && ln -s {outside} services/api"},
        {"write": "new.txt", "content": "x\n"},
        {"commit": "{wp_id}: Move"},
        {"result": "success"},
    ]
    project.play(turn("implement", *steps), approves())
    report = project.dispatch()
    assert not report.accepted
    assert [*outside.iterdir()] == []


@pytest.mark.demand("R1.h")
def test_members_of_a_workspace_fixtures_and_examples_are_no_roots(tmp_path: Path) -> None:
    tested = '{"name": "%s", "scripts": {"test": "true"}%s}'
    files = {
        "package.json": tested % ("whole", ', "workspaces": ["packages/*", "!packages/apart"]'),
        "packages/member/package.json": tested % ("member", ""),
        "packages/apart/package.json": tested % ("apart", ""),
        "tests/fixtures/sample/package.json": tested % ("fixture", ""),
        "examples/sample/package.json": tested % ("example", ""),
    }
    quick = (
        '\n[checks.typescript]\nsetup = ""\nbuild = ""\ntest = "true"\nlint = ""\ntypecheck = ""\n'
    )
    found = make_project(tmp_path, files=files, run=quick).command("check", "--json").json
    assert {row["root"] for row in found["checks"]} == {"", "packages/apart"}
