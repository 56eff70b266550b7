"""Repositories as people have them: borrowed objects, odd names, half of the objects, settings of their own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from phasegate.core.plan.work_package import PackageState
from support.dispatch_project import (
    FEATURE,
    SLUG,
    TEST_COMMAND,
    DispatchProject,
    approves,
    implements,
    make_project,
    package,
)

FORM = "src/login.ts"


def ready(project: DispatchProject) -> DispatchProject:
    project.play(implements(FORM), approves())
    return project


def cloned(project: DispatchProject, name: str, *options: str) -> DispatchProject:
    """A clone beside the project, with the plan loaded."""
    folder = project.root.parent / name
    project.git("clone", "-q", *options, ".", str(folder))
    other = project._replace(root=folder)
    assert other.command("plan", "load", f"kitty-specs/{SLUG}").code == 0
    return ready(other)


@pytest.mark.demand("D4.b", "D8.g")
def test_a_clone_that_borrows_its_objects_can_be_worked_in(tmp_path: Path) -> None:
    """The agent's git, and that of the checks, read them through two steps."""
    document = package(test=f"git log --oneline && {TEST_COMMAND}")
    report = cloned(make_project(tmp_path, {"WP01": document}), "borrows", "--shared").dispatch()
    assert report.state is PackageState.DONE, report.reason


@pytest.mark.demand("D8.g")
def test_a_build_can_ask_git_for_its_version(tmp_path: Path) -> None:
    project = ready(
        make_project(tmp_path, {"WP01": package(test=f"git describe --tags && {TEST_COMMAND}")})
    )
    project.git("tag", "-m", "one", "v1")
    report = project.dispatch()
    assert report.state is PackageState.DONE, report.reason


@pytest.mark.demand("D4.b")
def test_a_partial_clone_that_lacks_files_is_refused_with_what_to_do(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    project.git("config", "uploadpack.allowFilter", "true")
    folder = tmp_path / "partial"
    source = f"file://{project.root}"
    subprocess.run(
        ["git", "clone", "-q", "--no-checkout", "--filter=blob:none", source, str(folder)],
        check=True,
    )
    subprocess.run(["git", "sparse-checkout", "set", "kitty-specs"], cwd=folder, check=True)
    subprocess.run(["git", "checkout", "-q", "main"], cwd=folder, check=True)
    other = project._replace(root=folder)
    assert other.command("plan", "load", f"kitty-specs/{SLUG}").code == 0
    done = other.command("dispatch", "WP01")
    assert done.code == 4
    assert "git fetch --refetch --no-filter" in done.stderr


@pytest.mark.demand("D4.b")
def test_names_of_tags_and_lines_of_the_exclude_file_need_not_be_text(tmp_path: Path) -> None:
    project = ready(make_project(tmp_path))
    exclude = project.root / ".git/info/exclude"
    exclude.write_bytes(b"# caf\xe9")
    for name in (b"caf\xe9", "line\u2028break".encode()):
        subprocess.run(["git", "tag", name], cwd=project.root, check=True)
    done = project.command("dispatch", "WP01")
    assert done.code == 0, done.stderr
    assert exclude.read_bytes().startswith(b"# caf\xe9\n")
    assert FORM in project.files_of(FEATURE)


@pytest.mark.demand("D4.b", "D1.a")
def test_a_repository_whose_path_is_no_text_is_refused_with_what_to_do(tmp_path: Path) -> None:
    """Its path goes into the envelope, which is JSON: no byte of it could be told otherwise."""
    project = make_project(tmp_path)
    odd = tmp_path / os.fsdecode(b"caf\xe9")
    project.root.rename(odd)
    done = project._replace(root=odd).command("dispatch", "WP01")
    assert done.code == 2, done.stderr
    assert "move the repository" in done.stderr


@pytest.mark.demand("D4.b", "D6.m")
def test_a_person_with_settings_and_variables_of_their_own_gets_the_same_work(
    tmp_path: Path,
) -> None:
    """Theirs are neither needed nor obeyed; a program that they name is not run by us."""
    project, fired = ready(make_project(tmp_path)), tmp_path / "fired"
    settings = {
        "commit.gpgsign": "true",
        "core.autocrlf": "true",
        "core.fsmonitor": f"touch {fired}",
        "core.hooksPath": "hooks",
        "core.ignorecase": "true",
        "extensions.worktreeConfig": "true",
        "i18n.commitEncoding": "latin1",
        "merge.ff": "only",
    }
    for name, value in settings.items():
        project.git("config", name, value)
    (project.root / "hooks").mkdir()
    for name in ("post-checkout", "reference-transaction", "pre-commit", "post-index-change"):
        hook = project.root / "hooks" / name
        hook.write_text(f"#!/bin/sh\ntouch {fired}\n")
        hook.chmod(0o755)
    other = {
        "GIT_DIR": "/elsewhere",
        "GIT_INDEX_FILE": "/elsewhere",
        "GIT_OBJECT_DIRECTORY": "/elsewhere",
    }
    more = {
        "GIT_WORK_TREE": "/elsewhere",
        "GIT_NAMESPACE": "x",
        "GIT_EXTERNAL_DIFF": "false",
        "GIT_TRACE": "1",
    }
    fired.unlink(missing_ok=True)
    done = project.program("dispatch", "WP01", env={**other, **more})
    assert done.code == 0, done.stderr
    assert not fired.exists()


@pytest.mark.demand("D4.a")
@pytest.mark.parametrize("is_link", [False, True], ids=["a file", "a link"])
def test_something_else_where_the_worktrees_go_is_refused_with_what_to_do(
    tmp_path: Path, is_link: bool
) -> None:
    project = ready(make_project(tmp_path))
    place = project.root / ".worktrees"
    place.symlink_to(tmp_path) if is_link else place.write_text("mine")
    done = project.command("dispatch", "WP01")
    assert done.code == 2, done.stderr
    assert "is not a folder" in done.stderr


@pytest.mark.demand("D4.a")
def test_a_folder_for_worktrees_that_cannot_be_made_is_the_machine_s_fault(tmp_path: Path) -> None:
    project = ready(make_project(tmp_path, run='[paths]\nworktrees = "README.md/below"'))
    done = project.command("dispatch", "WP01")
    assert done.code == 3, done.stderr
    assert "cannot create a checkout" in done.stderr


def with_submodule(tmp_path: Path) -> DispatchProject:
    """A project whose test needs a file of a submodule, which has one of its own."""
    git = ("git", "-c", "protocol.file.allow=always")
    for name in ("inner", "lib"):
        subprocess.run(["git", "init", "-q", "-b", "main", str(tmp_path / name)], check=True)
        (tmp_path / name / "word.txt").write_text(f"{name}\n")
        (tmp_path / name / ".gitignore").write_text("out/\n")
        if name == "lib":
            subprocess.run(
                [*git, "submodule", "--quiet", "add", str(tmp_path / "inner"), "deep"],
                cwd=tmp_path / name,
                check=True,
            )
        subprocess.run(["git", "add", "-A"], cwd=tmp_path / name, check=True)
        subprocess.run(["git", "commit", "-qm", "One"], cwd=tmp_path / name, check=True)
    project = make_project(
        tmp_path, {"WP01": package(test=f"cat lib/word.txt lib/deep/word.txt && {TEST_COMMAND}")}
    )
    add = [*git, "submodule", "--quiet", "add", str(tmp_path / "lib"), "lib"]
    subprocess.run(add, cwd=project.root, check=True)
    subprocess.run(
        [*git, "submodule", "--quiet", "update", "--init", "--recursive"],
        cwd=project.root,
        check=True,
    )
    (project.root / ".gitattributes").write_text("*.bin filter=lfs diff=lfs merge=lfs -text\n")
    project.git("add", "-A")
    project.git("commit", "-qm", "Add a library")
    return project


@pytest.mark.demand("R7.a", "R7.b")
def test_submodules_are_there_for_agents_and_checks_and_nothing_of_them_is_harvested(
    tmp_path: Path,
) -> None:
    project = with_submodule(tmp_path)
    leaves = "mkdir lib/__pycache__ lib/out; echo x | tee lib/__pycache__/a.pyc lib/out/b"
    look = {
        "run": [
            "sh",
            "-c",
            f"cat lib/word.txt lib/deep/word.txt; {leaves} > /dev/null; git status --porcelain",
        ]
    }
    project.play({**implements(FORM), "steps": [look, *implements(FORM)["steps"]]}, approves())
    report = project.dispatch()
    assert report.state is PackageState.DONE, report.reason
    out = (project.project.jobs_folder / project.jobs()[0].id / "stdout.log").read_text()
    assert out.startswith("lib\ninner\n{"), out
    assert project.git("diff", "--name-only", "main", FEATURE) == FORM


@pytest.mark.demand("R7.a")
def test_work_inside_a_submodule_is_refused_with_its_path_and_not_dropped(tmp_path: Path) -> None:
    project = with_submodule(tmp_path)
    meddles = {
        "run": [
            "sh",
            "-c",
            "echo changed > lib/word.txt; rm lib/deep/word.txt; echo new > lib/new.txt",
        ]
    }
    project.play({**implements(FORM), "steps": [meddles, *implements(FORM)["steps"]]}, approves())
    done = project.command("dispatch", "WP01")
    assert done.code == 1
    assert project.rows()["WP01"].state == PackageState.BLOCKED
    for path in ("lib/word.txt", "lib/deep/word.txt", "lib/new.txt"):
        assert (
            f"{path}: submodules may not be added, changed or removed"
            in project.rows()["WP01"].reason
        )
    (violation,) = [
        one for one in project.trail(project.jobs()[0].id) if one["action"] == "scope_violation"
    ][:1]
    assert "lib/" in str(violation)


@pytest.mark.demand("R7.a", "R7.b")
def test_a_submodule_that_is_not_here_and_files_of_lfs_are_named(tmp_path: Path) -> None:
    project = with_submodule(tmp_path)
    other = cloned(project, "without")
    shown = other.command("check")
    assert (
        "missing submodules are empty for agents and checks (lib): git submodule update --init"
        in shown.stdout
    )
    assert (
        "agents and checks see Git LFS pointers instead of the file contents: *.bin" in shown.stdout
    )
    assert shown.code in (0, 1)


@pytest.mark.demand("R7.f")
@pytest.mark.parametrize("kind", ["shallow", "sparse"])
def test_a_shallow_and_a_sparse_clone_can_be_worked_in(tmp_path: Path, kind: str) -> None:
    project = make_project(tmp_path)
    project.git("commit", "-q", "--allow-empty", "-m", "Two")
    if kind == "shallow":
        folder = tmp_path / "shallow"
        project.git("clone", "-q", "--depth=1", f"file://{project.root}", str(folder))
        other = project._replace(root=folder)
        assert other.command("plan", "load", f"kitty-specs/{SLUG}").code == 0
        ready(other)
    else:
        other = cloned(project, "sparse")
        other.git("sparse-checkout", "set", "kitty-specs")
        assert not (other.root / "src").exists()
    report = other.dispatch()
    assert report.state is PackageState.DONE, report.reason
    assert FORM in other.files_of(FEATURE)
    assert other.git("status", "--porcelain") == ""


@pytest.mark.demand("R7.f")
def test_line_ends_stay_as_they_are_whatever_the_person_s_settings_say(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    project.git("config", "core.autocrlf", "true")
    text = "one\r\ntwo\r\n"
    project.play(
        {
            **implements(FORM),
            "steps": [{"write": FORM, "content": text}, *implements(FORM)["steps"][1:]],
        },
        approves(),
    )
    report = project.dispatch()
    assert report.state is PackageState.DONE, report.reason
    shown = subprocess.run(
        ["git", "show", f"{FEATURE}:{FORM}"], cwd=project.root, capture_output=True, check=True
    )
    assert shown.stdout == text.encode()


@pytest.mark.demand("R7.f")
@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another user")
def test_a_repository_of_another_user_is_refused_with_what_to_do(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    for path in (project.root, project.root / ".git"):
        os.chown(path, 12345, 12345)
    done = project.program("check", env={"HOME": str(tmp_path)})
    assert done.code == 2, done
    assert "it belongs to another user" in done.stderr
    assert f"safe.directory {project.root}" in done.stderr
