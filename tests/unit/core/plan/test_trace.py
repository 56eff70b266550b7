"""Requirements followed to packages, commits and tests; a gap is never closed by something else's evidence."""

from __future__ import annotations

import pytest

from phasegate.core.plan.commits import Commit
from phasegate.core.plan.requirements import Requirement
from phasegate.core.plan.trace import (
    PackageTraceData,
    render_trace,
    summarize_trace,
    trace_requirements,
)
from phasegate.core.plan.work_package import WorkPackage

LOGIN, LOGOUT, LATER = (Requirement(f"FR-AUTH-{n:03}", f"Text {n}", n) for n in (1, 10, 100))


def package(name: str, *requirements: Requirement) -> WorkPackage:
    return WorkPackage(
        work_package_id=name,
        title="t",
        feature_slug="001-a",
        file_scope=("src/",),
        requirements=tuple(requirement.id for requirement in requirements),
    )


def commit(message: str) -> Commit:
    return Commit("a" * 40, message)


@pytest.mark.demand("D15.d")
def test_a_requirement_leads_to_its_package_commits_and_tests() -> None:
    work = PackageTraceData(
        package("WP01", LOGIN), (commit("WP01: log in\n\nmore"),), {"tests/a.py": ""}
    )
    (one,) = trace_requirements([LOGIN], [work])
    assert one.packages == ("WP01",)
    assert [(link.subject, link.package) for link in one.commits] == [("WP01: log in", "WP01")]
    assert [(link.path, link.names_it) for link in one.tests] == [("tests/a.py", False)]
    assert one.missing == ()


@pytest.mark.demand("D15.d")
def test_what_nobody_builds_is_missing_everything() -> None:
    (_, later) = trace_requirements(
        [LOGIN, LATER], [PackageTraceData(package("WP01", LOGIN), (commit("WP01: x"),), {"t": ""})]
    )
    assert later.missing == ("package", "commit", "test")


def test_a_commit_or_test_that_names_ids_counts_for_those_alone() -> None:
    work = PackageTraceData(
        package("WP01", LOGIN, LOGOUT),
        (commit("feat(WP01): in [FR-AUTH-001]"),),
        {"tests/a.py": "# shows FR-AUTH-001\n"},
    )
    login, logout = trace_requirements([LOGIN, LOGOUT], [work])
    assert login.missing == ()
    assert login.tests[0].names_it
    assert login.commits[0].names_it
    assert logout.missing == ("test",)
    assert not logout.commits[0].names_it, "the package's commit, by its package alone"


@pytest.mark.parametrize("text", ["FR-AUTH-0010", "XFR-AUTH-001", "FR-AUTH-001-B", "fr-auth-001"])
def test_an_id_counts_as_a_whole_only(text: str) -> None:
    work = PackageTraceData(package("WP01", LOGIN, LATER), (commit(f"WP01: {text}"),), {})
    login, later = trace_requirements([LOGIN, LATER], [work])
    assert len(login.commits) == len(later.commits) == 1, (
        "nothing is named, so all that the package serves is meant"
    )


def test_longer_ids_are_not_taken_for_shorter_ones() -> None:
    short, long = Requirement("FR-1", "a", 1), Requirement("FR-1-2", "b", 2)
    work = PackageTraceData(package("WP01", short, long), (commit("WP01: FR-1-2"),), {})
    found = trace_requirements([short, long], [work])
    assert [one.commits[0].names_it for one in found] == [False, True]


def test_the_report_ends_with_what_is_missing_in_all() -> None:
    traced = trace_requirements(
        [LOGIN, LATER], [PackageTraceData(package("WP01", LOGIN), (commit("WP01: x"),), {})]
    )
    assert [*render_trace(traced)] == [
        "FR-AUTH-001  Text 1",
        "  packages  WP01",
        "  commits   aaaaaaaaaa WP01: x",
        "  tests     -",
        "  MISSING   test",
        "FR-AUTH-100  Text 100",
        "  packages  -",
        "  commits   -",
        "  tests     -",
        "  MISSING   package, commit, test",
        "2 requirements: 1 without package, 1 without commit, 2 without test",
    ]
    assert summarize_trace(()) == "no requirements"


def test_a_commit_without_ids_counts_only_where_no_other_names_the_requirement() -> None:
    commits = (commit("feat(WP01): in [FR-AUTH-001]"), commit("WP01: Tidy up"))
    work = PackageTraceData(package("WP01", LOGIN, LOGOUT), commits, {})
    login, logout = trace_requirements([LOGIN, LOGOUT], [work])
    assert [link.subject for link in login.commits] == [commits[0].subject]
    assert [link.subject for link in logout.commits] == [commits[1].subject]
