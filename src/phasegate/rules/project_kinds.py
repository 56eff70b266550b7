"""Which kind of project a folder is, and all that detection says about it."""

from __future__ import annotations

from phasegate.rules.detection import Detected, Machine
from phasegate.rules.node_project import detect_node
from phasegate.rules.other_projects import detect_c, detect_go, detect_java, detect_rust, detect_targets
from phasegate.rules.project_files import ProjectFiles
from phasegate.rules.python_project import detect_python
from phasegate.rules.telling_files import kind_of_root

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_DETECT: dict[str, Callable[[ProjectFiles, Machine], Detected | None]] = {
    "rust": detect_rust,
    "go": detect_go,
    "typescript": detect_node,
    "python": detect_python,
    "java": detect_java,
    "c": detect_c,
    "": detect_targets,
}


def detect_project(files: ProjectFiles, machine: Machine, kind: str | None = None) -> Detected | None:
    """What is known about a project; `kind` is the profile that a person named, whatever the files tell."""
    found = _DETECT[kind_of_root(files.paths) if kind is None else kind](files, machine)
    if found is None or "test" in found.commands:
        return found
    offered = detect_targets(files, machine)
    if offered is None:
        return found
    commands = {**offered.commands, **found.commands}
    return Detected(found.profile, found.name, found.setups, commands, found.notes, found.root)
