"""Detect setup and checks of a JavaScript or TypeScript project: package manager and scripts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from phasegate.core.detection.declared_checks import find_declared_checks
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
    "typecheck",
    "type-check",
    "check-types",
    "types:check",
    "test:types",
    "tsc",
    "lint:tsc",
    "check:types",
    "types",
)
_WRITE_OPTIONS = re.compile(r"(?:^|\s)--(?:fix|write)\b")
_LINTERS = ("eslint", "xo", "biome", "standard", "oxlint", "prettier", "dprint")
_TYPE_CHECKERS = ("tsc", "tsd", "vue-tsc", "svelte-check", "check-dts", "dtslint", "attw", "flow")
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
_MAX_UNASKED = 6
_BUILD_TOOLS = ("tsc", "rollup", "tsup", "esbuild", "babel", "unbuild", "vite", "tshy")
_DEPENDENCY_KEYS = ("dependencies", "devDependencies", "optionalDependencies", "workspaces")


class _ManagerRow(NamedTuple):
    lock_files: tuple[str, ...]
    locked_install: str
    unlocked_install: str
    # Runs a shell line with the installed programs on the PATH
    exec_prefix: str


# In the order in which lock files are looked for
_MANAGERS = {
    "pnpm": _ManagerRow(
        lock_files=("pnpm-lock.yaml",),
        locked_install="pnpm install --frozen-lockfile",
        unlocked_install="pnpm install --no-frozen-lockfile",
        exec_prefix="pnpm exec sh -c",
    ),
    "yarn": _ManagerRow(
        lock_files=("yarn.lock",),
        locked_install="yarn install --frozen-lockfile",
        unlocked_install="yarn install --no-lockfile",
        exec_prefix="yarn run",
    ),
    "bun": _ManagerRow(
        lock_files=("bun.lock", "bun.lockb"),
        locked_install="bun install --frozen-lockfile",
        unlocked_install="bun install",
        exec_prefix="bun run",
    ),
    "npm": _ManagerRow(
        lock_files=("package-lock.json", "npm-shrinkwrap.json"),
        locked_install="npm ci --no-audit --no-fund",
        unlocked_install="npm install --no-audit --no-fund --no-package-lock",
        exec_prefix="npm exec -c",
    ),
}
# Managers whose exec_prefix takes a whole shell line
_SHELL_MANAGERS = ("npm", "pnpm")
# Version 2 and later of yarn
_YARN_BERRY = _MANAGERS["yarn"]._replace(
    locked_install="yarn install --immutable", unlocked_install="yarn install --no-immutable"
)
# The major version of pnpm that writes a lock file of this version
_PNPM_BY_LOCK_VERSION = {"5": "7", "6": "8", "9": "10"}

# A version of a linter that was withdrawn, or that never reached a mirror, must not stop the tests.
# A package that npm cannot find is removed from the devDependencies and the rest is tried again;
# package.json is restored in any case.
_INSTALL_AVAILABLE_SCRIPT = """\
# npm install --ignore-scripts, without the devDependencies that are not available
cp package.json .package.json.whole; last=; done=1
while :; do
  npm install --no-audit --no-fund --no-package-lock --legacy-peer-deps --ignore-scripts \\
    2>.npm-errors && done=0 && break
  cat .npm-errors >&2
  gone=$(sed -n -e "s/.*No matching version found for \\(.*\\)@[^@]*/\\1/p" \\
    -e "s/.*404 *'\\(.*\\)@[^@']*' is not.*/\\1/p" .npm-errors | head -n 1)
  [ "$gone" ] && [ "$gone" != "$last" ] && npm pkg delete "devDependencies[$gone]" || break
  last=$gone; echo "not installed: $gone is not available"
done
mv .package.json.whole package.json; rm -f .npm-errors; exit $done"""


class _PackageManager(NamedTuple):
    """A package manager of a project, with its install commands and the reason for it."""

    name: str
    why: str
    locked_install: str
    unlocked_install: str
    # The npm package that contains it
    npm_package: str

    def build_bootstrap_command(self, machine: MachineInfo) -> str:
        """Return the command that installs the manager if it is not on the PATH.

        It is installed into the checkout, and the commands after it find it there.
        """
        if self.name == "npm" or machine.has_program(self.name):
            return ""

        name, _, version = self.npm_package.rpartition("@")
        # Any version with the same major number is good enough
        wanted = dict.fromkeys((self.npm_package, f"{name}@{version.partition('.')[0]}"))
        tries = " || ".join(
            f"npm install -g --no-audit --no-fund --prefix .phasegate-tools {package}"
            for package in wanted
        )

        return f'({tries}) && export PATH="$PWD/.phasegate-tools/bin:$PATH" && '


def detect_node(files: ProjectFiles, machine: MachineInfo) -> DetectedProject | None:
    """Detect a project with a package.json, or return None if there is none."""
    if not files.find_first("package.json"):
        return None

    manifest = files.load_json("package.json")
    scripts = {
        name: line
        for name, line in _get_table_items(manifest.get("scripts"))
        if isinstance(line, str) and line.strip()
    }
    manager = _detect_manager(files, manifest)
    commands, unasked = _add_declared_checks(
        files, scripts, manager.name, dict(_find_commands(files, manifest, scripts, manager.name))
    )
    name = manifest.get("name")
    notes = []
    if manager.build_bootstrap_command(machine):
        notes.append(
            f"{manager.name} is not on the PATH:"
            f" {manager.npm_package} is installed into .phasegate-tools"
        )
    if unasked:
        notes.append(
            f"not asked for, because Phasegate does not recognize it as a check:"
            f" {', '.join(unasked)}"
        )

    return DetectedProject(
        profile="typescript",
        name=name if isinstance(name, str) else "",
        setups=tuple(_propose_setups(manifest, manager, machine, scripts)),
        commands=commands,
        notes=tuple(notes),
    )


def _get_table_items(table: object) -> list[tuple[str, object]]:
    if isinstance(table, dict):
        return [*table.items()]
    return []


def _detect_manager(files: ProjectFiles, manifest: Mapping[str, object]) -> _PackageManager:
    """Select the manager by `packageManager`, then by lock file, then npm."""
    field = manifest.get("packageManager")
    pinned, _, version = (field if isinstance(field, str) else "").partition("+")[0].partition("@")
    locks = {name: files.find_first(*row.lock_files) for name, row in _MANAGERS.items()}

    if pinned in _MANAGERS:
        name = pinned
        why = f"packageManager {str(field).partition('+')[0]}"
    else:
        name = next((name for name, lock in locks.items() if lock), "npm")
        why = locks[name] or "package.json, without a lock file"
        version = ""

    is_berry = "__metadata" in files.get_text("yarn.lock") or bool(files.find_first(".yarnrc.yml"))
    row = _YARN_BERRY if name == "yarn" and is_berry else _MANAGERS[name]
    uses_lock = locks[name] and "package-lock=false" not in files.get_text(".npmrc").replace(
        " ", ""
    )
    return _PackageManager(
        name=name,
        why=why,
        locked_install=row.locked_install if uses_lock else "",
        unlocked_install=row.unlocked_install,
        npm_package=_find_manager_package(name, version, files, is_berry),
    )


def _find_manager_package(name: str, version: str, files: ProjectFiles, is_berry: bool) -> str:
    """Return the npm package of the manager, with the version that the project or its lock file
    requires.
    """
    if name == "yarn" and (is_berry or (version and not version.startswith("1."))):
        return f"@yarnpkg/cli-dist@{version or '4'}"
    if name == "yarn":
        return f"yarn@{version or '1'}"

    if name == "pnpm" and not version:
        lock = re.search(r"^lockfileVersion:\s*['\"]?(\d+)", files.get_text("pnpm-lock.yaml"), re.M)
        if lock:
            version = _PNPM_BY_LOCK_VERSION.get(lock[1], "")

    return f"{name}@{version or 'latest'}"


def _propose_setups(
    manifest: Mapping[str, object],
    manager: _PackageManager,
    machine: MachineInfo,
    scripts: Mapping[str, str],
) -> Iterator[SetupCandidate]:
    """Try the lock file, then install scripts of packages, then no lock file, then npm."""
    has_dependencies = any(_get_table_items(manifest.get(key)) for key in _DEPENDENCY_KEYS)
    if not has_dependencies and not manifest.get("workspaces"):
        yield SetupCandidate("", "package.json names no dependencies")
        return

    # yarn 2 and later has no such option
    no_scripts = "" if "--immutable" in manager.locked_install else " --ignore-scripts"
    prepare = _build_prepare_step(scripts, manager.name)
    bootstrap = manager.build_bootstrap_command(machine)
    reason = manager.why

    if manager.locked_install:
        locked = f"{bootstrap}{manager.locked_install}"
        yield SetupCandidate(f"{locked}{no_scripts}{prepare}", reason)
        yield SetupCandidate(
            f"{locked}{prepare}", f"{reason}, with the packages' own install scripts"
        )
        reason = f"{reason} could not be used: versions may differ from it"

    yield SetupCandidate(f"{bootstrap}{manager.unlocked_install}{no_scripts}{prepare}", reason)

    if _get_table_items(manifest.get("devDependencies")):
        test = None
        if manager.name != "npm":
            test = _find_test_command(manifest, scripts, "npm")

        why = "npm, without unavailable devDependencies"
        yield SetupCandidate(_INSTALL_AVAILABLE_SCRIPT, why, test.command if test else "")


def _build_prepare_step(scripts: Mapping[str, str], manager: str) -> str:
    """Return the command for the `prepare` script, which builds files that the tests may import.

    A script that only installs git hooks is skipped.
    """
    prepare = scripts.get("prepare", "")
    if not prepare or re.search(r"husky|lefthook|simple-git-hooks|pre-commit|lint-staged", prepare):
        return ""
    return f" && ({manager} run prepare || echo 'prepare failed')"


def _find_commands(
    files: ProjectFiles, manifest: Mapping[str, object], scripts: Mapping[str, str], manager: str
) -> Iterator[tuple[str, FoundCommand]]:
    """Yield build, test, lint, type check and coverage commands by purpose."""
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
    """Find the test command in the scripts, without the linters and type checks in `test`."""
    for name in _TEST_SCRIPTS:
        line = scripts.get(name, "")
        if not line or _NO_TEST_TEXT in line:
            continue

        parts = _expand_script(name, scripts)
        tests = [part for part in parts if part.is_test]
        if not tests or len(tests) == len(parts):
            return FoundCommand(f"{manager} run {name}", f"script `{name}`")

        command = " && ".join(part.command for part in parts if part.is_test or part.is_build)
        if manager in _SHELL_MANAGERS:
            command = f"{_MANAGERS[manager].exec_prefix} {_quote_line(command)}"
        return FoundCommand(command, f"the tests of script `{name}`: `{line}`")

    runner = next((name for name in _TEST_RUNNERS if name in _list_dependencies(manifest)), "")
    if runner:
        # Without `run`, vitest watches the files
        command = "vitest run" if runner == "vitest" else runner
        return FoundCommand(f"{_MANAGERS[manager].exec_prefix} {command}", f"{runner} is declared")

    return None


def _quote_line(line: str) -> str:
    return "'" + line.replace("'", "'\"'\"'") + "'"


class _ScriptCommand(NamedTuple):
    """One command of a script."""

    command: str
    is_test: bool
    is_build: bool
    # lint or typecheck; empty for other commands
    purpose: str = ""


_RUN_SCRIPT = re.compile(
    r"^(?:npm|pnpm|yarn|bun)(?:\s+-\S+)*\s+(?:run(?:-script)?\s+)?([\w:.-]+)(?:\s+--)?\s*$"
)
_RUN_ALL = re.compile(r"^(?:npm-run-all2?|run-s|run-p)\s")
_MAX_SCRIPT_DEPTH = 5
_WRAPPERS = re.compile(
    r"^(?:[A-Z_][A-Z0-9_]*=\S*\s+|cross-env\s+|c8\s+(?:--?\S+\s+)*|nyc\s+(?:--?\S+\s+)*"
    r"|npx\s+|dotenv\s+--\s+)+"
)
# Coverage is not a test, and its threshold could fail one
_COVERAGE_WRAPPERS = re.compile(r"^(?:c8|nyc)\s+(?:--?\S+\s+)*")


def _expand_script(name: str, scripts: Mapping[str, str], depth: int = 0) -> list[_ScriptCommand]:
    """List the commands of a script, with `pre` and `post` scripts and the scripts that it runs."""
    found: list[_ScriptCommand] = []

    for key in (f"pre{name}", name, f"post{name}"):
        for part in re.split(r"&&|;", scripts.get(key, "")):
            line = _COVERAGE_WRAPPERS.sub("", part.strip())
            called = [one for one in _list_called_scripts(line, scripts) if one != name]
            if called and depth < _MAX_SCRIPT_DEPTH:
                for one in called:
                    found += _expand_script(one, scripts, depth + 1)
            elif line:
                found.append(_classify_command(line))

    return found


def _list_called_scripts(line: str, scripts: Mapping[str, str]) -> list[str]:
    """Return the scripts that a command runs, directly or with npm-run-all: `run-s lint test:*`."""
    called = _RUN_SCRIPT.match(line)
    if called:
        return [called[1]] if called[1] in scripts else []
    if not _RUN_ALL.match(line):
        return []

    found = []
    for word in line.split()[1:]:
        pattern = re.escape(word.strip("'\"")).replace(r"\*\*", ".*").replace(r"\*", "[^:]*")
        found += [name for name in scripts if re.fullmatch(pattern, name)]
    return found


def _classify_command(line: str) -> _ScriptCommand:
    """Classify a command by its first word: `rimraf mocha.js` runs no test."""
    first = _WRAPPERS.sub("", line).split(" ")[0].rpartition("/")[2]
    is_test = (first in _TEST_RUNNERS and first != "tsd") or bool(
        re.match(
            r"(?:\S+\s+)*?(?:node|tsx|bun)\s+(?:\S+\s+)*(?:--test\b|test\b|\S*test\S*\.[cm]?[jt]s)",
            line,
        )
    )
    is_build = first in _BUILD_TOOLS and "noEmit" not in line
    purpose = ""
    if first in _LINTERS:
        purpose = "lint"
    elif first in _TYPE_CHECKERS and not is_build:
        purpose = "typecheck"

    return _ScriptCommand(line, is_test, is_build, purpose)


def _add_declared_checks(
    files: ProjectFiles, scripts: Mapping[str, str], manager: str, commands: dict[str, FoundCommand]
) -> tuple[dict[str, FoundCommand], tuple[str, ...]]:
    """Add the linters and type checks that only `test`, CI, tox, nox or pre-commit run.

    Return the commands, and a note for each declared check that no command runs.
    """
    declared = find_declared_checks(files)
    parts = [(part, "script `test`") for part in _expand_script("test", scripts)]
    for check in declared:
        called = _list_called_scripts(check.line, scripts)
        parts += [(part, check.where) for one in called for part in _expand_script(one, scripts)]
        if not called and not re.match(r"(?:npm|pnpm|yarn|bun)\s", check.line):
            parts.append((_classify_command(check.line), check.where))

    asked = {line for found in commands.values() for line in _list_commands(found, scripts)}
    unasked: dict[str, None] = {}
    for part, where in parts:
        line = _make_read_only(part.command)
        if line in asked or part.is_test or part.is_build:
            continue
        asked.add(line)
        if part.purpose and (manager in _SHELL_MANAGERS or not re.search(r"['\"$|]", line)):
            quoted = _quote_line(line) if manager in _SHELL_MANAGERS else line
            added = FoundCommand(f"{_MANAGERS[manager].exec_prefix} {quoted}", f"{line}: {where}")
            before = commands.get(part.purpose)
            if before:
                added = FoundCommand(
                    f"{before.command} && {added.command}", f"{before.why}; {added.why}"
                )
            commands[part.purpose] = added
        elif _looks_like_check(line):
            unasked[f"`{line}` ({where})"] = None

    return commands, tuple(unasked)[:_MAX_UNASKED]


def _list_commands(found: FoundCommand, scripts: Mapping[str, str]) -> list[str]:
    """Return the commands that a found command runs, as they are in the scripts."""
    called = _list_called_scripts(found.command, scripts)
    if called:
        return [
            _make_read_only(part.command) for one in called for part in _expand_script(one, scripts)
        ]
    line = found.command.rpartition(" -c ")[2].strip("'")
    return [part.strip() for part in line.removeprefix("node_modules/.bin/").split("&&")]


def _make_read_only(line: str) -> str:
    """Rewrite a linter or formatter command so that it changes no files."""
    if line.startswith("prettier "):
        line = re.sub(r"\s(?:--write|-w)\b", " --check", line)
    return _WRITE_OPTIONS.sub("", line)


def _looks_like_check(line: str) -> bool:
    return not re.match(r"(?:rimraf|rm|cp|mkdir|echo|cd|node|shx|del|exit|cross-env|git)\b", line)


def _find_lint_command(scripts: Mapping[str, str], manager: str) -> FoundCommand | None:
    """Find a script that lints; options that write files are removed."""
    name = next((name for name in _LINT_SCRIPTS if name in scripts), "")
    if name and not _WRITE_OPTIONS.search(scripts[name]):
        return FoundCommand(f"{manager} run {name}", f"script `{name}`")

    if name and manager in _SHELL_MANAGERS:
        line = _WRITE_OPTIONS.sub("", scripts[name])
        return FoundCommand(
            f"{_MANAGERS[manager].exec_prefix} {_quote_line(line)}",
            f"script `{name}`, without writing",
        )

    commands = [part.strip() for part in scripts.get("test", "").split("&&")]
    linter = next((line for line in commands if line.partition(" ")[0] in _LINTERS), "")
    if linter and manager in _SHELL_MANAGERS and not _WRITE_OPTIONS.search(linter):
        return FoundCommand(
            f"{_MANAGERS[manager].exec_prefix} {_quote_line(linter)}",
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
