"""An agent's commit messages and authors reach the branch in a safe form, and the record says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.dispatch_project import SLUG, approves, make_project, turn, writes

MESSAGE = (
    "WP01: Fixes #7 for @org/everyone [skip ci]\n\n"
    "See GH-10.\n\nSigned-off-by: Linus <linus@example.invalid>"
)
FORGED = "Linus <linus@example.invalid>"


@pytest.mark.parametrize("hostile", [True, False])
def test_words_and_authors_of_agents_are_harmless_on_the_branch(
    tmp_path: Path, hostile: bool
) -> None:
    project = make_project(tmp_path, run='sandbox = "none"')
    message = MESSAGE if hostile else "WP01: Say it plainly"
    author = [f"--author={FORGED}"] if hostile else []
    project.play(
        turn(
            "implement",
            *writes("src/login.ts"),
            {"run": ["git", "add", "src/login.ts"]},
            {"run": ["git", "commit", "-q", *author, "-m", message]},
            {"result": "success"},
        ),
        approves(),
    )
    assert project.command("dispatch", "WP01").code == 0
    log = project.git("log", "--format=%an <%ae>%n%B", f"feat/{SLUG}")
    assert "WP01: " in log
    for word in ("#7", "@org", "[skip ci]", "GH-10", "Signed-off-by:", FORGED):
        assert word not in log, word
    if not hostile:
        assert message in log
    review = next(job for job in project.jobs() if job.phase == "review")
    assert ("made safe for forges" in project.prompt(review.id)) is hostile
