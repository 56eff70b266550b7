"""Run sealed acceptance tests in a checkout, and write the outcome of each test to a file.

This file is copied next to the tests and started there: `python run.py pytest|unittest FILE...`. It
imports the runner before the code of the checkout can be imported, and compares the runner's
functions afterwards. `nonce` is read and removed first; the report contains it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import FunctionType
from typing import Any, cast

HERE = Path(__file__).parent
_WATCHED = ("pytest", "_pytest", "pluggy", "unittest", "builtins")


def run_pytest(files: list[str]) -> dict[str, str]:
    """Run files with pytest: no conftest, no settings of the project, no plugins."""
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    import pytest

    outcomes: dict[str, str] = {}

    class Recorder:
        """Collects the outcome of each test."""

        def pytest_runtest_logreport(self, report: Any) -> None:
            outcome = report.outcome
            if hasattr(report, "wasxfail"):
                outcome = "xfailed"
            if report.when == "call" or outcome != "passed":
                outcomes[report.nodeid] = outcome

    settings = HERE / "pytest.ini"
    settings.write_text("[pytest]\naddopts =\n", encoding="utf-8")
    options = ("-q", "--noconftest", "--import-mode=importlib", "-p", "no:cacheprovider")
    paths = [str(HERE / name) for name in files]
    pytest.main([*options, "-c", str(settings), "--rootdir", str(HERE), *paths], [Recorder()])
    return outcomes


def run_unittest(files: list[str]) -> dict[str, str]:
    """Run files with unittest; a file that cannot be imported has no tests."""
    import importlib.util
    import unittest

    outcomes: dict[str, str] = {}
    for name in files:
        spec = importlib.util.spec_from_file_location(name.removesuffix(".py"), HERE / name)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            print(f"{name}: {error!r}")
            continue

        for suite in unittest.defaultTestLoader.loadTestsFromModule(module):
            for test in cast(Any, suite):
                result = test.run()
                bad = [*result.failures, *result.errors]
                outcome = "passed"
                if bad:
                    outcome = "failed"
                elif result.skipped or result.expectedFailures or result.unexpectedSuccesses:
                    outcome = "skipped"

                method = test.id().rpartition(".")[2]
                outcomes[f"{name}::{type(test).__name__}::{method}"] = outcome
                print("".join(text for _, text in bad))

    return outcomes


def list_functions() -> dict[str, object]:
    """Return the functions of the runner, by name."""
    found: dict[str, object] = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] not in _WATCHED:
            continue
        for key, value in list(vars(module).items()):
            found[f"{name}.{key}"] = value
            if isinstance(value, type) and value.__module__ == name:
                found |= {f"{name}.{key}.{inner}": one for inner, one in vars(value).items()}

    return {
        name: getattr(one, "__code__", one)
        for name, one in found.items()
        if isinstance(one, FunctionType | type)
    }


def main() -> None:
    """Run the tests and write the report."""
    runner, *files = sys.argv[1:]
    nonce = (HERE / "nonce").read_text(encoding="utf-8")
    (HERE / "nonce").unlink()
    __import__(runner)
    before = list_functions()
    sys.path[:0] = [str(Path.cwd()), str(Path.cwd() / "src")]
    run = run_pytest if runner == "pytest" else run_unittest
    outcomes = run(files)
    after = list_functions()
    changed = sorted(name for name in before if after.get(name) is not before[name])
    report = {"nonce": nonce, "outcomes": outcomes, "changed": changed}
    (HERE / "report.json").write_text(json.dumps(report), encoding="utf-8")


if __name__ == "__main__":
    main()
