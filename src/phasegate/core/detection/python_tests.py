"""Detect how the tests of a Python project are run: pytest or unittest, options and folder."""

from __future__ import annotations

import re

from phasegate.core.detection.files import ProjectFiles, get_nested, list_strings
from phasegate.core.detection.model import FoundCommand
from phasegate.core.detection.python_requirements import (
    RequirementSource,
    read_ini_section,
    read_tox_environments,
)

_TEST_FILE = re.compile(r"(?:^|/)(?:test_[^/]*|[^/]*_tests?|tests?)\.py$|(?:^|/)tests?/[^/]*\.py$")
_NON_TEST_FOLDERS = re.compile(
    r"(?:^|/)(?:examples?|docs?|benchmarks?|bench|templates?|fixtures|vendor|node_modules)/"
)
_PYTEST_TESTS = re.compile(r"^(?:async )?def test|^\s*(?:import|from) pytest\b", re.M)
TEST_FUNCTION = re.compile(r"^[ \t]*(?:async )?def test\w*\(", re.M)
# Options and settings of pytest, with the plugin that provides them
_PLUGIN_BY_OPTION = {
    "--cov": "pytest-cov",
    "-n": "pytest-xdist",
    "--numprocesses": "pytest-xdist",
    "--dist": "pytest-xdist",
    "--timeout": "pytest-timeout",
    "timeout": "pytest-timeout",
    "asyncio_mode": "pytest-asyncio",
    "--benchmark": "pytest-benchmark",
    "--disable-socket": "pytest-socket",
    "--allow-hosts": "pytest-socket",
    "--reruns": "pytest-rerunfailures",
    "--randomly": "pytest-randomly",
    "--mypy": "pytest-mypy",
    "env": "pytest-env",
    "DJANGO_SETTINGS_MODULE": "pytest-django",
    "--mock": "pytest-mock",
    "--snapshot": "syrupy",
}


def is_test_file(path: str) -> bool:
    """Return True if a path is named like a test file of Python."""
    return bool(_TEST_FILE.search(path)) and not _NON_TEST_FOLDERS.search(path)


def read_pytest_settings(files: ProjectFiles) -> dict[str, str]:
    """Read the settings of pytest from the first file that has some."""
    for name in ("pytest.ini", ".pytest.ini"):
        if files.find_first(name):
            return read_ini_section(files.get_text(name), "pytest")

    table = get_nested(files.load_toml("pyproject.toml"), "tool", "pytest")
    options = get_nested(table, "ini_options") or table
    if isinstance(options, dict) and options:
        return {
            key: " ".join(list_strings(value)) if isinstance(value, list) else str(value)
            for key, value in options.items()
        }

    return read_ini_section(files.get_text("tox.ini"), "pytest") or read_ini_section(
        files.get_text("setup.cfg"), "tool:pytest"
    )


def build_test_command(files: ProjectFiles, all_sources: list[RequirementSource]) -> FoundCommand:
    """Build the command that runs the tests, with the reason for it."""
    if uses_unittest(files, all_sources):
        return _build_unittest_command(files)

    settings = read_pytest_settings(files)
    options = settings.get("addopts", "")
    words = ["python3", "-m", "pytest"]
    if "--cov" in options:
        # A coverage threshold is not a test
        words.append("--no-cov")

    # The project's own `-r` may hide which tests failed
    words.append("-rfE")
    if re.search(r"-qq|-q .*-q\b", options):
        # Otherwise the output would not have the number of tests
        words.append("-v")
    if "testpaths" not in settings and (folder := _find_test_folder(files)):
        words.append(folder)

    if settings:
        why = "settings of pytest"
    elif any(source.has_test_runner for source in all_sources):
        why = "pytest is declared"
    else:
        why = "pytest by default"

    return FoundCommand(" ".join(words), why)


def _find_test_folder(files: ProjectFiles) -> str:
    """Return the test folder, if files elsewhere are only named like tests."""
    named = [
        path for path in files.paths if re.search(r"(?:^|/)(?:test_[^/]*|[^/]*_test)\.py$", path)
    ]
    if not any(_NON_TEST_FOLDERS.search(path) for path in named):
        return ""

    for folder in ("tests", "test", "testing"):
        if any(path.startswith(f"{folder}/") for path in named):
            return folder

    return ""


def uses_unittest(files: ProjectFiles, all_sources: list[RequirementSource]) -> bool:
    """Return True if the commands of the project run unittest.

    Without such commands, return True if the tests need only unittest and nothing mentions pytest.
    """
    lines: list[str] = []
    for name, environment in read_tox_environments(files).items():
        if name == "testenv" or "py" in name:
            lines += environment.commands

    commands = " ".join(lines)
    if re.search(r"-m unittest|\bunittest discover", commands) and "pytest" not in commands:
        return True

    if (
        files.find_first("pytest.ini", ".pytest.ini")
        or read_pytest_settings(files)
        or any(source.has_test_runner for source in all_sources)
        or "pytest" in commands
    ):
        return False

    texts = [text for path, text in files.texts.items() if is_test_file(path)]
    if any(_PYTEST_TESTS.search(text) for text in texts):
        return False

    return any(re.search(r"\bTestCase\b", text) for text in texts)


def _build_unittest_command(files: ProjectFiles) -> FoundCommand:
    """Build a `unittest discover` command that finds the project's test files."""
    command = "python3 -m unittest discover"
    folders = {path.partition("/")[0] for path in files.paths if "/" in path}
    folder = next((name for name in ("tests", "test") if name in folders), "")

    if folder:
        command += f" -s {folder}"
        if f"{folder}/__init__.py" in files.paths:
            command += " -t ."

        paths = [path for path in files.paths if path.startswith(f"{folder}/")]
        modules = [path for path in paths if path.endswith(".py")]
        pattern = "*test*.py"
    else:
        modules = [path for path in files.paths if is_test_file(path)]
        pattern = "*_test.py" if modules else ""

    # The default pattern is test*.py
    if pattern and not any(path.rpartition("/")[2].startswith("test") for path in modules):
        command += f" -p '{pattern}'"

    return FoundCommand(command, "tests are written for unittest")


def find_pytest_plugins(files: ProjectFiles) -> tuple[str, ...]:
    """Return the plugins that the settings of pytest need."""
    settings = read_pytest_settings(files)
    words = [*settings.get("addopts", "").split(), *(key for key in settings if key != "addopts")]
    plugins: dict[str, None] = {}
    for word in words:
        for option, plugin in _PLUGIN_BY_OPTION.items():
            if word == option or (option.startswith("--") and word.startswith(option)):
                plugins[plugin] = None

    return tuple(plugins)
