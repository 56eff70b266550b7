"""Only what is listed may change, exactly as it is spelt (D6)."""

from __future__ import annotations

import unicodedata

import pytest

from phasegate.core.paths.scope import (
    ChangeKind,
    FileChange,
    FileMode,
    Scope,
    ScopeRule,
    find_link_problem,
    find_violations,
    list_changed_lock_files,
)
from phasegate.core.paths.steering_files import PROTECTED_PATTERNS

SCOPE = Scope(
    ["src/login.py", "docs/**", "app/[id]/page.tsx", "assets/"], executable=["src/login.py"]
)


def _rules(
    *changes: FileChange, scope: Scope = SCOPE, tracked: tuple[str, ...] = ()
) -> list[ScopeRule]:
    return [violation.rule for violation in find_violations(changes, scope, tracked)]


def _added(path: str, **fields: str) -> FileChange:
    return FileChange(ChangeKind.ADDED, path, **fields)  # type: ignore[arg-type]


@pytest.mark.demand("D6.a")
@pytest.mark.parametrize(
    "path",
    [
        "src/other.py",
        "login.py",
        "other/src/login.py",
        "docs",
        "assets",
        "src/login.pyc",
        "src/login.py2",
        "app/id/page.tsx",
    ],
)
@pytest.mark.parametrize("kind", [ChangeKind.ADDED, ChangeKind.MODIFIED, ChangeKind.DELETED])
def test_a_file_that_is_not_listed_may_not_change(path: str, kind: ChangeKind) -> None:
    scope = Scope([*SCOPE.entries], litter=())
    assert _rules(FileChange(kind, path), scope=scope) == [ScopeRule.OUT_OF_SCOPE]


@pytest.mark.demand("D6.a")
@pytest.mark.parametrize(
    "path", ["src/login.py", "docs/a/b.md", "app/[id]/page.tsx", "assets/logo.png"]
)
@pytest.mark.parametrize("kind", [ChangeKind.ADDED, ChangeKind.MODIFIED, ChangeKind.DELETED])
def test_a_listed_file_may_change(path: str, kind: ChangeKind) -> None:
    assert _rules(FileChange(kind, path)) == []


def test_a_plain_name_is_the_file_at_the_root_and_no_other() -> None:
    scope = Scope(["conftest.py"])
    assert _rules(_added("conftest.py"), scope=scope) == []
    assert _rules(_added("tests/conftest.py"), scope=scope) == [ScopeRule.OUT_OF_SCOPE]


@pytest.mark.demand("D6.a")
@pytest.mark.parametrize(
    "twin",
    [
        "SRC/login.py",
        "src/LOGIN.py",
        "Src/Login.py",
        unicodedata.normalize("NFD", "docs2/café.md"),
        "Docs2/café.md",
    ],
)
def test_case_and_unicode_twins_of_a_listed_path_are_not_that_path(twin: str) -> None:
    scope = Scope(["src/login.py", unicodedata.normalize("NFC", "docs2/café.md")])
    assert _rules(_added(twin), scope=scope) == [ScopeRule.NAME_COLLISION]


def test_a_twin_is_refused_even_where_a_pattern_would_cover_it() -> None:
    scope = Scope(["src/**", "src/Login.tsx"])
    assert not scope.covers("src/login.tsx")
    assert scope.covers("src/Login.tsx")
    assert scope.covers("src/other.tsx")


def test_two_listed_spellings_are_both_listed() -> None:
    scope = Scope(["README.md", "readme.md"])
    assert scope.covers("README.md")
    assert scope.covers("readme.md")
    assert not scope.covers("ReadMe.md")


def test_an_added_twin_of_a_tracked_or_added_file_is_refused() -> None:
    scope = Scope(["src/**"])
    assert _rules(_added("src/Login.py"), scope=scope, tracked=("src/login.py", "x")) == [
        ScopeRule.NAME_COLLISION
    ]
    assert _rules(_added("src/A.py"), _added("src/a.py"), scope=scope) == [
        ScopeRule.NAME_COLLISION,
        ScopeRule.NAME_COLLISION,
    ]


def test_renaming_a_file_to_its_twin_is_a_rename_and_no_twin() -> None:
    change = FileChange(ChangeKind.RENAMED, "src/Login.py", old_path="src/login.py")
    assert _rules(change, scope=Scope(["src/**"]), tracked=("src/login.py",)) == []


@pytest.mark.demand("D6.c")
@pytest.mark.parametrize(
    ("old", "new"),
    [("src/login.py", "src/other.py"), ("src/other.py", "src/login.py"), ("x.py", "y.py")],
)
def test_a_rename_over_the_boundary_names_both_paths(old: str, new: str) -> None:
    (violation,) = find_violations([FileChange(ChangeKind.RENAMED, new, old_path=old)], SCOPE)
    assert violation.rule is ScopeRule.OUT_OF_SCOPE
    assert (violation.path, violation.old_path) == (new, old)
    assert old in violation.detail
    assert new in violation.detail


def test_a_rename_into_litter_is_still_the_loss_of_a_file() -> None:
    assert _rules(FileChange(ChangeKind.RENAMED, "target/x.py", old_path="src/x.py")) == [
        ScopeRule.OUT_OF_SCOPE
    ]
    assert _rules(FileChange(ChangeKind.RENAMED, "target/x.py", old_path="src/login.py")) == []


@pytest.mark.demand("D6.d")
@pytest.mark.parametrize("mode", ["104755", "100600", "100777", "040000", "", "120001"])
def test_a_mode_that_is_not_known_is_refused(mode: str) -> None:
    assert _rules(_added("src/login.py", mode=mode)) == [ScopeRule.MODE]


@pytest.mark.demand("D6.d")
def test_a_file_becomes_executable_only_if_that_was_declared() -> None:
    assert _rules(_added("src/login.py", mode="100755")) == []
    assert _rules(_added("docs/run.sh", mode="100755")) == [ScopeRule.MODE]
    was_plain = FileChange(ChangeKind.MODIFIED, "docs/run.sh", mode="100755", old_mode="100644")
    was_executable = FileChange(
        ChangeKind.MODIFIED, "docs/run.sh", mode="100755", old_mode="100755"
    )
    loses_it = FileChange(ChangeKind.MODIFIED, "docs/run.sh", mode="100644", old_mode="100755")
    assert _rules(was_plain) == [ScopeRule.MODE]
    assert _rules(was_executable) == []
    assert _rules(loses_it) == []


@pytest.mark.demand("D6.d")
@pytest.mark.parametrize(
    "target",
    [
        "/etc/passwd",
        "../../x",
        "../../../x",
        "a/../../../x",
        "../.git/config",
        "x/../y",
        "",
        "C:\\x",
        "a\nb",
        "~/x",
        "/",
    ],
)
def test_a_link_that_may_lead_out_of_the_tree_is_refused(target: str) -> None:
    assert _rules(_added("docs/link", mode=FileMode.SYMLINK.value, link_target=target)) == [
        ScopeRule.SYMLINK
    ]


def test_a_link_with_an_unknown_target_is_refused() -> None:
    assert _rules(_added("docs/link", mode=FileMode.SYMLINK.value)) == [ScopeRule.SYMLINK]


@pytest.mark.parametrize("target", ["a.md", "./a.md", "deep/a.md", "../src/login.py", "..", "sub/"])
def test_a_link_that_stays_in_the_tree_is_allowed(target: str) -> None:
    assert find_link_problem("docs/link", target) is None
    assert _rules(_added("docs/link", mode=FileMode.SYMLINK.value, link_target=target)) == []


@pytest.mark.demand("D6.d")
@pytest.mark.parametrize(
    "change",
    [
        _added("docs/lib", mode=FileMode.SUBMODULE.value),
        FileChange(
            ChangeKind.MODIFIED,
            "docs/lib",
            mode=FileMode.SUBMODULE.value,
            old_mode=FileMode.SUBMODULE.value,
        ),
        FileChange(ChangeKind.MODIFIED, "docs/lib", old_mode=FileMode.SUBMODULE.value),
        FileChange(ChangeKind.DELETED, "docs/lib", mode="", old_mode=FileMode.SUBMODULE.value),
    ],
)
def test_submodules_are_always_refused(change: FileChange) -> None:
    assert _rules(change) == [ScopeRule.SUBMODULE]


def test_the_list_of_submodules_may_not_change_even_if_all_may() -> None:
    assert _rules(_added(".gitmodules"), scope=Scope(["**"])) == [ScopeRule.SUBMODULE]


@pytest.mark.demand("D6.e")
def test_changes_outside_the_worktree_and_to_the_git_directory_are_refused_whatever_the_scope() -> (
    None
):
    everything = Scope(["**"])
    outside = FileChange(ChangeKind.OUTSIDE, "/etc/passwd")
    inside = FileChange(ChangeKind.GIT_DIRECTORY, ".git/config")
    assert _rules(outside, scope=everything) == [ScopeRule.OUTSIDE_WORKTREE]
    assert _rules(inside, scope=everything) == [ScopeRule.GIT_DIRECTORY]


@pytest.mark.parametrize(
    "path", ["sub/.git/config", ".GIT/x", "a/.git./x", "a/git~1/x", ".git::$INDEX_ALLOCATION/x"]
)
def test_a_git_directory_is_known_in_every_spelling(path: str) -> None:
    assert _rules(_added(path), scope=Scope(["**"])) == [ScopeRule.GIT_DIRECTORY]


@pytest.mark.parametrize(
    "part", ["a/HEAD", "a/commondir", "a/objects/x", "a/refs/deep/x", "a/objects"]
)
def test_a_part_of_a_repository_beside_a_head_is_refused(part: str) -> None:
    found = find_violations(
        [FileChange(ChangeKind.ADDED, part)],
        Scope(["**"]),
        ["a/HEAD" if part != "a/HEAD" else "README.md"],
    )
    assert [(one.path, one.rule) for one in found] == [(part, ScopeRule.GIT_DIRECTORY)]


@pytest.mark.demand("D6.a")
@pytest.mark.parametrize("entries", [["**"], ["*.toml"], ["/phasegate.*"]])
def test_no_pattern_lets_an_agent_change_how_it_is_held(entries: list[str]) -> None:
    change = FileChange(ChangeKind.MODIFIED, "phasegate.toml")
    assert (
        find_violations([change], Scope(entries)) == []
    )  # the control: a scope that protects nothing
    guarded = Scope([*entries, "phasegate.toml"], protected=PROTECTED_PATTERNS)
    assert [one.rule for one in find_violations([change], guarded)] == [ScopeRule.PROTECTED]
    assert (
        find_violations(
            [change], Scope(entries, exceptions=["phasegate.toml"], protected=PROTECTED_PATTERNS)
        )
        == []
    )
    assert (
        find_violations(
            [FileChange(ChangeKind.ADDED, "demo/phasegate.toml")],
            Scope(["**"], protected=PROTECTED_PATTERNS),
        )
        == []
    )


@pytest.mark.demand("X5.a")
@pytest.mark.parametrize(
    "path",
    [
        *(
            "phasegate.toml",
            "PhaseGate.toml",
            "templates/system/BASE-plan.md",
            "agentd/project.md",
            "AGENTS.md",
        ),
        *(
            "docs/CLAUDE.md",
            ".claude/settings.json",
            "sub/.codex/config.toml",
            ".cursor/rules/x.mdc",
            ".mcp.json",
        ),
        *(
            ".github/workflows/ci.yml",
            ".gitlab-ci.yml",
            ".gitattributes",
            "src/.gitattributes",
            ".gitmodules",
        ),
        *(
            ".pre-commit-config.yaml",
            ".husky/pre-commit",
            ".envrc",
            ".vscode/tasks.json",
            "tools/Jenkinsfile",
        ),
    ],
)
def test_what_steers_us_needs_a_person_even_where_the_plan_names_it(path: str) -> None:
    change = FileChange(ChangeKind.MODIFIED, path)
    rules = [
        one.rule
        for one in find_violations([change], Scope([path, "**"], protected=PROTECTED_PATTERNS))
    ]
    assert ScopeRule.PROTECTED in rules
    assert ScopeRule.PROTECTED not in [
        one.rule for one in find_violations([change], Scope([path, "**"]))
    ]


@pytest.mark.parametrize(
    "path", ["src/agents.py", "docs/claude-code.md", ".github/README.md", "src/phasegate.toml.py"]
)
def test_what_only_looks_like_it_is_not_protected(path: str) -> None:
    assert (
        find_violations(
            [FileChange(ChangeKind.MODIFIED, path)], Scope(["**"], protected=PROTECTED_PATTERNS)
        )
        == []
    )


@pytest.mark.parametrize(
    "path", ["a/objects/x", "head/x.ts", "src/head/refs/x", "HEAD", "objects/x", "b/HEAD/x"]
)
def test_a_name_that_a_repository_has_too_makes_none(path: str) -> None:
    assert (
        find_violations(
            [FileChange(ChangeKind.ADDED, path)],
            Scope(["**"]),
            ["README.md", "head/a.ts", "refs/HEAD/a"],
        )
        == []
    )


@pytest.mark.demand("D6.a", "D6.l")
@pytest.mark.parametrize(
    "path",
    ["package-lock.json", "web/yarn.lock", "Cargo.lock", "go.sum", "uv.lock", "Gemfile.lock"],
)
def test_lock_files_may_change_and_are_shown(path: str) -> None:
    changes = [_added(path), _added("docs/x.md")]
    assert find_violations(changes, SCOPE) == []
    assert list_changed_lock_files(changes, SCOPE) == [path]


def test_the_lock_file_exception_is_for_plain_files() -> None:
    assert _rules(_added("Cargo.lock", mode="100755")) == [ScopeRule.MODE]
    assert _rules(_added("Cargo.lock", mode=FileMode.SYMLINK.value, link_target="/etc/passwd")) == [
        ScopeRule.SYMLINK
    ]
    assert _rules(_added("cargo.lock")) == [ScopeRule.OUT_OF_SCOPE]


@pytest.mark.demand("D6.k")
@pytest.mark.parametrize(
    "path",
    ["src/__pycache__/x.pyc", "node_modules/a/b.js", ".pytest_cache/v", "target/debug/x", "a.pyc"],
)
def test_tool_litter_is_no_violation(path: str) -> None:
    assert _rules(_added(path, mode="100755")) == []
    assert SCOPE.is_litter(path)


@pytest.mark.demand("D6.k")
def test_the_list_of_litter_can_be_set() -> None:
    scope = Scope(["src/a.py"], litter=["out/"])
    assert _rules(_added("out/x"), scope=scope) == []
    assert _rules(_added("target/x"), scope=scope) == [ScopeRule.OUT_OF_SCOPE]


@pytest.mark.demand("D6.k")
def test_a_file_that_is_listed_by_name_is_no_litter() -> None:
    scope = Scope(["src/target/mod.rs", "lib/**"])
    assert not scope.is_litter("src/target/mod.rs")
    assert scope.is_litter("src/target/other.rs")
    assert scope.is_litter("lib/target/mod.rs")
    assert _rules(_added("src/target/mod.rs", mode="100755"), scope=scope) == [ScopeRule.MODE]


@pytest.mark.demand("D6.i")
def test_a_recorded_exception_widens_the_scope_by_that_path_alone() -> None:
    scope = Scope(["src/a.py"], exceptions=["src/services/auth.py"])
    assert _rules(_added("src/services/auth.py"), scope=scope) == []
    assert _rules(_added("src/services/other.py"), scope=scope) == [ScopeRule.OUT_OF_SCOPE]


@pytest.mark.demand("D1.c")
def test_the_document_in_the_checkout_is_set_aside() -> None:
    assert _rules(_added("WP01.md"), scope=Scope(["src/a.py"], set_aside=["WP01.md"])) == []
    assert _rules(_added("WP02.md"), scope=Scope(["src/a.py"], set_aside=["WP01.md"])) == [
        ScopeRule.OUT_OF_SCOPE
    ]


def test_all_violations_are_reported_in_order() -> None:
    changes = [
        _added("z.py"),
        _added("a.py"),
        FileChange(ChangeKind.OUTSIDE, "/x"),
        _added("docs/run", mode="100755"),
    ]
    assert [violation.path for violation in find_violations(changes, SCOPE)] == [
        "/x",
        "a.py",
        "docs/run",
        "z.py",
    ]
