"""Render the core of a work package for a prompt: what `WPnn.md` says about this package alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from phasegate.core.plan.tasks import Task
from phasegate.core.plan.work_package import WorkPackage
from phasegate.core.prompt.template import fill_placeholders
from phasegate.core.text.markdown_lines import collapse_whitespace, iter_markdown_lines
from phasegate.prompts.package_writer import load_line_templates, normalize_heading
from phasegate.prompts.shipped_texts import read_shipped

# Sections that are the same in every package unless it says something of its own
_DEFAULT_LINES = ("no_rules", "no_requirements", "no_dependencies")


def render_core(
    document: str,
    package: WorkPackage,
    *,
    scope: Iterable[str],
    tasks: Sequence[Task] = (),
    others: Iterable[WorkPackage] = (),
    with_checks: bool = True,
) -> str:
    """Render tasks, scope, requirements, rules, checks and the other packages in a line each."""
    templates = load_line_templates()
    found = _read_sections(document)
    mission = package.mission.strip() or found.get("mission", "")
    siblings = [
        templates.render(
            "core_sibling",
            ID=one.work_package_id,
            TITLE=collapse_whitespace(one.title),
            FILES=", ".join(one.file_scope),
        )
        for one in others
    ]
    sections = {
        "core_tasks" if tasks else "core_mission": "\n".join(map(_render_task, tasks)) or mission,
        "core_scope": "\n".join(f"- `{path}`" for path in scope),
        "core_requirements": found.get("functional requirements", ""),
        "core_rules": found.get("architecture rules", ""),
        "core_checks": found.get("code quality gates", "") if with_checks else "",
        "core_dependencies": found.get("dependencies", ""),
        "core_siblings": "\n".join(siblings),
    }
    defaults = {"", *(templates.render(name) for name in _DEFAULT_LINES)}

    return fill_placeholders(
        read_shipped("work_package/CORE.md"),
        {
            "WP_ID": package.work_package_id,
            "TITLE": "" if tasks else f": {collapse_whitespace(package.title)}",
            "SECTIONS": "\n\n".join(
                f"{templates.render(name)}\n\n{body}"
                for name, body in sections.items()
                if body not in defaults
            ),
        },
    )


def _render_task(task: Task) -> str:
    """Render a task with all its fields."""
    render = load_line_templates().render
    fields = {
        "File": ", ".join(task.files),
        "Spec": ", ".join(task.spec),
        "Do": task.do,
        "Depends": ", ".join(task.depends),
        "Unchanged": ", ".join(task.unchanged),
    }
    lines = [
        render("core_task_field", NAME=name, TEXT=collapse_whitespace(text))
        for name, text in fields.items()
        if text
    ]
    return "\n".join([render("core_task", ID=task.id, TITLE=task.title), *lines])


def _read_sections(document: str) -> dict[str, str]:
    """Return the text below each heading of level two and three, by normalized title."""
    lines = document.splitlines()
    headings = [
        line.number - 1
        for line in iter_markdown_lines(document)
        if line.fence_info is None and line.text.startswith(("## ", "### "))
    ]
    ends = [*headings[1:], len(lines)]
    return {
        normalize_heading(lines[start]): "\n".join(lines[start + 1 : end]).strip()
        for start, end in zip(headings, ends, strict=True)
    }
