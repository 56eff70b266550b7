"""What comes with a clone: links that lead out of it, and a record that was planted in it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from phasegate.engine.project.local_services import FileDocumentStore
from phasegate.engine.project.project import open_project
from phasegate.engine.tools.init import prepare_repository
from phasegate.errors import ConfigError, EnvironmentUnavailable
from support.dispatch_project import approves, implements, make_project
from support.entry import phasegate
from support.git_project import make_repository

CANARY = "hunter2-canary"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_text(f"{CANARY}\n")
    return folder


def test_a_readme_that_is_a_link_is_not_copied_into_a_page(tmp_path: Path, outside: Path) -> None:
    for name in ("honest", "planted"):
        root = make_repository(tmp_path / name).root
        (root / "README.md").unlink(missing_ok=True)
        if name == "planted":
            (root / "README.md").symlink_to(outside / "secret")
        else:
            (root / "README.md").write_text(f"{CANARY}\n")
        prepare_repository(str(root), {})
        page = (root / ".agentd/project.md").read_text()
        assert (CANARY in page) is (name == "honest")


def test_a_manifest_that_is_a_link_names_nothing(tmp_path: Path, outside: Path) -> None:
    root = make_repository(tmp_path / "project").root
    (outside / "package.json").write_text(f'{{"name": "{CANARY}"}}')
    (root / "package.json").symlink_to(outside / "package.json")
    prepare_repository(str(root), {})
    assert CANARY not in (root / ".agentd/project.md").read_text()


def test_nothing_is_created_behind_a_link_that_leads_outside(tmp_path: Path, outside: Path) -> None:
    root = make_repository(tmp_path / "project").root
    (root / "phasegate.toml").write_text('[paths]\nproject_file = "agentd/deep/project.md"\n')
    (root / "agentd").symlink_to(outside)
    before = sorted(outside.rglob("*"))
    with pytest.raises(ConfigError, match="outside the repository"):
        prepare_repository(str(root), {"PHASEGATE_TRUST": "1"})
    assert sorted(outside.rglob("*")) == before
    (root / "agentd").unlink()
    prepare_repository(str(root), {"PHASEGATE_TRUST": "1"})
    assert (root / "agentd/deep/project.md").is_file(), "the control: without the link it is made"


def test_a_record_that_came_with_a_clone_is_refused_by_every_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project(tmp_path, run='sandbox = "none"')
    project.play(implements("src/login.ts"), approves())
    assert project.command("status").code == 0, "the control: in its own clone it is read"
    subprocess.run(["git", "-C", project.root, "add", "-f", ".phasegate/store.db"], check=True)
    project.git("commit", "-qm", "A record")
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", project.root, clone], check=True)
    assert (clone / ".phasegate/store.db").exists()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
    for command in (
        ("status",),
        ("status", "--json"),
        ("run",),
        ("start", "quick", "x"),
        ("dispatch", "WP01"),
    ):
        done = phasegate(*command, cwd=clone)
        assert done.code == 4, (command, done)
        assert "was not created in this clone" in done.stderr, command
    shutil.rmtree(clone / ".phasegate")
    assert phasegate("status", cwd=clone).code == 0, "the control: without it the clone works"


def test_a_data_folder_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    project = make_project(tmp_path, run='sandbox = "none"')
    moved = tmp_path / "moved"
    (project.root / ".phasegate").rename(moved)
    (project.root / ".phasegate").symlink_to(moved)
    for command in (("status",), ("dispatch", "WP01")):
        done = project.command(*command)
        assert done.code == 4, (command, done)
        assert "is not a folder" in done.stderr


@pytest.mark.parametrize("place", ["evidence", "checks", "evidence/001-add-login", "rooms/x"])
@pytest.mark.parametrize("planted", [True, False])
def test_nothing_is_written_behind_a_link_that_came_in_the_data_folder(
    tmp_path: Path, outside: Path, place: str, planted: bool
) -> None:
    """A clone can bring any file, also in the folder that is ignored in other repositories."""
    root = make_repository(tmp_path / "clone", {"requirements.txt": ""}).root
    before = sorted(outside.rglob("*"))
    path = root / ".phasegate" / place
    path.parent.mkdir(parents=True)
    if planted:
        path.symlink_to(outside)
    else:
        path.mkdir()
    for command in (("check",), ("status",), ("next",)):
        done = phasegate(*command, cwd=root)
        is_refused = planted and command == ("check",)
        assert (done.code == 4) is is_refused, (command, done)
        assert (f"{place} is a link" in done.stderr) is is_refused
    assert sorted(outside.rglob("*")) == before


def test_evidence_is_not_written_behind_a_link_of_a_later_pull(
    tmp_path: Path, outside: Path
) -> None:
    folder = tmp_path / "data"
    store = FileDocumentStore(folder)
    (folder / "evidence").mkdir(parents=True)
    (folder / "evidence/002-next").symlink_to(outside)
    before = sorted(outside.rglob("*"))
    with pytest.raises(EnvironmentUnavailable, match="cannot be written"):
        store.put(b"text", "evidence/002-next/new/WP01-1.md")
    assert sorted(outside.rglob("*")) == before
    store.put(b"text", "evidence/001-first/new/WP01-1.md")
    assert (folder / "evidence/001-first/new/WP01-1.md").read_bytes() == b"text", "the control"


@pytest.mark.parametrize("link", ["kitty-specs", "kitty-specs/001-bye"])
@pytest.mark.parametrize("leads_out", [True, False])
def test_documents_behind_a_link_that_leads_outside_reach_neither_screen_nor_prompt(
    tmp_path: Path, link: str, leads_out: bool
) -> None:
    root = make_repository(tmp_path / "clone").root
    target = (tmp_path if leads_out else root) / "notes"
    folder = target / "001-bye" if link == "kitty-specs" else target
    folder.mkdir(parents=True)
    (folder / "spec.md").write_text(f"## Requirements\n\n- **FR-BYE-001**: {CANARY}\n")
    (root / link).parent.mkdir(exist_ok=True)
    (root / link).symlink_to(target)
    done = phasegate("trace", "--feature", "001-bye", cwd=root)
    assert (CANARY in done.stdout) is not leads_out, done
    project = open_project(root)
    if leads_out:
        with pytest.raises(ConfigError, match="outside the repository"):
            project.find_feature_folder("001-bye")
    else:
        assert CANARY in (project.find_feature_folder("001-bye") / "spec.md").read_text()


_WRITERS: dict[str, tuple[str, ...]] = {
    "templates": ("template", "eject"),
    "templates/system": ("template", "eject"),
    "specs": ("spec", "import"),
    ".claude": ("agent-file", "install", ".claude/agents"),
    ".claude/agents": ("agent-file", "sync", ".claude/agents"),
}


@pytest.mark.parametrize("link", _WRITERS)
@pytest.mark.parametrize("leads_out", [True, False])
def test_no_command_writes_behind_a_link_of_the_repository_that_leads_outside(
    tmp_path: Path, outside: Path, link: str, leads_out: bool
) -> None:
    spec = (
        "# X\n\n## Requirements\n\n### Requirement: A\nThe system SHALL do x\n\n#### Scenario: s\n"
    )
    files = {"openspec/specs/x/spec.md": f"{spec}- **WHEN** x\n- **THEN** y\n"}
    root = make_repository(tmp_path / "clone", files).root
    target = outside if leads_out else root / "inside"
    target.mkdir(exist_ok=True)
    (target / "rules.md").write_text("theirs\n")
    (root / link).parent.mkdir(exist_ok=True)
    (root / link).symlink_to(target)
    before = {path: path.read_bytes() for path in target.iterdir() if path.is_file()}
    done = phasegate(*_WRITERS[link], cwd=root)
    after = {path: path.read_bytes() for path in target.rglob("*") if path.is_file()}
    assert (after == before) is leads_out, done
    assert (done.code == 2) is leads_out, done
    assert ("points outside the repository" in done.stderr) is leads_out


@pytest.mark.parametrize("kind", ["out", "inside", "bytes", "honest"])
def test_a_package_that_is_no_text_file_of_the_repository_is_not_loaded(
    tmp_path: Path, outside: Path, kind: str
) -> None:
    project = make_project(tmp_path, run='sandbox = "none"')
    path = next((project.root / "kitty-specs").glob("*/tasks/WP01.md"))
    text = path.read_bytes()
    path.unlink()
    if kind == "honest":
        path.write_bytes(text)
    elif kind == "bytes":
        path.write_bytes(text + b"\xff")
    else:
        target = (outside if kind == "out" else project.root) / "x.md"
        target.write_bytes(text)
        path.symlink_to(target)
    done = project.command("plan", "load", str(path.parents[1].relative_to(project.root)))
    assert done.code == (0 if kind == "honest" else 2), done
