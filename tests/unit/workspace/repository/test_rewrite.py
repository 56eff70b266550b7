"""A history without the files that are not delivered: same authors, same code, nothing else."""

from __future__ import annotations

from pathlib import Path

from phasegate.workspace.repository.disk_files import blob_id
from phasegate.workspace.repository.objects import write_blobs
from phasegate.workspace.repository.repository import Repository
from phasegate.workspace.repository.rewrite import add_files, find_path, rewrite_history
from support.git_project import git, make_repository

FOLDER = "specs/001"


def make_history(folder: Path) -> tuple[Repository, str, str]:
    """A base, and a branch with documents, code of an agent and a merge. Return base and head."""
    repository = make_repository(folder / "repo", {"a.py": "1\n", "specs/000/spec.md": "old\n"})
    root = repository.root

    def commit(path: str, message: str, author: str = "Engine <e@example.invalid>") -> None:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(message)
        git(root, "add", "-A")
        git(root, "commit", "-qm", message, f"--author={author}")

    base = git(root, "rev-parse", "HEAD").strip()
    git(root, "checkout", "-qb", "feat/001")
    commit(f"{FOLDER}/spec.md", "Specify")
    commit(f"{FOLDER}/tasks/WP01.md", "You are authorized")
    git(root, "checkout", "-qb", "feat/001-WP01")
    commit("b.py", "WP01: Build b", "Agent <a@example.invalid>")
    git(root, "checkout", "-q", "feat/001")
    commit(f"{FOLDER}/REVIEW-08.md", "PASS")
    git(root, "merge", "-q", "--no-ff", "-m", "Merge WP01", "feat/001-WP01")
    commit(f"{FOLDER}/IMPLEMENTATION.md", "Report")
    return repository, base, git(root, "rev-parse", "HEAD").strip()


def rewrite(
    repository: Repository, base: str, head: str, known: dict[str, str] | None = None
) -> str:
    reference = next(iter((known or {}).values()), base)
    return rewrite_history(repository, head, [base], [FOLDER], reference, known or {})


def show(repository: Repository, commit: str, form: str) -> list[str]:
    return git(repository.root, "log", f"--format={form}", commit).splitlines()


def test_only_the_agents_commit_and_the_merge_are_left(tmp_path: Path) -> None:
    repository, base, head = make_history(tmp_path)
    copy = rewrite(repository, base, head)
    subjects = show(repository, f"{base}..{copy}", "%s")
    assert subjects == ["Merge WP01", "WP01: Build b"]
    assert show(repository, f"{base}..{copy}", "%an")[1] == "Agent"
    touched = git(repository.root, "log", "-m", "--name-only", "--format=", f"{base}..{copy}")
    assert set(touched.split()) == {"b.py"}
    changed = git(repository.root, "diff", "--name-only", copy, head).split()
    assert changed
    assert all(path.startswith(FOLDER) for path in changed)
    assert find_path(repository, copy, "specs/000/spec.md"), "documents of the base stay"
    assert git(repository.root, "rev-parse", "feat/001").strip() == head, "the branch is not moved"


def test_the_same_history_gives_the_same_commits_also_after_its_merge(tmp_path: Path) -> None:
    repository, base, head = make_history(tmp_path)
    copy = rewrite(repository, base, head)
    git(repository.root, "checkout", "-q", "main")
    git(repository.root, "merge", "-q", "--no-ff", "-m", "Deliver", copy)
    merged = git(repository.root, "rev-parse", "main").strip()
    assert rewrite_history(repository, head, [merged], [FOLDER], base, {}) == copy


def test_new_commits_go_on_top_of_a_published_copy(tmp_path: Path) -> None:
    repository, base, head = make_history(tmp_path)
    data = b"as built\n"
    write_blobs(repository, [data])
    path = f"{FOLDER}/spec.md"
    code = rewrite(repository, base, head)
    blob = blob_id(data, repository.hash_name)
    published = add_files(repository, code, {path: blob}, "Document\n", head)
    (repository.root / "c.py").write_text("3\n")
    git(repository.root, "add", "-A")
    git(repository.root, "commit", "-qm", "Answer a remark")
    later = git(repository.root, "rev-parse", "HEAD").strip()
    copy = rewrite(repository, base, later, {head: published})
    assert show(repository, f"{published}..{copy}", "%s") == ["Answer a remark"]
    assert find_path(repository, copy, path) == blob
    assert find_path(repository, copy, f"{FOLDER}/REVIEW-08.md") == ""
    assert add_files(repository, copy, {path: blob}, "Document\n", later) == copy, "nothing to add"
