"""A tree is written out as it is, and nothing in it leads out of the folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from phasegate.errors import StateConflict
from phasegate.workspace.checkout.export import export_tree
from phasegate.workspace.repository.repository import Repository, open_repository
from support.git_project import FILES, git, make_checkout, make_repository, take_over, write


def _main(repository: Repository) -> str:
    return git(repository.root, "rev-parse", "main").strip()


def _files(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


@pytest.mark.demand("D8.g")
def test_an_export_holds_the_tree_and_nothing_else(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "project")
    checkout = make_checkout(repository)
    write(
        checkout.folder,
        {"src/login.py": "done\n", "conftest.py": "evil\n", "AGENTS.md": "obey\n", "x.log": "x"},
    )
    tip = take_over(checkout, ["src/login.py"]).tip
    done = export_tree(repository, tip, tmp_path / "export")
    assert _files(done.folder) == {
        **{name: text.encode() for name, text in FILES.items()},
        "src/login.py": b"done\n",
    }
    assert done.skipped_links == ()
    assert not (done.folder / ".git").exists()


def test_bytes_are_written_as_they_are(tmp_path: Path) -> None:
    attributes = "*.txt text eol=crlf ident working-tree-encoding=UTF-16\nx.txt export-ignore\n"
    git_files = {"x.txt": "one\n$Id$\n", "y.txt": "a\r\nb\n"}
    repository = make_repository(tmp_path / "project", git_files)
    write(repository.root, {".gitattributes": attributes})
    git(repository.root, "add", ".gitattributes")
    git(repository.root, "commit", "-qm", "attributes")
    found = _files(export_tree(repository, _main(repository), tmp_path / "export").folder)
    assert found["x.txt"] == b"one\n$Id$\n"
    assert found["y.txt"] == b"a\r\nb\n"


def test_links_that_lead_out_are_left_out_and_named(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "project").root
    targets = {
        "good": "src/login.py",
        "src/up": "../README.md",
        "out": "/etc/passwd",
        "src/above": "../../x",
        "loop": "..",
    }
    for name, target in targets.items():
        (root / name).symlink_to(target)
    git(root, "add", "-A")
    git(root, "commit", "-qm", "links")
    repository = open_repository(root)
    done = export_tree(repository, _main(repository), tmp_path / "export")
    assert sorted(done.skipped_links) == ["loop", "out", "src/above"]
    links = {
        str(path.relative_to(done.folder)) for path in done.folder.rglob("*") if path.is_symlink()
    }
    assert links == {"good", "src/up"}


def test_an_export_can_have_a_git_directory_of_its_own(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "project")
    git(repository.root, "tag", "v1.2")
    done = export_tree(repository, _main(repository), tmp_path / "export", with_git=True)
    assert git(done.folder, "describe", "--tags").strip() == "v1.2"
    assert git(done.folder, "status", "--porcelain") == ""
    with pytest.raises(StateConflict):  # a tree has no history
        export_tree(
            repository,
            git(repository.root, "rev-parse", "main^{tree}").strip(),
            tmp_path / "tree",
            with_git=True,
        )


def test_a_folder_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "project")
    write(tmp_path / "export", {"there": "x"})
    with pytest.raises(StateConflict):
        export_tree(repository, _main(repository), tmp_path / "export")
