"""Detection on small samples of how projects are really made: texts in, commands with reasons out (R1)."""

from __future__ import annotations

import pytest

from phasegate.core.detection.files import ProjectFiles
from phasegate.core.detection.model import DetectedProject, MachineInfo
from phasegate.core.detection.roots import detect_project, find_project_roots, find_touched_roots

HERE = MachineInfo(
    frozenset(("npm", "pnpm", "yarn", "bun")),
    {"python3": (3, 11), "python3.13": (3, 13), "python3.12": (3, 12)},
)
BUILDABLE = '[build-system]\nrequires = ["hatchling"]\n[project]\nname = "sample"\n'


def detected(files: dict[str, str], machine: MachineInfo = HERE) -> DetectedProject:
    found = detect_project(ProjectFiles(frozenset(files), files), machine)
    assert found is not None
    return found


def installs(files: dict[str, str], machine: MachineInfo = HERE) -> list[str]:
    """What each candidate gives to pip, in order; an empty one installs nothing."""
    return [one.command.partition("pip install -q ")[2] for one in detected(files, machine).setups]


def test_a_file_that_tells_nothing_is_no_project() -> None:
    assert detect_project(ProjectFiles(frozenset(("README.md",)), {}), HERE) is None


@pytest.mark.demand("D8.h", "D8.i", "R1.a")
@pytest.mark.parametrize(
    ("files", "first", "reason"),
    [
        ({"pyproject.toml": BUILDABLE}, "", "it declares no dependencies"),
        ({"pyproject.toml": BUILDABLE + "dependencies = []\n"}, "", "it declares no dependencies"),
        ({"pyproject.toml": BUILDABLE, "requirements.txt": "# none yet\n\n"}, "", "it declares no dependencies"),
        (
            {"pyproject.toml": BUILDABLE + '[dependency-groups]\ntest = ["pytest>=8", {include-group = "x"}]\nx = ["six"]\n'},
            "-e . 'pytest>=8' six",
            "dependency group `test`",
        ),
        (
            {"pyproject.toml": BUILDABLE + '[dependency-groups]\nlint = ["ruff", "pytest"]\ndev = ["pytest"]\ntests = ["pytest"]\n'},
            "-e . pytest",
            "dependency group `tests`",
        ),
        (
            {"pyproject.toml": BUILDABLE + '[project.optional-dependencies]\ntest = ["pytest"]\ndocs = ["sphinx", "pytest"]\n'},
            "-e '.[test]'",
            "extra `test`",
        ),
        (
            {"setup.py": "setup(extras_require={'tests': tests_require})"},
            "-e '.[tests]'",
            "extra `tests` in setup.py",
        ),
        (
            {"setup.py": "setup()", "setup.cfg": "[options.extras_require]\ntesting =\n    pytest\n    mock\n"},
            "-e '.[testing]'",
            "extra `testing` in setup.cfg",
        ),
        (
            {"setup.py": "setup()", "requirements-dev.txt": "-r requirements.txt\n", "requirements.txt": "pytest==8\n"},
            "-e . -r requirements-dev.txt",
            "requirements-dev.txt",
        ),
        (
            {"setup.py": "setup()", "requirements/tests.txt": "pytest\n", "requirements/docs.txt": "pytest\n"},
            "-e . -r requirements/tests.txt",
            "requirements/tests.txt",
        ),
        (
            {"setup.py": "setup()", "tox.ini": "[tox]\n[testenv]\ndeps =\n    pytest\n    py38: mock\ncommands = pytest\n"},
            "-e . pytest mock",
            "tox environment `testenv`",
        ),
        (
            {"setup.py": "setup()", "noxfile.py": "def tests(session):\n    session.install('-e', '.', 'pytest', 'mock')\n"},
            "-e . pytest mock",
            "nox session `tests`",
        ),
        (
            {"pyproject.toml": BUILDABLE + '[tool.hatch.envs.hatch-test]\nextra-dependencies = ["mock"]\n'},
            "-e . mock pytest",
            "hatch environment `hatch-test`",
        ),
        (
            {"pyproject.toml": BUILDABLE + '[tool.poetry.group.dev.dependencies]\npytest = "^8.1"\nmock = "*"\n'},
            "-e . 'pytest>=8.1,<9' mock",
            "poetry group `dev`",
        ),
        ({"setup.py": "setup(tests_require=['pytest', 'mock'])"}, "-e . pytest mock", "tests_require"),
        (
            {"setup.py": "setup()", ".github/workflows/ci.yml": "run: pip install -e . pytest mock\n"},
            "-e . pytest mock",
            "`pip install -e . pytest mock` in .github/workflows/ci.yml",
        ),
        (
            {"setup.py": "setup()", "pytest.ini": "[pytest]\naddopts = --cov=x -n auto\nasyncio_mode = auto\n"},
            "-e . pytest pytest-cov pytest-xdist pytest-asyncio",
            "no test requirements are declared; pytest with pytest-cov, pytest-xdist, pytest-asyncio, which its settings of pytest need",
        ),
        (
            {"Pipfile": "", "Pipfile.lock": '{"default": {"six": {"version": "==1.16"}}, "develop": {"pytest": {"version": "==8.0"}}}'},
            "six==1.16 pytest==8.0",
            "Pipfile.lock",
        ),
    ],
)  # fmt: skip
def test_the_first_candidate_of_a_python_project_and_its_reason(
    files: dict[str, str], first: str, reason: str
) -> None:
    found = detected(files).setups[0]
    assert (found.command.partition("pip install -q ")[2], found.why) == (first, reason)


def test_a_lock_comes_before_everything_that_is_declared() -> None:
    text = BUILDABLE + '[dependency-groups]\ntests = ["pytest"]\n'
    with_uv = MachineInfo(frozenset(("uv",)), HERE.pythons)
    first = detected({"pyproject.toml": text, "uv.lock": ""}, with_uv).setups[0]
    assert first.command == "uv sync -q --frozen --python python3 --group tests"
    assert first.why == "uv.lock, dependency group `tests`"
    aside = detected({"pyproject.toml": text, "uv.lock": ""}).setups[0]
    assert aside.command.endswith(
        "&& .phasegate-tools/uv/bin/uv sync -q --frozen --python python3 --group tests"
    )
    assert "is not on the PATH" in aside.why
    linted = detected(
        {"pyproject.toml": text + "[tool.ruff]\nline-length = 99\n", "uv.lock": ""}
    ).setups[0]
    assert (
        "(.phasegate-tools/uv/bin/uv pip install -q --python .venv/bin/python ruff ||"
        in linted.command
    )


@pytest.mark.demand("R1.f")
def test_no_package_is_named_by_an_import() -> None:
    files = {
        "setup.py": "setup()",
        "tests/test_x.py": "import railroad\nimport yaml\ndef test_x(): pass\n",
    }
    assert not any("railroad" in line or "yaml" in line for line in installs(files))


def test_what_fails_is_followed_by_other_places_that_declare_a_runner() -> None:
    text = (
        BUILDABLE
        + '[dependency-groups]\ntest = ["pytest"]\n[project.optional-dependencies]\ndev = ["pytest", "mock"]\n'
    )
    assert (
        installs({"pyproject.toml": text})
        == ["-e . pytest", "-e '.[dev]'", "pytest -e '.[dev]'", "-e . pytest"][:3]
    )


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (">=3.9", "python3"),
        (">=3.12", "python3.13"),
        (">=3.12,<3.13", "python3.12"),
        ("~=3.11", "python3"),
        (">=4", "python3"),
    ],
)
def test_the_interpreter_is_the_one_that_the_project_asks_for(asked: str, expected: str) -> None:
    text = BUILDABLE + f'requires-python = "{asked}"\ndependencies = ["six"]\n'
    assert detected({"pyproject.toml": text}).setups[0].command.split(" ")[0] == expected


@pytest.mark.parametrize(
    ("hooks", "requirement", "told"),
    [
        ("- repo: https://github.com/astral-sh/ruff-pre-commit\n  rev: v0.4.4\n", "ruff==0.4.4", "names this version"),
        ("- repo: https://github.com/astral-sh/ruff-pre-commit\n  rev: 0a1b2c3d  # frozen: v0.5.1\n", "ruff==0.5.1", "names this version"),
        ("", "ruff", "not declared"),
    ],
)  # fmt: skip
def test_a_linter_that_is_configured_and_not_declared_is_installed_beside_and_that_is_said(
    hooks: str, requirement: str, told: str
) -> None:
    text = BUILDABLE + '[dependency-groups]\ntest = ["pytest"]\n[tool.ruff]\nline-length = 99\n'
    found = detected({"pyproject.toml": text, ".pre-commit-config.yaml": hooks})
    assert f"pip install -q {requirement} ||" in found.setups[0].command
    assert any(told in note for note in found.notes)
    assert (
        found.commands["lint"].command
        == "ruff check . --no-fix --extend-exclude .venv,.phasegate-tools"
    )


def test_a_linter_in_another_group_is_taken_in_the_version_of_that_group() -> None:
    text = (
        BUILDABLE
        + '[dependency-groups]\ntest = ["pytest"]\nlint = ["ruff==0.9.1"]\n[tool.ruff]\nline-length = 99\n'
    )
    assert "pip install -q ruff==0.9.1 ||" in detected({"pyproject.toml": text}).setups[0].command


UNITTEST = "import unittest\nclass T(unittest.TestCase):\n    def test_x(self): pass\n"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"setup.py": "", "tests/__init__.py": "", "tests/test_x.py": UNITTEST}, "python3 -m unittest discover -s tests -t ."),
        ({"setup.py": "", "tests/test_x.py": "import pytest\n" + UNITTEST}, "python3 -m pytest -rfE"),
        ({"setup.py": "", "pytest.ini": "[pytest]\n", "tests/test_x.py": UNITTEST}, "python3 -m pytest -rfE"),
        (
            {"setup.py": "", "tox.ini": "[testenv]\ncommands = python -m unittest discover tests\n", "tests/test_x.py": "def test_a(): pass"},
            "python3 -m unittest discover -s tests",
        ),
        (
            {"setup.py": "", "pytest.ini": "[pytest]\naddopts = --cov=x --cov-fail-under=100 -qq\n"},
            "python3 -m pytest --no-cov -rfE -v",
        ),
        (
            {"setup.py": "", "tests/test_x.py": "def test_a(): pass", "examples/test_y.py": "def test_b(): pass"},
            "python3 -m pytest -rfE tests",
        ),
    ],
)  # fmt: skip
def test_the_test_command_follows_the_settings_and_the_tests(
    files: dict[str, str], expected: str
) -> None:
    assert detected(files).commands["test"].command == expected


@pytest.mark.parametrize("text", ["", "[", '[project]\nname = 1\ndependencies = "x"\n', "[dependency-groups]\ntest = 3\n", '[tool.poetry.group.x]\ndependencies = []\n'])  # fmt: skip
def test_a_manifest_that_makes_no_sense_stops_nothing(text: str) -> None:
    assert detected(
        {"pyproject.toml": text, "setup.cfg": "[", "tox.ini": text, "Pipfile.lock": text}
    ).commands["test"]


def node(
    scripts: str = '"test": "vitest run"', more: str = '"devDependencies": {"vitest": "1"}'
) -> str:
    return f'{{"name": "thing", "scripts": {{{scripts}}}, {more}}}'


@pytest.mark.demand("R1.b")
@pytest.mark.parametrize(
    ("files", "run", "reason"),
    [
        (
            {"package-lock.json": ""},
            "npm ci --no-audit --no-fund --ignore-scripts",
            "package-lock.json",
        ),
        (
            {},
            "npm install --no-audit --no-fund --no-package-lock --ignore-scripts",
            "package.json, without a lock file",
        ),
        (
            {"package-lock.json": "", ".npmrc": "package-lock = false\n"},
            "npm install --no-audit --no-fund --no-package-lock --ignore-scripts",
            "package-lock.json",
        ),
        (
            {"pnpm-lock.yaml": ""},
            "pnpm install --frozen-lockfile --ignore-scripts",
            "pnpm-lock.yaml",
        ),
        (
            {"yarn.lock": "# yarn lockfile v1\n"},
            "yarn install --frozen-lockfile --ignore-scripts",
            "yarn.lock",
        ),
        ({"yarn.lock": "__metadata:\n  version: 8\n"}, "yarn install --immutable", "yarn.lock"),
        ({"bun.lock": ""}, "bun install --frozen-lockfile --ignore-scripts", "bun.lock"),
    ],
)
def test_the_package_manager_is_the_one_of_the_lock(
    files: dict[str, str], run: str, reason: str
) -> None:
    first = detected({"package.json": node(), **files}).setups[0]
    assert (first.command, first.why) == (run, reason)


@pytest.mark.demand("R1.b")
def test_the_package_manager_field_decides_between_two_locks() -> None:
    text = node(more='"packageManager": "pnpm@9.1.0", "devDependencies": {"vitest": "1"}')
    first = detected({"package.json": text, "pnpm-lock.yaml": "", "package-lock.json": ""}).setups[
        0
    ]
    assert (first.command.split()[0], first.why) == ("pnpm", "packageManager pnpm@9.1.0")


@pytest.mark.demand("R1.b")
@pytest.mark.parametrize(
    ("scripts", "test"),
    [
        ('"test": "vitest run"', "npm run test"),
        ('"test": "echo \\"Error: no test specified\\" && exit 1"', None),
        ('"unit": "mocha"', "npm run unit"),
        ('"test": "xo && ava && tsd"', "npm exec -c 'ava'"),
        (
            '"lint": "eslint .", "test": "npm run lint && nyc npm run spec", "spec": "mocha test/*.js -R spec"',
            "npm exec -c 'mocha test/*.js -R spec'",
        ),
        (
            '"pretest": "npm run lint", "lint": "eslint .", "test": "tape \'test/**/*.js\'"',
            """npm exec -c 'tape '"'"'test/**/*.js'"'"''""",
        ),
        ('"test": "rimraf mocha.js && node --test"', "npm exec -c 'node --test'"),
    ],
)
def test_of_a_test_script_only_the_tests_are_taken(scripts: str, test: str | None) -> None:
    found = detected({"package.json": node(scripts, '"devDependencies": {"x": "1"}')}).commands.get(
        "test"
    )
    assert (found.command if found else None) == test


@pytest.mark.demand("R1.b")
@pytest.mark.parametrize(
    ("scripts", "lint"),
    [
        ('"lint": "eslint ."', "npm run lint"),
        ('"lint": "eslint . --fix"', "npm exec -c 'eslint .'"),
        ('"lint": "biome lint --write", "lint:check": "biome lint"', "npm run lint:check"),
        ('"test": "xo && ava"', "npm exec -c 'xo'"),
    ],
)
def test_a_linter_never_writes(scripts: str, lint: str) -> None:
    assert detected({"package.json": node(scripts)}).commands["lint"].command == lint


@pytest.mark.demand("R1.c")
@pytest.mark.parametrize(
    ("files", "setup", "test"),
    [
        ({"go.mod": "module x\n"}, "go mod download", "go test -v ./..."),
        ({"go.mod": "module x\n", "vendor/modules.txt": ""}, "", "go test -v ./..."),
        (
            {"go.work": "go 1.22\nuse (\n\t./a\n\t./b\n)\n"},
            "go mod download",
            "go test -v ./a/... ./b/...",
        ),
        (
            {"Cargo.toml": "[workspace]\n", "Cargo.lock": ""},
            "cargo fetch --locked",
            "cargo test --all",
        ),
        (
            {"CMakeLists.txt": "project(thing C)\n"},
            "",
            "ctest --test-dir build --output-on-failure --no-tests=error",
        ),
        ({"Makefile": "all:\n\ttrue\ntest: all\n\ttrue\n"}, "", "make test"),
        ({"justfile": "test *args:\n  true\n"}, "", "just test"),
        ({"Taskfile.yml": "tasks:\n  test:\n    cmds: []\n"}, "", "task test"),
    ],
)
def test_projects_of_other_languages(files: dict[str, str], setup: str, test: str) -> None:
    found = detected(files)
    assert (found.setups[0].command, found.commands["test"].command) == (setup, test)


NPM = '{"name": "x", "scripts": {"test": "node --test"}}'


@pytest.mark.demand("R1.g", "R1.h")
@pytest.mark.parametrize(
    ("files", "roots"),
    [
        ({"README.md": ""}, [""]),
        ({"Makefile": "test:\n", "a/package.json": NPM, "b/go.mod": "module b", "b/x_test.go": ""}, ["a", "b"]),
        ({"package.json": '{"workspaces": ["packages/*", "!packages/old"], "scripts": {"test": "jest"}}', "packages/a/package.json": NPM, "packages/old/package.json": NPM}, ["", "packages/old"]),
        ({"web/package.json": NPM, "web/pnpm-workspace.yaml": "packages:\n  - 'libs/**'\ncatalog:\n  - x\n", "web/libs/a/b/package.json": NPM}, ["web"]),
        ({"Cargo.toml": '[workspace]\nmembers = ["crates/*"]', "crates/a/Cargo.toml": "[package]"}, [""]),
        ({"go.work": "use (\n\t./a\n)\n", "a/go.mod": "", "a/a_test.go": "", "b/go.mod": "", "b/b_test.go": ""}, ["", "b"]),
        ({"pyproject.toml": BUILDABLE, "tests/test_a.py": "", "tools/x/pyproject.toml": BUILDABLE, "docs/package.json": NPM}, [""]),
        ({"package.json": '{"name": "x", "scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}', "api/package.json": NPM}, ["api"]),
        ({"pom.xml": "<module>core</module>", "src/test/A.java": "", "core/pom.xml": "", "core/src/test/B.java": ""}, [""]),
        ({"svc/a/package.json": NPM, "svc/a/node_modules/x/package.json": NPM, "svc/b/package.json": '{"name": "no-tests"}'}, ["svc/a"]),
    ],
)  # fmt: skip
def test_each_folder_that_is_tested_by_itself_is_a_root(
    files: dict[str, str], roots: list[str]
) -> None:
    assert [*find_project_roots(ProjectFiles(frozenset(files), files))] == roots


@pytest.mark.demand("R1.g")
@pytest.mark.parametrize(
    ("scope", "touched"),
    [
        (["a/x.py"], ["a"]),
        (["a/**", "b"], ["a", "b"]),
        (["README.md"], [""]),
        (["*.py"], ["", "a", "b"]),
        (["c/d/**", "b/new.txt"], ["", "b"]),
        ([], ["", "a", "b"]),
    ],
)
def test_a_scope_touches_the_roots_that_it_can_reach(scope: list[str], touched: list[str]) -> None:
    assert [*find_touched_roots(["", "a", "b"], scope)] == touched
    assert find_touched_roots(["a", "b"], ["README.md"]) == ("a", "b"), (
        "what belongs to none may matter to each"
    )


@pytest.mark.demand("R1.b")
@pytest.mark.parametrize(
    ("more", "files", "package"),
    [
        ('"packageManager": "pnpm@9.1.0+sha512.ab", ', {}, "pnpm@9.1.0"),
        ("", {"pnpm-lock.yaml": "lockfileVersion: '9.0'\n"}, "pnpm@10"),
        ("", {"yarn.lock": "# yarn lockfile v1\n"}, "yarn@1"),
        (
            '"packageManager": "yarn@4.2.1", ',
            {"yarn.lock": "__metadata:\n"},
            "@yarnpkg/cli-dist@4.2.1",
        ),
        ("", {"bun.lock": "{}"}, "bun@latest"),
    ],
)
def test_a_package_manager_that_is_not_there_is_got_aside_in_the_projects_version(
    more: str, files: dict[str, str], package: str
) -> None:
    text = node(more=f'{more}"devDependencies": {{"vitest": "1"}}')
    found = detected({"package.json": text, **files}, MachineInfo(frozenset(("npm",))))
    assert found.setups[0].command.startswith(
        f"(npm install -g --no-audit --no-fund --prefix .phasegate-tools {package}"
    )
    last = found.setups[-1]
    assert last.test_command.startswith("npm "), "set up by npm, it is tested by npm"
    assert any(package in note for note in found.notes)


@pytest.mark.demand("R1.a")
def test_unittests_beside_the_code_are_found_by_their_names() -> None:
    case = "import unittest\nclass A(unittest.TestCase): pass\n"
    files = {
        "pyproject.toml": BUILDABLE,
        "thing/tests/__init__.py": "",
        "thing/tests/a_test.py": case,
    }
    assert detected(files).commands["test"].command == "python3 -m unittest discover -p '*_test.py'"
