"""The manifest on real repositories with real commands: what must be refused first, then what passes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from phasegate.checks.commands import PlanRunner
from phasegate.checks.evidence import CheckOutcome, CheckResult, Evidence
from phasegate.checks.manifest import HarvestedWork, gather_evidence
from phasegate.checks.plan import Command, CommandResult
from phasegate.checks.secrets import AddedContent
from phasegate.checks.setup import CollectedTests, SetupCacheSlot
from phasegate.checks.setup_cache import SetupCache
from phasegate.core.detection.model import SetupCandidate
from phasegate.core.machine.retry import Fault
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

# Real processes or a model check: in `make test`, not in `make test-fast`.
pytestmark = pytest.mark.slow

GOOD = {"calc.py": SOURCE, "test_calc.py": TESTS}
QUICK = "echo '1 passed in 0.01s'"  # in place of a test run, where the question is another


def done(
    tmp_path: Path, files: Mapping[str, str] = GOOD, message: str = "WP01: Add"
) -> HarvestedWork:
    """Work of one commit on a repository that had nothing but a note."""
    folder = repository(tmp_path / "repo", {"README.md": "x\n"})
    base = git(folder, "rev-parse", "HEAD")
    write(folder, files)
    commit(folder, message)
    return work_since(folder, base, deliverables=("calc.py", "test_calc.py"))


def checked(work: HarvestedWork, **changes: object) -> Evidence:
    return gather_evidence(plan(**{"commands": {"test": QUICK}, **changes}), work, run_plainly)


def run_for_real(work: HarvestedWork, **changes: object) -> Evidence:
    return gather_evidence(plan(**changes), work, run_plainly)


def only_failure(evidence: Evidence) -> CheckResult:
    assert not evidence.has_passed
    assert [check.name for check in evidence.failures] == [evidence.failures[0].name], (
        evidence.failures
    )
    return evidence.failures[0]


@pytest.mark.demand("D8.a", "D8.b", "D8.c", "D8.e", "D8.g")
def test_good_work_passes_and_the_evidence_says_what_was_run(tmp_path: Path) -> None:
    evidence = run_for_real(done(tmp_path))
    assert evidence.has_passed, evidence.failures
    test = evidence.find_check("test")
    assert test is not None
    assert (test.argv, test.exit_status) == (("sh", "-c", PYTEST), 0)
    assert test.tests is not None
    assert test.tests.executed == 1
    assert "1 passed" in test.excerpt
    assert test.duration_s is not None


@pytest.mark.demand("D8.i")
def test_the_evidence_lists_what_was_not_asked_for_and_why(tmp_path: Path) -> None:
    evidence = checked(done(tmp_path), commands={"test": QUICK, "lint": ""})
    assert {
        check.name: check.summary
        for check in evidence.checks
        if check.outcome is CheckOutcome.NOT_REQUESTED
    } == {
        "setup": "the project has no such command",
        "build": "the project has no such command",
        "typecheck": "the project has no such command",
        "lint": "disabled by configuration",
        "coverage": "no threshold is set",
    }


@pytest.mark.demand("D8.a")
@pytest.mark.parametrize(
    ("spoil", "word"),
    [
        ("rm calc.py", "missing"),
        (": > calc.py", "empty"),
        ("echo > calc.py", "empty"),
        ("rm calc.py; mkdir calc.py; echo x > calc.py/x", "folder"),
        ("rm calc.py; ln -s test_calc.py calc.py", "link"),
    ],
)
def test_a_deliverable_that_is_no_file_with_content_is_refused(
    tmp_path: Path, spoil: str, word: str
) -> None:
    folder = repository(tmp_path / "repo", {"README.md": "x\n"})
    base = git(folder, "rev-parse", "HEAD")
    write(folder, {"calc.py": SOURCE, "test_calc.py": "def test_x(): pass\n"})
    run_plainly(Command(("sh", "-c", spoil), folder, {}, (), False, 60))
    commit(folder, "WP01: Add")
    failure = only_failure(checked(work_since(folder, base)))
    assert failure.name == "deliverables"
    assert word in failure.summary
    assert failure.remedy


@pytest.mark.demand("D8.a")
@pytest.mark.parametrize(
    "path", ["../outside.py", "/etc/passwd", "linked/x.py", "", "a//b", "calc.py/x"]
)
def test_a_deliverable_is_never_looked_for_outside_the_checkout(tmp_path: Path, path: str) -> None:
    work = done(tmp_path)
    write(tmp_path, {"outside.py": "x", "elsewhere/x.py": "x"})
    (work.checkout / "linked").symlink_to(tmp_path / "elsewhere")
    failure = only_failure(checked(msgspec.structs.replace(work, deliverables=(path,))))
    assert failure.name == "deliverables"


@pytest.mark.demand("D8.b")
@pytest.mark.parametrize(
    ("command", "word"),
    [
        ("true", "no summary of a known test runner"),
        ("no-such-runner --all", "missing"),
        ("python -m no_such_module", "missing"),
        ("./not_executable", "missing"),
        (f"{PYTEST} --deselect test_calc.py", "0 tests"),
        (f"{PYTEST} nowhere", "exit status 4"),
        ("python -m unittest discover -s . -p nothing", "0 tests"),
        ("kill -9 $$", "signal"),
        ("exit 3", "exit status 3"),
    ],
)
def test_a_test_command_that_ran_no_test_is_a_failure(
    tmp_path: Path, command: str, word: str
) -> None:
    work = done(tmp_path, {**GOOD, "not_executable": "x\n"})
    failure = only_failure(checked(work, commands={"test": command}))
    assert failure.name == "test"
    assert word in failure.summary
    assert failure.remedy


@pytest.mark.demand("D8.b")
def test_skipped_tests_have_not_run(tmp_path: Path) -> None:
    skipped = "import pytest\n\n\n@pytest.mark.skip\ndef test_it():\n    pass\n"
    failure = only_failure(run_for_real(done(tmp_path, {**GOOD, "test_calc.py": skipped})))
    assert "0 tests ran" in failure.summary


@pytest.mark.demand("D8.b")
def test_the_least_number_of_tests_can_be_raised(tmp_path: Path) -> None:
    work = done(tmp_path)
    assert run_for_real(work, min_tests=1).has_passed
    assert only_failure(run_for_real(work, min_tests=2)).name == "test"


@pytest.mark.demand("D8.c", "D8.k")
def test_a_failing_test_is_named_with_what_to_do(tmp_path: Path) -> None:
    failure = only_failure(
        run_for_real(done(tmp_path, {**GOOD, "calc.py": "def add(a, b):\n    return a - b\n"}))
    )
    assert failure.tests is not None
    assert failure.tests.failing == ("test_calc.py::test_adds",)
    assert PYTEST in failure.remedy
    assert failure.fault is Fault.PERMANENT


@pytest.mark.demand("D8.c")
@pytest.mark.parametrize("purpose", ["build", "lint", "typecheck"])
def test_a_command_that_fails_rejects(tmp_path: Path, purpose: str) -> None:
    work = done(tmp_path)
    failing = checked(
        work, commands={"test": QUICK, purpose: "echo 'calc.py:1: error: bad'; exit 1"}
    )
    assert only_failure(failing).name == purpose
    assert checked(
        work, commands={"test": QUICK, purpose: "echo 'calc.py:1: warning: hm'"}
    ).has_passed


ESLINT = "1:7  warning  'a' is never used\n\n\u2716 2 problems ({} errors, 2 warnings)\n"


@pytest.mark.demand("D8.c")
@pytest.mark.parametrize(
    ("command", "passes"),
    [
        (f"printf '{ESLINT.format(0)}'; exit 1 # eslint", True),
        (f"printf '\\033[31m{ESLINT.format(0)}'; exit 1 # npm run lint", True),
        (f"printf '{ESLINT.format(0)}'; exit 1", False),
        (f"printf '{ESLINT.format(1)}'; exit 1 # eslint", False),
        (f"printf '{ESLINT.format(10)}'; exit 1 # eslint", False),
        (f"printf '{ESLINT.format(0)}'; exit 2 # eslint", False),
        (f"printf '{ESLINT.format(0)}{ESLINT.format(3)}'; exit 1 # eslint", False),
        ("sh -c 'exit 4' pylint", True),
        ("sh -c 'exit 28' pylint", True),
        ("sh -c 'exit 6' pylint", False),
        ("sh -c 'exit 32' pylint", False),
        ("echo '0 errors, 5 warnings'; exit 1 # eslint", False),
    ],
)
def test_warnings_of_a_linter_alone_do_not_reject(
    tmp_path: Path, command: str, passes: bool
) -> None:
    assert checked(done(tmp_path), commands={"test": QUICK, "lint": command}).has_passed is passes


@pytest.mark.demand("D8.d")
@pytest.mark.parametrize(
    ("covered", "least", "passes"),
    [(8, 80, True), (7, 80, False), (10, 100, True), (0, 1, False), (8, float("nan"), False)],
)
def test_coverage_must_reach_its_threshold(
    tmp_path: Path, covered: int, least: float, passes: bool
) -> None:
    report = json.dumps(
        {"totals": {"covered_lines": covered, "num_statements": 10, "percent_covered": 100.0}}
    )
    work = done(tmp_path)
    commands = {"test": QUICK, "coverage": f"echo '{report}' > coverage.json"}
    evidence = checked(work, commands=commands, coverage_min=least)
    assert evidence.has_passed is passes
    assert evidence.coverage_percent == covered * 10


@pytest.mark.demand("D8.d")
def test_real_coverage_of_a_real_run_is_read(tmp_path: Path) -> None:
    untested = SOURCE + "\n\ndef never(x):\n    x += 1\n    return x\n"
    commands = {
        "test": PYTEST,
        "coverage": f"python -m coverage run -m {PYTEST[10:]} && python -m coverage json -q",
    }
    work = done(tmp_path, {**GOOD, "calc.py": untested})
    percent = checked(work, commands=commands, coverage_min=10).coverage_percent
    assert percent is not None
    assert 50 < percent < 100
    failure = only_failure(checked(work, commands=commands, coverage_min=99))
    assert failure.name == "coverage"
    assert failure.remedy


@pytest.mark.demand("D8.d")
@pytest.mark.parametrize(
    "command",
    ["", "true", "exit 1", "ln -s /etc/passwd coverage.json", "echo '{}' > coverage.json"],
)
def test_a_threshold_without_a_report_is_a_failure(tmp_path: Path, command: str) -> None:
    evidence = checked(
        done(tmp_path), commands={"test": QUICK, "coverage": command}, coverage_min=1
    )
    assert only_failure(evidence).name == "coverage"


@pytest.mark.demand("D8.d")
def test_of_several_reports_the_lowest_counts(tmp_path: Path) -> None:
    better = json.dumps({"totals": {"covered_lines": 9, "num_statements": 10}})
    lines = f"printf 'SF:a\\nDA:1,1\\nDA:2,0\\nend_of_record\\n' > lcov.info; echo '{better}' > coverage.json"
    evidence = checked(done(tmp_path), commands={"test": QUICK, "coverage": lines}, coverage_min=80)
    assert evidence.coverage_percent == 50


@pytest.mark.demand("D8.e")
@pytest.mark.parametrize(
    "message",
    [
        "Add",
        "WP02: Add",
        "WP01:Add",
        "WP01 Add",
        " WP01: Add",
        "WP011: Add",
        "feat(WP02): x",
        "Feat(WP01): x",
    ],
)
def test_a_commit_that_does_not_name_the_package_is_refused(tmp_path: Path, message: str) -> None:
    failure = only_failure(checked(done(tmp_path, message=message)))
    assert failure.name == "commits"
    assert "WP01: " in failure.remedy


@pytest.mark.demand("D8.e")
@pytest.mark.parametrize(
    "message", ["WP01: Add", "feat(WP01): add [FR-AUTH-001, FR-AUTH-002]", "fix(WP01)!: mend"]
)
def test_a_commit_names_the_package_in_either_form(tmp_path: Path, message: str) -> None:
    assert checked(done(tmp_path, message=message)).has_passed


def test_an_empty_diff_is_a_failure(tmp_path: Path) -> None:
    folder = repository(tmp_path / "repo", GOOD)
    base = git(folder, "rev-parse", "HEAD")
    commit(folder, "WP01: Nothing")
    assert only_failure(checked(work_since(folder, base))).name == "changes"


def test_work_without_a_commit_is_a_failure(tmp_path: Path) -> None:
    work = msgspec.structs.replace(done(tmp_path), commits=())
    assert only_failure(checked(work)).name == "commits"


def test_what_is_not_committed_is_a_failure(tmp_path: Path) -> None:
    work = msgspec.structs.replace(done(tmp_path), uncommitted=("left.py",))
    assert "left.py" in only_failure(checked(work)).summary


def test_work_that_nothing_verifies_is_a_failure(tmp_path: Path) -> None:
    work = msgspec.structs.replace(done(tmp_path), deliverables=())
    failure = only_failure(checked(work, commands={"lint": "true"}))
    assert failure.name == "verified"
    assert failure.remedy


def test_a_secret_in_an_added_line_is_refused_and_not_repeated(tmp_path: Path) -> None:
    key = "AKIA" + "Q3EGRFXO5KZ2TB7A"
    failure = only_failure(checked(done(tmp_path, {**GOOD, "calc.py": f"{SOURCE}KEY = '{key}'\n"})))
    assert "AWS access key in calc.py:3" in failure.summary
    assert key not in repr(failure)


def test_a_secret_that_a_later_commit_took_out_is_still_committed(tmp_path: Path) -> None:
    work = done(tmp_path)
    history = AddedContent("calc.py", b"AKIA" + b"Q3EGRFXO5KZ2TB7A", "0123456789abcdef")
    failure = only_failure(checked(msgspec.structs.replace(work, added_content=[history])))
    assert "commit 0123456789" in failure.summary


def test_commands_that_rewrite_the_tree_are_a_failure(tmp_path: Path) -> None:
    work = done(tmp_path)
    assert checked(
        work, commands={"test": QUICK, "lint": "touch calc.py; cp calc.py x; mv x calc.py"}
    ).has_passed
    failure = only_failure(
        checked(work, commands={"test": QUICK, "build": "echo '# x' >> calc.py"})
    )
    assert failure.name == "tree kept"
    assert "calc.py" in failure.summary


def test_a_lock_file_that_a_command_updates_is_only_noted(tmp_path: Path) -> None:
    work = done(tmp_path, {**GOOD, "Cargo.lock": "x\n"})
    evidence = checked(work, commands={"test": QUICK, "build": "echo y >> Cargo.lock"})
    assert evidence.has_passed
    kept = evidence.find_check("tree kept")
    assert kept is not None
    assert "Cargo.lock" in kept.notes[0]


def test_all_failures_are_told_in_one_round(tmp_path: Path) -> None:
    work = msgspec.structs.replace(done(tmp_path, {"calc.py": ""}, "Add"), uncommitted=("x",))
    evidence = checked(work, commands={"test": PYTEST, "lint": "exit 1"})
    names = [check.name for check in evidence.failures]
    assert names == ["deliverables", "commits", "clean tree", "lint", "test", "verified"]
    assert all(check.remedy for check in evidence.failures)


@pytest.mark.demand("D8.k")
def test_a_failure_cannot_be_made_without_a_remedy() -> None:
    with pytest.raises(ValueError, match="does not say what to do"):
        CheckResult(name="x", outcome=CheckOutcome.FAILED, summary="bad")


def test_no_evidence_is_not_a_pass() -> None:
    assert not Evidence(()).has_passed


def test_a_command_without_end_is_ended_and_fails(tmp_path: Path) -> None:
    failure = only_failure(checked(done(tmp_path), commands={"test": "sleep 60"}, timeout_s=0.5))
    assert "timed out" in failure.summary


FLAKY = """
from pathlib import Path

def test_flaky():
    first = not Path("been_here").exists()
    Path("been_here").write_text("x")
    assert not first
"""


@pytest.mark.demand("D10.a")
def test_a_flaky_test_passes_when_it_is_run_again_and_is_named(tmp_path: Path) -> None:
    evidence = run_for_real(done(tmp_path, {**GOOD, "test_calc.py": FLAKY}), test_reruns=1)
    assert evidence.has_passed
    test = evidence.find_check("test")
    assert test is not None
    assert test.fault is Fault.FLAKY_TEST
    assert "test_calc.py::test_flaky" in test.notes[0]


@pytest.mark.demand("D10.a", "D10.b")
def test_a_test_that_fails_again_is_a_failure(tmp_path: Path) -> None:
    work = done(tmp_path, {**GOOD, "test_calc.py": "def test_red():\n    assert False\n"})
    assert only_failure(run_for_real(work, test_reruns=2)).name == "test"


@pytest.mark.demand("D10.a")
def test_a_setup_that_the_network_failed_can_be_tried_again(tmp_path: Path) -> None:
    commands = {"setup": "echo 'npm error code ECONNRESET' >&2; exit 1", "test": QUICK}
    evidence = checked(done(tmp_path), commands=commands)
    assert [check.name for check in evidence.failures] == ["setup", "test"]
    setup = evidence.find_check("setup")
    assert setup is not None
    assert setup.fault is Fault.NETWORK


RED = "def test_red():\n    assert False\n"


@pytest.mark.demand("D8.j")
def test_old_failures_are_told_from_new_ones_and_still_reject(tmp_path: Path) -> None:
    folder = repository(tmp_path / "repo", {"test_old.py": RED})
    base = git(folder, "rev-parse", "HEAD")
    baseline = take_baseline(plan(), folder, run_plainly)
    write(folder, {**GOOD, "test_calc.py": TESTS + "\n\n" + RED})
    commit(folder, "WP01: Add")
    work = work_since(folder, base)
    failure = only_failure(gather_evidence(plan(), work, run_plainly, baseline))
    assert failure.notes == (
        "already failing before the work began: test_old.py::test_red",
        "new: test_calc.py::test_red",
    )


@pytest.mark.demand("D8.j")
def test_work_is_not_accepted_if_no_test_file_can_be_loaded_as_before(tmp_path: Path) -> None:
    broken = "import no_such_module\n"
    folder = repository(tmp_path / "repo", {"test_calc.py": broken})
    base = git(folder, "rev-parse", "HEAD")
    baseline = take_baseline(plan(), folder, run_plainly)
    write(folder, {**GOOD, "test_calc.py": broken + TESTS})
    commit(folder, "WP01: Add")
    evidence = gather_evidence(plan(), work_since(folder, base), run_plainly, baseline)
    assert "test" in [check.name for check in evidence.failures]


@pytest.mark.demand("D8.j")
def test_old_failures_are_tolerated_by_default_but_never_new_ones(tmp_path: Path) -> None:
    folder = repository(tmp_path / "repo", {"test_old.py": RED})
    base = git(folder, "rev-parse", "HEAD")
    baseline = take_baseline(plan(), folder, run_plainly)
    tolerating, strict = plan(), plan(tolerates_old_failures=False)
    write(folder, GOOD)
    commit(folder, "WP01: Add")
    assert not gather_evidence(tolerating, work_since(folder, base), run_plainly).has_passed
    assert not gather_evidence(strict, work_since(folder, base), run_plainly, baseline).has_passed
    evidence = gather_evidence(tolerating, work_since(folder, base), run_plainly, baseline)
    assert evidence.has_passed
    test = evidence.find_check("test")
    assert test is not None
    assert "already failing before the work began: test_old.py::test_red" in test.notes
    write(folder, {"test_new.py": RED})
    commit(folder, "WP01: Break")
    assert not gather_evidence(
        tolerating, work_since(folder, base), run_plainly, baseline
    ).has_passed


@pytest.mark.demand("D8.j")
def test_a_linter_that_failed_before_says_what_is_new(tmp_path: Path) -> None:
    folder = repository(tmp_path / "repo", {"old.txt": "old.txt:7: bad\n"})
    base = git(folder, "rev-parse", "HEAD")
    linting = plan(commands={"test": QUICK, "lint": "cat *.txt; exit 1"})
    baseline = take_baseline(linting, folder, run_plainly)
    write(folder, {**GOOD, "old.txt": "old.txt:9: bad\n", "new.txt": "new.txt:1: worse\n"})
    commit(folder, "WP01: Add")
    failure = only_failure(
        gather_evidence(linting, work_since(folder, base), run_plainly, baseline)
    )
    assert failure.notes == ("already failing before the work began", "new: new.txt:#: worse")


@pytest.mark.demand("D8.j")
def test_findings_of_before_do_not_reject_and_one_more_of_the_same_does(tmp_path: Path) -> None:
    folder = repository(
        tmp_path / "repo", {"old.txt": "old.txt:7: bad\nold.txt:8: worse\nFound 2 errors.\n"}
    )
    base = git(folder, "rev-parse", "HEAD")
    linting = plan(commands={"test": QUICK, "lint": "cat *.txt; exit 1"})
    baseline = take_baseline(linting, folder, run_plainly)
    write(folder, {**GOOD, "old.txt": "old.txt:9: bad\nFound 1 error.\n"})
    commit(folder, "WP01: Mend one of two")
    evidence = gather_evidence(linting, work_since(folder, base), run_plainly, baseline)
    assert evidence.has_passed, evidence.failures
    lint = evidence.find_check("lint")
    assert lint is not None
    assert "already failing before the work began: old.txt:#: bad" in lint.notes
    write(folder, {"old.txt": "old.txt:9: bad\nold.txt:30: bad\nFound 2 errors.\n"})
    commit(folder, "WP01: The same again, elsewhere")
    assert not gather_evidence(linting, work_since(folder, base), run_plainly, baseline).has_passed


@pytest.mark.demand("D8.j")
def test_a_linter_that_cannot_be_run_is_not_held_against_the_work_and_one_that_vanished_is(
    tmp_path: Path,
) -> None:
    folder = repository(tmp_path / "repo", {"README.md": "x\n"})
    base = git(folder, "rev-parse", "HEAD")
    linting = plan(commands={"test": QUICK, "lint": "no-such-linter ."})
    baseline = take_baseline(linting, folder, run_plainly)
    write(folder, GOOD)
    commit(folder, "WP01: Add")
    evidence = gather_evidence(linting, work_since(folder, base), run_plainly, baseline)
    lint = evidence.find_check("lint")
    assert lint is not None
    assert (evidence.has_passed, lint.outcome) == (True, CheckOutcome.NOT_REQUESTED)
    assert not gather_evidence(
        linting, work_since(folder, base), run_plainly, take_baseline(plan(), folder, run_plainly)
    ).has_passed


@pytest.mark.demand("D8.j")
def test_fewer_tests_than_before_are_pointed_out(tmp_path: Path) -> None:
    folder = repository(
        tmp_path / "repo", {"test_old.py": "def test_a(): pass\ndef test_b(): pass\n"}
    )
    base = git(folder, "rev-parse", "HEAD")
    baseline = take_baseline(plan(), folder, run_plainly)
    write(folder, GOOD)
    (folder / "test_old.py").unlink()
    commit(folder, "WP01: Add")
    test = gather_evidence(plan(), work_since(folder, base), run_plainly, baseline).find_check(
        "test"
    )
    assert test is not None
    assert "1 tests ran, 2 before" in test.notes[0]


PROGRAM = "#!/bin/sh\\necho checked\\n"
SETUP = f"mkdir -p .venv/bin; printf '{PROGRAM}' > .venv/bin/type-checker; chmod +x .venv/bin/type-checker"


@pytest.mark.demand("D8.h")
def test_programs_that_the_setup_installed_are_found(tmp_path: Path) -> None:
    commands = {"setup": SETUP, "test": QUICK, "typecheck": "type-checker"}
    evidence = checked(done(tmp_path), commands=commands)
    assert evidence.has_passed, evidence.failures


@pytest.mark.demand("D8.h")
def test_a_setup_of_the_base_is_used_again_and_an_agents_tree_never_fills_the_cache(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    commands = {
        "setup": f"echo ran >> {log}; mkdir .venv; echo made > .venv/made",
        "test": f"cat .venv/made && {QUICK}",
    }
    kept = SetupCacheSlot(SetupCache(tmp_path / "cache", 10**9), "key-of-the-base")
    work = done(tmp_path, {**GOOD, ".gitignore": ".venv/\n__pycache__/\n"})
    folder = work.checkout

    def runs(kept: SetupCacheSlot | None = kept) -> int:
        git(folder, "clean", "-xdfq")
        evidence = gather_evidence(plan(commands=commands), work, run_plainly, None, kept)
        assert evidence.has_passed, evidence.failures
        return len(log.read_text().splitlines())

    assert runs() == 1
    assert runs() == 2, "a tree that an agent wrote must not fill the cache"
    git(folder, "clean", "-xdfq")
    take_baseline(plan(commands=commands), folder, run_plainly, kept._replace(may_fill=True))
    assert runs() == 3
    assert runs() == 3
    assert runs(kept._replace(key="of-another-base")) == 4
    assert runs(None) == 5


@pytest.mark.demand("R1.d")
def test_a_setup_that_fails_or_leaves_no_test_to_be_found_is_followed_by_the_next(
    tmp_path: Path,
) -> None:
    """The second one installs, and what it left would break the third if it stayed."""
    refusing = "import pathlib\nassert not pathlib.Path('left').exists()\n" + TESTS
    work = done(tmp_path, {**GOOD, "test_calc.py": refusing})
    setups = (
        SetupCandidate("exit 3", "a lock"),
        SetupCandidate("touch left", "a group"),
        SetupCandidate("touch good", "an extra"),
    )
    evidence = run_for_real(work, setups=setups, test_functions=1)
    assert evidence.has_passed, evidence.failures
    setup = evidence.find_check("setup")
    assert setup is not None
    assert setup.argv[-1] == "touch good"
    assert setup.notes[0] == "chosen for: an extra"
    assert "a lock: exit status 3" in setup.notes[1]
    assert "a group: 0 tests found, 1 errors" in setup.notes[2]


@pytest.mark.demand("R1.e")
def test_of_setups_that_find_far_too_few_tests_the_best_is_taken(tmp_path: Path) -> None:
    work = done(tmp_path)
    setups = (SetupCandidate("touch first", "a lock"), SetupCandidate("exit 1", "a group"))
    bench = PlanRunner(plan(setups=setups, test_functions=900), work.checkout, run_plainly)
    assert [
        check.name for check in bench.run_checks() if check.outcome is CheckOutcome.FAILED
    ] == []
    assert bench.setup_result is not None
    assert bench.setup_result.collected == CollectedTests(1, 0)
    assert (work.checkout / "first").exists(), "set up once more, after the last try"


@pytest.mark.demand("D8.h")
def test_only_the_setup_is_given_the_network(tmp_path: Path) -> None:
    asked: dict[str, bool] = {}

    def run(command: Command) -> CommandResult:
        asked[command.argv[-1]] = command.network
        return run_plainly(command)

    gather_evidence(
        plan(commands={"setup": "true", "lint": "true #", "test": QUICK}), done(tmp_path), run
    )
    assert asked == {"true": True, "true #": False, QUICK: False}


def test_output_in_the_evidence_is_bounded_and_harmless(tmp_path: Path) -> None:
    first = "print('\\x1b]0;title\\x07\\x1b[31mred\\x9b2J\\rover' + 'x' * 1000)"
    noise = f'python -c "{first}; [print(i) for i in range(9999)]"'
    check = checked(done(tmp_path), commands={"test": QUICK, "lint": noise}).find_check("lint")
    assert check is not None
    assert len(check.excerpt) < 100 * 310
    assert not {"\x1b", "\x07", "\x9b", "\r"} & set(check.excerpt)
    assert "lines omitted" in check.excerpt
    assert check.excerpt.endswith("9998")
