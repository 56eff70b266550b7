"""What agents claim, against what is: commits, files, coverage (C06, C07)."""

from __future__ import annotations

from pathlib import Path

import pytest

from phasegate.checks.evidence import CheckOutcome, CheckResult, Evidence
from phasegate.checks.false_claims import FalseClaim, ObservedFacts, find_false_claims
from phasegate.core.answer.json_result import AgentResponse, ReportedArtifacts, ReportedCommit
from phasegate.core.plan.commits import Commit
from support.checkout import commit, git, repository, write

LINTED = Evidence((CheckResult(name="lint", outcome=CheckOutcome.PASSED, summary="exit status 0"),))


def claimed(
    commits: tuple[Commit, ...] = (),
    files_created: tuple[str, ...] = (),
    test_coverage: str | float | None = None,
    lint_status: str | None = None,
    duration_s: float | None = None,
) -> AgentResponse:
    return AgentResponse(
        job_id="job",
        wp_id="WP01",
        success=True,
        status="completed",
        commits=tuple(ReportedCommit(*commit) for commit in commits),
        artifacts=ReportedArtifacts(files_created, test_coverage, lint_status),
        duration_seconds=duration_s,
    )


def facts(tmp_path: Path, evidence: Evidence = LINTED) -> ObservedFacts:
    """A repository with a base, a commit beside it, and one after it, from real git."""
    folder = repository(tmp_path / "repo", {"old.py": "x\n"})
    base = git(folder, "rev-parse", "HEAD")
    git(folder, "checkout", "--quiet", "-b", "beside")
    commit(folder, "WP01: Beside the base")
    git(folder, "checkout", "--quiet", "main")
    write(folder, {"new.py": "x\n", "empty.py": "", "folder/x.py": "x\n"})
    commit(folder, "WP01: Add")
    log = git(folder, "log", "--format=%H %s", f"{base}..HEAD").splitlines()
    commits = tuple(Commit(*line.split(" ", 1)) for line in log)
    return ObservedFacts(
        commits=commits,
        checkout=folder,
        base_paths=("old.py", ".gitignore"),
        duration_s=100.0,
        evidence=evidence,
    )


@pytest.mark.demand("D7.e", "D7.f")
def test_true_claims_are_not_called_false(tmp_path: Path) -> None:
    known = facts(tmp_path)
    real = known.commits[0]
    shortened = Commit(f"{real.id[:12]}...", "WP01: Add")
    response = claimed(
        commits=(real, shortened, Commit(real.id, "")),
        files_created=("new.py", "folder/x.py"),
        lint_status="passed",
        duration_s=90,
    )
    assert find_false_claims(response, known) == []


@pytest.mark.demand("D7.f")
def test_commits_that_are_not_after_the_base_are_false_claims(tmp_path: Path) -> None:
    known = facts(tmp_path)
    beside = git(known.checkout, "rev-parse", "beside")
    base = git(known.checkout, "rev-parse", "main~1")
    invented = (
        Commit("0" * 40, "WP01: Invented"),
        Commit(beside, ""),
        Commit(base, ""),
        Commit("HEAD", ""),
        Commit("", ""),
    )
    found = find_false_claims(claimed(commits=invented), known)
    assert len(found) == len(invented)


@pytest.mark.demand("D7.f")
def test_another_message_is_a_false_claim(tmp_path: Path) -> None:
    known = facts(tmp_path)
    found = find_false_claims(
        claimed(commits=(Commit(known.commits[0].id, "WP01: All tests pass"),)), known
    )
    assert "WP01: Add" in found[0].truth


@pytest.mark.demand("D7.f")
@pytest.mark.parametrize(
    ("path", "truth"),
    [
        ("missing.py", "it is missing"),
        ("empty.py", "it is empty"),
        ("folder", "it is a folder"),
        ("../repo/new.py", "it is not a path inside the checkout"),
        ("old.py", "it existed before"),
    ],
)
def test_files_that_were_not_created_are_false_claims(
    tmp_path: Path, path: str, truth: str
) -> None:
    assert find_false_claims(claimed(files_created=(path,)), facts(tmp_path)) == [
        FalseClaim(f"created {path}", truth)
    ]


@pytest.mark.demand("D7.e", "D7.f")
@pytest.mark.parametrize(
    ("said", "measured", "is_false"),
    [
        ("87.5%", 87.4, False),
        (87.5, 87.5, False),
        ("87.5%", 40.0, True),
        ("87.5%", None, True),
        ("full", 100.0, True),
        ("1e9%", 100.0, True),
        (None, 40.0, False),
    ],
)
def test_coverage_is_what_we_measured(
    tmp_path: Path, said: str | float | None, measured: float | None, is_false: bool
) -> None:
    check = CheckResult(
        name="coverage", outcome=CheckOutcome.PASSED, summary="", coverage_percent=measured
    )
    known = facts(tmp_path, Evidence((check,)))
    assert bool(find_false_claims(claimed(test_coverage=said), known)) is is_false


@pytest.mark.demand("D7.f")
@pytest.mark.parametrize("outcome", [CheckOutcome.FAILED, CheckOutcome.NOT_REQUESTED, None])
def test_a_linter_that_did_not_pass_is_not_passed_by_a_claim(
    tmp_path: Path, outcome: CheckOutcome | None
) -> None:
    checks = (
        ()
        if outcome is None
        else (CheckResult(name="lint", outcome=outcome, summary="", remedy="Mend it."),)
    )
    assert find_false_claims(claimed(lint_status="passed"), facts(tmp_path, Evidence(checks)))


@pytest.mark.demand("D7.e", "D7.f")
def test_the_clock_decides_how_long_it_took(tmp_path: Path) -> None:
    assert find_false_claims(claimed(duration_s=1847), facts(tmp_path)) == [
        FalseClaim("took 1847 s", "the measured time is 100 s")
    ]


def test_claims_are_shown_on_one_harmless_line(tmp_path: Path) -> None:
    found = find_false_claims(claimed(files_created=("a\x1b]0;x\x07\nb" * 1000,)), facts(tmp_path))
    assert "\x1b" not in found[0].claim
    assert "\n" not in found[0].claim
    assert len(found[0].claim) < 300
