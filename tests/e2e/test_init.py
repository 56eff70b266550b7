"""`phasegate init` in real repositories: what it writes, and what every wrong start is told."""

from __future__ import annotations

import ctypes
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from phasegate.config.load import load_config
from support.git_project import git, make_repository

PYPROJECT = (
    '[project]\nname = "x"\n[project.optional-dependencies]\ntest = ["pytest"]\n[tool.ruff]\n'
)
FILES = {
    "README.md": "# Thing\n\n[![badge](b)]\n\nCounts things,\nquickly.\n\nMore.\n",
    "pyproject.toml": PYPROJECT,
}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    make_repository(tmp_path / "repo", FILES)
    return tmp_path / "repo"


def programs(folder: Path, *names: str) -> str:
    """A PATH on which these agent programs are, and nothing else. Starting one would leave a trace."""
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_text(f"#!/bin/sh\ntouch {folder}/started\n")
        (folder / name).chmod(0o755)
    return str(folder)


def init(
    where: Path, *arguments: str, path: str = "/nowhere", **more: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "phasegate", "init", *arguments]
    environ = {**os.environ, "PATH": path, **more}
    return subprocess.run(
        command, cwd=where, env=environ, capture_output=True, text=True, timeout=60
    )


def test_a_repository_is_prepared_from_what_is_found_in_it(
    repository: Path, tmp_path: Path
) -> None:
    path = programs(tmp_path / "bin", "claude", "codex")
    done = init(repository, path=path, ANTHROPIC_API_KEY="a-secret-value")
    assert (done.returncode, done.stderr) == (0, "")
    assert "phasegate.toml: written" in done.stdout
    assert ".agentd/project.md: written" in done.stdout
    config = load_config(repository, {}).config
    assert {name: agent.harness.value for name, agent in config.agents.items()} == {
        "claude": "claude_code",
        "codex": "codex",
    }
    assert config.agents["claude"].env == ("ANTHROPIC_API_KEY",)
    assert "a-secret-value" not in done.stdout + (repository / "phasegate.toml").read_text()
    assert not config.checks, "the profile's commands stay the profile's"
    assert '[checks.python]\n# setup = "..."' in (repository / "phasegate.toml").read_text()
    described = (repository / ".agentd/project.md").read_text()
    assert described.startswith("# x\n\nCounts things, quickly.\n")
    assert "## Commands\n\n- `" in described or "`phasegate check`" in described
    assert not (tmp_path / "bin/started").exists()


@pytest.mark.parametrize(
    ("installed", "writer", "critic"),
    [
        (("claude", "codex"), "claude", "codex"),
        (("qwen", "gemini"), "gemini", "qwen"),
        (("cursor-agent",), "cursor", "cursor"),
    ],
)
def test_the_critic_is_not_the_writer_where_there_are_two(
    installed: tuple[str, ...], writer: str, critic: str, repository: Path, tmp_path: Path
) -> None:
    init(repository, path=programs(tmp_path / "bin", *installed))
    roles = load_config(repository, {}).config.roles
    assert roles == {
        "plan": writer,
        "implement": writer,
        "archive": writer,
        "challenge": critic,
        "review": critic,
    }


def test_what_is_ours_is_kept_out_of_git_and_what_is_theirs_is_not(repository: Path) -> None:
    exclude = repository / ".git/info/exclude"
    exclude.write_text("*.mine")
    init(repository)
    assert exclude.read_text() == "*.mine\n/.phasegate/\n/.worktrees/\n/.isdlc/\n"
    for folder in (".phasegate", ".worktrees", ".isdlc"):
        (repository / folder).mkdir()
        (repository / folder / "x").touch()
    untracked = git(repository, "status", "--porcelain").splitlines()
    assert untracked == ["?? .agentd/", "?? phasegate.toml"]


def test_a_second_time_changes_nothing(repository: Path, tmp_path: Path) -> None:
    path = programs(tmp_path / "bin", "claude")
    init(repository, path=path)
    (repository / ".agentd/project.md").write_text("mine\n")
    before = {p: p.read_bytes() for p in repository.rglob("*") if p.is_file()}
    done = init(repository, "--json", path=path)
    assert {p: p.read_bytes() for p in repository.rglob("*") if p.is_file()} == before
    told = json.loads(done.stdout)
    assert [file["outcome"] for file in told["files"]] == ["kept", "kept", "kept"]
    assert (told["agents"], told["profile"], told["notes"]) == (["claude"], "python", [])


def test_from_a_folder_below_the_root_is_prepared(repository: Path) -> None:
    (repository / "src/deep").mkdir(parents=True)
    assert init(repository / "src/deep").returncode == 0
    assert (repository / "phasegate.toml").is_file()


def test_a_person_who_moved_the_description_finds_it_there(repository: Path) -> None:
    (repository / "phasegate.toml").write_text('[paths]\nproject_file = "docs/for agents.md"\n')
    init(repository)
    assert (repository / "docs/for agents.md").is_file()
    assert not (repository / ".agentd").exists()


# Starts that need a remedy, but are no reason to stop.


def test_no_commits_yet_is_said_with_the_remedy(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    done = init(tmp_path, path=programs(tmp_path / "bin", "claude"))
    assert done.returncode == 0
    assert "no commits yet" in done.stderr
    assert "git commit" in done.stderr


def test_packed_branches_are_commits(repository: Path, tmp_path: Path) -> None:
    git(repository, "pack-refs", "--all")
    assert init(repository, path=programs(tmp_path / "bin", "claude")).stderr == ""


def test_a_detached_head_is_said_with_the_remedy(repository: Path) -> None:
    git(repository, "checkout", "-q", "--detach")
    done = init(repository)
    assert done.returncode == 0
    assert "HEAD is detached" in done.stderr
    assert "git switch" in done.stderr


def test_no_agent_program_is_said_with_the_remedy(repository: Path) -> None:
    done = init(repository)
    assert done.returncode == 0
    assert "no agent program was found" in done.stderr
    assert "phasegate.toml" in done.stderr
    assert not load_config(repository, {}).config.agents


def test_a_program_in_a_relative_folder_of_the_path_is_nobodys(repository: Path) -> None:
    programs(repository / "bin", "claude")
    assert "no agent program" in init(repository, path="bin:.:").stderr
    (repository / "phasegate.toml").unlink()
    assert (
        "no agent program" not in init(repository, path=str(repository / "bin")).stderr
    )  # the control


def test_a_submodule_is_prepared_by_itself_and_says_so(repository: Path, tmp_path: Path) -> None:
    around = tmp_path / "around"
    make_repository(around, {"a": "a"})
    git(
        around,
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "add",
        "-q",
        str(repository),
        "part",
    )
    done = init(around / "part")
    assert done.returncode == 0
    assert f"submodule of {around}" in done.stderr
    assert (around / "part/phasegate.toml").is_file()
    assert "/.phasegate/" in (around / ".git/modules/part/info/exclude").read_text()
    assert not (around / "phasegate.toml").exists()


# Starts that are refused, with the way out. Nothing is written.


def test_outside_of_any_repository(tmp_path: Path) -> None:
    done = init(tmp_path)
    assert done.returncode == 2
    assert "not in a git repository" in done.stderr
    assert "git init" in done.stderr
    assert [*tmp_path.iterdir()] == []


def test_in_a_bare_repository(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--bare", "it's bare.git")
    done = init(tmp_path / "it's bare.git")
    assert done.returncode == 2
    assert "bare repository" in done.stderr
    assert "git clone" in done.stderr
    assert not (tmp_path / "it's bare.git/phasegate.toml").exists()


def test_inside_the_git_directory(repository: Path) -> None:
    done = init(repository / ".git/refs")
    assert (done.returncode, f"cd {repository}" in done.stderr) == (2, True)


def test_in_a_repository_that_git_is_told_is_bare(repository: Path) -> None:
    git(repository, "config", "core.bare", "true")
    done = init(repository)
    assert (done.returncode, "core.bare false" in done.stderr) == (2, True)


def test_in_a_linked_worktree_the_main_one_is_named(repository: Path, tmp_path: Path) -> None:
    git(repository, "worktree", "add", "-q", str(tmp_path / "linked"))
    done = init(tmp_path / "linked")
    assert done.returncode == 2
    assert "linked worktree" in done.stderr
    assert f"cd {repository} && phasegate init" in done.stderr
    assert not (tmp_path / "linked/phasegate.toml").exists()


def test_in_the_checkout_of_a_package_the_repository_is_named(repository: Path) -> None:
    checkout = repository / ".worktrees/001-a-WP01"
    make_repository(checkout, {"a": "a"})
    done = init(checkout)
    assert (done.returncode, f"cd {repository} " in done.stderr) == (2, True)


def test_with_a_git_file_that_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("gitdir: /nowhere\n")
    done = init(tmp_path)
    assert (done.returncode, "git status" in done.stderr) == (2, True)


def test_with_a_configuration_that_is_wrong_its_place_is_named(repository: Path) -> None:
    (repository / "phasegate.toml").write_text("[run]\nparalel = 3\n")
    done = init(repository)
    assert done.returncode == 2
    assert "phasegate.toml:2: unknown key `paralel`" in done.stderr
    assert not (repository / ".agentd").exists()


@pytest.mark.parametrize("name", ["phasegate.toml", ".agentd"])
def test_with_something_else_in_place_of_a_file(name: str, repository: Path) -> None:
    (repository / name).mkdir() if name.endswith(".toml") else (repository / name).touch()
    done = init(repository)
    assert (
        done.returncode,
        "move it, then run init again" in done.stderr
        or "it is a folder, not a file" in done.stderr,
    ) == (
        2,
        True,
    )


def test_a_folder_that_leads_out_of_the_repository_is_not_written_to(
    repository: Path, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    (repository / ".agentd").symlink_to(tmp_path / "outside")
    done = init(repository)
    assert (done.returncode, "points outside" in done.stderr) == (2, True)
    assert [*(tmp_path / "outside").iterdir()] == []


def without_the_power_over_permissions() -> None:
    """Even root is bound by permissions in what is started now."""
    ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)  # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE


@pytest.mark.skipif(sys.platform != "linux", reason="prctl")
def test_in_a_folder_that_cannot_be_written(repository: Path) -> None:
    repository.chmod(stat.S_IRUSR | stat.S_IXUSR)
    command = [sys.executable, "-m", "phasegate", "init"]
    try:
        done = subprocess.run(
            command,
            cwd=repository,
            capture_output=True,
            text=True,
            preexec_fn=without_the_power_over_permissions,
        )
    finally:
        repository.chmod(0o755)
    assert done.returncode == 3
    assert "cannot be written: Permission denied" in done.stderr
    assert "writable" in done.stderr
    assert not (repository / "phasegate.toml").exists()


def test_a_wrong_argument_is_a_mistake_and_help_is_help(repository: Path) -> None:
    assert init(repository, "--jsn").returncode == 2
    assert "Examples:" in init(repository, "--help").stdout
    assert not (repository / "phasegate.toml").exists()


def test_a_reader_that_has_gone_is_no_error(repository: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "phasegate", "init"], cwd=repository, stdout=writing, stderr=-1
    )
    os.close(writing)
    assert b"Traceback" not in done.stderr
    assert done.returncode == 0


def test_the_quick_way_loads_no_heavy_module(repository: Path, tmp_path: Path) -> None:
    code = "import sys; sys.argv = ['phasegate', 'init']\nfrom phasegate.__main__ import main\nmain()\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], cwd=repository, capture_output=True, text=True
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    assert not loaded & {
        "click",
        "msgspec",
        "typing",
        "re",
        "pathlib",
        "tomllib",
        "json",
        "subprocess",
    }
