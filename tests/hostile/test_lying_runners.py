"""Trees and test commands that lie about their tests. What is caught, and, at the end, what cannot be.

Each case has its control: who believes the exit status, or looks at the wrong place, is deceived in the same run.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from phasegate.checks.evidence import Evidence
from phasegate.checks.manifest import HarvestedWork, gather_evidence
from phasegate.checks.plan import Command, CommandResult
from phasegate.checks.setup import SetupCacheSlot
from phasegate.checks.setup_cache import SetupCache, is_setup_input
from phasegate.core.detection.model import SetupCandidate
from support.checkout import (
    PYTEST,
    SOURCE,
    TESTS,
    commit,
    git,
    plan,
    repository,
    run_plainly,
    take_baseline,
    work_since,
    write,
)

GOOD = {"calc.py": SOURCE, "test_calc.py": TESTS}
WRONG = "def add(a, b):\n    return a - b\n"
QUICK = "echo '1 passed in 0.01s'"


def done(
    tmp_path: Path, files: dict[str, str], start: dict[str, str] | None = None
) -> HarvestedWork:
    folder = repository(tmp_path / "repo", start or {"README.md": "x\n"})
    base = git(folder, "rev-parse", "HEAD")
    write(folder, files)
    commit(folder, "WP01: Add")
    return work_since(folder, base)


def status_of(folder: Path, line: str) -> int | None:
    """What somebody learns who only asks for the exit status."""
    return run_plainly(Command(("sh", "-c", line), folder, {}, (), False, 60)).exit_status


def failed(evidence: Evidence) -> list[str]:
    return [check.name for check in evidence.failures]


@pytest.mark.demand("D8.c")
def test_failures_hidden_behind_an_exit_status_are_seen(tmp_path: Path) -> None:
    work = done(tmp_path, {**GOOD, "calc.py": WRONG})
    hiding = f"{PYTEST} || true"
    assert status_of(work.checkout, hiding) == 0, "control"
    evidence = gather_evidence(plan(commands={"test": hiding}), work, run_plainly)
    assert failed(evidence) == ["test"]
    assert "though the exit status is 0" in evidence.failures[0].summary


@pytest.mark.demand("D8.b")
@pytest.mark.parametrize(
    "tests",
    [
        "import os\nprint('5 passed')\nos._exit(0)\n",
        "import os\n\n\ndef test_it():\n    os._exit(0)\n",
        "import pytest\n\n\ndef test_it():\n    pytest.exit('enough', 0)\n",
    ],
    ids=["at import", "in a test", "politely"],
)
def test_a_test_file_that_ends_the_runner_is_no_test_run(tmp_path: Path, tests: str) -> None:
    work = done(tmp_path, {"calc.py": WRONG, "test_calc.py": tests})
    assert status_of(work.checkout, PYTEST) == 0, "control"
    assert failed(gather_evidence(plan(), work, run_plainly)) == ["test"]


@pytest.mark.demand("D8.b")
def test_a_configuration_that_skips_everything_ran_nothing(tmp_path: Path) -> None:
    conftest = (
        "import pytest\n\n\ndef pytest_collection_modifyitems(items):\n"
        "    for item in items:\n        item.add_marker(pytest.mark.skip)\n"
    )
    work = done(tmp_path, {"calc.py": WRONG, "test_calc.py": TESTS, "conftest.py": conftest})
    assert status_of(work.checkout, PYTEST) == 0, "control"
    assert failed(gather_evidence(plan(), work, run_plainly)) == ["test"]


@pytest.mark.demand("D8.g")
@pytest.mark.parametrize(
    "name", ["conftest.py", "sitecustomize.py", "pytest.ini", "calc/__init__.py"]
)
def test_what_an_agent_left_lying_about_is_not_there_when_we_check(
    tmp_path: Path, name: str
) -> None:
    """The agent's checkout is green by a file that is in no commit; a clean checkout of its commits is red (D10)."""
    green = {
        "conftest.py": "import calc\ncalc.add = lambda a, b: a + b\n",
        "sitecustomize.py": "import calc\ncalc.add = lambda a, b: a + b\n",
        "pytest.ini": "[pytest]\naddopts = --deselect test_calc.py::test_adds --ignore nothing\n",
        "calc/__init__.py": "def add(a, b):\n    return a + b\n",
    }
    more = "\n\ndef test_other():\n    pass\n"
    work = done(tmp_path, {"calc.py": WRONG, "test_calc.py": TESTS + more})
    write(work.checkout, {name: green[name]})
    assert status_of(work.checkout, f"PYTHONPATH=. {PYTEST}") == 0, "control"
    clean = tmp_path / "clean"
    git(work.checkout, "clone", "--quiet", ".", str(clean))
    there = work_since(clean, git(clean, "rev-list", "--max-parents=0", "HEAD"))
    assert failed(
        gather_evidence(plan(commands={"test": f"PYTHONPATH=. {PYTEST}"}), there, run_plainly)
    ) == ["test"]


@pytest.mark.demand("D8.d")
def test_a_coverage_report_that_came_with_the_tree_is_not_read(tmp_path: Path) -> None:
    report = json.dumps({"totals": {"covered_lines": 100, "num_statements": 100}})
    work = done(tmp_path, {**GOOD, "coverage.json": report})
    assert (
        json.loads((work.checkout / "coverage.json").read_text())["totals"]["covered_lines"] == 100
    ), "control"
    evidence = gather_evidence(plan(commands={"test": QUICK}, coverage_min=80), work, run_plainly)
    assert failed(evidence) == ["coverage"]
    honest = {"test": QUICK, "coverage": f"echo '{report}' > coverage.json"}
    assert gather_evidence(plan(commands=honest, coverage_min=80), work, run_plainly).has_passed


@pytest.mark.demand("D8.h")
def test_programs_that_came_with_the_tree_are_not_put_on_the_path(tmp_path: Path) -> None:
    work = done(tmp_path, {**GOOD, ".venv/bin/linter": "#!/bin/sh\nexit 0\n"})
    (work.checkout / ".venv/bin/linter").chmod(0o755)
    assert status_of(work.checkout, 'PATH="$PWD/.venv/bin:$PATH"; linter') == 0, "control"
    commands = {"setup": "true", "test": QUICK, "lint": "linter"}
    evidence = gather_evidence(plan(commands=commands), work, run_plainly)
    assert failed(evidence) == ["lint"]


SETUP = "mkdir -p .venv/lib; echo good > .venv/lib/module"


@pytest.mark.demand("D8.h")
def test_a_cached_setup_is_not_written_through_a_link_in_the_tree(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    folder = repository(tmp_path / "repo", {"README.md": "x\n"})
    base = git(folder, "rev-parse", "HEAD")
    kept = SetupCacheSlot(SetupCache(tmp_path / "cache", 10**9), "base")
    commands = {"setup": SETUP, "test": QUICK}
    take_baseline(plan(commands=commands), folder, run_plainly, kept._replace(may_fill=True))
    shutil.rmtree(folder / ".venv")
    write(folder, GOOD)
    (folder / ".venv").symlink_to(outside)
    commit(folder, "WP01: Add")
    gather_evidence(
        plan(commands={**commands, "setup": SETUP}), work_since(folder, base), _offline, None, kept
    )
    assert not [*outside.iterdir()]
    shutil.copytree(next((tmp_path / "cache").iterdir()) / "files", folder, dirs_exist_ok=True)
    assert [*outside.iterdir()], "control"


def _offline(command: Command) -> CommandResult:
    """Stands for the sandbox, in which nothing outside the checkout can be written."""
    return CommandResult(0, "1 passed in 0.01s", "", 0.0)


@pytest.mark.demand("D8.h")
def test_what_tests_do_to_an_environment_does_not_reach_the_next_one(tmp_path: Path) -> None:
    folder = repository(tmp_path / "repo", {"README.md": "x\n", ".gitignore": ".venv/\n"})
    base = git(folder, "rev-parse", "HEAD")
    kept = SetupCacheSlot(SetupCache(tmp_path / "cache", 10**9), "base")
    poison = f"echo poisoned > .venv/lib/module; {QUICK}"
    take_baseline(
        plan(commands={"setup": SETUP, "test": QUICK}),
        folder,
        run_plainly,
        kept._replace(may_fill=True),
    )
    write(folder, GOOD)
    commit(folder, "WP01: Add")
    for command in (poison, "grep -q good .venv/lib/module && " + QUICK):
        git(folder, "clean", "-xdfq")
        evidence = gather_evidence(
            plan(commands={"setup": SETUP, "test": command}),
            work_since(folder, base),
            run_plainly,
            None,
            kept,
        )
        assert evidence.has_passed, evidence.failures
        setup = evidence.find_check("setup")
        assert setup is not None
        assert setup.summary == "restored from the cache"


@pytest.mark.demand("D8.h")
@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("sh tools/setup.sh", "tools/setup.sh"),
        ("test -d .venv || ./setup.sh", "setup.sh"),
        ("make", "Makefile"),
        ("pip install -e .", "pyproject.toml"),
        ("pip install -e .", "sub/setup.cfg"),
        ("pip install -e .", "versioneer.py"),
        ("pip install -r requirements/dev.txt", "requirements/dev.txt"),
        ("npm ci", "package-lock.json"),
        ("npm ci", "packages/a/package.json"),
    ],
)
def test_a_tree_that_changed_what_the_setup_reads_is_set_up_by_itself(line: str, path: str) -> None:
    """What the base's setup made would show something about another tree."""
    asked = plan(commands={"setup": line, "test": QUICK})
    assert is_setup_input(path, asked)
    assert not is_setup_input("src/calc.py", asked), "control"
    assert is_setup_input(
        "src/calc.py", plan(setups=(SetupCandidate(line, compiles_sources=True),))
    ), "compiled sources are an input"


@pytest.mark.demand("D8.g")
def test_the_commands_of_the_project_get_no_key_of_an_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no way to ask for one: a command has no names to pass through (L05)."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "canary-5512")
    leaking = subprocess.run("env", capture_output=True, text=True, shell=True, check=True).stdout
    assert "canary-5512" in leaking, "control"
    work = done(tmp_path, GOOD)
    evidence = gather_evidence(plan(commands={"test": QUICK, "lint": "env"}), work, run_plainly)
    assert "canary-5512" not in repr(evidence)
    lint = evidence.find_check("lint")
    assert lint is not None
    assert "CI=1" in lint.excerpt


@pytest.mark.demand("D8.j")
def test_a_package_that_takes_out_the_failing_tests_is_pointed_out(tmp_path: Path) -> None:
    two = TESTS + "\n\ndef test_zero():\n    assert add(0, 0) == 0\n"
    folder = repository(tmp_path / "repo", {"calc.py": SOURCE, "test_calc.py": two})
    base = git(folder, "rev-parse", "HEAD")
    baseline = take_baseline(plan(), folder, run_plainly)
    write(folder, {"calc.py": "def add(a, b):\n    return 2\n", "test_calc.py": TESTS})
    commit(folder, "WP01: Simplify")
    test = gather_evidence(plan(), work_since(folder, base), run_plainly, baseline).find_check(
        "test"
    )
    assert test is not None
    assert "were some removed?" in test.notes[0]


@pytest.mark.parametrize(
    "forgery",
    [
        "def test_nothing():\n    assert True\n",
        "import os, sys\nos.write(1, b'5 passed in 0.10s\\n')\nos._exit(0)\n",
    ],
    ids=["tests that test nothing", "a summary in the runner's own words"],
)
def test_the_limit_of_evidence_is_code_that_an_agent_may_write(
    tmp_path: Path, forgery: str
) -> None:
    """A test file is a program of the agent's. What it says in the runner's place is believed.

    docs/reference/manifest.md tells people so: against this stand the file scope, coverage and the review.
    """
    work = done(tmp_path, {"calc.py": WRONG, "test_calc.py": forgery})
    plain = plan(commands={"test": f"{PYTEST} -s"})
    assert gather_evidence(plain, work, run_plainly).has_passed
    measuring = {
        "test": f"{PYTEST} -s",
        "coverage": f"python -m coverage run -m {PYTEST[10:]} -s; python -m coverage json",
    }
    coverage = gather_evidence(
        plan(commands=measuring, coverage_min=80, code=("calc.py",)), work, run_plainly
    ).find_check("coverage")
    assert coverage is not None
    assert coverage.remedy or coverage.notes == ("the report does not count calc.py",)


AS_NO_ROOT = """
import os, tempfile
from pathlib import Path
from phasegate.checks.commands import PlanRunner
from support.checkout import plan, run_plainly

if os.getuid() == 0:  # nothing is shut for root
    os.setgid(65534)
    os.setuid(65534)
with tempfile.TemporaryDirectory(dir="/tmp") as folder:
    shuts = "echo {} > coverage.json; chmod 0 coverage.json"
    commands = {"setup": "mkdir -p .venv/bin; chmod 0 .venv", "coverage": shuts}
    runner = PlanRunner(plan(commands=commands, coverage_min=50), Path(folder), run_plainly)
    print([(check.name, str(check.outcome), check.summary) for check in runner.run_checks(("coverage",))])
    try:
        Path(folder, "coverage.json").read_bytes()
    except PermissionError:
        print("control")
    os.chmod(f"{folder}/.venv", 0o700)
"""


@pytest.mark.demand("D8.d")
def test_what_the_commands_shut_is_a_failed_check_and_no_crash() -> None:
    """A report without a right to read, and a folder of programs without a right to enter."""
    here = Path(__file__).parents[1]
    ran = subprocess.run(
        [sys.executable, "-c", AS_NO_ROOT], cwd=here, capture_output=True, text=True
    )
    assert "control" in ran.stdout, ran.stderr
    assert "a coverage report cannot be used: it cannot be read: Permission denied" in ran.stdout
