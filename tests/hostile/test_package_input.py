"""Documents and patterns written by somebody who means harm: refused or harmless, in linear time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pathspec
import pytest
import yaml

from phasegate.checks.test_output import parse_test_output
from phasegate.core.paths.glob import compile_pattern
from phasegate.core.paths.scope import ChangeKind, FileChange, Scope, find_violations
from phasegate.core.plan.dependencies import find_scope_overlaps
from phasegate.core.plan.requirements import read_spec
from phasegate.core.plan.tasks import parse_tasks
from phasegate.core.text.yaml_nodes import MalformedDocument
from phasegate.prompts.feature_folder import check_feature_path
from phasegate.prompts.front_matter import read_document, read_yaml
from support.growth import assert_grows_no_faster_than_its_input, cpu_s


def _grows_with_its_input(work: Callable[[int], object], size: int) -> None:
    assert_grows_no_faster_than_its_input(work, int, size, 8 * size)


def _refused(text: str) -> str:
    with pytest.raises(MalformedDocument) as refused:
        read_document(text)
    return refused.value.finding.message


def test_an_entity_bomb_of_aliases_is_refused_before_it_grows() -> None:
    bomb = "a: &a [x, x, x]\n" + "".join(
        f"{n}: &{n} [*{p}, *{p}, *{p}]\n" for p, n in zip("abcdefg", "bcdefgh", strict=True)
    )
    assert (
        len(str(yaml.safe_load(bomb))) > 20_000
    )  # positive control: the usual loader lets it grow
    assert "anchor" in _refused(f"---\n{bomb}---\n")


def test_a_tag_makes_nothing(tmp_path: Path) -> None:
    marker = tmp_path / "made"
    text = f"a: !!python/object/apply:os.mkdir ['{marker}']\n"
    yaml.load(text, Loader=yaml.UnsafeLoader)
    assert marker.exists()  # positive control
    marker.rmdir()
    assert "tag" in _refused(f"---\n{text}---\n")
    assert not marker.exists()


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? ", "[{a: "])
def test_deep_nesting_is_refused_at_once(opening: str) -> None:
    def refuse(depth: int) -> None:
        with pytest.raises(MalformedDocument):
            read_yaml(f"a:\n  {opening * depth}")

    _grows_with_its_input(refuse, 2_000)


def test_a_duplicate_key_does_not_win_silently() -> None:
    text = "file_scope: [src/a.py]\nfile_scope: ['**']\n"
    assert yaml.safe_load(text)["file_scope"] == ["**"]  # positive control: the last one wins there
    assert "twice" in _refused(f"---\n{text}---\n")


# A pattern with k stars makes an expression that backtracks try about n^k ways.
STALLING = "src/" + "*a" * 6 + "*x"


def test_no_pattern_stalls_on_no_name() -> None:
    reference = pathspec.GitIgnoreSpec.from_lines([STALLING])
    short, long = "src/" + "a" * 18, "src/" + "a" * 36
    short_s = min(cpu_s(reference.match_file, short) for _ in range(20))
    assert (
        cpu_s(reference.match_file, long) > 20 * short_s
    )  # positive control: twice the name, and so much more time
    ours = compile_pattern(STALLING)
    _grows_with_its_input(lambda size: ours.match("src/" + "a" * size), 100)
    deep = compile_pattern("/".join(["**", "a"] * 6) + "/x")
    _grows_with_its_input(lambda size: deep.match("a/" * size), 100)


def test_a_range_does_not_reach_over_a_slash() -> None:
    pattern, path = "src[!a]secret", "src/secret"
    assert pathspec.GitIgnoreSpec.from_lines([pattern]).match_file(
        path
    )  # positive control: it does there
    assert not Scope([pattern]).covers(path)


@pytest.mark.demand("D6.a")
@pytest.mark.parametrize(
    "path",
    ["src/ok.py\n", "src/a\x1b[2Jb.py", "src/a\u200b.py", "src/\udcff.py", "src/a\\b.py", "src/ "],
)
def test_a_name_that_cannot_be_shown_plainly_is_never_in_scope(path: str) -> None:
    scope = Scope(["src/**", "src/*.py", "**"])
    assert scope.covers("src/ok.py")
    assert not scope.covers(path)
    (violation,) = find_violations([FileChange(ChangeKind.ADDED, path)], scope)
    assert violation.rule == "unsafe-path"


@pytest.mark.parametrize(
    "make",
    [
        lambda n: "<!--" * n,
        lambda n: "<!-- sk:fr " * n,
        lambda n: "<!-- sk:fr" + ' a="b"' * n + " -->",
        lambda n: "`" * n + "<!-- sk:fr -->",
        lambda n: "- " + "A-" * n,
        lambda n: "- FR" + "-A1" * n,
        lambda n: "```\n" * n,
        lambda n: '<!-- sk:fr id="FR-A-1" -->\n' * n,
        lambda n: "# Scenario " + "A-1" * n,
        lambda n: " " * n + "<!-- sk:fr -->",
        lambda n: "- **" + "*" * n,
    ],
)
def test_the_reader_of_annotations_is_linear(make: Callable[[int], str]) -> None:
    _grows_with_its_input(lambda size: read_spec(make(size)), 4_000)


@pytest.mark.parametrize(
    "make",
    [
        lambda n: "- [ ] 1.1 T\n  - File: " + "a, " * n,
        lambda n: "- [ ] 1.1 T\n  - File: " + "`" * n,
        lambda n: "- [ ] 1.1 T\n  - File: " + " " * n + "x y",
        lambda n: "- [ ] " + "1." * n,
        lambda n: "".join(
            f"- [ ] 1.{i} T\n  - File: a\n  - Depends: 1.{i + 1}, 1.{i - 1}\n"
            for i in range(1, n // 8)
        ),
        lambda n: "- [ ] 1.1 T\n" + "  more\n" * n,
        lambda n: "- [ ] 1.1 T\n  - Do: x\n" + "    more\n" * n,
        lambda n: "  - " + "a " * n + ":",
    ],
)
def test_the_reader_of_tasks_is_linear(make: Callable[[int], str]) -> None:
    _grows_with_its_input(lambda size: parse_tasks(make(size), read_yaml), 4_000)


@pytest.mark.parametrize(
    "piece",
    ["1 passed ", "Tests: 1 ", "test result: ok. ", "=", " ", "\n", "1 a in ", '{"Action":"pass"'],
)
def test_counting_tests_is_linear(piece: str) -> None:
    _grows_with_its_input(lambda size: parse_test_output(piece * size), 4_000)


def test_overlaps_of_many_separate_scopes_are_found_without_comparing_all_pairs() -> None:
    _grows_with_its_input(
        lambda n: find_scope_overlaps(
            {f"WP{i:02}": [f"src/p{i}/**", f"t/p{i}.py"] for i in range(n)}
        ),
        500,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "001-x" / "tasks").mkdir(parents=True)
    (tmp_path / "001-x" / "spec.md").write_text("# Spec\n- **FR-A-001:** x\n")
    return tmp_path / "001-x"


def test_a_pipe_a_link_and_a_folder_are_not_read(folder: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.md"
    secret.write_text("---\nsecret_key_of_mine: 1\n---\n")
    os.mkfifo(folder / "tasks" / "WP01.md")
    (folder / "tasks" / "WP02.md").symlink_to(secret)
    (folder / "tasks" / "WP03.md").mkdir()
    (folder / "tasks.md").symlink_to("/dev/zero")
    assert "secret_key" in (folder / "tasks" / "WP02.md").read_text()  # positive control
    report = check_feature_path(folder)
    unreadable = [Path(found.path).name for found in report.findings if found.code == "unreadable"]
    assert sorted(unreadable) == ["WP01.md", "WP02.md", "WP03.md"]
    assert "secret_key" not in str(report)


def test_a_reference_reads_nothing_outside_the_folder(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "outside.md").write_text("# Found\n")
    (folder / "tasks.md").write_text(
        "- [ ] 1.1 T\n  - File: a.py\n  - Spec: FR-A-001, ../outside.md#found, spec.md#spec\n"
    )
    (found,) = check_feature_path(folder).findings
    assert found.code == "unknown-reference"
    assert "'../outside.md#found'" in found.message


@pytest.mark.parametrize("data", [b"\xff\xfe", b"# ok\n\xc3(", b"\xed\xa0\x80"])
def test_text_that_is_not_utf_8_is_a_finding(folder: Path, data: bytes) -> None:
    (folder / "spec.md").write_bytes(data)
    (found,) = check_feature_path(folder).findings
    assert (found.code, found.message) == ("unreadable", "is not UTF-8 text")


def test_what_is_printed_cannot_drive_a_terminal(folder: Path) -> None:
    evil = "\x1b]0;owned\x07\x9b2J\u202e"
    (folder / "tasks" / f"WP01-{evil}.md").write_text("---\nwork_package_id: WP01\n---\n")
    (folder / "tasks.md").write_text(
        f"- [ ] 1.1 T\n  - File: a{evil}.py\n  - Spec: x{evil}\n- [ ] {evil}\n"
    )
    (folder / "spec.md").write_text(
        f'<!-- sk:fr id="{evil}" priority="{evil}" -->\n- x\n<!-- /sk:fr -->\n'
    )
    command = [sys.executable, "-m", "phasegate", "spec", "check", str(folder)]
    for extra in ([], ["--json"]):
        ran = subprocess.run([*command, *extra], capture_output=True, check=False)
        assert ran.returncode == 1
        shown = (ran.stdout + ran.stderr).decode()
        assert "owned" in shown  # it was reported, and yet
        assert not [c for c in shown if c != "\n" and not c.isprintable()]
