"""Which dependencies a change adds, and which changes the rules of a package forbid."""

from __future__ import annotations

import pytest

from phasegate.core.detection.dependency_rules import (
    ChangedFile,
    find_rule_violations,
    list_dependencies,
)
from phasegate.core.plan.work_package import WorkPackage

MANIFESTS = {
    "package.json": ('{"name": "x"}', '{"devDependencies": {"Left-Pad": "1"}}', "left-pad"),
    "web/package.json": ("", '{"dependencies": {"@org/Pad": "1"}}', "@org/pad"),
    "pyproject.toml": (
        '[project]\ndependencies = ["a>=1"]\n',
        '[project]\ndependencies = ["a>=1"]\n[dependency-groups]\ndev = ["Left_Pad[x]~=2"]\n',
        "left-pad",
    ),
    "sub/pyproject.toml": ("", "[tool.poetry.dependencies]\npython = '3'\nleft-pad = '1'\n", "left-pad"),
    "requirements-dev.txt": ("# none\n", "-r base.txt\nleft_pad==1 # why\n", "left-pad"),
    "setup.py": ("", "setup(install_requires=['left-pad>=1'])\n", "left-pad"),
    "setup.cfg": ("", "[options]\ninstall_requires =\n    left-pad\n", "left-pad"),
    "Pipfile": ("", "[packages]\nleft-pad = '*'\n", "left-pad"),
    "Cargo.toml": ("", '[target."cfg(unix)".dev-dependencies]\nleft-pad = "1"\n', "left-pad"),
    "go.mod": ("module x\n", "module x\nrequire (\n\texample.org/left/pad v1.0.0\n)\n", "example.org/left/pad"),
    "pom.xml": ("", "<dependency><groupId>g</groupId><artifactId>left-pad</artifactId></dependency>", "left-pad"),
    "build.gradle": ("", "implementation 'g:left-pad:1'\n", "left-pad"),
    "gradle/libs.versions.toml": ("", '[libraries]\npad = { module = "g:left-pad", version = "1" }\n', "left-pad"),
    "app/libs.versions.toml": ("", '[libraries]\npad = "g:left-pad:1"\n', "left-pad"),
    "Gemfile": ("source 'x'\n", "group :test do\n  gem 'left-pad', '~> 1'\nend\n", "left-pad"),
    "Gemfile.lock": ("", "GEM\n  specs:\n    left-pad (1.0)\n      deep (>= 1)\n", "left-pad"),
    "requirements.txt": ("", "-e git+https://example.org/x#egg=left-pad\n", "left-pad"),
    "Cargo.lock": ("", '[[package]]\nname = "left-pad"\n', "left-pad"),
    "package-lock.json": ("", '{"packages": {\n"node_modules/left-pad": {"version": "1"}}}', "left-pad"),
    "yarn.lock": ("", 'left-pad@^1.0.0:\n  version "1"\n', "left-pad"),
    "pnpm-lock.yaml": ("", "packages:\n  left-pad@1.0.0:\n", "left-pad"),
    "go.sum": ("", "example.org/left/pad v1.0.0 h1:x\n", "example.org/left/pad"),
    "Pipfile.lock": ("", '{\n    "default": {\n        "left-pad": {\n', "left-pad"),
}  # fmt: skip


def package(**rules: tuple[str, ...]) -> WorkPackage:
    return WorkPackage(
        work_package_id="WP01", title="x", feature_slug="001-x", file_scope=("src/",), **rules
    )


@pytest.mark.parametrize("path", MANIFESTS)
def test_a_new_dependency_is_a_violation_in_every_ecosystem_unless_it_is_permitted(
    path: str,
) -> None:
    before, after, name = MANIFESTS[path]
    changed = [ChangedFile(path, before, after)]
    assert list_dependencies(path, after)
    found = find_rule_violations(package(), [path], changed)
    assert [one.approval for one in found] == [f"dependency:{name}"]
    assert "Dependency not permitted (governance violation)" in found[0].reason
    assert not find_rule_violations(package(allowed_dependencies=(name,)), [path], changed)
    assert not find_rule_violations(package(), [path], changed, [f"dependency:{name}"])
    assert not find_rule_violations(package(), [path], [ChangedFile(path, after, after)])


def test_rules_are_read_as_people_write_them() -> None:
    rules = package(
        allowed_dependencies=("zod (validation)", "`react`", "requests>=2"),
        forbidden_dependencies=("external auth libs (use auth.ts)",),
    )
    after = '{"dependencies": {"zod": "1", "react": "1", "requests": "1"}}'
    assert not find_rule_violations(
        rules, ["package.json"], [ChangedFile("package.json", "", after)]
    )


def test_what_a_permitted_dependency_needs_may_be_in_the_lock_file_but_nothing_forbidden() -> None:
    manifest = ChangedFile("package.json", "{}", '{"dependencies": {"zod": "1"}}')
    lock = '"node_modules/zod": {\n"node_modules/deep": {\n'
    rules = package(allowed_dependencies=("zod",))
    both = [manifest, ChangedFile("package-lock.json", "", lock)]
    assert not find_rule_violations(rules, [], both)
    stricter = package(allowed_dependencies=("zod",), forbidden_dependencies=("deep",))
    assert [one.approval for one in find_rule_violations(stricter, [], both)] == ["dependency:deep"]
    assert find_rule_violations(rules, [], both[1:])


def test_a_manifest_that_cannot_be_read_is_a_violation() -> None:
    broken = ChangedFile("package.json", "{}", '{"dependencies": ')
    assert "cannot be read" in find_rule_violations(package(), [], [broken])[0].reason


def test_a_frozen_file_may_not_change_and_root_entries_may_but_for_dependencies() -> None:
    rules = package(
        frozen_files=("tsconfig.json", "config/", "package.json root entries"),
        allowed_dependencies=("zod",),
    )
    changed = ["tsconfig.json", "config/a.txt", "src/b.ts"]
    assert [one.approval for one in find_rule_violations(rules, changed, [])] == changed[:2]
    assert not find_rule_violations(rules, changed, [], changed[:2])
    added = ChangedFile("package.json", "{}", '{"dependencies": {"zod": "1"}}')
    assert not find_rule_violations(rules, ["package.json"], [added])
    renamed = ChangedFile("package.json", "{}", '{"name": "other"}')
    assert find_rule_violations(rules, ["package.json"], [renamed])
