"""Detect setup and checks of projects in Rust, Go, Java, C and C++, and of task runners."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from phasegate.core.detection.files import ProjectFiles, get_nested
from phasegate.core.detection.model import (
    DetectedProject,
    FoundCommand,
    MachineInfo,
    SetupCandidate,
)

_NO_SETUP = SetupCandidate("", "nothing to install")

# Command lines by purpose
_CARGO_COMMANDS = {
    "build": "cargo build --all",
    "test": "cargo test --all",
    "lint": "cargo clippy --all-targets",
    "typecheck": "cargo check --all-targets",
}
_CARGO_COVERAGE = {"coverage": "cargo tarpaulin --out Lcov --output-dir target"}
_GO_COMMANDS = {
    "build": "go build {packages}",
    "test": "go test -v {packages}",
    "typecheck": "go build {packages}",
    "coverage": "go test -v -coverprofile=coverage.out {packages}",
    "lint": "go vet {packages}",
}
_GO_LINTER = {"lint": "golangci-lint run"}
_MAVEN_SETUP = (
    "{run} -B -ntp -q -Dmaven.repo.local=.phasegate-tools/m2 dependency:go-offline test-compile"
)
_MAVEN_COMMANDS = {"test": "{run} -o -B -ntp -Dmaven.repo.local=.phasegate-tools/m2 test"}
_GRADLE_SETUP = "{run} -q --no-daemon testClasses"
_GRADLE_COMMANDS = {"test": "{run} --offline --no-daemon --continue test"}
_CMAKE_COMMANDS = {
    "build": "cmake -S . -B build && cmake --build build -j 2",
    "test": "ctest --test-dir build --output-on-failure --no-tests=error",
}
_AUTOTOOLS_COMMANDS = {"build": "{configure} && make", "test": "make check"}
# Modification times of a checkout are arbitrary, so make would regenerate the output of autotools
# and help2man: all files get the same time.
_CONFIGURE = "find . -name .git -prune -o -type f -exec touch -r configure {} + && ./configure"
_GENERATE_CONFIGURE = "autoreconf -i && ./configure"

_GOLANGCI_FILES = (".golangci.yml", ".golangci.yaml", ".golangci.toml", ".golangci.json")
_GRADLE_FILES = ("settings.gradle", "settings.gradle.kts", "build.gradle", "build.gradle.kts")

_GO_MODULE = re.compile(r"^module\s+(\S+)", re.M)
GO_USE = re.compile(r"^\s*(?:use\s+)?(\./?[\w./-]*)\s*$", re.M)
_MAVEN_PARENT = re.compile(r"<parent>.*?</parent>", re.S)
_MAVEN_NAME = re.compile(r"<artifactId>([^<]+)</artifactId>")
_CMAKE_NAME = re.compile(r"^\s*project\s*\(\s*([\w.+-]+)", re.M | re.I)
_AUTOCONF_NAME = re.compile(r"AC_INIT\(\s*\[?([\w .+-]+)")

# Program, its files, and a pattern for the names of its targets
_TASK_RUNNERS = (
    (
        "make",
        ("GNUmakefile", "makefile", "Makefile"),
        re.compile(r"^([A-Za-z][\w-]*)\s*:(?!=)", re.M),
    ),
    (
        "just",
        ("justfile", "Justfile", ".justfile"),
        re.compile(r"^@?([a-z][\w-]*)(?:\s[^:=\n]*)?:(?!=)", re.M),
    ),
    (
        "task",
        ("Taskfile.yml", "Taskfile.yaml"),
        re.compile(r"^  ([a-z][\w:-]*):\s*$", re.M),
    ),
)
# Names of targets by purpose, best first
_TARGET_NAMES = {
    "test": ("test", "check", "tests", "unit"),
    "lint": ("lint",),
    "typecheck": ("typecheck",),
    "build": ("build", "all"),
}
_SETUP_TARGETS = ("setup", "install-dev", "deps", "bootstrap")


def detect_rust(files: ProjectFiles, machine: MachineInfo) -> DetectedProject | None:
    """Detect a crate or a workspace of Cargo."""
    if not files.find_first("Cargo.toml"):
        return None

    if files.find_first("Cargo.lock"):
        setup = SetupCandidate("cargo fetch --locked", "Cargo.lock")
    else:
        setup = SetupCandidate("cargo fetch", "Cargo.toml")

    commands = _build_commands(_CARGO_COMMANDS, "Cargo.toml")
    if tarpaulin := files.find_first("tarpaulin.toml", ".tarpaulin.toml"):
        commands |= _build_commands(_CARGO_COVERAGE, tarpaulin)

    name = get_nested(files.load_toml("Cargo.toml"), "package", "name")
    return DetectedProject(
        profile="rust",
        name=name if isinstance(name, str) else "",
        setups=(setup,),
        commands=commands,
    )


def _build_commands(
    templates: Mapping[str, str], why: str, **values: str
) -> dict[str, FoundCommand]:
    return {
        purpose: FoundCommand(template.format(**values), why)
        for purpose, template in templates.items()
    }


def _find_name(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match[1].strip() if match else ""


def detect_go(files: ProjectFiles, machine: MachineInfo) -> DetectedProject | None:
    """Detect a module or a workspace of Go."""
    where = files.find_first("go.work", "go.mod")
    if not where:
        return None

    if files.find_first("vendor/modules.txt"):
        setup = SetupCandidate("", "vendor/")
    else:
        setup = SetupCandidate("go mod download", where)

    packages = _list_workspace_packages(files) or "./..."
    commands = _build_commands(_GO_COMMANDS, where, packages=packages)
    if linter := files.find_first(*_GOLANGCI_FILES):
        commands |= _build_commands(_GO_LINTER, linter)

    return DetectedProject(
        profile="go",
        name=_find_name(_GO_MODULE, files.get_text("go.mod")),
        setups=(setup,),
        commands=commands,
    )


def _list_workspace_packages(files: ProjectFiles) -> str:
    """Name each module of a workspace, because `./...` does not include them."""
    folders = GO_USE.findall(files.get_text("go.work"))
    return " ".join(f"{folder.rstrip('/')}/..." for folder in folders)


def detect_java(files: ProjectFiles, machine: MachineInfo) -> DetectedProject | None:
    """Detect Maven or Gradle, run by its wrapper if there is one."""
    if files.find_first("pom.xml"):
        where = "pom.xml"
        run = "./mvnw" if files.find_first("mvnw") else "mvn"
        setup, commands = _MAVEN_SETUP, _MAVEN_COMMANDS
    elif where := files.find_first(*_GRADLE_FILES):
        run = "./gradlew" if files.find_first("gradlew") else "gradle"
        setup, commands = _GRADLE_SETUP, _GRADLE_COMMANDS
    else:
        return None

    pom = _MAVEN_PARENT.sub("", files.get_text("pom.xml"))
    return DetectedProject(
        profile="java",
        name=_find_name(_MAVEN_NAME, pom),
        setups=(SetupCandidate(setup.format(run=run), where),),
        commands=_build_commands(commands, where, run=run),
    )


def detect_c(files: ProjectFiles, machine: MachineInfo) -> DetectedProject | None:
    """Detect CMake with ctest, or autotools with `make check`."""
    if files.find_first("CMakeLists.txt"):
        name = _find_name(_CMAKE_NAME, files.get_text("CMakeLists.txt"))
        commands = _build_commands(_CMAKE_COMMANDS, "CMakeLists.txt")
    elif where := files.find_first("configure.ac", "configure"):
        name = _find_name(_AUTOCONF_NAME, files.get_text("configure.ac"))
        configure = _CONFIGURE if files.find_first("configure") else _GENERATE_CONFIGURE
        commands = _build_commands(_AUTOTOOLS_COMMANDS, where, configure=configure)
    else:
        return None

    return DetectedProject(profile="c", name=name, setups=(_NO_SETUP,), commands=commands)


def detect_targets(files: ProjectFiles, machine: MachineInfo) -> DetectedProject | None:
    """Detect any project whose Makefile, justfile or Taskfile has targets with common names."""
    commands: dict[str, FoundCommand] = {}
    setups: list[SetupCandidate] = []

    for program, where, targets in _find_task_runners(files):
        for purpose, names in _TARGET_NAMES.items():
            target = next((name for name in names if name in targets), None)
            if target:
                reason = f"target `{target}` in {where}"
                commands.setdefault(purpose, FoundCommand(f"{program} {target}", reason))

        setups += [
            SetupCandidate(f"{program} {name}", f"target `{name}` in {where}")
            for name in _SETUP_TARGETS
            if name in targets
        ]

    if "test" not in commands:
        return None

    setup = setups[0] if setups else _NO_SETUP
    return DetectedProject(profile="", name="", setups=(setup,), commands=commands)


def _find_task_runners(files: ProjectFiles) -> Iterator[tuple[str, str, list[str]]]:
    for program, names, target in _TASK_RUNNERS:
        if where := files.find_first(*names):
            yield program, where, target.findall(files.get_text(where))
