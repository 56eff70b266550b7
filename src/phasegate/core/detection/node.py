"""How a JavaScript or TypeScript project is set up and checked: its package manager, its scripts by name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from phasegate.core.detection.files import ProjectFiles, entry
from phasegate.core.detection.model import Detected, FoundCommand, Machine, SetupCandidate

_PLACEHOLDER = "no test specified"
_TEST_SCRIPTS = ("test", "unit", "test:unit", "test-unit", "test:node", "tests-only", "test:ci", "spec", "tests")
_LINT_SCRIPTS = ("lint:check", "lint:ci", "lint", "test:lint", "check:lint", "lint:js", "eslint")
_TYPE_SCRIPTS = (
    *("typecheck", "type-check", "check-types", "types:check", "test:types", "tsc", "lint:tsc", "check:types"),
    "types",
)
_WRITES = re.compile(r"(?:^|\s)--(?:fix|write)\b")
_LINTERS = ("eslint", "xo", "biome", "standard", "oxlint")
_RUNNERS = ("vitest", "jest", "mocha", "ava", "tap", "tape", "uvu", "borp", "jasmine", "qunit", "tsd")
_NO_SCRIPTS = "--ignore-scripts"


# A version of a linter that was withdrawn, or that never reached a mirror, must not stop the tests. What npm cannot
# find is taken out of the devDependencies and the rest is tried again; the file itself is put back in any case.
_WITHOUT_WHAT_IS_GONE = """\
cp package.json .package.json.whole; last=; done=1
while :; do
  npm install --no-audit --no-fund --no-package-lock --legacy-peer-deps --ignore-scripts 2>.npm-said && done=0 && break
  cat .npm-said >&2
  gone=$(sed -n "s/.*No matching version found for \\(.*\\)@[^@]*/\\1/p; s/.*404 *'\\(.*\\)@[^@']*' is not.*/\\1/p" .npm-said | head -n 1)
  [ "$gone" ] && [ "$gone" != "$last" ] && npm pkg delete "devDependencies[$gone]" || break
  last=$gone; echo "not installed: $gone, which cannot be had"
done
mv .package.json.whole package.json; rm -f .npm-said; exit $done"""  # noqa: E501


class _Manager(NamedTuple):
    """A package manager: why it is the one, how it installs by the lock and without, how it runs a script."""

    name: str
    why: str
    frozen: str
    loose: str
    package: str  # what npm installs to have it

    def aside(self, machine: Machine) -> str:
        """What gets the manager where it is not on the PATH: into the checkout, where the commands after it look."""
        if self.name == "npm" or machine.has(self.name):
            return ""
        name, _, version = self.package.rpartition("@")
        wanted = dict.fromkeys((self.package, f"{name}@{version.partition('.')[0]}"))  # the same major version will do
        tries = " || ".join(f"npm install -g --no-audit --no-fund --prefix .phasegate-tools {one}" for one in wanted)
        return f'({tries}) && export PATH="$PWD/.phasegate-tools/bin:$PATH" && '


def detect_node(files: ProjectFiles, machine: Machine) -> Detected | None:
    """What is known about a project with a package.json; None if there is none."""
    if not files.has("package.json"):
        return None
    about = files.json("package.json")
    scripts = {name: line for name, line in _items(about.get("scripts")) if isinstance(line, str) and line.strip()}
    manager = _manager(files, about)
    commands = dict(_commands(files, about, scripts, manager.name))
    name = about.get("name")
    notes = (
        (f"{manager.name} is not on the PATH: {manager.package} is installed aside",) if manager.aside(machine) else ()
    )
    return Detected(
        "typescript",
        name if isinstance(name, str) else "",
        tuple(_setups(about, manager, machine, scripts)),
        commands,
        notes,
    )


def _items(table: object) -> list[tuple[str, object]]:
    return [*table.items()] if isinstance(table, dict) else []


def _manager(files: ProjectFiles, about: Mapping[str, object]) -> _Manager:
    """`packageManager` decides, then the lock file, then npm."""
    named = about.get("packageManager")
    pinned = named.partition("@")[0] if isinstance(named, str) else ""
    locks = {
        "pnpm": "pnpm-lock.yaml",
        "yarn": "yarn.lock",
        "bun": files.has("bun.lock", "bun.lockb"),
        "npm": files.has("package-lock.json", "npm-shrinkwrap.json"),
    }
    there = [name for name, lock in locks.items() if lock and files.has(lock)]
    name = pinned if pinned in locks else there[0] if there else "npm"
    why = (
        f"packageManager {str(named).partition('+')[0]}"
        if pinned in locks
        else locks[name] or "package.json, without a lock file"
    )
    has_lock = name in there and "package-lock=false" not in files.text(".npmrc").replace(" ", "")
    return _installs(name, why, has_lock, files, str(named) if pinned == name else "")


def _installs(name: str, why: str, has_lock: bool, files: ProjectFiles, named: str) -> _Manager:
    is_berry = "__metadata" in files.text("yarn.lock") or bool(files.has(".yarnrc.yml"))
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
    return _Manager(name, why, frozen if has_lock else "", loose, _package_of(name, named, files, is_berry))


# The version of pnpm that writes a lock of this version.
_PNPM_OF_LOCK = {"5": "7", "6": "8", "9": "10"}


def _package_of(name: str, named: str, files: ProjectFiles, is_berry: bool) -> str:
    """The package of npm's registry that has the manager, in the version that the project names or its lock tells."""
    version = named.partition("@")[2].partition("+")[0]
    if name == "yarn" and (is_berry or (version and not version.startswith("1."))):
        return f"@yarnpkg/cli-dist@{version or '4'}"
    if name == "yarn":
        return f"yarn@{version or '1'}"
    if name == "pnpm" and not version:
        lock = re.search(r"^lockfileVersion:\s*['\"]?(\d+)", files.text("pnpm-lock.yaml"), re.M)
        version = _PNPM_OF_LOCK.get(lock[1], "") if lock else ""
    return f"{name}@{version or 'latest'}"


def _setups(
    about: Mapping[str, object], manager: _Manager, machine: Machine, scripts: Mapping[str, str]
) -> Iterator[SetupCandidate]:
    """By the lock, then with scripts of packages, then without the lock, then by npm."""
    if not any(
        _items(about.get(key)) for key in ("dependencies", "devDependencies", "optionalDependencies", "workspaces")
    ) and not about.get("workspaces"):
        yield SetupCandidate("", "package.json names no dependencies")
        return
    quiet = "" if manager.name == "yarn" and "--immutable" in manager.frozen else f" {_NO_SCRIPTS}"
    builds, aside = _own_build(scripts, manager.name), manager.aside(machine)
    if manager.frozen:
        yield SetupCandidate(f"{aside}{manager.frozen}{quiet}{builds}", manager.why)
        yield SetupCandidate(
            f"{aside}{manager.frozen}{builds}", f"{manager.why}, with the packages' own install scripts"
        )
    reason = (
        manager.why if not manager.frozen else f"{manager.why} could not be used: versions are not those of the lock"
    )
    yield SetupCandidate(f"{aside}{manager.loose}{quiet}{builds}", reason)
    test = _test(about, scripts, "npm") if manager.name != "npm" else None
    if _items(about.get("devDependencies")):
        why = "npm, without those devDependencies that cannot be had"
        yield SetupCandidate(_WITHOUT_WHAT_IS_GONE, why, test.run if test else "")


def _own_build(scripts: Mapping[str, str], manager: str) -> str:
    """`prepare` of the project itself builds what its tests may import; one that only installs git hooks does not."""
    prepare = scripts.get("prepare", "")
    if not prepare or re.search(r"husky|lefthook|simple-git-hooks|pre-commit|lint-staged", prepare):
        return ""
    return f" && ({manager} run prepare || echo 'prepare failed')"


def _commands(
    files: ProjectFiles, about: Mapping[str, object], scripts: Mapping[str, str], manager: str
) -> Iterator[tuple[str, FoundCommand]]:
    if "build" in scripts:
        yield "build", FoundCommand(f"{manager} run build", "script `build`")
    test = _test(about, scripts, manager)
    if test:
        yield "test", test
    if lint := _lint(scripts, manager):
        yield "lint", lint
    if types := _types(files, about, scripts, manager):
        yield "typecheck", types
    if "coverage" in scripts:
        yield "coverage", FoundCommand(f"{manager} run coverage", "script `coverage`")
    elif "test" in scripts and re.search(r"\b(?:jest|vitest)\b", scripts["test"]):
        yield "coverage", FoundCommand(f"{manager} run test -- --coverage", "script `test`")


def _test(about: Mapping[str, object], scripts: Mapping[str, str], manager: str) -> FoundCommand | None:
    """The test part of the scripts: what `test` runs beside (linters, types, sizes) is not a test."""
    for name in _TEST_SCRIPTS:
        line = scripts.get(name, "")
        if not line or _PLACEHOLDER in line:
            continue
        parts = _leaves(name, scripts)
        tests = [part for part in parts if part.is_test]
        if not tests or len(tests) == len(parts):
            return FoundCommand(f"{manager} run {name}", f"script `{name}`")
        joined = " && ".join(part.run for part in parts if part.is_test or part.is_build)
        return FoundCommand(
            f"{_exec(manager)} {_quoted_line(joined)}" if manager in ("npm", "pnpm") else joined,
            f"the tests of script `{name}`: `{line}`",
        )
    runner = next((name for name in _RUNNERS if name in _dependencies(about)), "")
    return (
        FoundCommand(f"{_exec(manager)} {runner}{' run' if runner == 'vitest' else ''}", f"{runner} is declared")
        if runner
        else None
    )


def _exec(manager: str) -> str:
    return {"npm": "npm exec -c", "pnpm": "pnpm exec sh -c"}.get(manager, f"{manager} run")


def _quoted_line(line: str) -> str:
    return "'" + line.replace("'", "'\"'\"'") + "'"


class _Leaf(NamedTuple):
    """One command of a script."""

    run: str
    is_test: bool
    is_build: bool


_RUN_SCRIPT = re.compile(r"^(?:npm|pnpm|yarn|bun)(?:\s+-\S+)*\s+(?:run(?:-script)?\s+)?([\w:.-]+)(?:\s+--)?\s*$")
_WRAPPERS = re.compile(
    r"^(?:[A-Z_][A-Z0-9_]*=\S*\s+|cross-env\s+|c8\s+(?:--?\S+\s+)*|nyc\s+(?:--?\S+\s+)*|npx\s+|dotenv\s+--\s+)+"
)


# Coverage is no test, and its threshold would fail one.
_MEASURING = re.compile(r"^(?:c8|nyc)\s+(?:--?\S+\s+)*")


def _leaves(name: str, scripts: Mapping[str, str], depth: int = 0) -> list[_Leaf]:
    """The commands that a script comes to, with `pre` and `post` and the scripts that it calls."""
    found: list[_Leaf] = []
    for key in (f"pre{name}", name, f"post{name}"):
        for part in re.split(r"&&|;", scripts.get(key, "")):
            line = _MEASURING.sub("", part.strip())
            called = _RUN_SCRIPT.match(line)
            if called and called[1] in scripts and called[1] != name and depth < 5:
                found += _leaves(called[1], scripts, depth + 1)
            elif line:
                found.append(_leaf(line))
    return found


def _leaf(line: str) -> _Leaf:
    """What a command is by its first word: `rimraf mocha.js` runs no test."""
    first = _WRAPPERS.sub("", line).split(" ")[0].rpartition("/")[2]
    is_test = (first in _RUNNERS and first != "tsd") or bool(
        re.match(r"(?:\S+\s+)*?(?:node|tsx|bun)\s+(?:\S+\s+)*(?:--test\b|test\b|\S*test\S*\.[cm]?[jt]s)", line)
    )
    return _Leaf(
        line,
        is_test,
        first in ("tsc", "rollup", "tsup", "esbuild", "babel", "unbuild", "vite", "tshy") and "noEmit" not in line,
    )


def _lint(scripts: Mapping[str, str], manager: str) -> FoundCommand | None:
    """A script that lints without writing; one that writes is run without that."""
    name = next((name for name in _LINT_SCRIPTS if name in scripts), "")
    if name and not _WRITES.search(scripts[name]):
        return FoundCommand(f"{manager} run {name}", f"script `{name}`")
    if name and manager in ("npm", "pnpm"):
        line = _WRITES.sub("", scripts[name])
        return FoundCommand(f"{_exec(manager)} {_quoted_line(line)}", f"script `{name}`, without writing")
    test = next(
        (part for part in re.split(r"&&", scripts.get("test", "")) if part.split() and part.split()[0] in _LINTERS), ""
    )
    if test and manager in ("npm", "pnpm") and not _WRITES.search(test):
        return FoundCommand(f"{_exec(manager)} {_quoted_line(test.strip())}", "the linter of script `test`")
    return None


def _types(
    files: ProjectFiles, about: Mapping[str, object], scripts: Mapping[str, str], manager: str
) -> FoundCommand | None:
    name = next((name for name in _TYPE_SCRIPTS if name in scripts), "")
    if name:
        return FoundCommand(f"{manager} run {name}", f"script `{name}`")
    if files.has("tsconfig.json") and "typescript" in _dependencies(about):
        return FoundCommand("node_modules/.bin/tsc --noEmit", "tsconfig.json")
    return None


def _dependencies(about: Mapping[str, object]) -> set[str]:
    return {
        name for key in ("dependencies", "devDependencies", "peerDependencies") for name, _ in _items(entry(about, key))
    }
