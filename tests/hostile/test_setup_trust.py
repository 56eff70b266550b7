"""Setups run with the person's trust: what an agent wrote must neither fill their cache nor see their credentials."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from phasegate.cage.level import Level
from phasegate.cage.probe import holding
from phasegate.checks.registry_access import credentials_in, person_access, plain_access
from phasegate.engine.phase_checks import check_merge, run_commands
from support.dispatch_project import SLUG, DispatchProject, approves, make_project, package, turn
from support.git_project import git

SUMMARY = "1 passed in 0.01s"
HONEST = f"#!/bin/sh\\ngrep -q good src/code.txt && echo '{SUMMARY}'\\n"
LYING = f"#!/bin/sh\\necho '{SUMMARY}'\\n"
FILES = {
    "setup.sh": "sh tools/inner.sh\n",
    "tools/inner.sh": f'mkdir -p .venv/bin; printf "{HONEST}" > .venv/bin/judge; chmod +x .venv/bin/judge\n',
    "src/code.txt": "good\n",
    "pyproject.toml": "",
}
SETTINGS = '\n[checks.python]\nsetup = "sh setup.sh"\ntest = "judge"\n'


def committed(project: DispatchProject, files: dict[str, str], message: str) -> str:
    for name, text in files.items():
        (project.root / name).write_text(text)
    git(project.root, "commit", "-qam", message)
    return project.git("rev-parse", "HEAD")


@pytest.mark.demand("R4.b")
def test_a_program_that_an_agents_setup_planted_turns_no_later_merge_green(tmp_path: Path) -> None:
    """A phase's check sets an agent's tree up; the merged tree after it must be judged by the person's program."""
    project = make_project(tmp_path, files=FILES, run=SETTINGS)
    base = project.git("rev-parse", "main")
    project.git("switch", "-qc", f"feat/{SLUG}")
    planting = committed(
        project, {"tools/inner.sh": FILES["tools/inner.sh"].replace(HONEST, LYING), "src/code.txt": "bad\n"}, "plant"
    )
    red = committed(project, {"tools/inner.sh": FILES["tools/inner.sh"]}, "take the traces away")
    project.git("switch", "-q", "main")
    for commit in (planting, planting):
        run_commands(project.project, SLUG, base, commit, ("test",))
    merged = check_merge(project.project, SLUG, base, red)
    assert [check.name for check in merged.failures] == ["test"]
    kept = [path.read_text() for path in (project.root / ".phasegate/setups").glob("*/files/.venv/bin/judge")]
    assert kept == [HONEST.replace("\\n", "\n")], "the cache holds what the person's tree made, and nothing else"
    project.git("switch", "-qc", f"feat/{SLUG}-WP01", planting)
    git(project.root, "commit", "-q", "--allow-empty", "-m", "control")
    planted = git(project.root, "show", "HEAD:tools/inner.sh")
    assert "grep" not in planted, "control: the agent's setup would have planted a program that always passes"


@pytest.mark.demand("R4.a")
def test_the_second_check_of_a_base_takes_its_setup_from_the_cache(tmp_path: Path) -> None:
    counted = {**FILES, "setup.sh": "sh tools/inner.sh; echo ran >> .venv/runs; wc -l < .venv/runs\n"}
    project = make_project(tmp_path, {"WP01": package(files=["src/new.txt"], checks={})}, files=counted, run=SETTINGS)
    project.play(
        turn(
            "implement", {"write": "src/new.txt", "content": "x\n"}, {"commit": "{wp_id}: Add"}, {"result": "success"}
        ),
        approves(),
    )
    assert project.dispatch().accepted
    evidence = (project.root / f".phasegate/evidence/{SLUG}/WP01-1.md").read_text()
    assert "setup: passed - taken from the cache" in evidence


TOKEN = "canary-token-4711"
PASSWORD = "canary-password-0815"


def person(home: Path) -> dict[str, str]:
    (home / ".config/pip").mkdir(parents=True)
    (home / ".config/pip/pip.conf").write_text(
        f"[global]\nindex-url = https://me:{PASSWORD}@mirror.invalid/simple\ntimeout = 9\n"
    )
    (home / ".npmrc").write_text(f"registry=https://mirror.invalid/npm\n//mirror.invalid/npm/:_authToken={TOKEN}\n")
    return {
        "HOME": str(home),
        "PATH": "/usr/bin:/bin",
        "UV_INDEX_URL": f"https://me:{PASSWORD}@mirror.invalid/simple",
        "UV_INDEX_PRIVATE_PASSWORD": PASSWORD,
        "NPM_TOKEN": TOKEN,
        "HTTPS_PROXY": f"http://me:{PASSWORD}@proxy.invalid:3128",
        "SSL_CERT_FILE": "/etc/hosts",
        "GOPROXY": "https://go.invalid",
        "ANTHROPIC_API_KEY": "canary-not-for-setups",
        "PIP_TARGET": "/somewhere",
    }


@pytest.mark.demand("R4.c", "R4.d")
def test_registry_settings_are_given_whole_to_the_persons_setups_and_without_credentials_to_others(
    tmp_path: Path,
) -> None:
    environ = person(tmp_path)
    whole, plain = person_access(environ), plain_access(environ)
    assert whole.env["PIP_CONFIG_FILE"] == str(tmp_path / ".config/pip/pip.conf")
    assert whole.env["NPM_CONFIG_USERCONFIG"] == str(tmp_path / ".npmrc")
    assert Path(whole.env["PIP_CONFIG_FILE"]) in whole.readable
    assert whole.env["HTTPS_PROXY"] == environ["HTTPS_PROXY"], "control"
    assert not {"ANTHROPIC_API_KEY", "PIP_TARGET"} & {*whole.env}
    assert plain.env["PIP_INDEX_URL"] == "https://mirror.invalid/simple"
    assert plain.env["npm_config_registry"] == "https://mirror.invalid/npm"
    assert plain.env["HTTPS_PROXY"] == "http://proxy.invalid:3128"
    assert plain.env["SSL_CERT_FILE"] == "/etc/hosts"
    said = json.dumps([plain.env, [*map(str, plain.readable)]])
    assert not any(secret in said for secret in (TOKEN, PASSWORD, ".npmrc", "pip.conf"))
    assert {TOKEN.encode(), PASSWORD.encode()} <= {*credentials_in(whole)}


LOOK = "env; cat $PIP_CONFIG_FILE $NPM_CONFIG_USERCONFIG; grep -rsh canary- /tmp $HOME . 2>/dev/null"


@pytest.mark.demand("R4.d")
@pytest.mark.skipif(not holding(Level.OFFLINE).holds, reason="not enforceable here: there is no sandbox")
def test_no_credential_reaches_a_command_that_runs_an_agents_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The setup of the person's tree sees them (control), the tests and the setup of an agent's tree do not."""
    home = tmp_path / "person"
    home.mkdir()
    for name, value in person(home).items():
        if name != "PATH":
            monkeypatch.setenv(name, value)
    seen = "sh -c 'cat $PIP_CONFIG_FILE | wc -c; echo $HTTPS_PROXY | wc -c' > .venv/seen"
    files = {**FILES, "setup.sh": f"sh tools/inner.sh; {seen}; cat $PIP_CONFIG_FILE\n"}
    settings = f'\n[checks.python]\nsetup = "sh setup.sh"\ntest = "judge"\nlint = {json.dumps(LOOK + "; exit 1")}\n'
    changed = {"write": "setup.sh", "content": files["setup.sh"] + LOOK + "; exit 1\n"}
    scope = ["src/new.txt", "setup.sh"]
    project = make_project(
        tmp_path, {"WP01": package(files=["src/new.txt"], file_scope=scope, checks={})}, files=files, run=settings
    )
    project.play(
        turn(
            "implement",
            {"write": "src/new.txt", "content": "x\n"},
            changed,
            {"commit": "{wp_id}: Look"},
            {"result": "success"},
        ),
        approves(),
    )
    project.dispatch()
    (sizes,) = [path.read_text().split() for path in (project.root / ".phasegate/setups").glob("*/files/.venv/seen")]
    assert int(sizes[0]) > 50, "control: the person's setup read the person's settings"
    assert int(sizes[1]) > 30, "control"
    told = [
        path
        for path in (project.root / ".phasegate").rglob("*")
        if path.is_file() and path.suffix in (".md", ".log", ".json", ".xml")
    ]
    assert told
    for path in told:
        text = path.read_text(errors="replace")
        assert TOKEN not in text, path
        assert PASSWORD not in text, path
