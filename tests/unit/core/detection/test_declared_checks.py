"""Every check that a project itself runs is asked for, or it is said why not; none repairs."""

from __future__ import annotations

import json

from phasegate.core.detection.files import ProjectFiles
from phasegate.core.detection.model import DetectedProject, MachineInfo
from phasegate.core.detection.node import detect_node
from phasegate.core.detection.python import detect_python

UNKNOWN = "not asked for, because Phasegate does not recognize it as a check: "
EXCLUDED = ".venv,.phasegate-tools"


def detect_scripts(scripts: dict[str, str], workflow: str = "") -> DetectedProject:
    manifest = {"scripts": scripts, "devDependencies": {"ava": "1", "vitest": "1"}}
    texts = {"package.json": json.dumps(manifest), ".github/workflows/ci.yml": workflow}
    found = detect_node(ProjectFiles(frozenset(texts), texts), MachineInfo(frozenset({"npm"})))
    assert found is not None
    return found


def detect_files(texts: dict[str, str]) -> DetectedProject:
    machine = MachineInfo(frozenset({"uv"}), {"python3": (3, 11)})
    found = detect_python(ProjectFiles(frozenset(texts), texts), machine)
    assert found is not None
    return found


def lines(found: DetectedProject) -> dict[str, str]:
    return {purpose: command.command for purpose, command in found.commands.items()}


def test_the_type_tests_and_the_linter_of_a_test_script_are_asked_for() -> None:
    assert lines(detect_scripts({"test": "xo && c8 ava && tsd && tsc --noEmit"})) == {
        "test": "npm exec -c 'ava'",
        "lint": "npm exec -c 'xo'",
        "typecheck": "npm exec -c 'tsd' && npm exec -c 'tsc --noEmit'",
    }


def test_scripts_run_by_npm_run_all_are_read_and_what_is_unknown_is_said() -> None:
    scripts = {
        "test": "run-s lint 'test:*'",
        "lint": "eslint --fix .",
        "test:unit": "vitest run",
        "test:types": "tsc --noEmit",
        "test:size": "size-limit",
        "deploy": "eslint deploy",
    }
    workflow = (
        "    steps:\n      - run: npx prettier --write .\n      - run: |\n          npm test\n"
    )
    found = detect_scripts(scripts, workflow)
    assert lines(found) == {
        "test": "npm exec -c 'vitest run'",
        "lint": "npm exec -c 'eslint .' && npm exec -c 'prettier --check .'",
        "typecheck": "npm run test:types",
    }
    assert found.notes == (f"{UNKNOWN}`size-limit` (script `test`)",)


def test_a_script_that_only_tests_has_no_notes() -> None:
    found = detect_scripts({"test": "vitest run"})
    assert (lines(found)["test"], found.notes) == ("npm run test", ())


def test_environments_of_tox_and_hooks_of_pre_commit_are_asked_for() -> None:
    found = detect_files(
        {
            "pyproject.toml": "[project]\nname='x'\n[tool.mypy]\nstrict=true\n[tool.ruff]\nfix=true\n",
            "tox.ini": "[testenv]\ncommands = pytest {posargs}\n"
            "[testenv:mypy]\ncommands = mypy . {posargs}\n"
            "[testenv:docs]\ncommands = sphinx-build -W docs out\n",
            ".pre-commit-config.yaml": "- repo: https://github.com/psf/black-pre-commit-mirror\n"
            "  rev: 24.1.0\n  hooks:\n  - id: black\n",
            "src/x/__init__.py": "",
        }
    )
    commands = lines(found)
    assert commands["typecheck"] == "mypy .", "the project's own target, not a guess"
    assert commands["lint"] == (
        f"ruff check . --no-fix --extend-exclude {EXCLUDED}"
        r" && black --check . --extend-exclude '/(\.venv|\.phasegate-tools)/'"
    )
    assert "black 24.1.0 is added: .pre-commit-config.yaml names this version" in found.notes
    assert found.notes[-1] == f"{UNKNOWN}`sphinx-build -W docs out` (tox environment docs)"


def test_what_ci_and_nox_run_is_asked_for_without_repairing() -> None:
    workflow = """
      - name: Check
        run: |
          pip install -e .
          uv run pytest -v
          python -m mypy pkg tests
          isort .
          cog --check README.md
      - run: ruff check --fix src ${{ matrix.flags }}
"""
    found = detect_files(
        {
            "setup.py": "from setuptools import setup\nsetup(name='pkg')",
            "mypy.ini": "[mypy]\n",
            ".github/workflows/test.yml": workflow,
            "noxfile.py": "def lint(session):\n    session.run('ruff', '--fix', 'src')\n",
        }
    )
    commands = lines(found)
    assert commands["typecheck"] == "mypy pkg tests"
    assert commands["lint"] == (
        "isort --check-only . --skip .venv --skip .phasegate-tools && ruff check --no-fix src"
    )
    assert found.notes[-1] == f"{UNKNOWN}`cog --check README.md` (CI)"


def test_a_command_of_several_lines_and_the_options_of_a_runner_are_no_unknown_checks() -> None:
    found = detect_files(
        {
            "pyproject.toml": "[project]\nname='x'\n",
            "tox.ini": "[testenv]\ncommands =\n    {envpython} -m pytest \\\n"
            "      --cov tests \\\n      {posargs}\n",
            ".github/workflows/ci.yml": "    steps:\n      - run: uvx --with tox-uv tox -e mypy\n"
            "      - run: uvx --from tools-of-x vulture src\n",
        }
    )
    notes = [note for note in found.notes if note.startswith(UNKNOWN)]
    assert notes == [f"{UNKNOWN}`vulture src` (CI)"]
