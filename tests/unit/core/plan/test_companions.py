"""Files that earlier commits changed together with the files of a plan."""

from __future__ import annotations

from phasegate.core.plan.companions import Companion, find_companions

BOTH = {"lib/a.js", "typings/a.d.ts"}
EXISTING = {*BOTH, "README.md", "old.js"}


def test_a_file_that_most_commits_changed_with_a_planned_one_is_found() -> None:
    commits = [*[BOTH] * 5, *[{"lib/a.js", "README.md"}] * 3, {"lib/a.js", "gone.js"}]
    assert find_companions(commits, {"lib/a.js"}, EXISTING) == [
        Companion("typings/a.d.ts", "lib/a.js", 5, 9)
    ]
    # The control: a plan that names both
    assert find_companions(commits, BOTH, EXISTING) == []


def test_few_commits_mass_changes_and_removed_files_show_nothing() -> None:
    mass = {*BOTH, *(f"src/{number}.js" for number in range(40))}
    for commits in ([BOTH] * 3, [mass] * 9, [{"lib/a.js", "gone.js"}] * 9):
        assert find_companions(commits, {"lib/a.js"}, EXISTING) == []
