"""Check rendered prompts: what they promise is in them, once, and no answer form or verdict stands in their context.

Without arguments the prompts come from a scripted run of the stand-in feature; with files, from recorded `prompt.xml`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from phasegate.core.prompt.document import ItemType, UnifiedPrompt
from phasegate.core.prompt.role_needs import classify_item
from phasegate.errors import MalformedPrompt
from phasegate.prompts.agent_files import load_shipped_files
from phasegate.prompts.shipped_texts import load_phrases

MAX_TOKENS = 8_000
# A name that a sentence calls an element of the prompt
ELEMENT_NAME = re.compile(
    r"(?:artifact |is in |are in |listed in |\()`?([\w./-]+\.(?:md|diff|txt))`?"
)
DOCUMENT_LINE = re.compile(
    r"^- (?:documents to write|other documents|documents under challenge|files you may change).*$",
    re.M,
)
MARKER = re.compile(r"^<(?:review|task_status)\b", re.M)
ANSWER_FORMS = {
    "How to Answer": re.compile(r"^## How to Answer$", re.M),
    "Response Format": re.compile(r"^## Response Format", re.M),
    "a success result": re.compile(r'"success": true'),
    "a failure result": re.compile(r'"success": false'),
}
# Texts of ours: a sentence of theirs must not occur twice. What agents write may quote.
WRITTEN_PARTS = ("package", "agent_file", "commands")
MIN_REPEATED_CHARACTERS = 60


def lint_prompt(xml: str) -> list[str]:
    """Return what is wrong with a prompt."""
    try:
        prompt = UnifiedPrompt.from_xml(xml)
    except MalformedPrompt as error:
        return [str(error)]

    findings = [
        *_promises(prompt),
        *_elements(prompt),
        *_answer_forms(prompt),
        *_markers(prompt),
        *_repeated(prompt),
    ]
    if len(xml) // 4 > MAX_TOKENS:
        findings.append(f"it has {len(xml) // 4} tokens, over {MAX_TOKENS}")
    return findings


def _parts(prompt: UnifiedPrompt) -> list[tuple[str, str, str]]:
    agent_files = {file.name for file in load_shipped_files()}
    return [
        (classify_item(item.type, item.name or "", agent_files), item.name or "", item.content)
        for item in prompt.context
    ]


def _promises(prompt: UnifiedPrompt) -> Iterator[str]:
    """Yield each variable of the template that points to nothing, or has no value."""
    system = prompt.system_prompt or ""
    phrases = load_phrases()
    parts = {part for part, _, _ in _parts(prompt)}

    for name in re.findall(r"\[Context not provided: (\w+)", system):
        yield f"{name} has no value"
    for name in re.findall(r"\{\{([A-Z_]+)\}\}", system):
        yield f"{{{{{name}}}}} is not filled"

    if phrases.tasks in system and "package" not in parts:
        yield "the tasks are promised in the artifact of the package, and there is none"
    has_artifacts = any(item.type is ItemType.ARTIFACT for item in prompt.context)
    if phrases.artifacts in system and not has_artifacts:
        yield "artifacts are promised, and there is none"
    is_revision = any(name.startswith("findings-") for _, name, _ in _parts(prompt))
    has_skeletons = "Skeleton of `" in prompt.instructions
    if phrases.skeletons_below in system and not has_skeletons and not is_revision:
        yield "skeletons are promised in the instructions, and there is none"


def _elements(prompt: UnifiedPrompt) -> Iterator[str]:
    """Yield each element that the instructions name and that is not there."""
    names = {item.name for item in prompt.context}
    task = DOCUMENT_LINE.sub("", prompt.instructions.partition("Skeleton of `")[0])
    for name in dict.fromkeys(ELEMENT_NAME.findall(task)):
        if name not in names and not name.startswith("phasegate-"):
            yield f"the instructions name {name}, which is not in the prompt"


def _answer_forms(prompt: UnifiedPrompt) -> Iterator[str]:
    """Yield each form of the answer that is stated more than once, or outside of the template."""
    system = prompt.system_prompt or ""
    for name, form in ANSWER_FORMS.items():
        if len(form.findall(system)) > 1:
            yield f"the template states {name} more than once"
        for part, item, text in _parts(prompt):
            if part != "files" and part != "diff" and form.search(text):
                yield f"{item} states {name}: the answer form is the template's"
    if "SUGGESTED NEXT STEPS" in prompt.to_xml():
        yield "a next-steps block stands in the prompt"


def _markers(prompt: UnifiedPrompt) -> Iterator[str]:
    """Yield each place outside of the answer form where a line is a ready verdict or status."""
    texts = [("the instructions", prompt.instructions)]
    texts += [(name, text) for _, name, text in _parts(prompt)]
    for name, text in texts:
        if MARKER.search(text):
            yield f"{name} has a raw verdict or status"


def _repeated(prompt: UnifiedPrompt) -> Iterator[str]:
    """Yield sentences that stand twice in what was written for this prompt."""
    texts = [prompt.system_prompt or "", prompt.instructions]
    texts += [text for part, _, text in _parts(prompt) if part in WRITTEN_PARTS]
    seen: set[str] = set()
    for text in texts:
        lines = {line.strip() for line in text.splitlines()}
        long_lines = {line for line in lines if len(line) >= MIN_REPEATED_CHARACTERS}
        for line in sorted(long_lines & seen):
            yield f"stands twice: {line[:80]}"
        seen |= long_lines


def main(paths: Iterable[str]) -> int:
    """Lint recorded prompts, or those of a scripted run."""
    recorded = {path: Path(path).read_text(encoding="utf-8") for path in paths}
    if not recorded:
        from bench.standin import played

        with played("quick") as prompts:
            recorded = {f"{job.phase} {job.role} {job.package}".strip(): job.xml for job in prompts}

    findings = [f"{name}: {found}" for name, xml in recorded.items() for found in lint_prompt(xml)]
    print("\n".join(findings), end="\n" if findings else "")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
