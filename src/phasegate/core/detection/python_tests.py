"""How the tests of a Python project are run.

Pytest or unittest, with which options, in which folder.
"""

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
TEST_FUNCTION = re.compile(r"^[ \t]*(?:async )?def test\w*\(", re.M)
# Options and settings of pytest that a plugin brings.
_PLUGIN_BY_OPTION = {
    "--cov": "pytest-cov", "-n": "pytest-xdist", "--numprocesses": "pytest-xdist", "--dist": "pytest-xdist",
    "--timeout": "pytest-timeout", "timeout": "pytest-timeout", "asyncio_mode": "pytest-asyncio",
    "--benchmark": "pytest-benchmark", "--disable-socket": "pytest-socket", "--allow-hosts": "pytest-socket",
    "--reruns": "pytest-rerunfailures", "--randomly": "pytest-randomly", "--mypy": "pytest-mypy",
    "env": "pytest-env", "DJANGO_SETTINGS_MODULE": "pytest-django", "--mock": "pytest-mock", "--snapshot": "syrupy",
}  # fmt: skip


def is_test_file(path: str) -> bool:
    """Whether a path has the name of a test file of Python."""
    return bool(_TEST_FILE.search(path)) and not _NON_TEST_FOLDERS.search(path)


def read_pytest_settings(files: ProjectFiles) -> dict[str, str]:
    """The settings of pytest, from the first file that has some."""
    for name in ("pytest.ini", ".pytest.ini"):
        if files.find_first(name):
            return read_ini_section(files.get_text(name), "pytest")

    options = get_nested(
        files.load_toml("pyproject.toml"), "tool", "pytest", "ini_options"
    ) or get_nested(files.load_toml("pyproject.toml"), "tool", "pytest")
    if isinstance(options, dict) and options:
        return {
            key: " ".join(list_strings(value)) if isinstance(value, list) else str(value)
            for key, value in options.items()
        }

    return read_ini_section(files.get_text("tox.ini"), "pytest") or read_ini_section(
        files.get_text("setup.cfg"), "tool:pytest"
    )


def build_test_command(files: ProjectFiles, all_sources: list[RequirementSource]) -> FoundCommand:
    if uses_unittest(files, all_sources):
        return _build_unittest_command(files)

    settings = read_pytest_settings(files)
    options = settings.get("addopts", "")
    words = ["python3", "-m", "pytest"]
    if "--cov" in options:
        # A threshold for coverage is no test
        words.append("--no-cov")

    # An `-r` of the project's own may hide which tests failed
    words.append("-rfE")
    if re.search(r"-qq|-q .*-q\b", options):
        # So quiet that it would not say how many ran
        words.append("-v")
    if "testpaths" not in settings and (folder := _find_test_folder(files)):
        words.append(folder)

    is_declared = any(source.has_test_runner for source in all_sources)
    if settings:
        why = "settings of pytest"
    elif is_declared:
        why = "pytest is declared"
    else:
        why = "pytest by default"

    return FoundCommand(" ".join(words), why)


def _find_test_folder(files: ProjectFiles) -> str:
    """The folder to name where others hold files that only look like tests."""
    named = [
        path for path in files.paths if re.search(r"(?:^|/)(?:test_[^/]*|[^/]*_test)\.py$", path)
    ]
    aside = [path for path in named if _NON_TEST_FOLDERS.search(path)]
    folder = next(
        (
            name
            for name in ("tests", "test", "testing")
            if any(path.startswith(f"{name}/") for path in named)
        ),
        "",
    )

    if aside:
        return folder

    return ""


def uses_unittest(files: ProjectFiles, all_sources: list[RequirementSource]) -> bool:
    """Whether its own commands run unittest.

    Else whether its tests need no more and pytest is named nowhere.
    """
    environments = [
        one
        for name, one in read_tox_environments(files).items()
        if name == "testenv" or "py" in name
    ]
    commands = " ".join(line for one in environments for line in one.commands)
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
    plain = any(
        re.search(r"^(?:async )?def test", text, re.M)
        or re.search(r"^\s*(?:import|from) pytest\b", text, re.M)
        for text in texts
    )

    return not plain and any(re.search(r"\bTestCase\b", text) for text in texts)


def _build_unittest_command(files: ProjectFiles) -> FoundCommand:
    folder = next(
        (
            name
            for name in ("tests", "test")
            if any(path.startswith(f"{name}/") for path in files.paths)
        ),
        "",
    )

    if not folder:
        tests = [path.rpartition("/")[2] for path in files.paths if is_test_file(path)]
        if any(name.startswith("test") for name in tests) or not tests:
            pattern = ""
        else:
            pattern = " -p '*_test.py'"

        return FoundCommand(
            f"python3 -m unittest discover{pattern}", "tests are written for unittest"
        )

    is_package = f"{folder}/__init__.py" in files.paths
    names = [path for path in files.paths if path.startswith(f"{folder}/") and path.endswith(".py")]
    if any(path.rpartition("/")[2].startswith("test") for path in names):
        pattern = ""
    else:
        pattern = " -p '*test*.py'"

    top = " -t ." if is_package else ""
    return FoundCommand(
        f"python3 -m unittest discover -s {folder}{top}{pattern}", "tests are written for unittest"
    )


def find_pytest_plugins(files: ProjectFiles) -> tuple[str, ...]:
    settings = read_pytest_settings(files)
    words = [*settings.get("addopts", "").split(), *(key for key in settings if key != "addopts")]
    found = (
        plugin
        for word in words
        for sign, plugin in _PLUGIN_BY_OPTION.items()
        if word == sign or (sign.startswith("--") and word.startswith(sign))
    )
    return tuple(dict.fromkeys(found))
