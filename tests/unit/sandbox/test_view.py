"""What a sandboxed job sees: shown, hidden, writable."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from phasegate.errors import ConfigError
from phasegate.sandbox import readable_paths
from phasegate.sandbox.environment import build_environment
from phasegate.sandbox.job import SandboxedJob
from phasegate.sandbox.request import SandboxLevel
from support.sandboxed import SANDBOXED, Room, make_room

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="not enforceable here: no sandbox on this system"
)
sandboxed = pytest.mark.parametrize("level", SANDBOXED)
# Says of each path what can be done with it.
TRY = """
    import pathlib, sys
    for name in sys.argv[2:]:
        path = pathlib.Path(name)
        said = "absent"
        if path.is_file():
            said = "readable" if path.read_bytes() else "empty"
            try:
                path.write_bytes(b"x")
                said = "writable"
            except OSError:
                pass
        print(path.name, said)
"""


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return make_room(tmp_path)


def tried(room: Room, level: SandboxLevel, *paths: Path, **changes: object) -> dict[str, str]:
    outcome = SandboxedJob(
        room.request(TRY, level, *(str(path) for path in paths), **changes)
    ).run()
    assert outcome.exit_code == 0, outcome.stderr.text
    return dict(line.split() for line in outcome.stdout.text.splitlines())  # type: ignore[misc]


def make(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(path.name)
    return path


@sandboxed
def test_what_is_not_named_is_not_there(room: Room, level: SandboxLevel) -> None:
    inside, outside = make(room.worktree / "inside"), make(room.root / "outside/file")
    assert tried(room, level, inside, outside) == {"inside": "writable", "file": "absent"}


@sandboxed
def test_what_is_named_can_be_read_and_not_written_except_for_what_is_hidden_in_it(
    room: Room, level: SandboxLevel
) -> None:
    repository = room.root / "repo"
    files = [
        make(repository / name)
        for name in ("spec.md", ".phasegate/store", ".git/config", ".worktrees/mine/code", ".env")
    ]
    hidden = tuple(
        repository / name for name in (".phasegate", ".git", ".worktrees", ".env", "not-there")
    )
    mine = repository / ".worktrees/mine"
    seen = tried(
        room, level, *files, readable=(repository,), hidden=hidden, writable=(mine,), cwd=mine
    )
    assert seen == {
        "spec.md": "readable",
        "store": "absent",
        "config": "absent",
        "code": "writable",
        ".env": "absent",
    }


@sandboxed
def test_a_part_of_the_worktree_can_be_hidden_or_made_read_only(
    room: Room, level: SandboxLevel
) -> None:
    free, fixed, secret = (make(room.worktree / name) for name in ("free/a", "fixed/b", "secret/c"))
    seen = tried(
        room, level, free, fixed, secret, readable=(fixed.parent,), hidden=(secret.parent,)
    )
    assert seen == {"a": "writable", "b": "readable", "c": "absent"}


@sandboxed
def test_a_command_that_lies_in_the_worktree_leaves_it_writable(
    room: Room, level: SandboxLevel
) -> None:
    script = room.worktree / "bin/agent"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\necho work > bin/result\n")
    script.chmod(0o755)
    outcome = SandboxedJob(
        room.program(("./bin/agent",), level, configured_command=("./bin/agent", str(script)))
    ).run()
    assert (outcome.exit_code, (room.worktree / "bin/result").read_text()) == (0, "work\n")


@sandboxed
def test_a_script_in_a_repository_shows_itself_and_not_the_repository(
    room: Room, level: SandboxLevel
) -> None:
    repository = room.root / "repo"
    script, store = make(repository / "agent.py"), make(repository / ".git/config")
    command = ("true", str(script))
    assert tried(room, level, script, store, configured_command=command) == {
        "agent.py": "readable",
        "config": "absent",
    }


@sandboxed
def test_a_named_file_that_is_secret_is_not_shown(
    room: Room, level: SandboxLevel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path that gets into a command by mistake, or by somebody's text, opens no secret folder."""
    monkeypatch.setenv("HOME", str(room.root / "person"))
    key, plain = make(room.root / "person/.ssh/id_rsa"), make(room.root / "person/plain/settings")
    command = ("true", str(key), str(plain))
    assert tried(room, level, key, plain, configured_command=command) == {
        "id_rsa": "absent",
        "settings": "readable",
    }


@sandboxed
def test_a_worktree_that_is_a_link_is_refused(room: Room, level: SandboxLevel) -> None:
    elsewhere = room.root / "elsewhere"
    elsewhere.mkdir()
    link = room.root / "link"
    link.symlink_to(elsewhere)
    for refused in (link, room.root / "missing", Path("/"), Path("/usr"), Path("/etc/..")):
        with pytest.raises(ConfigError):
            SandboxedJob(room.program(("true",), level, writable=(refused,))).run()


@sandboxed
def test_a_repository_that_is_reached_through_a_link_works(room: Room, level: SandboxLevel) -> None:
    (room.root / "link").symlink_to(room.root)
    through = room.root / "link"
    request = room.program(
        ("sh", "-c", "touch work; touch ~/x; pwd"), level, writable=(through / "worktree",)
    )
    outcome = SandboxedJob(request._replace(cwd=through / "worktree", folder=through / "job")).run()
    assert (outcome.exit_code, outcome.stdout.text) == (0, f"{room.worktree}\n"), (
        outcome.stderr.text
    )
    assert (room.worktree / "work").exists()
    assert (room.root / "job/home/x").exists()


@sandboxed
def test_a_home_that_is_a_link_shows_its_programs_and_hides_its_secrets(
    room: Room, level: SandboxLevel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where /home is a link to /var/home: the person's names and the real ones differ."""
    real, home = room.root / "var-home", room.root / "home"
    home.symlink_to(real)
    monkeypatch.setenv("HOME", str(home))
    key, tool = make(real / ".ssh/id_rsa"), make(real / ".local/share/tool/1/tool")
    tool.write_text("#!/bin/sh\nprintf data")
    tool.chmod(0o755)
    (real / ".local/bin").mkdir()
    (real / ".local/bin/tool").symlink_to("../share/tool/1/tool")
    env = build_environment(values={"PATH": f"{home}/.local/bin:/usr/bin:/bin"})
    assert SandboxedJob(room.program(("tool",), level, env=env)).run().stdout.text == "data"
    assert tried(room, level, key, home / ".ssh/id_rsa", readable=(home,), env=env) == {
        "id_rsa": "absent"
    }


@sandboxed
def test_names_may_hold_anything(room: Room, level: SandboxLevel) -> None:
    odd = room.root / "a b'\"$\n--bind"
    odd.mkdir()
    assert tried(room, level, make(odd / "file"), readable=(odd,)) == {"file": "readable"}


def test_a_program_brings_its_installation_and_nothing_wider(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    home = tmp_path / "home"
    cases = {
        "tools/x/bin/tool": "tools/x",
        "tools/y/tool": "tools/y",
        ".local/bin/tool": ".local/bin",
        "bin/tool": "bin",
        "tool": "tool",
        ".cargo/bin/tool": ".cargo/bin",
        ".config/app/tool": ".config/app/tool",
        "p/node_modules/.bin/tool": "p/node_modules",
        "p/node_modules/a/node_modules/b/cli.js": "p/node_modules",
    }
    for name, shown in cases.items():
        found = readable_paths.find_command_paths((str(make(home / name)),), "", writable=[])
        assert found == [str(home / shown)], name


def test_the_tool_chains_behind_the_path_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    make(home / ".rustup/toolchains/stable/bin/rustc")
    make(home / ".cargo/bin/rustc")
    path = build_environment(values={"PATH": f"{home}/.cargo/bin:/usr/bin"})["PATH"]
    shown = readable_paths.find_command_paths(("rustc",), path, writable=[])
    assert {f"{home}/.rustup", f"{home}/.cargo/bin"} <= {*shown}
    assert f"{home}/.cargo" not in shown
    assert f"{home}/.rustup" not in readable_paths.find_command_paths(
        ("true",), "/usr/bin", writable=[]
    )


@sandboxed
def test_a_link_in_a_writable_folder_shows_nothing_outside_of_it(
    room: Room, level: SandboxLevel
) -> None:
    """Whether it is named to be read, lies on PATH or is the command: a job that ran there before may have made it."""
    private = make(room.root / "private/letter")
    programs = room.worktree / "bin"
    programs.mkdir()
    for name in ("letter", "tool"):
        (programs / name).symlink_to(private)
    env = {**build_environment(), "PATH": f"{programs}:{os.environ['PATH']}"}
    asked = {
        "readable": (programs / "letter",),
        "env": env,
        "configured_command": (str(programs / "tool"), str(programs / "letter")),
    }
    assert tried(room, level, private, **asked) == {"letter": "absent"}
    assert tried(room, level, private, readable=(private,)) == {"letter": "readable"}
