"""What a job learns and inherits (ATTACKS D11, L01, L02, L03, L05), and that its command works all the same."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import uuid
from contextlib import ExitStack
from pathlib import Path

import pytest

import phasegate
from phasegate.sandbox.environment import build_environment
from phasegate.sandbox.job import SandboxedJob
from phasegate.sandbox.request import SandboxLevel
from support.sandboxed import (
    ALL_LEVELS,
    PYTHON,
    SANDBOXED,
    Room,
    eventually,
    make_room,
    unprotected,
)

linux_only = pytest.mark.skipif(
    sys.platform != "linux", reason="not enforceable here: no sandbox on this system"
)
every_level = pytest.mark.parametrize("level", ALL_LEVELS)
sandboxed = pytest.mark.parametrize("level", SANDBOXED)
DUMP_ENVIRONMENT = "import os; print(dict(os.environ))"


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return make_room(tmp_path)


@every_level
def test_a_job_gets_the_allowed_variables_and_no_other(
    room: Room, level: SandboxLevel, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = uuid.uuid4().hex
    names = [f"CANARY_{number}" for number in range(50)]
    for name in names:
        monkeypatch.setenv(name, canary)
    with unprotected(room, DUMP_ENVIRONMENT) as careless:
        assert careless.communicate()[0].count(canary.encode()) == 50
    request = room.request(
        DUMP_ENVIRONMENT, level, env=build_environment(["CANARY_7"], {"GIVEN": "value"})
    )
    said = SandboxedJob(request).run().stdout.text
    assert said.count(canary) == 1
    env = eval(said)
    assert (env.pop("CANARY_7"), env.pop("GIVEN"), env.pop("PHASEGATE_JOB")) == (
        canary,
        "value",
        request.tag,
    )
    known = {
        "PATH",
        "LANG",
        "LANGUAGE",
        "LC_ALL",
        "LC_CTYPE",
        "TZ",
        "TERM",
        "HOME",
        "TMPDIR",
        "PWD",
    }
    tool_chains = {
        "JAVA_HOME",
        "GOROOT",
        "RUSTUP_HOME",
        "PYENV_ROOT",
        "RBENV_ROOT",
        "NVM_DIR",
        "VOLTA_HOME",
        "ASDF_DATA_DIR",
    }
    assert env.keys() <= known | tool_chains
    assert env["TERM"] == "dumb"


@every_level
def test_a_check_gets_no_key_of_the_agents(
    room: Room, level: SandboxLevel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "canary-key")
    agent = SandboxedJob(
        room.request(DUMP_ENVIRONMENT, level, env=build_environment(["ANTHROPIC_API_KEY"]))
    ).run()
    assert "canary-key" in agent.stdout.text  # the control: where it is allowed, it is there
    check = SandboxedJob(room.request(DUMP_ENVIRONMENT, level, env=build_environment())).run()
    assert "canary-key" not in check.stdout.text


@every_level
def test_no_file_of_the_repository_changes_the_environment(room: Room, level: SandboxLevel) -> None:
    for name in (".env", ".envrc", "pyvenv.cfg", ".claude/settings.json", "sitecustomize.py"):
        (room.worktree / name).parent.mkdir(exist_ok=True)
        (room.worktree / name).write_text(
            "ANTHROPIC_BASE_URL=http://evil.test\nraise SystemExit('evil')\n"
        )
    said = SandboxedJob(room.request(DUMP_ENVIRONMENT, level)).run()
    assert said.exit_code == 0
    assert "evil" not in said.stdout.text


@every_level
def test_a_job_inherits_three_descriptors_and_no_other(room: Room, level: SandboxLevel) -> None:
    code = "import os; print([n for n in range(256) if os.path.exists(f'/dev/fd/{n}')])"
    with ExitStack() as stack:
        audit = stack.enter_context((room.root / "audit.jsonl").open("ab"))
        lock = stack.enter_context((room.root / "lock").open("wb"))
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        held = [audit.fileno(), lock.fileno(), listener.fileno()]
        for descriptor in held:
            os.set_inheritable(descriptor, True)
        with unprotected(room, code, close_fds=False) as careless:
            seen = eval(careless.communicate()[0])
            assert set(held) <= set(seen)
        assert SandboxedJob(room.request(code, level)).run().stdout.text == "[0, 1, 2]\n"


@every_level
def test_no_secret_is_on_any_command_line(room: Room, level: SandboxLevel) -> None:
    """Sampled while the job runs: every command line of the machine, for a value of the environment and the prompt."""
    secret, prompt = uuid.uuid4().hex, uuid.uuid4().hex
    code = "import pathlib, time\npathlib.Path('ready').touch()\nwhile not pathlib.Path('go').exists(): time.sleep(0.01)"
    seen: list[bytes] = []

    def sample() -> None:
        eventually((room.worktree / "ready").exists)
        seen.append(all_command_lines())
        (room.worktree / "go").touch()

    thread = threading.Thread(target=sample)
    thread.start()
    outcome = SandboxedJob(
        room.request(
            code, level, env=build_environment(values={"KEY": secret}), stdin=prompt.encode()
        )
    ).run()
    thread.join()
    assert outcome.exit_code == 0
    assert room.token.encode() in seen[0]  # the job itself was seen
    assert secret.encode() not in seen[0]
    assert prompt.encode() not in seen[0]
    with subprocess.Popen(
        ["env", f"KEY={secret}", "sh", "-c", "read x; :", secret], stdin=subprocess.PIPE
    ) as careless:
        assert eventually(
            lambda: secret.encode() in all_command_lines()
        )  # the control: so it would have been seen
        careless.communicate()


def all_command_lines() -> bytes:
    lines = b""
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                lines += Path(entry.path, "cmdline").read_bytes()
            except OSError:
                continue
    return lines


SECRETS = (
    ".ssh/id_ed25519",
    ".aws/credentials",
    ".config/gh/hosts.yml",
    ".local/share/keyrings/login.keyring",
    ".docker/config.json",
    ".gnupg/private-keys-v1.d/key",
    ".netrc",
    ".npmrc",
    ".git-credentials",
    ".cargo/credentials.toml",
    ".claude/.credentials.json",
    ".bash_history",
    "documents/letter",
)
SOCKETS = ("run/ssh-agent.sock", "run/docker.sock", "run/keyring/control")
# Reads what it is told to, from inside; what it got is written to the worktree.
LOOTER = """
    import os, pathlib, socket, sys
    loot = pathlib.Path("loot").open("ab", buffering=0)
    for name in sys.argv[2:]:
        try:
            if name.endswith((".sock", "control")):
                with socket.socket(socket.AF_UNIX) as client:
                    os.chdir(os.path.dirname(name))
                    client.connect(os.path.basename(name))
                    loot.write(client.recv(100))
            else:
                loot.write(pathlib.Path(name).read_bytes())
        except OSError as error:
            print(name, error.strerror)
    print("work done")
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person's home folder with secrets of all kinds; the canary is the same in each."""
    folder = tmp_path / "person"
    for name in SECRETS:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("canary " + name)
    (folder / ".cargo/bin").mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("PATH", f"{folder}/.cargo/bin:{os.environ['PATH']}")
    return folder


@linux_only
@sandboxed
def test_no_secret_of_the_person_can_be_read_or_asked_for(
    room: Room, home: Path, level: SandboxLevel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    with ExitStack() as stack:
        for name in SOCKETS:
            serve_canary(stack, name)
        targets = [str(home / name) for name in (*SECRETS, *SOCKETS)]
        with unprotected(room, LOOTER, *targets, stderr=subprocess.DEVNULL) as careless:
            careless.communicate()
        assert (room.worktree / "loot").read_bytes().count(b"canary") == len(targets)
        (room.worktree / "loot").unlink()
        outcome = SandboxedJob(
            room.request(
                LOOTER, level, *targets, env=build_environment(), readable=(home / ".cargo",)
            )
        ).run()
    assert outcome.stdout.text.endswith("work done\n")
    assert b"canary" not in (room.worktree / "loot").read_bytes()
    assert (
        outcome.stdout.text.count("No such file") + outcome.stdout.text.count("Not a directory")
        >= len(targets) - 2
    )


def serve_canary(stack: ExitStack, name: str) -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    listener = stack.enter_context(socket.socket(socket.AF_UNIX))
    listener.bind(name)
    listener.listen()

    def serve() -> None:
        try:
            while True:
                with listener.accept()[0] as client:
                    client.sendall(b"canary socket")
        except OSError:
            return

    thread = threading.Thread(target=serve)
    thread.start()
    stack.callback(thread.join)
    stack.callback(listener.shutdown, socket.SHUT_RDWR)


@linux_only
@sandboxed
def test_even_a_home_that_is_shown_keeps_its_secrets(
    room: Room, home: Path, level: SandboxLevel
) -> None:
    targets = [str(home / name) for name in SECRETS]
    outcome = SandboxedJob(room.request(LOOTER, level, *targets, readable=(home,))).run()
    assert outcome.exit_code == 0
    assert (room.worktree / "loot").read_text() == "canary documents/letter"


@linux_only
@sandboxed
def test_services_of_the_machine_are_not_there(room: Room, level: SandboxLevel) -> None:
    code = """
        import os, sys
        def listed(folder):
            return sorted(os.listdir(folder))
        print([place for place in sys.argv[2:] if os.path.exists(place)])
        print(listed("/tmp") == listed(os.environ["TMPDIR"]) == listed("/var/tmp"))
    """
    shown = [
        phasegate.__file__,
        *os.environ["PATH"].split(os.pathsep),
    ]  # an ordinary user has them in the home folder
    places = [
        "/run",
        "/var/run",
        "/home",
        "/root/.ssh",
        "/mnt",
        "/media",
        "/srv",
        "/boot",
        "/sys/fs",
        "/sys/kernel",
    ]
    hidden = [place for place in places if not any(path.startswith(f"{place}/") for path in shown)]
    assert SandboxedJob(room.request(code, level, *hidden)).run().stdout.text.splitlines() == [
        "[]",
        "True",
    ]


@linux_only
@sandboxed
@pytest.mark.skipif(os.geteuid() != 0, reason="invalid: only root could read these files at all")
def test_what_only_root_may_read_in_the_systems_settings_is_covered(
    room: Room, level: SandboxLevel
) -> None:
    shadow = Path("/etc/shadow").read_bytes()
    assert shadow
    outcome = SandboxedJob(room.request(LOOTER, level, "/etc/shadow")).run()
    assert outcome.stdout.text.endswith("work done\n")
    assert (room.worktree / "loot").read_bytes() == b""


# --- the configured command works wherever it lies


def install_linked(home: Path) -> list[str]:
    """As native installers do: a link in ~/.local/bin to a version far away, with data beside it."""
    versions = home / ".local/share/agent/versions/1.2"
    versions.mkdir(parents=True)
    (versions / "data").write_text("data")
    (versions / "agent").write_text('#!/bin/sh\ncat "$(dirname "$(readlink -f "$0")")/data"\n')
    (versions / "agent").chmod(0o755)
    (home / ".local/bin").mkdir()
    (home / ".local/bin/agent").symlink_to("../share/agent/versions/1.2/agent")
    return [str(home / ".local/bin/agent")]


def install_node_package(home: Path) -> list[str]:
    """As npm does: a script deep in node_modules that needs its neighbour there."""
    modules = home / ".npm-global/lib/node_modules"
    for package, text in (
        ("agent", 'require("helper")'),
        ("helper", 'process.stdout.write("data")'),
    ):
        (modules / package).mkdir(parents=True)
        (modules / package / "index.js").write_text(f"#!/usr/bin/env node\n{text}\n")
        (modules / package / "index.js").chmod(0o755)
    (home / ".npm-global/bin").mkdir()
    (home / ".npm-global/bin/agent").symlink_to("../lib/node_modules/agent/index.js")
    return [str(home / ".npm-global/bin/agent")]


def install_virtual_environment(home: Path) -> list[str]:
    """As pipx does: a script whose first line names an interpreter in a virtual environment of its own."""
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", home / "venvs/agent"], check=True)
    (home / "venvs/agent/agentlib.py").write_text("print('data', end='')")
    script = home / "venvs/agent/bin/agent"
    script.write_text(
        f"#!{home}/venvs/agent/bin/python\nimport sys\nsys.path.append(sys.prefix)\nimport agentlib\n"
    )
    script.chmod(0o755)
    return [str(script)]


def install_script_with_interpreter(home: Path) -> list[str]:
    """`command = ["python3", "/path/agent.py"]`: the script is an argument, and imports its neighbour."""
    (home / "agents").mkdir()
    (home / "agents/neighbour.py").write_text("print('data', end='')")
    (home / "agents/agent.py").write_text("import neighbour")
    return [PYTHON, str(home / "agents/agent.py")]


def install_lonely_script(home: Path) -> list[str]:
    """A script in the home folder itself: only the script is shown, not the folder."""
    (home / "agent.sh").write_text(
        "#!/bin/sh\nls -A ~/../person 2>/dev/null | grep -v agent.sh | tr -d '\\n'; printf data\n"
    )
    (home / "agent.sh").chmod(0o755)
    return [str(home / "agent.sh")]


@linux_only
@every_level
@pytest.mark.parametrize(
    "install",
    [
        install_linked,
        install_node_package,
        install_virtual_environment,
        install_script_with_interpreter,
        install_lonely_script,
    ],
)
@pytest.mark.parametrize("by_name", [True, False])
def test_a_command_below_the_home_folder_works_and_its_secrets_stay_covered(
    room: Room, home: Path, level: SandboxLevel, install: object, by_name: bool
) -> None:
    if install is install_node_package and not shutil.which("node"):
        pytest.skip("node is not installed")
    command = install(home)  # type: ignore[operator]
    path = build_environment()["PATH"]
    if by_name and len(command) == 1:
        path = f"{Path(command[0]).parent}:{path}"
        command = [Path(command[0]).name]
    request = room.program(
        tuple(command),
        level,
        configured_command=tuple(command),
        env=build_environment(values={"PATH": path}),
    )
    outcome = SandboxedJob(request).run()
    assert (outcome.stdout.text, outcome.exit_code) == ("data", 0), outcome.stderr.text
    if level.is_sandboxed:
        targets = [str(home / name) for name in SECRETS]
        env = build_environment(values={"PATH": path})
        looter = SandboxedJob(room.request(LOOTER, level, *targets, env=env)).run()
        assert looter.stdout.text.endswith("work done\n")
        assert (room.worktree / "loot").read_text() == ""
