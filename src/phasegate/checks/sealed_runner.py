"""Run sealed acceptance tests in a checkout, and write the outcome of each test to a file.

This file is copied next to the tests and started there: `python run.py pytest|unittest FILE...`. It
starts itself again for each file, with the bytes that it read before any code of the checkout ran,
so that one file cannot change the next. Such a process imports the runner before the code under
test can be imported, and compares the runner's functions afterwards. Reports are authenticated with
a key that the code under test is not given: `nonce`, which is read and removed first.
"""

from __future__ import annotations

import functools
import hmac
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, cast

HERE = Path(__file__).parent
ONE_FILE = "--one-file"
_WATCHED = ("pytest", "_pytest", "pluggy", "unittest", "builtins")
# Events and attributes that lead to the variables of the functions that run the tests
_FRAME_EVENTS = (
    *("sys._getframe", "sys._current_frames", "sys._current_exceptions", "sys.settrace"),
    *("sys.setprofile", "gc.get_objects", "gc.get_referrers", "gc.get_referents"),
)
_FRAME_FIELDS = ("tb_frame", "gi_frame", "cr_frame", "ag_frame")
# Library functions that return frames to their caller
_FRAME_GETTERS = (
    *("currentframe", "stack", "trace", "getouterframes", "getinnerframes"),
    *("walk_tb", "walk_stack", "<lambda>"),
)


def run_pytest(files: list[str]) -> dict[str, str]:
    """Run files with pytest: no conftest, no settings of the project, no plugins."""
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    import pytest

    outcomes: dict[str, str] = {}
    raised: set[str] = set()

    class Recorder:
        """Collects the outcome of each test."""

        @pytest.hookimpl(hookwrapper=True)
        def pytest_pyfunc_call(self, pyfuncitem: Any) -> Any:
            """Note a test that raised, before the runner makes a report of it."""
            result = yield
            if result.excinfo is not None:
                raised.add(pyfuncitem.nodeid)

        def pytest_runtest_logreport(self, report: Any) -> None:
            outcome = report.outcome
            if hasattr(report, "wasxfail"):
                outcome = "xfailed"
            if report.when == "call" or outcome != "passed":
                outcomes[report.nodeid] = outcome

    settings = HERE / "pytest.ini"
    settings.write_text("[pytest]\naddopts =\n", encoding="utf-8")
    options = ["-q", "--noconftest", "--import-mode=importlib", "-c", str(settings)]
    # The last two keep the configuration in modules, where the code under test could find it
    options += ["-p", "no:cacheprovider", "-p", "no:assertion", "-p", "no:debugging"]
    paths = [str(HERE / name) for name in files]
    pytest.main([*options, "--rootdir", str(HERE), *paths], [Recorder()])
    return {
        test: "failed" if test in raised and outcome == "passed" else outcome
        for test, outcome in outcomes.items()
    }


def run_unittest(files: list[str]) -> dict[str, str]:
    """Run files with unittest; a file that cannot be imported has no tests."""
    import importlib.util
    import unittest

    outcomes: dict[str, str] = {}
    # Copies: a replaced method of the class, or its replaced code, has no effect on the tests
    own = {
        name: copy_function(one)
        for name, one in vars(unittest.TestCase).items()
        if isinstance(one, FunctionType) and not name.startswith("__")
        if name not in ("run", "setUp", "tearDown", "id", "debug", "shortDescription")
    }
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
                vars(test).update((key, one.__get__(test)) for key, one in own.items())
                raised = note_exceptions(test)
                result = test.run()
                bad = [*result.failures, *result.errors]
                outcome = "passed"
                if bad or (raised and not result.skipped and not result.expectedFailures):
                    outcome = "failed"
                elif result.skipped or result.expectedFailures or result.unexpectedSuccesses:
                    outcome = "skipped"

                method = test.id().rpartition(".")[2]
                outcomes[f"{name}::{type(test).__name__}::{method}"] = outcome
                print("".join(text for _, text in bad))

    return outcomes


def note_exceptions(test: Any) -> list[str]:
    """Return a list that gets an entry if the test raises, even if its runner hides that."""
    raised: list[str] = []
    method = getattr(test, test._testMethodName)

    @functools.wraps(method)
    def call() -> Any:
        try:
            return method()
        except BaseException as error:
            raised.append(type(error).__name__)
            raise

    vars(test)[test._testMethodName] = call
    return raised


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


def copy_function(function: FunctionType) -> FunctionType:
    """Return a function with the same code."""
    copied = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copied.__kwdefaults__ = function.__kwdefaults__
    return copied


def make_writer(key: bytes) -> Callable[[dict[str, Any], Path], None]:
    """Return a function that writes a report, with what the code under test could replace."""
    dumps = json.dumps
    digest = hmac.digest
    open_file = os.open
    write = os.write
    exit_now = os._exit
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW

    def write_report(report: dict[str, Any], path: Path) -> None:
        text = dumps(report)
        mac = digest(key, text.encode(), "sha256").hex()
        file = open_file(str(path), flags, 0o600)
        write(file, dumps({"report": text, "mac": mac}).encode())
        sys.stdout.flush()
        # No handler of the code under test runs after the report
        exit_now(0)

    return write_report


def guard_frames(report_reader: Callable[[str], None]) -> None:
    """Call a function if code of the checkout gets a frame, through which it can reach the key.

    An audit hook cannot be removed. Libraries may use frames, except to return them to such code.
    """
    get_frame = sys._getframe
    get_thread = threading.get_ident
    checkout = f"{Path.cwd()}{os.sep}"
    libraries = tuple(
        f"{folder}{os.sep}"
        for folder in map(os.path.abspath, sys.path[1:])
        if not f"{folder}{os.sep}".startswith(checkout) or "-packages" in folder
    )
    trusted = (*libraries, "<frozen ")
    busy: set[int] = set()

    def see_event(event: str, arguments: tuple[Any, ...]) -> None:
        is_field = event == "object.__getattr__" and arguments[1] in _FRAME_FIELDS
        if (event not in _FRAME_EVENTS and not is_field) or get_thread() in busy:
            return
        busy.add(get_thread())
        frame = get_frame(1)
        if frame.f_code.co_name in _FRAME_GETTERS and frame.f_back is not None:
            frame = frame.f_back
        if not frame.f_code.co_filename.startswith(trusted):
            report_reader(frame.f_code.co_filename.removeprefix(checkout))
        busy.discard(get_thread())

    sys.addaudithook(see_event)


def run_one_file(runner: str, name: str) -> None:
    """Run the tests of one file, and write their report."""
    write_report = make_writer(sys.stdin.buffer.read())
    __import__(runner)
    before = list_functions()
    run = RUNNERS[runner]
    watch = list_functions
    path = HERE / f"{name}.json"

    def report_reader(name: str) -> None:
        write_report({"outcomes": {}, "changed": [f"{name} reads its frames"]}, path)

    guard_frames(report_reader)
    # The code under test must not find this program as the main module
    sys.modules["__main__"] = ModuleType("__main__")
    sys.path[:0] = [str(Path.cwd()), str(Path.cwd() / "src")]
    outcomes = run([name])

    after = watch()
    changed = sorted(one for one in before if after.get(one) is not before[one])
    write_report({"outcomes": outcomes, "changed": changed}, path)


def run_file_apart(runner: str, name: str, data: bytes, program: bytes) -> dict[str, Any]:
    """Run one file in a separate process; a missing report counts as a change."""
    key = os.urandom(32)
    (HERE / name).write_bytes(data)
    Path(__file__).write_bytes(program)

    argv = [sys.executable, __file__, ONE_FILE, runner, name]
    subprocess.run(argv, input=key, check=False)
    try:
        signed = json.loads((HERE / f"{name}.json").read_bytes())
        mac = hmac.digest(key, signed["report"].encode(), "sha256").hex()
    except (OSError, ValueError, TypeError, KeyError):
        return {"outcomes": {}, "changed": []}
    if not hmac.compare_digest(mac, signed["mac"]):
        return {"outcomes": {}, "changed": [f"the report of {name}"]}
    report: dict[str, Any] = json.loads(signed["report"])
    return report


RUNNERS = {"pytest": run_pytest, "unittest": run_unittest}


def main() -> None:
    """Run the tests and write the report."""
    if sys.argv[1] == ONE_FILE:
        run_one_file(*sys.argv[2:])
    runner, *files = sys.argv[1:]
    write_report = make_writer((HERE / "nonce").read_bytes())
    (HERE / "nonce").unlink()

    # Read before any code of the checkout runs
    program = Path(__file__).read_bytes()
    contents = {name: (HERE / name).read_bytes() for name in files}
    reports = [run_file_apart(runner, name, data, program) for name, data in contents.items()]

    outcomes = {test: one for report in reports for test, one in report["outcomes"].items()}
    changed = [name for report in reports for name in report["changed"]]
    write_report({"outcomes": outcomes, "changed": changed}, HERE / "report.json")


if __name__ == "__main__":
    main()
