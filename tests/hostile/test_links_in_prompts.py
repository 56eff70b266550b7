"""Links in a repository, which any commit can hold: none of them leads a prompt to what lies outside."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support.entry import Done, phasegate

SECRET = "canary-6f1d"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/project.md").write_text(SECRET)
    (root / ".git/credentials").write_text(SECRET)
    (root / "notes.md").write_text("ours")
    return root


def show(root: Path, *arguments: str) -> Done:
    return phasegate(
        "prompt", "show", "--phase", "review", "--agent", "codex", *arguments, "Look", cwd=root
    )


@pytest.mark.demand("P2.a")
@pytest.mark.parametrize("budget", [(), ("--budget", "50000")], ids=["whole", "budget"])
@pytest.mark.parametrize("option", ["--file", "--artifact"])
@pytest.mark.parametrize("target", ["../outside/project.md", ".git/credentials"])
def test_a_named_file_that_is_a_link_out_of_the_repository_is_refused(
    project: Path, option: str, target: str, budget: tuple[str, ...]
) -> None:
    (project / "link.md").symlink_to(target)
    assert (project / "link.md").read_text() == SECRET, "a careless reader gets it"
    shown = show(project, option, "link.md", *budget)
    assert shown.code == 2
    assert "link.md points outside the repository" in shown.stderr
    assert SECRET not in shown.stdout + shown.stderr
    (project / "inside.md").symlink_to("notes.md")
    assert "ours" in show(project, option, "inside.md", *budget).stdout


@pytest.mark.demand("P2.a")
@pytest.mark.parametrize("link", ["agentd/project.md", "agentd"])
def test_a_description_of_the_project_that_leads_out_of_it_is_refused(
    project: Path, link: str
) -> None:
    (project / link).parent.mkdir(exist_ok=True)
    (project / link).symlink_to(
        project.parent / "outside" / ("project.md" if link.endswith(".md") else "")
    )
    assert (project / "agentd/project.md").read_text() == SECRET, "a careless reader gets it"
    shown = show(project)
    assert shown.code == 2
    assert "points outside the repository" in shown.stderr
    assert SECRET not in shown.stdout + shown.stderr
    (project / link).unlink()
    (project / "agentd").mkdir(exist_ok=True)
    (project / "agentd/project.md").symlink_to("../notes.md")
    assert "ours" in show(project).stdout
