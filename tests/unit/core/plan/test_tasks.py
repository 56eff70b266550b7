"""Tasks: two forms, one model, and all mistakes in one go."""

from __future__ import annotations

import pytest

from phasegate.core.plan.tasks import Layer, Task, TaskList, parse_tasks
from phasegate.prompts.front_matter import read_yaml

LINES = """# Tasks: login

## 1. Data

- [ ] 1.1 Title of the task
  - File: path/one.py, path/two.py
  - Spec: FR-AUTH-001, specs/login.md#heading
  - Do: one or more sentences.
  - Depends: 1.2, 2.1

- [x] **1.2** A bold id
  - **File:** `path/with blank.py`
  - **Depends:** none

## 2. Logic

* [ ] **2.1: A bold title**
  * Files: path/three.py
  * Do: a sentence
    over two lines.
"""

YAML = """# Tasks

```yaml
- id: 1.10
  title: Write the model
  file: [path/one.py, "odd, name.py"]
  spec: FR-AUTH-001, specs/login.md#heading
  do: |
    Two
    lines.
  depends: none
- id: "2.1"
  title: Use it
  file: path/two.py
  depends: [1.10]
  done: true
```
"""


def _parse(text: str) -> TaskList:
    return parse_tasks(text, read_yaml)


def _codes(text: str) -> list[tuple[int, str]]:
    return [(found.line, found.code) for found in _parse(text).findings]


@pytest.mark.demand("T3.b")
def test_checkbox_lines_are_read() -> None:
    found = _parse(LINES)
    assert found.findings == []
    assert found.tasks == (
        Task(
            "1.1",
            "Title of the task",
            ("path/one.py", "path/two.py"),
            ("FR-AUTH-001", "specs/login.md#heading"),
            "one or more sentences.",
            ("1.2", "2.1"),
        ),
        Task("1.2", "A bold id", ("path/with blank.py",), done=True),
        Task("2.1", "A bold title", ("path/three.py",), do="a sentence over two lines."),
    )
    assert [task.layer for task in found.tasks] == [Layer.DATA, Layer.DATA, Layer.LOGIC]


@pytest.mark.demand("T3.b")
def test_yaml_blocks_are_read_as_the_same_model() -> None:
    found = _parse(YAML)
    assert found.findings == []
    spec = ("FR-AUTH-001", "specs/login.md#heading")
    assert found.tasks == (
        Task("1.10", "Write the model", ("path/one.py", "odd, name.py"), spec, "Two lines."),
        Task("2.1", "Use it", ("path/two.py",), depends=("1.10",), done=True),
    )
    assert found.lines == {"1.10": 4, "2.1": 12}


def _task(id_: str, *fields: str) -> str:
    return "\n".join(
        [f"- [ ] {id_} T", "  - File: f.py", *(f"  - {field}" for field in fields), ""]
    )


def test_a_cycle_is_named_from_end_to_end() -> None:
    text = (
        _task("1.1", "Depends: 2.1") + _task("2.1", "Depends: 3.1") + _task("3.1", "Depends: 1.1")
    )
    (found,) = _parse(text).findings
    assert (found.line, found.code) == (1, "cycle")
    assert "1.1 -> 2.1 -> 3.1 -> 1.1" in found.message


def test_a_task_that_waits_for_itself_is_a_cycle() -> None:
    assert _codes(_task("1.1", "Depends: 1.1")) == [(1, "cycle")]


def test_all_mistakes_are_reported_in_one_go_with_their_lines() -> None:
    text = (
        _task("1.1", "Depends: 9.9, x")
        + _task("1.1")
        + _task("5.1")
        + "- [ ] 2.1 No file\n"
        + _task("1.x")
        + _task("1.01")
        + "- [ ] 3.1\n  - File: a.py\n"
        + "- [ ] Without an id\n"
        + _task("4.1", "Dependz: 1.1")
        + "- [ ] 4.2 T\n  - File: ../x, *.py\n"
    )
    assert sorted(_codes(text)) == [
        (1, "dangling-dependency"),
        (1, "dangling-dependency"),
        (4, "duplicate-task"),
        (6, "unknown-layer"),
        (8, "no-file"),
        (9, "bad-task-id"),
        (11, "bad-task-id"),
        (13, "no-title"),
        (15, "bad-task-id"),
        (18, "unknown-field"),
        (19, "bad-path"),
        (19, "bad-path"),
    ]
    messages = " ".join(found.message for found in _parse(text).findings)
    for name in (
        "9.9",
        "1.1",
        "5.1",
        "first in line 1",
        "did you mean `Depends`?",
        "'../x'",
        "'*.py'",
    ):
        assert name in messages


@pytest.mark.parametrize("words", ["a.py (new)", "`a.py` (new)", "a.py and b.py", "`a.py` `b.py`"])
def test_words_beside_a_path_are_not_taken_for_a_path(words: str) -> None:
    assert "bad-list" in {code for _, code in _codes(f"- [ ] 1.1 T\n  - File: {words}\n")}


@pytest.mark.parametrize("words", ["", "none", "None", "-", "n/a"])
def test_nothing_can_be_said_in_several_ways(words: str) -> None:
    assert _parse(_task("1.1", f"Depends: {words}")).tasks[0].depends == ()


@pytest.mark.parametrize(
    ("block", "code"),
    [
        ("id: 1.1", "bad-yaml"),
        ("- just text", "bad-yaml"),
        ("- id: [1.1]", "front-matter"),
        ("- id: 1.1\n  title: a\n  file: &x a.py", "bad-yaml"),
        ("- id: 1.1\n  title: a\n  file: a.py\n  id: 1.2", "bad-yaml"),
        ("- id: 1.1\n  title: a\n  files: a.py", "unknown-key"),
        ("- id: 1.1\n  title: a\n  file: a.py\n  done: maybe", "front-matter"),
        ("- title: a\n  file: a.py", "front-matter"),
        ("- id: 1.1\n  title: a\n  file: 'a`b.py'", "bad-list"),
    ],
)
def test_a_yaml_block_that_is_no_list_of_tasks_is_refused(block: str, code: str) -> None:
    assert code in {found for _, found in _codes(f"```yaml\n{block}\n```\n")}


@pytest.mark.parametrize(
    "text",
    [
        "```\n- [ ] 1.1 T\n```\n",
        "~~~text\n- [ ] 1.1 T\n~~~\n",
        "<!--\n- [ ] 1.1 T\n-->\n",
        "```yaml example\n```\n",
        "just prose 1.1\n",
    ],
)
def test_what_is_only_shown_is_no_task(text: str) -> None:
    assert _parse(text).tasks == ()


def test_a_heading_ends_a_task() -> None:
    found = _parse("- [ ] 1.1 T\n  - File: a.py\n## 2. Logic\n  - Depends: 9.9\n")
    assert found.tasks == (Task("1.1", "T", ("a.py",)),)


def test_windows_line_ends_are_line_ends() -> None:
    assert _parse(LINES.replace("\n", "\r\n")).tasks == _parse(LINES).tasks
