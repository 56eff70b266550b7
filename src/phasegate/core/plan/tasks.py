"""Parse and check the tasks of a `tasks.md`, given as checkbox lines or YAML blocks.

- [ ] 1.1 Title of the task
  - File: path/one.py, path/two.py
  - Spec: FR-AUTH-001, specs/login.md#heading
  - Do: one or more sentences.
  - Depends: 1.2, 2.1
  - Unchanged: path/two.py
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from itertools import groupby
from typing import NamedTuple

import msgspec

from phasegate.core.paths.repo_path import find_path_problem
from phasegate.core.plan.dependencies import find_cycles
from phasegate.core.text.finding import Finding, quote_text, suggest_closest
from phasegate.core.text.markdown_lines import (
    MarkdownLine,
    collapse_whitespace,
    iter_markdown_lines,
)
from phasegate.core.text.yaml_nodes import (
    FieldReader,
    MalformedDocument,
    YamlList,
    YamlMapping,
    YamlNode,
    YamlText,
)

ReadYaml = Callable[[str, int], YamlNode]


class Layer(IntEnum):
    """Layer of a task: the first number of its id."""

    DATA = 1
    LOGIC = 2
    INTEGRATION = 3
    TESTING = 4


class Task(msgspec.Struct, frozen=True):
    """One task.

    `spec` holds requirement ids and headings of documents, `depends` ids of other tasks.
    """

    id: str
    title: str
    files: tuple[str, ...]
    spec: tuple[str, ...] = ()
    do: str = ""
    depends: tuple[str, ...] = ()
    done: bool = False
    # Files that may stay as they are
    unchanged: tuple[str, ...] = ()

    @property
    def layer(self) -> Layer:
        """The layer that the id names."""
        return Layer(int(self.id.partition(".")[0]))


class TaskList(NamedTuple):
    """All well-formed tasks with their lines, and all findings about the document."""

    tasks: tuple[Task, ...]
    lines: dict[str, int]
    findings: list[Finding]


class _Draft(NamedTuple):
    """A task as written, before anything is checked."""

    line: int
    id: str
    title: str
    done: bool
    # Lines of each field
    fields: dict[str, list[str]]

    def field(self, key: str) -> str:
        """Return the lines of a field as one text."""
        return " ".join(self.fields.get(key, ()))


_CHECKBOX = re.compile(r"\s*[-*+] \[([ xX])\] *(.*)")
_ID = re.compile(r"(\*\*)?([0-9]+(?:\.[0-9A-Za-z]+)*)[.:]?(\*\*)?[.:]?(?:\s+(.*))?")
_TASK_ID = re.compile(r"[1-9][0-9]{0,3}\.[1-9][0-9]{0,3}")
_FIELD = re.compile(
    r"\s+[-*+]\s+[*_`]{0,2}([A-Za-z][A-Za-z ]{0,20}?)[*_`]{0,2}:[*_`]{0,2}(?:\s+(.*))?"
)
_LABELS = {
    "file": "file",
    "files": "file",
    "spec": "spec",
    "specs": "spec",
    "do": "do",
    "unchanged": "unchanged",
    "may stay unchanged": "unchanged",
} | dict.fromkeys(("depends", "depends on", "dependencies"), "depends")
_LISTS = ("file", "spec", "depends", "unchanged")
_LIST_ITEM = re.compile(r"\s*(?:`([^`]*)`|([^,`]+))\s*(?:,|\Z)")
_EMPTY_VALUES = frozenset(("", "none", "-", "—", "n/a"))


def parse_tasks(text: str, read_yaml: ReadYaml) -> TaskList:
    """Parse the tasks of a document and report all findings at once.

    Findings include cycles, duplicates, dangling references and unknown layers.
    """
    findings: list[Finding] = []
    tasks: dict[str, Task] = {}
    lines: dict[str, int] = {}

    for draft in sorted(_drafts(text, read_yaml, findings), key=lambda draft: draft.line):
        task = _build_task(draft, findings)
        if task is None:
            continue

        if task.id in tasks:
            message = f"task {task.id} appears twice, first in line {lines[task.id]}"
            findings.append(Finding(draft.line, "duplicate-task", message))
        else:
            tasks[task.id] = task
            lines[task.id] = draft.line

    findings += _dependency_findings(tasks, lines)
    return TaskList(tuple(tasks.values()), lines, sorted(findings))


def _drafts(text: str, read_yaml: ReadYaml, findings: list[Finding]) -> Iterator[_Draft]:
    blocks = groupby(iter_markdown_lines(text), key=lambda line: (line.fence_line, line.fence_info))
    for (fence_line, fence_info), lines in blocks:
        if fence_info is None:
            yield from _checkbox_drafts(lines, findings)
        elif fence_info.split(" ")[0].lower() in ("yaml", "yml"):
            block = "\n".join(line.text for line in lines)
            yield from _yaml_drafts(block, fence_line + 1, read_yaml, findings)


def _checkbox_drafts(lines: Iterable[MarkdownLine], findings: list[Finding]) -> Iterator[_Draft]:
    """Yield the tasks that are written as checkboxes."""
    draft: _Draft | None = None
    label = ""

    for line in lines:
        box = _CHECKBOX.match(line.text)
        if box:
            id_found = _ID.fullmatch(box[2].rstrip())
        else:
            id_found = None

        if box and id_found:
            if draft:
                yield draft

            title = id_found[4] or ""
            bold_title = id_found[1] and not id_found[3]
            draft = _Draft(
                line=line.number,
                id=id_found[2],
                title=title.replace("**", "") if bold_title else title,
                done=box[1] != " ",
                fields={},
            )

            label = ""
        elif box and not line.text[:1].isspace():
            findings.append(
                Finding(line.number, "bad-task-id", f"{quote_text(box[2])} has no id such as 1.1")
            )
        elif draft and line.text[:1].isspace() and line.text.strip():
            label = _read_field_line(draft, label, line, findings)
        elif draft and line.text.strip():
            yield draft
            draft = None

    if draft:
        yield draft


def _read_field_line(draft: _Draft, label: str, line: MarkdownLine, findings: list[Finding]) -> str:
    """Read one line below a task: a field, or the continuation of the field above.

    Return the field that the line belongs to.
    """
    found = _FIELD.fullmatch(line.text)
    if found:
        name = _LABELS.get(collapse_whitespace(found[1]).lower())
    else:
        name = None

    if found and name:
        if name in draft.fields:
            findings.append(
                Finding(line.number, "duplicate-field", f"task {draft.id} has {name} twice")
            )

        draft.fields[name] = [found[2] or ""]
        return name

    if found and label != "do":
        hint = suggest_closest(
            found[1].capitalize(), ("File", "Spec", "Do", "Depends", "Unchanged")
        )
        findings.append(
            Finding(
                line.number,
                "unknown-field",
                f"{quote_text(found[1])} is not a field of a task{hint}",
            )
        )
    elif label:
        draft.fields[label].append(line.text.strip())
    else:
        findings.append(
            Finding(
                line.number, "unknown-field", f"{quote_text(line.text.strip())} belongs to no field"
            )
        )

    return label


def _yaml_drafts(
    text: str, line: int, read_yaml: ReadYaml, findings: list[Finding]
) -> Iterator[_Draft]:
    """Yield the tasks of a YAML block; add a finding if it is malformed."""
    try:
        node = read_yaml(text, line)
    except MalformedDocument as error:
        findings.append(
            Finding(error.finding.line, "bad-yaml", f"this block {error.finding.message}")
        )
        return

    if not isinstance(node, YamlList) or not all(
        isinstance(item, YamlMapping) for item in node.values
    ):
        findings.append(
            Finding(
                line, "bad-yaml", "this block is not a list of tasks: write `- id: 1.1` and so on"
            )
        )
        return

    for item in node.values:
        if isinstance(item, YamlMapping):
            yield _yaml_draft(item, findings)


def _yaml_draft(item: YamlMapping, findings: list[Finding]) -> _Draft:
    """Read one task of a YAML list."""
    fields = FieldReader(item, findings)
    id_ = fields.read_required_text("id")
    title = fields.read_text("title")
    do = fields.read_text("do")
    done = fields.read_text("done", "false")
    listed = {key: [_list_text(fields, item, key)] for key in _LISTS}
    fields.report_unknown_keys()
    if done not in ("true", "false"):
        fields.report_problem("done", "must be true or false")

    return _Draft(
        line=item.line, id=id_, title=title, done=done == "true", fields={**listed, "do": [do]}
    )


def _list_text(fields: FieldReader, item: YamlMapping, key: str) -> str:
    """Return a list as it would be written on a checkbox line; a single value unchanged."""
    if isinstance(item.values.get(key), YamlText):
        return fields.read_text(key)
    return _join_list(fields.read_texts(key))


def _build_task(draft: _Draft, findings: list[Finding]) -> Task | None:
    """Build the task of a draft; None, with a finding, if it has no usable id."""
    if not _TASK_ID.fullmatch(draft.id):
        findings.append(
            Finding(draft.line, "bad-task-id", f"{quote_text(draft.id)} is not an id such as 1.1")
        )
        return None

    if int(draft.id.partition(".")[0]) not in tuple(Layer):
        layers = ", ".join(f"{layer.value} {layer.name.lower()}" for layer in Layer)
        findings.append(
            Finding(
                draft.line, "unknown-layer", f"task {draft.id} is in no layer; available: {layers}"
            )
        )
        return None

    lists = {key: _read_list(draft, key, findings) for key in _LISTS}
    task = Task(
        id=draft.id,
        title=collapse_whitespace(draft.title),
        files=lists["file"],
        spec=lists["spec"],
        do=collapse_whitespace(draft.field("do")),
        depends=lists["depends"],
        done=draft.done,
        unchanged=lists["unchanged"],
    )

    findings += [
        Finding(draft.line, code, f"task {task.id} {message}")
        for code, message in _task_problems(task)
    ]

    return task


def _read_list(draft: _Draft, key: str, findings: list[Finding]) -> tuple[str, ...]:
    values = _split_list(draft.field(key), allow_blanks=key == "spec")
    if values is None:
        message = (
            f"task {draft.id}: {key} must be a comma-separated list; "
            "put a value with spaces in backticks"
        )
        findings.append(Finding(draft.line, "bad-list", message))
        return ()

    return values


def _split_list(text: str, allow_blanks: bool) -> tuple[str, ...] | None:
    """Split comma-separated values, plain or in backticks.

    Return None if a value is followed by a comment.
    """
    if text.strip().lower() in _EMPTY_VALUES:
        return ()

    values = []
    at = 0
    text = text.rstrip().removesuffix(",")

    while at < len(text):
        found = _LIST_ITEM.match(text, at)
        if not found or (found[2] and not allow_blanks and " " in found[2].strip()):
            return None

        values.append(collapse_whitespace(found[1] if found[1] is not None else found[2]))
        at = found.end()

    return tuple(
        value.strip("*") if _TASK_ID.fullmatch(value.strip("*")) else value for value in values
    )


def _task_problems(task: Task) -> Iterator[tuple[str, str]]:
    """Yield code and message of each problem of a task."""
    if not task.title:
        yield "no-title", "has no title"
    if not task.files:
        yield "no-file", "names no file"
    for path in task.unchanged:
        if path not in task.files:
            yield "bad-path", f"names {quote_text(path)} as Unchanged, but not under File"

    for path in task.files:
        problem = find_path_problem(path)
        if problem:
            yield "bad-path", f"names the file {quote_text(path)}, which {problem}"
        elif "*" in path or "?" in path:
            yield "bad-path", f"names {quote_text(path)}; write exact paths, not patterns"


def _dependency_findings(tasks: dict[str, Task], lines: dict[str, int]) -> Iterator[Finding]:
    for task in tasks.values():
        for other in task.depends:
            if other not in tasks:
                message = f"task {task.id} depends on {quote_text(other)}, which is not a task here"
                yield Finding(lines[task.id], "dangling-dependency", message)

    for cycle in find_cycles({task.id: task.depends for task in tasks.values()}):
        yield Finding(lines[cycle[0]], "cycle", f"dependency cycle: {' -> '.join(cycle)}")


def _join_list(values: Iterable[str]) -> str:
    return ", ".join(
        f"`{value}`" if {",", " "} & {*value} or value.lower() in _EMPTY_VALUES else value
        for value in values
    )
