"""Write the current specifications in the user's checkout: accept drift, import other layouts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from phasegate.core.specs.bindings import set_accepted
from phasegate.core.specs.deltas import find_requirement
from phasegate.core.specs.layouts import convert_openspec, convert_speckit
from phasegate.core.specs.spec_file import MalformedSpec, parse_spec, render_spec
from phasegate.core.workflow.origin import OrderOrigin
from phasegate.engine.journal.entries import DRIFT_ACCEPTED, DriftAcceptance
from phasegate.engine.project.current_specs import get_spec_path
from phasegate.engine.project.ports import RunRecord
from phasegate.engine.project.project import Project
from phasegate.engine.views.specs import (
    read_bound_files,
    require_head,
    require_specs,
    view_bindings,
)
from phasegate.errors import ConfigError, StateConflict
from phasegate.files.durable_write import make_folder, replace_file
from phasegate.prompts.feature_folder import UnreadableDocument, read_document_text
from phasegate.storage.rows import NewEvent

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
    replace_file(path, render_spec(set_accepted(spec, accepted)).encode(), _FILE_MODE)
    return path


class ImportedSpec(msgspec.Struct, frozen=True):
    """A document of another layout that became a current specification."""

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
            raise StateConflict(f"{path} exists already", "move it away, then import again")
        files[path] = text.encode()
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

    for path, data in files.items():
        make_folder(path.parent, 0o755)
        replace_file(path, data, _FILE_MODE)
    return imported


def _convert_documents(folder: Path) -> Iterator[tuple[tuple[Path, str], str]]:
    """Yield each document with its capability and its text as a current specification."""
    layouts = (("openspec/specs", convert_openspec), ("specs", convert_speckit))
    for root, convert in layouts:
        for path in sorted((folder / root).glob("*/spec.md")):
            name = re.sub(r"^[0-9]+-", "", path.parent.name)
            capability = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-_") or "general"
            try:
                text = convert(read_document_text(path), capability)
            except (UnreadableDocument, MalformedSpec) as error:
                raise StateConflict(f"{path}: {error}", "correct it, then import again") from error
            yield (path, capability), text
