"""How projects of Rust, Go, Java, C and C++ are set up and checked, and what a Makefile or its like
offers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from phasegate.core.detection.files import ProjectFiles, get_nested
from phasegate.core.detection.model import (
    DetectedProject,
    FoundCommand,
    MachineInfo,
    SetupCandidate,
)

_NO_SETUP = SetupCandidate("", "nothing is to be installed")
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
_TARGET_NAMES = {
    "test": ("test", "check", "tests", "unit"),
    "lint": ("lint",),
    "typecheck": ("typecheck",),
    "build": ("build", "all"),
}


def detect_rust(files: ProjectFiles, machine: MachineInfo) -> DetectedProject | None:
    """A crate or a workspace of Cargo."""
    if not files.find_first("Cargo.toml"):
        return None

    if files.find_first("Cargo.lock"):
        locked, why = (" --locked", "Cargo.lock")
    else:
        locked, why = ("", "Cargo.toml")

    commands = {
        "build": FoundCommand("cargo build --all", "Cargo.toml"),
        "test": FoundCommand("cargo test --all", "Cargo.toml"),
        "lint": FoundCommand("cargo clippy --all-targets", "Cargo.toml"),
        "typecheck": FoundCommand("cargo check --all-targets", "Cargo.toml"),
    }

    if where := files.find_first("tarpaulin.toml", ".tarpaulin.toml"):
        commands["coverage"] = FoundCommand("cargo tarpaulin --out Lcov --output-dir target", where)

    name = get_nested(files.load_toml("Cargo.toml"), "package", "name")
    return DetectedProject(
        profile="rust",
        name=name if isinstance(name, str) else "",
        setups=(SetupCandidate(f"cargo fetch{locked}", why),),
        commands=commands,
    )


def detect_go(files: ProjectFiles, machine: MachineInfo) -> DetectedProject | None:
    """A module or a workspace of Go."""
    where = files.find_first("go.work", "go.mod")
    if not where:
        return None

    packages = _list_workspace_packages(files) or "./..."
    if files.find_first("vendor/modules.txt"):
        setup = SetupCandidate("", "vendor/")
    else:
        setup = SetupCandidate("go mod download", where)

    commands = {
        "build": FoundCommand(f"go build {packages}", where),
        "test": FoundCommand(f"go test -v {packages}", where),
        "typecheck": FoundCommand(f"go build {packages}", where),
        "coverage": FoundCommand(f"go test -v -coverprofile=coverage.out {packages}", where),
    }

    linter = files.find_first(".golangci.yml", ".golangci.yaml", ".golangci.toml", ".golangci.json")
    if linter:
        commands["lint"] = FoundCommand("golangci-lint run", linter)
    else:
        commands["lint"] = FoundCommand(f"go vet {packages}", where)

    module = re.search(r"^module\s+(\S+)", files.get_text("go.mod"), re.M)
    return DetectedProject(
        profile="go", name=module[1] if module else "", setups=(setup,), commands=commands
    )


def _list_workspace_packages(files: ProjectFiles) -> str:
    """`./...` does not go into the modules of a workspace: each is named."""
    text = files.get_text("go.work")
    folders = re.findall(r"^\s*(?:use\s+)?(\./?[\w./-]*)\s*$", text, re.M)
    return " ".join(f"{folder.rstrip('/')}/..." for folder in folders)


def detect_java(files: ProjectFiles, machine: MachineInfo) -> DetectedProject | None:
    """Maven or Gradle, by its wrapper where there is one."""
    if files.find_first("pom.xml"):
        if files.find_first("mvnw"):
            run = "./mvnw"
        else:
            run = "mvn"

        setup = SetupCandidate(
            f"{run} -B -ntp -q -Dmaven.repo.local=.phasegate-tools/m2 dependency:go-offline test-compile",
            "pom.xml",
        )
        test = FoundCommand(
            f"{run} -o -B -ntp -Dmaven.repo.local=.phasegate-tools/m2 test", "pom.xml"
        )
        name = re.search(
            r"<artifactId>([^<]+)</artifactId>",
            re.sub(r"<parent>.*?</parent>", "", files.get_text("pom.xml"), flags=re.S),
        )
        return DetectedProject(
            profile="java", name=name[1] if name else "", setups=(setup,), commands={"test": test}
        )

    where = files.find_first(
        "settings.gradle", "settings.gradle.kts", "build.gradle", "build.gradle.kts"
    )
    if not where:
        return None

    if files.find_first("gradlew"):
        run = "./gradlew"
    else:
        run = "gradle"

    setup = SetupCandidate(f"{run} -q --no-daemon testClasses", where)
    return DetectedProject(
        profile="java",
        name="",
        setups=(setup,),
        commands={"test": FoundCommand(f"{run} --offline --no-daemon --continue test", where)},
    )


def detect_c(files: ProjectFiles, machine: MachineInfo) -> DetectedProject | None:
    """CMake with ctest, or autotools with `make check`."""
    if files.find_first("CMakeLists.txt"):
        name = re.search(
            r"^\s*project\s*\(\s*([\w.+-]+)", files.get_text("CMakeLists.txt"), re.M | re.I
        )
        build = FoundCommand("cmake -S . -B build && cmake --build build -j 2", "CMakeLists.txt")
        test = FoundCommand(
            "ctest --test-dir build --output-on-failure --no-tests=error", "CMakeLists.txt"
        )
        return DetectedProject(
            profile="c",
            name=name[1] if name else "",
            setups=(_NO_SETUP,),
            commands={"build": build, "test": test},
        )

    if where := files.find_first("configure.ac", "configure"):
        # In a checkout ages mean nothing, and what autotools and help2man made would be made again:
        # all get the same.
        aged = "find . -name .git -prune -o -type f -exec touch -r configure {} + && ./configure"
        if files.find_first("configure"):
            first = aged
        else:
            first = "autoreconf -i && ./configure"

        name = re.search(r"AC_INIT\(\s*\[?([\w .+-]+)", files.get_text("configure.ac"))
        return DetectedProject(
            profile="c",
            name=name[1].strip() if name else "",
            setups=(_NO_SETUP,),
            commands={
                "build": FoundCommand(f"{first} && make", where),
                "test": FoundCommand("make check", where),
            },
        )

    return None


def detect_targets(files: ProjectFiles, machine: MachineInfo) -> DetectedProject | None:
    """Any project whose Makefile, justfile or Taskfile has targets with the usual names."""
    commands: dict[str, FoundCommand] = {}

    for program, where, names in _find_task_runners(files):
        for purpose, wanted in _TARGET_NAMES.items():
            target = next((name for name in wanted if name in names), None)
            if target and purpose not in commands:
                commands[purpose] = FoundCommand(
                    f"{program} {target}", f"target `{target}` in {where}"
                )

    setup = next(
        (
            SetupCandidate(f"{program} {name}", f"target `{name}` in {where}")
            for program, where, names in _find_task_runners(files)
            for name in ("setup", "install-dev", "deps", "bootstrap")
            if name in names
        ),
        _NO_SETUP,
    )

    if "test" in commands:
        return DetectedProject(profile="", name="", setups=(setup,), commands=commands)

    return None


def _find_task_runners(files: ProjectFiles) -> Iterator[tuple[str, str, list[str]]]:
    if where := files.find_first(*_MAKEFILES):
        yield "make", where, re.findall(r"^([A-Za-z][\w-]*)\s*:(?!=)", files.get_text(where), re.M)

    if where := files.find_first("justfile", "Justfile", ".justfile"):
        yield (
            "just",
            where,
            re.findall(r"^@?([a-z][\w-]*)(?:\s[^:=\n]*)?:(?!=)", files.get_text(where), re.M),
        )

    if where := files.find_first("Taskfile.yml", "Taskfile.yaml"):
        yield "task", where, re.findall(r"^  ([a-z][\w:-]*):\s*$", files.get_text(where), re.M)
