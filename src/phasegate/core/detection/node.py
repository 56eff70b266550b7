"""How a JavaScript or TypeScript project is set up and checked.

Its package manager, its scripts by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from phasegate.core.detection.files import ProjectFiles, get_nested
from phasegate.core.detection.model import (
    DetectedProject,
    FoundCommand,
    MachineInfo,
    SetupCandidate,
)

_NO_TEST_TEXT = "no test specified"
_TEST_SCRIPTS = (
    "test",
    "unit",
    "test:unit",
    "test-unit",
    "test:node",
    "tests-only",
    "test:ci",
    "spec",
    "tests",
)
_LINT_SCRIPTS = ("lint:check", "lint:ci", "lint", "test:lint", "check:lint", "lint:js", "eslint")
_TYPE_SCRIPTS = (
    *(
        "typecheck",
        "type-check",
        "check-types",
        "types:check",
        "test:types",
        "tsc",
        "lint:tsc",
        "check:types",
    ),
    "types",
)
_WRITE_OPTIONS = re.compile(r"(?:^|\s)--(?:fix|write)\b")
_LINTERS = ("eslint", "xo", "biome", "standard", "oxlint")
_TEST_RUNNERS = (
    "vitest",
    "jest",
    "mocha",
    "ava",
    "tap",
    "tape",
    "uvu",
    "borp",
    "jasmine",
    "qunit",
    "tsd",
)
_IGNORE_SCRIPTS_OPTION = "--ignore-scripts"


# A version of a linter that was withdrawn, or that never reached a mirror, must not stop the tests.
# What npm cannot find is taken out of the devDependencies and the rest is tried again; the file
# itself is put back in any case.
_INSTALL_AVAILABLE_SCRIPT = """\
cp package.json .package.json.whole; last=; done=1
while :; do
  npm install --no-audit --no-fund --no-package-lock --legacy-peer-deps --ignore-scripts 2>.npm-said && done=0 && break
  cat .npm-said >&2
  gone=$(sed -n "s/.*No matching version found for \\(.*\\)@[^@]*/\\1/p; s/.*404 *'\\(.*\\)@[^@']*' is not.*/\\1/p" .npm-said | head -n 1)
  [ "$gone" ] && [ "$gone" != "$last" ] && npm pkg delete "devDependencies[$gone]" || break
  last=$gone; echo "not installed: $gone, which cannot be had"
done
mv .package.json.whole package.json; rm -f .npm-said; exit $done"""


class _PackageManager(NamedTuple):
    """A package manager: why it is the one, how it installs by the lock and without, how it runs a
    script.
    """

    name: str
    why: str
    locked_install: str
    unlocked_install: str
    # What npm installs to have it
    npm_package: str

    def build_bootstrap_command(self, machine: MachineInfo) -> str:
        """What gets the manager where it is not on the PATH.

        Into the checkout, where the commands after it look.
        """
        if self.name == "npm" or machine.has_program(self.name):
            return ""

        name, _, version = self.npm_package.rpartition("@")
        # The same major version will do
        wanted = dict.fromkeys((self.npm_package, f"{name}@{version.partition('.')[0]}"))
        tries = " || ".join(
            f"npm install -g --no-audit --no-fund --prefix .phasegate-tools {one}" for one in wanted
        )

        return f'({tries}) && export PATH="$PWD/.phasegate-tools/bin:$PATH" && '


def detect_node(files: ProjectFiles, machine: MachineInfo) -> DetectedProject | None:
    """What is known about a project with a package.json; None if there is none."""
    if not files.find_first("package.json"):
        return None

    about = files.load_json("package.json")
    scripts = {
        name: line
        for name, line in _get_table_items(about.get("scripts"))
        if isinstance(line, str) and line.strip()
    }
    manager = _detect_manager(files, about)
    commands = dict(_find_commands(files, about, scripts, manager.name))
    name = about.get("name")
    notes = (
        (f"{manager.name} is not on the PATH: {manager.npm_package} is installed aside",)
        if manager.build_bootstrap_command(machine)
        else ()
    )

    return DetectedProject(
        profile="typescript",
        name=name if isinstance(name, str) else "",
        setups=tuple(_propose_setups(about, manager, machine, scripts)),
        commands=commands,
        notes=notes,
    )


def _get_table_items(table: object) -> list[tuple[str, object]]:
    if isinstance(table, dict):
        return [*table.items()]
    return []


def _detect_manager(files: ProjectFiles, manifest: Mapping[str, object]) -> _PackageManager:
    """`packageManager` decides, then the lock file, then npm."""
    named = manifest.get("packageManager")
    if isinstance(named, str):
        pinned = named.partition("@")[0]
    else:
        pinned = ""

    locks = {
        "pnpm": "pnpm-lock.yaml",
        "yarn": "yarn.lock",
        "bun": files.find_first("bun.lock", "bun.lockb"),
        "npm": files.find_first("package-lock.json", "npm-shrinkwrap.json"),
    }

    there = [name for name, lock in locks.items() if lock and files.find_first(lock)]
    if pinned in locks:
        name = pinned
    else:
        name = there[0] if there else "npm"

    if pinned in locks:
        why = f"packageManager {str(named).partition('+')[0]}"
    else:
        why = locks[name] or "package.json, without a lock file"

    has_lock = name in there and "package-lock=false" not in files.get_text(".npmrc").replace(
        " ", ""
    )
    return _make_manager(name, why, has_lock, files, str(named) if pinned == name else "")


def _make_manager(
    name: str, why: str, has_lock: bool, files: ProjectFiles, package_manager_field: str
) -> _PackageManager:
    is_berry = "__metadata" in files.get_text("yarn.lock") or bool(files.find_first(".yarnrc.yml"))
    frozen = {
        "npm": "npm ci --no-audit --no-fund",
        "pnpm": "pnpm install --frozen-lockfile",
        "yarn": "yarn install --immutable" if is_berry else "yarn install --frozen-lockfile",
        "bun": "bun install --frozen-lockfile",
    }[name]

    loose = {
        "npm": "npm install --no-audit --no-fund --no-package-lock",
        "pnpm": "pnpm install --no-frozen-lockfile",
        "yarn": "yarn install --no-immutable" if is_berry else "yarn install --no-lockfile",
        "bun": "bun install",
    }[name]
    return _PackageManager(
        name=name,
        why=why,
        locked_install=frozen if has_lock else "",
        unlocked_install=loose,
        npm_package=_find_manager_package(name, package_manager_field, files, is_berry),
    )


# The version of pnpm that writes a lock of this version.
_PNPM_BY_LOCK_VERSION = {"5": "7", "6": "8", "9": "10"}


def _find_manager_package(
    name: str, package_manager_field: str, files: ProjectFiles, is_berry: bool
) -> str:
    """The package of npm's registry that has the manager, in the version that the project names or
    its lock tells.
    """
    version = package_manager_field.partition("@")[2].partition("+")[0]
    if name == "yarn" and (is_berry or (version and not version.startswith("1."))):
        return f"@yarnpkg/cli-dist@{version or '4'}"
    if name == "yarn":
        return f"yarn@{version or '1'}"

    if name == "pnpm" and not version:
        lock = re.search(r"^lockfileVersion:\s*['\"]?(\d+)", files.get_text("pnpm-lock.yaml"), re.M)
        if lock:
            version = _PNPM_BY_LOCK_VERSION.get(lock[1], "")
        else:
            version = ""

    return f"{name}@{version or 'latest'}"


def _propose_setups(
    manifest: Mapping[str, object],
    manager: _PackageManager,
    machine: MachineInfo,
    scripts: Mapping[str, str],
) -> Iterator[SetupCandidate]:
    """By the lock, then with scripts of packages, then without the lock, then by npm."""
    if not any(
        _get_table_items(manifest.get(key))
        for key in ("dependencies", "devDependencies", "optionalDependencies", "workspaces")
    ) and not manifest.get("workspaces"):
        yield SetupCandidate("", "package.json names no dependencies")
        return

    if manager.name == "yarn" and "--immutable" in manager.locked_install:
        quiet = ""
    else:
        quiet = f" {_IGNORE_SCRIPTS_OPTION}"

    builds = _build_prepare_step(scripts, manager.name)
    aside = manager.build_bootstrap_command(machine)

    if manager.locked_install:
        yield SetupCandidate(f"{aside}{manager.locked_install}{quiet}{builds}", manager.why)
        yield SetupCandidate(
            f"{aside}{manager.locked_install}{builds}",
            f"{manager.why}, with the packages' own install scripts",
        )

    if not manager.locked_install:
        reason = manager.why
    else:
        reason = f"{manager.why} could not be used: versions are not those of the lock"

    yield SetupCandidate(f"{aside}{manager.unlocked_install}{quiet}{builds}", reason)
    if manager.name != "npm":
        test = _find_test_command(manifest, scripts, "npm")
    else:
        test = None

    if _get_table_items(manifest.get("devDependencies")):
        why = "npm, without those devDependencies that cannot be had"
        yield SetupCandidate(_INSTALL_AVAILABLE_SCRIPT, why, test.command if test else "")


def _build_prepare_step(scripts: Mapping[str, str], manager: str) -> str:
    """`prepare` of the project itself builds what its tests may import.

    One that only installs git hooks does not.
    """
    prepare = scripts.get("prepare", "")
    if not prepare or re.search(r"husky|lefthook|simple-git-hooks|pre-commit|lint-staged", prepare):
        return ""
    return f" && ({manager} run prepare || echo 'prepare failed')"


def _find_commands(
    files: ProjectFiles, manifest: Mapping[str, object], scripts: Mapping[str, str], manager: str
) -> Iterator[tuple[str, FoundCommand]]:
    if "build" in scripts:
        yield "build", FoundCommand(f"{manager} run build", "script `build`")

    test = _find_test_command(manifest, scripts, manager)
    if test:
        yield "test", test
    if lint := _find_lint_command(scripts, manager):
        yield "lint", lint
    if types := _find_typecheck_command(files, manifest, scripts, manager):
        yield "typecheck", types

    if "coverage" in scripts:
        yield "coverage", FoundCommand(f"{manager} run coverage", "script `coverage`")
    elif "test" in scripts and re.search(r"\b(?:jest|vitest)\b", scripts["test"]):
        yield "coverage", FoundCommand(f"{manager} run test -- --coverage", "script `test`")


def _find_test_command(
    manifest: Mapping[str, object], scripts: Mapping[str, str], manager: str
) -> FoundCommand | None:
    """The test part of the scripts: what `test` runs beside (linters, types, sizes) is not a test."""
    for name in _TEST_SCRIPTS:
        line = scripts.get(name, "")
        if not line or _NO_TEST_TEXT in line:
            continue

        parts = _expand_script(name, scripts)
        tests = [part for part in parts if part.is_test]
        if not tests or len(tests) == len(parts):
            return FoundCommand(f"{manager} run {name}", f"script `{name}`")

        joined = " && ".join(part.command for part in parts if part.is_test or part.is_build)
        return FoundCommand(
            f"{_get_exec_prefix(manager)} {_quote_line(joined)}"
            if manager in ("npm", "pnpm")
            else joined,
            f"the tests of script `{name}`: `{line}`",
        )

    runner = next((name for name in _TEST_RUNNERS if name in _list_dependencies(manifest)), "")
    if runner:
        return FoundCommand(
            f"{_get_exec_prefix(manager)} {runner}{' run' if runner == 'vitest' else ''}",
            f"{runner} is declared",
        )

    return None


def _get_exec_prefix(manager: str) -> str:
    return {"npm": "npm exec -c", "pnpm": "pnpm exec sh -c"}.get(manager, f"{manager} run")


def _quote_line(line: str) -> str:
    return "'" + line.replace("'", "'\"'\"'") + "'"


class _ScriptCommand(NamedTuple):
    """One command of a script."""

    command: str
    is_test: bool
    is_build: bool


_RUN_SCRIPT = re.compile(
    r"^(?:npm|pnpm|yarn|bun)(?:\s+-\S+)*\s+(?:run(?:-script)?\s+)?([\w:.-]+)(?:\s+--)?\s*$"
)
_WRAPPERS = re.compile(
    r"^(?:[A-Z_][A-Z0-9_]*=\S*\s+|cross-env\s+|c8\s+(?:--?\S+\s+)*|nyc\s+(?:--?\S+\s+)*|npx\s+|dotenv\s+--\s+)+"
)


# Coverage is no test, and its threshold would fail one.
_COVERAGE_WRAPPERS = re.compile(r"^(?:c8|nyc)\s+(?:--?\S+\s+)*")


def _expand_script(name: str, scripts: Mapping[str, str], depth: int = 0) -> list[_ScriptCommand]:
    """The commands that a script comes to, with `pre` and `post` and the scripts that it calls."""
    found: list[_ScriptCommand] = []

    for key in (f"pre{name}", name, f"post{name}"):
        for part in re.split(r"&&|;", scripts.get(key, "")):
            line = _COVERAGE_WRAPPERS.sub("", part.strip())
            called = _RUN_SCRIPT.match(line)
            if called and called[1] in scripts and called[1] != name and depth < 5:
                found += _expand_script(called[1], scripts, depth + 1)
            elif line:
                found.append(_classify_command(line))

    return found


def _classify_command(line: str) -> _ScriptCommand:
    """What a command is by its first word: `rimraf mocha.js` runs no test."""
    first = _WRAPPERS.sub("", line).split(" ")[0].rpartition("/")[2]
    is_test = (first in _TEST_RUNNERS and first != "tsd") or bool(
        re.match(
            r"(?:\S+\s+)*?(?:node|tsx|bun)\s+(?:\S+\s+)*(?:--test\b|test\b|\S*test\S*\.[cm]?[jt]s)",
            line,
        )
    )
    return _ScriptCommand(
        line,
        is_test,
        first in ("tsc", "rollup", "tsup", "esbuild", "babel", "unbuild", "vite", "tshy")
        and "noEmit" not in line,
    )


def _find_lint_command(scripts: Mapping[str, str], manager: str) -> FoundCommand | None:
    """A script that lints without writing; one that writes is run without that."""
    name = next((name for name in _LINT_SCRIPTS if name in scripts), "")
    if name and not _WRITE_OPTIONS.search(scripts[name]):
        return FoundCommand(f"{manager} run {name}", f"script `{name}`")

    if name and manager in ("npm", "pnpm"):
        line = _WRITE_OPTIONS.sub("", scripts[name])
        return FoundCommand(
            f"{_get_exec_prefix(manager)} {_quote_line(line)}", f"script `{name}`, without writing"
        )

    test = next(
        (
            part
            for part in re.split(r"&&", scripts.get("test", ""))
            if part.split() and part.split()[0] in _LINTERS
        ),
        "",
    )

    if test and manager in ("npm", "pnpm") and not _WRITE_OPTIONS.search(test):
        return FoundCommand(
            f"{_get_exec_prefix(manager)} {_quote_line(test.strip())}",
            "the linter of script `test`",
        )

    return None


def _find_typecheck_command(
    files: ProjectFiles, manifest: Mapping[str, object], scripts: Mapping[str, str], manager: str
) -> FoundCommand | None:
    name = next((name for name in _TYPE_SCRIPTS if name in scripts), "")
    if name:
        return FoundCommand(f"{manager} run {name}", f"script `{name}`")
    if files.find_first("tsconfig.json") and "typescript" in _list_dependencies(manifest):
        return FoundCommand("node_modules/.bin/tsc --noEmit", "tsconfig.json")
    return None


def _list_dependencies(manifest: Mapping[str, object]) -> set[str]:
    return {
        name
        for key in ("dependencies", "devDependencies", "peerDependencies")
        for name, _ in _get_table_items(get_nested(manifest, key))
    }
