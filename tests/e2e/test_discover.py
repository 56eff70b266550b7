"""`phasegate discover`: an agent proposes, we run it, a person sees the change (R8)."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.dispatch_project import CHECK, DispatchProject, make_project, turn

FILES = {
    "check_sources.py": CHECK,
    "src/a.txt": "one\n",
    "notes.md": "A project that detection knows nothing of.\n",
}
PROPOSAL = """```toml
setup = "mkdir made && echo \\"$PIP_INDEX_URL\\" > made/env"
test = "test -d made && ! grep -q secret made/env && python3 -m unittest -q check_sources"
lint = "grep -rn nothing-like-this src"
```
"""


def asked(tmp_path: Path, answer: str = PROPOSAL) -> DispatchProject:
    project = make_project(tmp_path, files=FILES)
    look = {"run": ["sh", "-c", "ls; echo x > src/new.txt"]}
    project.play(turn("review", look, {"print": answer}, {"verdict": "PASS"}))
    return project


@pytest.mark.demand("R8.a", "R8.b")
def test_what_holds_is_shown_and_written_and_what_fails_is_dropped(tmp_path: Path) -> None:
    project = asked(tmp_path)
    assert (
        "phasegate discover" in project.command("check").stdout
    )  # nothing is known: it is pointed at
    before = (project.root / "phasegate.toml").read_text()
    env = {"PIP_INDEX_URL": "https://me:secret@127.0.0.1:9/simple"}
    found = project.program("discover", "--json", env=env)
    assert found.code == 1, found  # nobody said yes
    assert (project.root / "phasegate.toml").read_text() == before
    assert [*found.json["kept"]] == ["setup", "test"], found.json
    assert "+[checks.project]" in found.json["diff"]
    done = project.program("discover", "--yes", env=env)
    assert done.code == 0, done
    assert "dropped: lint" in done.stdout
    assert '+test = "test -d made' in done.stdout
    assert not (project.root / "src/new.txt").exists()
    project.git("commit", "-qam", "Say how it is tested")
    control = project.program(
        "check", env=env
    )  # now it is the person's own command, and is given what it needs
    assert control.code == 1, control.stdout
    # Another setup: the one above is in the cache
    config = project.root / "phasegate.toml"
    config.write_text(config.read_text().replace("mkdir made &&", "mkdir -p made &&"))
    project.git("commit", "-qam", "Another setup")
    checked = project.command("check", "--json")
    assert checked.code == 0, checked
    rows = {row["name"]: row for row in checked.json["checks"]}
    assert (rows["test"]["tests"], rows["test"]["why"]) == (1, "set by hand")
    assert not [*(project.root / ".worktrees").glob(".ask-*")]


@pytest.mark.demand("R8.b")
@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("I could not find out.", "it has no commands"),
        ("```toml\ntest = [\n```\n", "is not TOML"),
        ('```toml\nagents = "x"\n```\n', "agents cannot be used"),
        ('```toml\ntest = "a\\nb"\n```\n', "test cannot be used"),
        ('```toml\n["../up"]\ntest = "true"\n```\n', "../up cannot be used"),
    ],
)
def test_a_proposal_that_is_none_changes_nothing_and_says_why(
    tmp_path: Path, answer: str, told: str
) -> None:
    project = asked(tmp_path, answer)
    before = (project.root / "phasegate.toml").read_text()
    done = project.command("discover", "--yes")
    assert done.code == 4, done
    assert told in done.stderr
    assert (project.root / "phasegate.toml").read_text() == before


SEVERAL = """```toml
["api"]
test = "python3 -m unittest -q check_api"
["worker/"]
test = "python3 -m unittest -q check_worker"
lint = "false"
```
"""


@pytest.mark.demand("R8.a", "R1.g")
def test_each_project_of_a_repository_gets_its_own_commands_run_in_its_folder(
    tmp_path: Path,
) -> None:
    project = asked(tmp_path, SEVERAL)
    for name in ("api", "worker"):
        (project.root / name).mkdir()
        (project.root / name / f"check_{name}.py").write_text(CHECK)
        (project.root / name / "src").mkdir()
        (project.root / name / "src/a.txt").write_text("one\n")
    project.git("add", "-A")
    project.git("commit", "-qm", "Two projects")
    done = project.command("discover", "--yes")
    assert done.code == 0, done
    assert "dropped: worker: lint" in done.stdout
    written = (project.root / "phasegate.toml").read_text()
    assert '[checks.api]\nroot = "api"\ntest = "python3 -m unittest -q check_api"\n' in written
    assert (
        '[checks.worker]\nroot = "worker"\ntest = "python3 -m unittest -q check_worker"\n'
        in written
    )
    rows = project.command("check", "--json").json["checks"]
    assert {(row["root"], row["tests"]) for row in rows if row["name"] == "test"} >= {
        ("api", 1),
        ("worker", 1),
    }


@pytest.mark.demand("R8.a")
def test_commands_go_into_the_table_that_is_there_and_other_lines_stay() -> None:
    from phasegate.engine.tools.discover import with_commands

    text = (
        '# mine\n[checks.python]  # ours\nlint = "ruff check"\ntest = "old"\n[run]\nparallel = 2\n'
    )
    assert with_commands(text, "python", {"test": 'sh -c "a\\b"'}) == (
        '# mine\n[checks.python]  # ours\ntest = "sh -c \\"a\\\\b\\""\nlint = "ruff check"\n[run]\nparallel = 2\n'
    )
    assert (
        with_commands("", "project", {"test": "t"}, root="")
        == '[checks.project]\nroot = ""\ntest = "t"\n'
    )


@pytest.mark.demand("R8.a")
def test_init_points_at_discover_where_nothing_was_detected(tmp_path: Path) -> None:
    project = asked(tmp_path)
    project.git("rm", "-q", "phasegate.toml", "check_sources.py")
    project.git("commit", "-qm", "Nothing that detection knows")
    assert "phasegate discover" in project.command("init").stdout
    assert project.command("config", "show").code == 0
