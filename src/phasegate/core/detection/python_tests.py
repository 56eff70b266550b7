"""How the tests of a Python project are run: pytest or unittest, with which options, in which folder."""

from __future__ import annotations

import re

from phasegate.core.detection.files import ProjectFiles, entry, texts_in
from phasegate.core.detection.model import FoundCommand
from phasegate.core.detection.python_requirements import RequirementSource, ini_section, tox_environments

_TEST_FILE = re.compile(r"(?:^|/)(?:test_[^/]*|[^/]*_tests?|tests?)\.py$|(?:^|/)tests?/[^/]*\.py$")
_ASIDE = re.compile(r"(?:^|/)(?:examples?|docs?|benchmarks?|bench|templates?|fixtures|vendor|node_modules)/")
TEST_FUNCTION = re.compile(r"^[ \t]*(?:async )?def test\w*\(", re.M)
# Options and settings of pytest that a plugin brings.
_PLUGINS = {
    "--cov": "pytest-cov", "-n": "pytest-xdist", "--numprocesses": "pytest-xdist", "--dist": "pytest-xdist",
    "--timeout": "pytest-timeout", "timeout": "pytest-timeout", "asyncio_mode": "pytest-asyncio",
    "--benchmark": "pytest-benchmark", "--disable-socket": "pytest-socket", "--allow-hosts": "pytest-socket",
    "--reruns": "pytest-rerunfailures", "--randomly": "pytest-randomly", "--mypy": "pytest-mypy",
    "env": "pytest-env", "DJANGO_SETTINGS_MODULE": "pytest-django", "--mock": "pytest-mock", "--snapshot": "syrupy",
}  # fmt: skip


def is_test_file(path: str) -> bool:
    """Whether a path has the name of a test file of Python."""
    return bool(_TEST_FILE.search(path)) and not _ASIDE.search(path)


def pytest_settings(files: ProjectFiles) -> dict[str, str]:
    """The settings of pytest, from the first file that has some."""
    for name in ("pytest.ini", ".pytest.ini"):
        if files.has(name):
            return ini_section(files.text(name), "pytest")
    options = entry(files.toml("pyproject.toml"), "tool", "pytest", "ini_options") or entry(
        files.toml("pyproject.toml"), "tool", "pytest"
    )
    if isinstance(options, dict) and options:
        return {
            key: " ".join(texts_in(value)) if isinstance(value, list) else str(value) for key, value in options.items()
        }
    return ini_section(files.text("tox.ini"), "pytest") or ini_section(files.text("setup.cfg"), "tool:pytest")


def command_of_tests(files: ProjectFiles, everything: list[RequirementSource]) -> FoundCommand:
    if runs_unittest(files, everything):
        return _unittest(files)
    settings = pytest_settings(files)
    options = settings.get("addopts", "")
    words = ["python3", "-m", "pytest"]
    if "--cov" in options:
        words.append("--no-cov")  # a threshold for coverage is no test
    words.append("-rfE")  # an `-r` of the project's own may hide which tests failed
    if re.search(r"-qq|-q .*-q\b", options):
        words.append("-v")  # so quiet that it would not say how many ran
    if "testpaths" not in settings and (folder := _main_folder(files)):
        words.append(folder)
    is_declared = any(source.has_runner for source in everything)
    why = "settings of pytest" if settings else "pytest is declared" if is_declared else "pytest by default"
    return FoundCommand(" ".join(words), why)


def _main_folder(files: ProjectFiles) -> str:
    """The folder to name where others hold files that only look like tests."""
    named = [path for path in files.paths if re.search(r"(?:^|/)(?:test_[^/]*|[^/]*_test)\.py$", path)]
    aside = [path for path in named if _ASIDE.search(path)]
    folder = next(
        (name for name in ("tests", "test", "testing") if any(path.startswith(f"{name}/") for path in named)), ""
    )
    return folder if aside else ""


def runs_unittest(files: ProjectFiles, everything: list[RequirementSource]) -> bool:
    """Whether its own commands run unittest; else whether its tests need no more and pytest is named nowhere."""
    environments = [one for name, one in tox_environments(files).items() if name == "testenv" or "py" in name]
    commands = " ".join(line for one in environments for line in one.commands)
    if re.search(r"-m unittest|\bunittest discover", commands) and "pytest" not in commands:
        return True
    if (
        files.has("pytest.ini", ".pytest.ini")
        or pytest_settings(files)
        or any(source.has_runner for source in everything)
        or "pytest" in commands
    ):
        return False
    texts = [text for path, text in files.texts.items() if is_test_file(path)]
    plain = any(
        re.search(r"^(?:async )?def test", text, re.M) or re.search(r"^\s*(?:import|from) pytest\b", text, re.M)
        for text in texts
    )
    return not plain and any(re.search(r"\bTestCase\b", text) for text in texts)


def _unittest(files: ProjectFiles) -> FoundCommand:
    folder = next((name for name in ("tests", "test") if any(path.startswith(f"{name}/") for path in files.paths)), "")
    if not folder:
        tests = [path.rpartition("/")[2] for path in files.paths if is_test_file(path)]
        pattern = "" if any(name.startswith("test") for name in tests) or not tests else " -p '*_test.py'"
        return FoundCommand(f"python3 -m unittest discover{pattern}", "tests are written for unittest")
    is_package = f"{folder}/__init__.py" in files.paths
    names = [path for path in files.paths if path.startswith(f"{folder}/") and path.endswith(".py")]
    pattern = "" if any(path.rpartition("/")[2].startswith("test") for path in names) else " -p '*test*.py'"
    top = " -t ." if is_package else ""
    return FoundCommand(f"python3 -m unittest discover -s {folder}{top}{pattern}", "tests are written for unittest")


def plugins_of(files: ProjectFiles) -> tuple[str, ...]:
    settings = pytest_settings(files)
    words = [*settings.get("addopts", "").split(), *(key for key in settings if key != "addopts")]
    found = (
        plugin
        for word in words
        for sign, plugin in _PLUGINS.items()
        if word == sign or (sign.startswith("--") and word.startswith(sign))
    )
    return tuple(dict.fromkeys(found))
