"""Write the current specifications in the user's checkout: accept drift, import other layouts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from phasegate.core.paths.scope import Scope
from phasegate.core.plan.planning import classify_file
from phasegate.core.specs.adopt import draft_requirements
from phasegate.core.specs.bindings import set_accepted
from phasegate.core.specs.deltas import find_requirement
from phasegate.core.specs.layouts import (
    convert_openspec,
    convert_openspec_change,
    convert_speckit,
)
from phasegate.core.specs.spec_file import (
    CapabilitySpec,
    MalformedSpec,
    parse_spec,
    render_spec,
)
from phasegate.core.specs.test_results import find_outcome
from phasegate.core.test_strength.blocks import JAVASCRIPT
from phasegate.core.workflow.origin import OrderOrigin
from phasegate.engine.journal.entries import DRIFT_ACCEPTED, DriftAcceptance
from phasegate.engine.project.current_specs import (
    get_spec_path,
    list_used_ids,
    read_current_specs,
    read_texts,
)
from phasegate.engine.project.ports import RunRecord
from phasegate.engine.project.project import Project
from phasegate.engine.views.specs import (
    find_feature_requirements,
    read_bound_files,
    read_results,
    require_head,
    require_specs,
    view_bindings,
)
from phasegate.errors import ConfigError, StateConflict
from phasegate.files.block_reader import reject_path_outside
from phasegate.files.durable_write import make_folder, replace_file
from phasegate.prompts.feature_folder import UnreadableDocument, read_document_text
from phasegate.storage.rows import NewEvent
from phasegate.workspace.repository.commit_log import list_blobs

# Events of the repository that belong to no feature
_NO_FEATURE = ""
_FILE_MODE = 0o644


def accept_drift(project: Project, record: RunRecord, id_: str, why: str, by: OrderOrigin) -> Path:
    """Accept the tests and code of a requirement as they are now; return the changed document.

    The new baseline is written to the specification in the user's checkout, and recorded.
    """
    if not why.strip():
        raise ConfigError("the reason is empty", 'phasegate drift accept FR-X "why"')

    commit = require_head(project)
    found = find_requirement(require_specs(project, commit).specs, id_)
    if found is None:
        raise ConfigError(
            f"no current specification has {id_}", "phasegate trace --specs lists them"
        )

    bindings = view_bindings(found[1], read_bound_files(project, commit, [found[1]]))
    changed = {one.target: one.now for one in bindings if one.accepted != one.now}
    if not changed:
        raise StateConflict(f"nothing of {id_} has changed since it was accepted", "")

    path = project.root / get_spec_path(project, found[0])
    try:
        spec = parse_spec(read_document_text(path))
    except (UnreadableDocument, MalformedSpec) as error:
        raise StateConflict(f"{path.name}: {error}", "correct it, then accept again") from error

    accepted = {(id_, target): now for target, now in changed.items()}
    acceptance = DriftAcceptance(
        requirement=id_, why=why.strip(), commit=commit, accepted=changed, by=by
    )
    event = NewEvent(DRIFT_ACCEPTED, msgspec.json.encode(acceptance))
    record.append_unconditionally(_NO_FEATURE, project.now(), [event])
    _write_document(project, path, render_spec(set_accepted(spec, accepted)))
    return path


def _write_document(project: Project, path: Path, text: str) -> None:
    """Write a file of the repository; refuse a path that a link leads out of it."""
    reject_path_outside(project.root, path)
    make_folder(path.parent, 0o755)
    replace_file(path.parent.resolve() / path.name, text.encode(), _FILE_MODE)


class AdoptedCode(msgspec.Struct, frozen=True):
    """Draft requirements for the code of a folder."""

    capability: str
    document: str
    # The text that is proposed, or was written
    text: str
    requirements: int
    uncovered: tuple[str, ...]
    left: tuple[str, ...]
    failing: tuple[str, ...]
    is_written: bool = False
    # Requirements that an agent inferred and no test shows
    inferred: tuple[str, ...] = ()
    # The test file that an agent wrote; empty without one
    test_file: str = ""
    tests: str = ""


def adopt_code(
    project: Project, folder: str, capability: str, junit: Path, limit: int, *, write: bool
) -> AdoptedCode:
    """Draft requirements from the tests of existing code; write them only if asked to."""
    commit = require_head(project)
    code = read_code(project, commit, folder)
    results = read_results(junit)
    draft = draft_requirements(
        capability=capability,
        code=code,
        tests=read_texts(project, commit, list_tests(project, commit)),
        current=read_capability(project, commit, capability),
        passes=lambda target: find_outcome(target, results) == "passed",
        limit=limit,
        used=list_taken_ids(project, commit),
    )
    adopted = propose_adoption(project, commit, capability, draft.spec)
    adopted = msgspec.structs.replace(
        adopted, uncovered=draft.uncovered, left=draft.left, failing=draft.failing
    )
    return write_adoption(project, adopted) if write else adopted


def read_code(project: Project, commit: str, folder: str) -> dict[str, str]:
    """Return the code of a folder that can be adopted; refuse if there is none."""
    inside = Scope((folder.rstrip("/") or ".",)) if folder.strip("./") else None
    code = [
        path
        for path in list_blobs(project.repository, commit, include_links=False)
        if classify_file(path) == "code" and (inside is None or inside.covers(path))
    ]
    code = [path for path in code if path.endswith((".py", *JAVASCRIPT))]
    if not code:
        raise ConfigError(f"{folder} has no code that can be adopted", "pass a folder with code")
    return read_texts(project, commit, code)


def list_tests(project: Project, commit: str) -> list[str]:
    paths = list_blobs(project.repository, commit, include_links=False)
    return [path for path in paths if classify_file(path) == "tests"]


def list_taken_ids(project: Project, commit: str) -> set[str]:
    """Return the ids that requirements have or had; no other requirement may get one of them."""
    paths = list_blobs(project.repository, commit, include_links=False)
    return list_used_ids(project, commit) | find_feature_requirements(project, paths)


def read_capability(project: Project, commit: str, capability: str) -> CapabilitySpec:
    """Return the current specification of a capability, empty if there is none."""
    return read_current_specs(project, commit).specs.get(capability, CapabilitySpec())


def propose_adoption(
    project: Project, commit: str, capability: str, spec: CapabilitySpec
) -> AdoptedCode:
    """Propose to add requirements to the specification of a capability."""
    current = read_capability(project, commit, capability)
    blocks = current.blocks or (f"# {capability}",)
    return AdoptedCode(
        capability=capability,
        document=get_spec_path(project, capability),
        text=render_spec(CapabilitySpec((*blocks, *spec.blocks))),
        requirements=len(spec.blocks),
        uncovered=(),
        left=(),
        failing=(),
    )


def write_adoption(project: Project, adopted: AdoptedCode) -> AdoptedCode:
    """Write a proposal to the user's checkout; uncommitted changes are never overwritten."""
    files = {adopted.document: adopted.text} if adopted.requirements else {}
    committed = read_texts(project, require_head(project), files).get(adopted.document, "")
    path = project.root / adopted.document
    if path.exists() and path.read_bytes() not in (committed.encode(), adopted.text.encode()):
        raise StateConflict(f"{adopted.document} has changes", "commit them, then repeat")
    if adopted.tests:
        if (project.root / adopted.test_file).exists():
            raise StateConflict(f"{adopted.test_file} already exists", "commit it, then repeat")
        files[adopted.test_file] = adopted.tests
    for name, text in files.items():
        _write_document(project, project.root / name, text)
    return msgspec.structs.replace(adopted, is_written=True)


def render_adoption(adopted: AdoptedCode) -> list[str]:
    """Render a proposal as text: the document, and the code that it does not cover."""
    lines = [] if adopted.is_written else [adopted.text.rstrip(), ""]
    if adopted.tests and not adopted.is_written:
        lines += [f"{adopted.test_file}:", "", adopted.tests.rstrip(), ""]
    lines += [f"inferred, uncovered: {one}" for one in adopted.inferred]
    lines += [f"uncovered: {one}" for one in adopted.uncovered]
    lines += [f"does not pass: {one}" for one in adopted.failing]
    verb = "written to" if adopted.is_written else "proposed for"
    lines.append(f"{adopted.requirements} requirements {verb} {adopted.document}")
    if adopted.left:
        kind = "files" if adopted.test_file else "tests"
        lines += [f"left: {one}" for one in adopted.left if adopted.test_file]
        lines.append(f"{len(adopted.left)} {kind} remain: commit, then repeat the command")
    if not adopted.is_written:
        lines.append("nothing was written; add --write to write it")
    return lines


class ImportedSpec(msgspec.Struct, frozen=True):
    """A document of OpenSpec or Spec Kit, imported as a current specification."""

    source: str
    capability: str
    document: str
    requirements: int
    scenarios: int


def import_specs(project: Project, folder: Path) -> list[ImportedSpec]:
    """Write current specifications from the documents of OpenSpec or Spec Kit.

    Nothing is written if one of them cannot be read, or exists already with another content.
    """
    converted = dict(_convert_documents(folder))
    if not converted:
        raise ConfigError(
            f"{folder} has no specifications of OpenSpec or Spec Kit",
            "pass a folder with openspec/specs/NAME/spec.md or specs/NNN-NAME/spec.md",
        )

    imported = []
    files = {}
    for (source, capability), text in converted.items():
        path = project.root / get_spec_path(project, capability)
        if path in files or (path.exists() and path.read_bytes() != text.encode()):
            raise StateConflict(f"{path} already exists", "move it aside, then import again")
        files[path] = text
        requirements = parse_spec(text).requirements.values()
        imported.append(
            ImportedSpec(
                source=str(source),
                capability=capability,
                document=get_spec_path(project, capability),
                requirements=len(requirements),
                scenarios=sum(len(one.scenarios) for one in requirements),
            )
        )

    for path, text in files.items():
        _write_document(project, path, text)
    return imported


def import_change(project: Project, folder: Path, name: str) -> str:
    """Return a change of OpenSpec as the requirements of a feature's specification."""
    commit = require_head(project)
    current = read_current_specs(project, commit).specs
    used = list_used_ids(project, commit)
    is_plain = re.fullmatch(r"[\w.-]+", name) and name.strip(".")
    change = folder / "openspec/changes" / name if is_plain else folder / "openspec/changes"
    paths = sorted((change / "specs").glob("*/spec.md"))
    if not paths:
        raise ConfigError(
            f"{change} has no changed specifications",
            "pass the name of a folder in openspec/changes",
        )

    parts = []
    for path in paths:
        capability = _make_capability(path)
        spec = current.get(capability, CapabilitySpec())
        try:
            parts.append(convert_openspec_change(read_document_text(path), capability, spec, used))
        except (UnreadableDocument, MalformedSpec) as error:
            raise StateConflict(
                f"{path}: {error}", "import the current specifications first, or correct it"
            ) from error
    return "\n\n".join([f"# Feature: {name}", *(part for part in parts if part)])


def _make_capability(path: Path) -> str:
    """Return the capability of a document of another layout, by its folder."""
    name = re.sub(r"^[0-9]+-", "", path.parent.name)
    return re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-_") or "general"


def _convert_documents(folder: Path) -> Iterator[tuple[tuple[Path, str], str]]:
    """Yield each document with its capability and its text as a current specification."""
    layouts = (("openspec/specs", convert_openspec), ("specs", convert_speckit))
    for root, convert in layouts:
        for path in sorted((folder / root).glob("*/spec.md")):
            capability = _make_capability(path)
            try:
                text = convert(read_document_text(path), capability)
            except (UnreadableDocument, MalformedSpec) as error:
                raise StateConflict(f"{path}: {error}", "correct it, then import again") from error
            yield (path, capability), text
