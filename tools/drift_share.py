"""Replay the last commits of a repository after an adoption, and measure the reports of drift.

    python tools/drift_share.py PATH/TO/REPOSITORY --commits 200

All tests of the oldest of these commits are adopted. After each later commit on the first-parent
line, what has drifted is reported and accepted. A report is false if the bound code compiles to the
same instructions, without docstrings: its behaviour is the same. A changed file that is bound and
reports nothing is quiet: a check by files would have reported it.
"""

from __future__ import annotations

import argparse
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

from phasegate.core.plan.planning import classify_file
from phasegate.core.specs.adopt import draft_requirements
from phasegate.core.specs.bindings import extract_bound_text, hash_target
from phasegate.core.specs.spec_file import CapabilitySpec


def git(repository: Path, *arguments: str) -> str:
    command = ["git", "-C", str(repository), *arguments]
    return subprocess.run(command, check=True, capture_output=True).stdout.decode(errors="replace")


def read_python(repository: Path, commit: str) -> dict[str, str]:
    """Return the Python files of a commit."""
    paths = git(repository, "ls-tree", "-r", "--name-only", commit).splitlines()
    return {
        path: git(repository, "show", f"{commit}:{path}") for path in paths if path.endswith(".py")
    }


def update(repository: Path, commit: str, files: dict[str, str]) -> dict[str, str]:
    """Return the Python files after a commit; read only what it changed."""
    after = dict(files)
    changed = git(repository, "diff", "--name-status", "--no-renames", f"{commit}^1", commit)
    for line in changed.splitlines():
        status, _, path = line.partition("\t")
        if path.endswith(".py"):
            after.pop(path, None)
            if status != "D":
                after[path] = git(repository, "show", f"{commit}:{path}")
    return after


def list_instructions(code: CodeType) -> Iterator[object]:
    """Yield what code does, without line numbers."""
    yield code.co_code, code.co_names, code.co_varnames
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from list_instructions(constant)
        else:
            yield repr(constant)


def compile_target(target: str, files: dict[str, str]) -> object:
    """Return the instructions of bound code; its text if it cannot be compiled alone."""
    text = extract_bound_text(target, files.get(target.partition("::")[0], ""))
    try:
        # Docstrings are no behaviour, the assertions of a test are
        plain = (text or "").replace("assert ", "check = ")
        return [*list_instructions(compile(textwrap.dedent(plain), "", "exec", optimize=2))]
    except (SyntaxError, ValueError):
        return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("repository", type=Path)
    parser.add_argument("--commits", type=int, default=200)
    options = parser.parse_args()
    repository = options.repository

    log = git(repository, "log", "--first-parent", "--reverse", "--format=%H", "HEAD")
    base, *later = log.split()[-options.commits - 1 :]
    files = read_python(repository, base)
    tests = {path: text for path, text in files.items() if classify_file(path) == "tests"}
    code = {path: text for path, text in files.items() if classify_file(path) == "code"}
    spec = draft_requirements(
        "adopted", code, tests, CapabilitySpec(), lambda _: True, limit=100_000
    ).spec
    bound = {
        (one.id, binding.target)
        for one in spec.requirements.values()
        for binding in one.all_bindings
    }
    targets = {target for _, target in bound}

    reported: set[tuple[str, str]] = set()
    false = 0
    requirements = quiet = noisy = 0
    for commit in later:
        after = update(repository, commit, files)
        paths = {path for path in {*files, *after} if files.get(path) != after.get(path)}
        drifted = {
            target
            for target in targets
            if target.partition("::")[0] in paths
            and hash_target(target, files) != hash_target(target, after)
        }
        # A removed target is reported once
        targets -= {target for target in drifted if not hash_target(target, after)}
        for target in sorted(drifted):
            reported.add((commit, target))
            is_same = compile_target(target, files) == compile_target(target, after)
            false += is_same
            if is_same:
                print(f"false: {commit[:12]} {target}")
        requirements += len({id_ for id_, target in bound if target in drifted})
        touched = {id_ for id_, target in bound if target.partition("::")[0] in paths}
        noisy += len(touched)
        quiet += not drifted and bool(touched)
        files = after

    share = 100 * false / len(reported) if reported else 0.0
    print(f"{len(later)} commits after the adoption of {len(spec.requirements)} requirements")
    print(f"{quiet} commits touched bound files and reported nothing")
    print(f"reports by requirement: {requirements}; by changed files they would be {noisy}")
    print(f"reports by test or code: {len(reported)}, {false} of them false: {share:.1f} %")


if __name__ == "__main__":
    main()
