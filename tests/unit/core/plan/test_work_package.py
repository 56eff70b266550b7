"""Work packages: states, order, split, and what makes one invalid (D5, D11)."""

from __future__ import annotations

import pytest

from phasegate.core.plan.dependencies import (
    compute_dependencies,
    compute_waves,
    find_plan_problems,
    find_ready_packages,
    find_scope_overlaps,
)
from phasegate.core.plan.work_package import (
    Deliverables,
    PackageChecks,
    PackageState,
    WorkPackage,
    find_package_problems,
    is_safe_slug,
    split_evenly,
)
from support.packages import LOGIN_FORM, minimal


@pytest.mark.demand("D11.a")
@pytest.mark.parametrize(
    ("count", "parts", "sizes"),
    [
        (6, 2, [3, 3]),
        (5, 2, [3, 2]),
        (7, 3, [3, 2, 2]),
        (2, 4, [1, 1, 0, 0]),
        (0, 2, [0, 0]),
        (3, 1, [3]),
    ],
)
def test_deliverables_are_split_into_near_equal_parts(
    count: int, parts: int, sizes: list[int]
) -> None:
    found = split_evenly(range(count), parts)
    assert [len(part) for part in found] == sizes
    assert [item for part in found for item in part] == list(range(count))


def test_names_of_branch_and_worktree_follow_from_the_package() -> None:
    assert LOGIN_FORM.branch == "feat/001-user-login-WP01"
    assert LOGIN_FORM.worktree == ".worktrees/001-user-login-WP01"
    assert LOGIN_FORM.sequence == 1


def test_the_example_of_the_specification_is_sound() -> None:
    assert list(find_package_problems(LOGIN_FORM)) == []
    assert list(find_package_problems(minimal())) == []


def _messages(package: WorkPackage) -> str:
    return "\n".join(
        f"{problem.key}: {problem.message}" for problem in find_package_problems(package)
    )


@pytest.mark.parametrize(
    "id_",
    ["", "WP", "WP1", "WP00", "WP001", "wp01", "WP01\n", "WP01/..", "WP-1", "WP12345", "WP٠١"],
)
def test_a_package_id_is_wp_and_a_number(id_: str) -> None:
    assert "work_package_id" in _messages(minimal(work_package_id=id_))


@pytest.mark.parametrize("id_", ["WP01", "WP99", "WP100", "WP1000"])
def test_package_ids_go_on_beyond_two_digits(id_: str) -> None:
    assert _messages(minimal(work_package_id=id_)) == ""


@pytest.mark.parametrize(
    "slug",
    [
        "",
        "..",
        ".git",
        "con",
        "001",
        "001-",
        "login",
        "001-a/b",
        "001-a\n",
        "001-A",
        "001-a..b",
        "001--a",
        "001-é",
    ],
)
def test_an_unsafe_slug_is_refused(slug: str) -> None:
    assert not is_safe_slug(slug)
    assert "feature_slug" in _messages(minimal(feature_slug=slug))


@pytest.mark.parametrize(
    "entry",
    [
        "/etc/passwd",
        "../x",
        "src/../../x",
        "src/..",
        "src/./x",
        "./src",
        "a//b",
        "",
        "/",
        "~/x",
        "C:\\x",
        "C:/x",
        "src\\..\\..\\x",
        "a\0b",
        "a\nb",
        ".git/config",
        "sub/.GIT/hooks/**",
        "!src/secret.py",
        "-rf",
        "a`b",
        "x" * 300,
        "src/\u202etxt.py",
    ],
)
def test_a_scope_never_leaves_the_worktree(entry: str) -> None:
    assert "file_scope" in _messages(minimal(file_scope=("src/ok.py", entry)))


@pytest.mark.parametrize(
    "entry",
    [
        "src/**",
        "*.py",
        "src/",
        ".github/workflows/ci.yml",
        "app/[id]/(group)/page.tsx",
        "#x",
        "a b.py",
    ],
)
def test_ordinary_entries_are_sound(entry: str) -> None:
    assert _messages(minimal(file_scope=(entry,))) == ""


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"file_scope": ()}, "file_scope: is missing or empty"),
        ({"dependencies": ("WP01",)}, "dependencies: names the package itself"),
        ({"dependencies": ("WP02", "WP02")}, "dependencies: holds 'WP02' twice"),
        ({"dependencies": ("wp2",)}, "which is not a valid id"),
        ({"requirements": ("FR-1x",)}, "requirements: holds 'FR-1x'"),
        ({"tasks": ("5.1",)}, "tasks: holds '5.1'"),
        (
            {"deliverables": Deliverables(code=("src/two.py",))},
            "deliverables.code: holds 'src/two.py', which is not in the file scope",
        ),
        ({"deliverables": Deliverables(tests=("../x",))}, "deliverables.tests: holds '../x'"),
        (
            {"deliverables": Deliverables(("src/one.py",), ("src/one.py",))},
            "deliverables: holds 'src/one.py' twice",
        ),
        ({"deliverables": Deliverables(("src/*.py",)), "file_scope": ("src/**",)}, "is a pattern"),
        (
            {"deliverables": Deliverables(("target/x",)), "file_scope": ("target/**",)},
            "a tool leftover",
        ),
        ({"executable_files": ("bin/x",)}, "executable_files: holds 'bin/x'"),
        ({"descriptions": {"src/x.py": "?"}}, "descriptions: describes 'src/x.py'"),
        ({"num_agents": 0}, "num_agents"),
        ({"num_agents": 17}, "num_agents"),
        ({"checks": PackageChecks(coverage_min=101)}, "coverage_min"),
        ({"checks": PackageChecks(coverage_min=float("nan"))}, "coverage_min"),
        ({"checks": PackageChecks(test="a\nb")}, "checks.test: must be one line"),
        ({"title": " "}, "title: is missing"),
        ({"title": "a\x1b[2Jb"}, "title: must be one line"),
        ({"title": "a\ud800b"}, "title: must be one line"),
        ({"mission": "a\n\x07"}, "mission"),
        ({"architecture_rules": ("ok", "")}, "architecture_rules"),
        ({"profile": "../x"}, "profile"),
    ],
)
def test_an_unsound_package_says_what_is_wrong(fields: dict[str, object], expected: str) -> None:
    assert expected in _messages(minimal(**fields))


def _package(id_: str, *dependencies: str, scope: tuple[str, ...] = ()) -> WorkPackage:
    return minimal(
        work_package_id=id_, dependencies=dependencies, file_scope=scope or (f"src/{id_}.py",)
    )


@pytest.mark.demand("D5.g")
def test_a_cycle_of_packages_is_named() -> None:
    packages = [_package("WP01", "WP03"), _package("WP02", "WP01"), _package("WP03", "WP02")]
    ((position, problem),) = find_plan_problems(packages)
    assert position == 0
    assert "WP01 -> WP03 -> WP02 -> WP01" in problem.message


def test_all_that_is_wrong_with_a_plan_is_told() -> None:
    other = minimal(work_package_id="WP04", feature_slug="002-two")
    packages = [_package("WP01"), _package("WP01"), _package("WP02", "WP09"), other]
    found = [(position, problem.key) for position, problem in find_plan_problems(packages)]
    assert found == [(1, "work_package_id"), (3, "feature_slug"), (2, "dependencies")]


@pytest.mark.demand("D5.f")
def test_packages_with_overlapping_scope_wait_for_the_one_before() -> None:
    packages = [
        _package("WP01", scope=("src/**",)),
        _package("WP02", scope=("src/a.py",)),
        _package("WP03", scope=("docs/x.md",)),
        _package("WP04", scope=("docs",)),
    ]
    assert compute_dependencies(packages) == {
        "WP01": frozenset(),
        "WP02": {"WP01"},
        "WP03": frozenset(),
        "WP04": {"WP03"},
    }


@pytest.mark.demand("D5.f", "D5.g")
def test_an_overlap_never_makes_a_cycle() -> None:
    packages = [
        _package("WP01", "WP03", scope=("a",)),
        _package("WP02", scope=("a", "b")),
        _package("WP03", scope=("b",)),
    ]
    found = compute_dependencies(packages)
    assert found["WP01"] >= {"WP03"}
    assert sorted(name for wave in compute_waves(found) for name in wave) == [
        "WP01",
        "WP02",
        "WP03",
    ]


def test_overlaps_are_found_between_all_pairs() -> None:
    scopes = {"A": ["src/a.py"], "B": ["**/a.py"], "C": ["lib/x"], "D": ["lib"], "E": ["other/*"]}
    assert find_scope_overlaps(scopes) == {
        ("A", "B"),
        ("B", "C"),
        ("B", "D"),
        ("B", "E"),
        ("C", "D"),
    }


def test_waves_run_side_by_side_and_in_order() -> None:
    found = compute_waves(
        {"WP01": [], "WP02": ["WP01"], "WP03": ["WP01"], "WP10": ["WP02", "WP03"], "WP04": []}
    )
    assert found == [("WP01", "WP04"), ("WP02", "WP03"), ("WP10",)]
    assert compute_waves({"A": ["B"], "B": ["A"], "C": ["stranger"]}) == []


@pytest.mark.demand("D4.h")
def test_a_package_is_ready_when_all_it_waits_for_is_done() -> None:
    waits = {
        "WP01": frozenset[str](),
        "WP02": frozenset(("WP01",)),
        "WP03": frozenset(("WP01", "WP02")),
    }
    planned, done, review = PackageState.PLANNED, PackageState.DONE, PackageState.FOR_REVIEW
    assert find_ready_packages(waits, {"WP01": planned, "WP02": planned, "WP03": planned}) == (
        "WP01",
    )
    assert find_ready_packages(waits, {"WP01": done, "WP02": planned, "WP03": planned}) == ("WP02",)
    assert find_ready_packages(waits, {"WP01": review, "WP02": planned, "WP03": planned}) == ()
    assert find_ready_packages(waits, {"WP01": done, "WP03": planned}) == ()
