"""Extract the assertion and the place of each failed test from the output of a test runner."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from phasegate.core.text.escapes import sanitize_for_terminal
from phasegate.core.text.wording import shorten

MAX_FAILED_TESTS = 20
MAX_DETAIL_LINES = 14
_MAX_LINE_CHARS = 300
# Characters scanned at the end of the output, where runners print details
_MAX_SCANNED_CHARS = 1_000_000


class FailedTest(msgspec.Struct, frozen=True):
    """A failed test with the lines that the runner printed about it, if any."""

    name: str
    detail: tuple[str, ...] = ()


class _DetailForm(NamedTuple):
    """The form in which a runner prints the details of a failure.

    `start` has the test's name as its group. The details end before a line that matches `end`;
    only lines that match `keep` are relevant.
    """

    start: re.Pattern[str]
    end: re.Pattern[str]
    keep: re.Pattern[str]
    # The assertion is at the end, as in a Python traceback
    from_end: bool = False


_STACK = r"\s+at .*\((?:node:|.*node_modules)|\s*(?:Test\.|async Test)|\s*at process\."
_ANY = rf"(?!{_STACK}|\s*(?:---|-{{20,}}|⎯+)$)\s*\S"


def _form(start: str, end: str, keep: str = _ANY, *, from_end: bool = False) -> _DetailForm:
    return _DetailForm(re.compile(start), re.compile(end), re.compile(keep), from_end)


_FORMS = (
    # pytest
    _form(
        r"_{3,} (?:ERROR (?:collecting|at \w+ of) )?(.+?) _{3,}$",
        r"[_=]{3,} .* [_=]{3,}$",
        r"E  |\S+:[0-9]+: ",
    ),
    # unittest
    _form(r"(?:FAIL|ERROR): (.+)$", r"={20,}$|Ran [0-9]+ test", from_end=True),
    # node --test and tape, as TAP
    _form(
        r"\s*not ok [0-9]+ (?:- )?(.+?)(?: # .*)?$",
        r"\s*(?:\.\.\.$|stack:|(?:not )?ok [0-9]|# )",
        rf"(?!\s*(?:duration_ms|type|failureType):){_ANY}",
    ),
    # node --test, for people
    _form(r"\s*✖ (.+) \([0-9.]+ms\)$", r"[✖✔ℹ▶﹣]|test at ", rf"(?!\s+at Test\.|\s*}}$){_ANY}"),
    # jest
    _form(r"\s*● (.+)$", r"\s*● |FAIL |PASS |Test Suites:"),
    # vitest
    _form(r"\s*FAIL +(.+)$", r"\s*⎯{3,}|\s*FAIL +|\s*Test Files "),
    # cargo test
    _form(
        r"---- (.+) stdout ----$", r"---- |failures:$|test result:", rf"(?!note: run with){_ANY}"
    ),
    # go test: with -v the lines come before the result, otherwise after it
    _form(r"=== RUN\s+(\S+)$", r"\s*--- |=== |FAIL|ok |PASS"),
    _form(r"\s*--- FAIL: (\S+)", r"\s*--- |=== |FAIL|ok |PASS|exit status"),
)
_MOCHA_NUMBER = re.compile(r"\s+[0-9]+\) (.+)$")
_MOCHA_FAILING = re.compile(r"\s+[0-9]+ failing$")
_SUBTESTS_FAILED = re.compile(r"error: .*\bsubtests? failed")
_PYTEST_SUMMARY = re.compile(r"(?:FAILED|ERROR) (\S.*?) - (.+)$")


def describe_failed_tests(output: str, names: Iterable[str]) -> tuple[FailedTest, ...]:
    """Return the named tests with their details.

    A parent that failed only because of its subtests is left out.
    """
    text = sanitize_for_terminal(output[-_MAX_SCANNED_CHARS:])
    lines = text.split("\n")
    details = _read_details(lines)
    messages = {found[1]: found[2] for found in filter(None, map(_PYTEST_SUMMARY.match, lines))}

    found: list[FailedTest] = []
    for name in names:
        detail = _find_detail(name, details)
        if not detail and name in messages:
            detail = (shorten(messages[name], _MAX_LINE_CHARS),)

        if not any(map(_SUBTESTS_FAILED.search, detail)):
            found.append(FailedTest(shorten(sanitize_for_terminal(name), 200), detail))
        if len(found) == MAX_FAILED_TESTS:
            break

    return tuple(found)


def _read_details(lines: list[str]) -> dict[str, tuple[str, ...]]:
    """Return the details by the name under which the runner prints them."""
    details: dict[str, tuple[str, ...]] = {}
    for form in _FORMS:
        for name, block in _split_blocks(lines, form):
            kept = [
                shorten(line.rstrip(), _MAX_LINE_CHARS) for line in block if form.keep.match(line)
            ]
            if kept:
                limited = kept[-MAX_DETAIL_LINES:] if form.from_end else kept[:MAX_DETAIL_LINES]
                details[name] = tuple(limited)

    details.update(_read_mocha_details(lines))
    return details


def _split_blocks(lines: list[str], form: _DetailForm) -> Iterator[tuple[str, list[str]]]:
    """Yield each failed test's name with the lines of its output."""
    name = ""
    block: list[str] = []
    for line in lines:
        start = form.start.match(line)
        if name and (start or form.end.match(line)):
            yield name, block
            name = ""
        if start:
            name = start[1].strip()
            block = []
        elif name:
            block.append(line)

    if name:
        yield name, block


def _read_mocha_details(lines: list[str]) -> dict[str, tuple[str, ...]]:
    """Read mocha's list of failures: the titles of the suites and the test, then the error."""
    starts = [number for number, line in enumerate(lines) if _MOCHA_FAILING.match(line)]
    details: dict[str, tuple[str, ...]] = {}
    if not starts:
        return details

    form = _form(_MOCHA_NUMBER.pattern, r"(?!)")
    for suite, block in _split_blocks(lines[starts[-1] + 1 :], form):
        titles = [suite]
        while block and not titles[-1].endswith(":"):
            titles.append(block.pop(0).strip())

        kept = [line.rstrip()[:_MAX_LINE_CHARS] for line in block if form.keep.match(line)]
        details[" ".join(titles).removesuffix(":")] = tuple(kept[:MAX_DETAIL_LINES])

    return details


def _find_detail(name: str, details: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the details of a test; runners name it differently in lists and in details."""
    wanted = name.replace("::", ".")
    candidates = {key.replace("::", "."): detail for key, detail in details.items()}
    if wanted in candidates:
        return candidates[wanted]

    for key, detail in candidates.items():
        if wanted.endswith(f".{key}") or key.endswith(f" {wanted}"):
            return detail

    return ()
