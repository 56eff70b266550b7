"""Setups run with the person's trust: what an agent wrote must neither fill their cache nor see their credentials."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from phasegate.checks.registry_access import get_anonymous_access, get_user_access, list_credentials
from phasegate.core.workflow.workflow_phases import WORKFLOWS
from phasegate.sandbox.probe import probe_level
from phasegate.sandbox.request import SandboxLevel
from support.dispatch_project import SLUG, Step, approves, make_project, package, turn
from support.feature_project import (
    DESCRIPTION,
    PASS,
    FeatureProject,
    builds,
    document,
    file,
    plans,
    says,
)
from support.feature_project import SLUG as FEATURE_SLUG
from support.git_project import git, make_repository

# An honest setup brings no Python: tests are run by the one that is there. The agent's setup puts another one first on
# the PATH, which passes everything.
HONEST = "mkdir -p .venv/bin; echo made > .venv/made\n"
FAKE = "#!/bin/sh\\necho Ran 1 test in 0.1s >&2; echo OK >&2\\n"
LYING = f"{HONEST}printf '{FAKE}' > .venv/bin/python3; chmod +x .venv/bin/python3\n"
TEST = """\
import pathlib, unittest


class T(unittest.TestCase):
    def test_{name}(self):
        self.assertIn('{wanted}', pathlib.Path('src/code.txt').read_text())
"""
FILES = {
    "setup.sh": "sh tools/inner.sh\n",
    "tools/inner.sh": HONEST,
    "src/code.txt": "good\n",
    "tests/test_old.py": TEST.format(name="old", wanted="o"),
    "pyproject.toml": "",
}
SETTINGS = (
    '\n[checks.python]\nsetup = "sh setup.sh"\ntest = "python3 -m unittest discover -s tests"\n'
)
PLAN = """\
# Tasks

- [ ] 1.1 Change the code
  - File: src/code.txt, setup.sh, tools/inner.sh
  - Unchanged: setup.sh, tools/inner.sh
  - Spec: FR-BYE-001
  - Do: change it.
"""


def story(folder: Path, planted: str) -> FeatureProject:
    """A feature whose agent plants a fake interpreter, is told by a reviewer to take it away, and does."""
    scenario = folder / "scenario.json"
    agent = f'[agents.actor]\nharness = "scripted"\nscenario = {json.dumps(str(scenario))}\n'
    phases = '[phases."08-code-review"]\ncommands = ["test"]\n'
    # The measurement of tests would find the lie in round 1. Here the lie has to reach a reviewer.
    unmeasured = "[evidence]\nenabled = false\n"
    settings = f"{agent}{SETTINGS}{phases}{unmeasured}"
    make_repository(folder / "repo", {**FILES, "phasegate.toml": settings})
    project = FeatureProject(folder / "repo", scenario)
    plants = [file("src/code.txt", "bold\n"), file(planted, LYING)]
    project.play(
        plans("01-requirements", WORKFLOWS["quick"]) | {"steps": [*_documents(), PASS]},
        builds("WP01", *plants, round=1),
        builds("WP01", file(planted, FILES[planted])),
        builds(
            "WP02", file("src/code.txt", "bold as before\n")
        ),  # sent back from the merge, it fixes nothing
        says("review", "NEEDS_CHANGES", "A fake interpreter.", package="WP01", round=1),
        *(turn(phase, PASS) for phase in ("challenge", "review", "archive")),
    )
    return project


def _documents() -> list[Step]:
    return [
        document(name, PLAN if name == "tasks.md" else None)
        for name in ("proposal.md", "spec.md", "tasks.md")
    ]


@pytest.mark.demand("R4.b", "R4.f")
@pytest.mark.parametrize("planted", ["setup.sh", "tools/inner.sh"])
def test_a_fake_interpreter_that_an_agents_setup_planted_turns_no_later_merge_green(
    tmp_path: Path, planted: str
) -> None:
    """Planted in the setup or in its helper, passed by its own lie, rejected by the reviewer, mended. Then main gets a
    test that the feature breaks: `complete` must refuse."""
    project = story(tmp_path, planted)
    done = project.command("run", "quick", DESCRIPTION)
    assert "WP01: review: NEEDS_CHANGES" in done.stdout + done.stderr, done.stdout + done.stderr
    assert "WP01: DONE" in done.stdout + done.stderr
    lied = next((project.root / ".phasegate/evidence").rglob("WP01-1.md")).read_text()
    assert "test: passed - 1 test ran" in lied, (
        "control: in its own tree the fake interpreter passes"
    )
    assert "restored from the cache" not in lied, (
        "a tree whose setup reads another file is set up anew"
    )
    assert project.show(f"feat/{FEATURE_SLUG}", planted) == FILES[planted]
    (project.root / "tests/test_new.py").write_text(TEST.format(name="new", wanted="good"))
    git(project.root, "add", "-A")
    git(project.root, "commit", "-qm", "A test that holds on main")
    assert project.command("check").code == 0, "control: main is green, its new test included"
    refused = project.command("complete")
    assert refused.code == 1
    assert "sent back: the checks fail" in refused.stderr
    assert "test: 1 of 2 tests failed" in refused.stderr
    assert project.git("show", "main:src/code.txt") == "good"
    kept = [*(project.root / ".phasegate/setups").glob("*/files/.venv/bin/python3")]
    assert kept == [], "the cache holds what the person's trees made, and nothing else"
    for folder in (project.root / ".phasegate/setups").glob("*/files/.venv"):
        fake = folder / "bin/python3"
        fake.parent.mkdir(exist_ok=True)
        fake.write_text(FAKE.replace("\\n", "\n"))
        fake.chmod(0o755)
    said = [project.command("resolve", "try again"), project.command("run", "--merge")]
    assert project.git("show", "main:src/code.txt") == "bold as before", (
        f"control: a poisoned cache would have merged it: {said}"
    )


@pytest.mark.demand("R4.a")
def test_the_second_check_of_a_base_takes_its_setup_from_the_cache(tmp_path: Path) -> None:
    counted = {
        **FILES,
        "setup.sh": "sh tools/inner.sh; echo ran >> .venv/runs; wc -l < .venv/runs\n",
    }
    project = make_project(
        tmp_path, {"WP01": package(files=["src/new.txt"], checks={})}, files=counted, run=SETTINGS
    )
    project.play(
        turn(
            "implement",
            {"write": "src/new.txt", "content": "x\n"},
            {"commit": "{wp_id}: Add"},
            {"result": "success"},
        ),
        approves(),
    )
    assert project.dispatch().accepted
    evidence = (project.root / f".phasegate/evidence/{SLUG}/WP01-1.md").read_text()
    assert "setup: passed - restored from the cache" in evidence


TOKEN = "canary-token-4711"
PASSWORD = "canary-password-0815"


def person(home: Path) -> dict[str, str]:
    (home / ".config/pip").mkdir(parents=True)
    (home / ".config/pip/pip.conf").write_text(
        f"[global]\nindex-url = https://me:{PASSWORD}@mirror.invalid/simple\ntimeout = 9\n"
    )
    (home / ".npmrc").write_text(
        f"registry=https://mirror.invalid/npm\n//mirror.invalid/npm/:_authToken={TOKEN}\n"
    )
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
    whole, plain = get_user_access(environ), get_anonymous_access(environ)
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
    assert {TOKEN.encode(), PASSWORD.encode()} <= {*list_credentials(whole)}


LOOK = (
    "env; cat $PIP_CONFIG_FILE $NPM_CONFIG_USERCONFIG; grep -rsh canary- /tmp $HOME . 2>/dev/null"
)


@pytest.mark.demand("R4.d")
@pytest.mark.skipif(
    not probe_level(SandboxLevel.OFFLINE).is_supported,
    reason="not enforceable here: there is no sandbox",
)
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
    settings = f"{SETTINGS}lint = {json.dumps(LOOK + '; exit 1')}\n"
    changed = {"write": "setup.sh", "content": files["setup.sh"] + LOOK + "; exit 1\n"}
    scope = ["src/new.txt", "setup.sh"]
    project = make_project(
        tmp_path,
        {"WP01": package(files=["src/new.txt"], file_scope=scope, checks={})},
        files=files,
        run=settings,
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
    (sizes,) = [
        path.read_text().split()
        for path in (project.root / ".phasegate/setups").glob("*/files/.venv/seen")
    ]
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
