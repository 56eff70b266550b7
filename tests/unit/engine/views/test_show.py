"""The diff of one package, among others of its feature."""

from __future__ import annotations

from pathlib import Path

from phasegate.core.machine.package_events import Harvested, PackageMerged, PackagePrepared
from phasegate.engine.journal.entries import encode_package_step
from phasegate.engine.project.project import open_project
from phasegate.engine.views.show import PartKind, find_subject, read_part
from phasegate.storage.row_events import package_changed_event
from phasegate.storage.rows import PackageRow
from support.git_project import git, make_repository, write
from support.plain_project import TS, MemoryStore

SLUG = "001-a"


def commit(folder: Path, path: str) -> str:
    write(folder, {path: f"{path}\n"})
    git(folder, "add", "--all")
    git(folder, "commit", "-qm", path)
    return git(folder, "rev-parse", "HEAD").strip()


def test_a_package_that_continued_on_top_of_another_shows_its_own_changes(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    make_repository(root)
    start = git(root, "rev-parse", "HEAD").strip()
    git(root, "switch", "-qc", f"feat/{SLUG}")
    # WP01 started before it, and its agent was started again behind it
    commit(root, "of_wp02.py")
    git(root, "switch", "-qc", f"feat/{SLUG}-WP01")
    done = commit(root, "of_wp01.py")
    git(root, "switch", "-q", f"feat/{SLUG}")

    with MemoryStore(tmp_path) as store:
        store.append_unconditionally(
            SLUG,
            TS,
            [
                package_changed_event(PackageRow(SLUG, "WP01", "A", "DOING", 1, "", "", TS, "")),
                encode_package_step("WP01", PackagePrepared(start)),
                encode_package_step("WP01", Harvested(done)),
            ],
        )
        project = open_project(root)
        subject = find_subject(project, store, "WP01")
        before_merge = read_part(project, store, subject, PartKind.DIFF).text
        git(root, "merge", "--no-ff", "-qm", "Merge", done)
        merge = git(root, "rev-parse", "HEAD").strip()
        merged = encode_package_step("WP01", PackageMerged(merge))
        store.append_unconditionally(SLUG, TS, [merged])
        after_merge = read_part(project, store, subject, PartKind.DIFF).text

    for diff in (before_merge, after_merge):
        assert "+++ b/of_wp01.py" in diff
        assert "of_wp02.py" not in diff
