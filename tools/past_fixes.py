"""Hold the check "would the tests notice?" against past fixes of a public project.

Usage: python tools/past_fixes.py CLONE --test COMMAND [--count N] [--among N] [--project OWNER/NAME]

Takes the newest commits of the clone whose subject says that they fix something. Each is checked as a package, by the
same code as in a run: as it was, and, if it came with tests, once more without them. Prints a row of a Markdown table
for each. Commands run without a sandbox, in exported trees; the clone needs what they use (a virtual environment).
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FIX = re.compile(r"\b(?:fix(?:e[sd])?|bug|regression|correct(?:ly|s)?)\b", re.I)


class Fix(NamedTuple):
    """A commit that fixes something, with its changed paths."""

    commit: str
    parent: str
    code: tuple[str, ...]
    tests: tuple[str, ...]


class Verdict(NamedTuple):
    """What the check says about a commit."""

    result: str
    tests: tuple[str, ...]
    ratio: float


def git(clone: Path, *arguments: str, env: dict[str, str] | None = None) -> str:
    """Run git in the clone and return what it prints."""
    done = subprocess.run(
        ["git", *arguments],
        cwd=clone,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def list_fixes(clone: Path, among: int) -> Iterator[Fix]:
    """Yield the fixes of code among the newest commits."""
    from phasegate.core.test_strength.paths import is_code, is_test_path

    for line in git(clone, "log", "--no-merges", f"-{among}", "--format=%H %P %s").splitlines():
        commit, parent, subject = line.split(" ", 2)
        if not FIX.search(subject):
            continue
        paths = git(clone, "diff", "--name-only", "--no-renames", parent, commit).splitlines()
        tests = tuple(path for path in paths if is_test_path(path))
        code = tuple(
            path
            for path in paths
            if is_code(path) and path not in tests and (clone / path).exists()
            if not path.startswith(("docs/", "examples/", "."))
        )
        if code:
            yield Fix(commit, parent, code, tests)


def commit_work(clone: Path, fix: Fix, *, with_tests: bool) -> str:
    """Return a commit of a package with the change, with or without its tests."""
    with tempfile.TemporaryDirectory() as folder:
        env = {"GIT_INDEX_FILE": f"{folder}/index"}
        git(clone, "read-tree", fix.commit, env=env)
        if not with_tests:
            git(clone, "rm", "-q", "--cached", "-f", "--ignore-unmatch", "--", *fix.tests, env=env)
            old = git(clone, "ls-tree", "-r", "--full-tree", fix.parent, "--", *fix.tests)
            for row in old.splitlines():
                information, _, path = row.partition("\t")
                mode, _, blob = information.split(" ")
                git(clone, "update-index", "--add", "--cacheinfo", f"{mode},{blob},{path}", env=env)
        tree = git(clone, "write-tree", env=env)
    who = {
        f"GIT_{role}_{field}": value
        for role in ("AUTHOR", "COMMITTER")
        for field, value in (("NAME", "past-fixes"), ("EMAIL", "past-fixes@localhost"))
    }
    return git(clone, "commit-tree", tree, "-p", fix.parent, "-m", "WP01: Fix it", env=who)


def check_commit(clone: Path, fix: Fix, commit: str) -> Verdict:
    """Check a commit as the work of a package with one requirement."""
    from phasegate.core.plan.work_package import Deliverables, WorkPackage
    from phasegate.engine.checks.manifest import PackageChecker
    from phasegate.engine.checks.strength import NOTHING_ACCEPTED
    from phasegate.engine.project.project import open_project
    from phasegate.errors import PhasegateError

    package = WorkPackage(
        work_package_id="WP01",
        title="A fix",
        feature_slug="001-fix",
        file_scope=("**", "tests/**"),
        deliverables=Deliverables(code=fix.code),
        requirements=("FR-FIX-001",),
    )
    checker = PackageChecker(open_project(clone), package, fix.parent)
    try:
        evidence, report = checker.check_with_strength(commit, "", NOTHING_ACCEPTED)
    except PhasegateError as error:
        return Verdict(f"not measured: {error}", (), 0.0)
    if report is None:
        failed = "; ".join(f"{one.name}: {one.summary}" for one in evidence.failures)
        return Verdict(f"not measured: {failed}", (), 0.0)

    bites = tuple(bite for row in report.requirements for bite in row.bites)
    kinds = {finding.kind for finding in report.findings}
    result = "flagged" if "unnoticed requirement" in kinds else "confirmed"
    ratio = report.cost_s / report.suite_s if report.suite_s else 0.0
    return Verdict(result, bites, ratio)


def check_fix(clone: Path, fix: Fix) -> Iterator[tuple[str, Verdict]]:
    """Yield what is checked of a fix, and the verdict."""
    whole = commit_work(clone, fix, with_tests=True)
    if not fix.tests:
        yield "came without a test", check_commit(clone, fix, whole)
        return
    verdict = check_commit(clone, fix, whole)
    yield "came with a test", verdict
    # Without the tests it says something only if the tests are what noticed it
    if verdict.result == "confirmed":
        bare = commit_work(clone, fix, with_tests=False)
        yield "the same without its tests", check_commit(clone, fix, bare)


def select_fixes(fixes: Iterator[Fix], count: int) -> list[Fix]:
    """Return the newest fixes with tests and the newest without, as many of each."""
    found = [*fixes]
    with_tests = [fix for fix in found if fix.tests][:count]
    without = [fix for fix in found if not fix.tests][:count]
    return [*with_tests, *without]


def configure(folder: Path, command: str) -> None:
    """Write settings of the user: nothing of the clone is changed."""
    line = command.replace("\\", "\\\\").replace('"', '\\"')
    empty = "".join(
        f'{name} = ""\n' for name in ("setup", "build", "lint", "typecheck", "coverage")
    )
    settings = folder / "phasegate/config.toml"
    settings.parent.mkdir()
    settings.write_text(
        f'[run]\nsandbox = "none"\n[checks.python]\n{empty}test = "{line}"\n'
        "[evidence]\nmutants = false\n",
        encoding="utf-8",
    )
    for name in ("CONFIG", "DATA", "STATE"):
        os.environ[f"XDG_{name}_HOME"] = str(folder)


def accept_clone(clone: Path) -> None:
    """Accept the clone in the settings of this run: without a sandbox, nothing else may run."""
    from phasegate.engine.project.settings import open_trust

    open_trust(clone).accept()


def main() -> int:
    """Check the fixes of a clone and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clone", type=Path)
    parser.add_argument("--test", required=True)
    parser.add_argument("--project", default="")
    parser.add_argument("--count", type=int, default=2)
    parser.add_argument("--among", type=int, default=400)
    asked = parser.parse_args()
    clone = asked.clone.resolve()
    with tempfile.TemporaryDirectory() as folder:
        configure(Path(folder), asked.test)
        accept_clone(clone)
        for fix in select_fixes(list_fixes(clone, asked.among), asked.count):
            for what, verdict in check_fix(clone, fix):
                names = ", ".join(f"`{test.rpartition('::')[2]}`" for test in verdict.tests[:2])
                row = (
                    asked.project or clone.name,
                    fix.commit[:8],
                    what,
                    names or "none",
                    verdict.result,
                    f"{verdict.ratio:.1f}",
                )
                print(f"| {' | '.join(row)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
