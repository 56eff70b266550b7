"""What an agent inside a job may ask for (D14): it sees its own feature, and writes artifacts through us."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from phasegate.agents.request_spool import Answerer, SpoolAnswer
from phasegate.agents.spool_request import ArtifactList, ArtifactRead, ArtifactWrite, SpoolRequest, Status, WorktreeList
from phasegate.engine.packages import planned
from phasegate.engine.project import Project
from phasegate.errors import ConfigError
from phasegate.record.artifacts import list_artifacts, read_artifact, write_artifact
from phasegate.record.reader import Reader
from phasegate.record.rows import Package
from phasegate.rules.dependencies import ready
from phasegate.rules.work_package import State


def answerer(project: Project, reader: Reader, feature: str, work: str) -> Answerer:
    """The one who answers the requests of a job, which is of a package or (`work` is empty) of the whole feature."""

    below = project.config.paths.features

    def answer(request: SpoolRequest) -> SpoolAnswer:
        match request:
            case Status():
                return _status(reader, feature, request)
            case WorktreeList():
                return _worktrees(reader, feature, request)
            case ArtifactWrite() | ArtifactRead() if request.feature_slug != feature:
                return SpoolAnswer(2, stderr=f"phasegate: this job belongs to {feature}\n")
            case ArtifactWrite():
                _check_place(work, request.relative_path)
                write_artifact(project.root, feature, request.relative_path, request.content.encode(), below=below)
                return SpoolAnswer(0, f"written {request.relative_path}\n")
            case ArtifactRead():
                data = read_artifact(project.root, feature, request.relative_path, below=below)
                return SpoolAnswer(0, data.decode(errors="replace"))
            case ArtifactList():
                names = [artifact.path for artifact in list_artifacts(project.root, feature, below=below)]
                return SpoolAnswer(0, _shown(names, "\n".join(names), request.as_json))

    return answer


def _check_place(work: str, path: str) -> None:
    """An agent's artifacts lie in the folder of its package: the documents that others rely on are not its to write."""
    if not work:
        raise ConfigError("this job is of no package", "write documents in the checkout, where the instructions say")
    if not path.startswith(f"{work}/"):
        raise ConfigError(f"{path} is not below {work}/", "write evidence there, as in the document")


def _status(reader: Reader, feature: str, request: Status) -> SpoolAnswer:
    rows = [row for row in reader.packages(feature) if request.package in (None, row.id)]
    if not rows:
        return SpoolAnswer(1, stderr=f"phasegate: there is no package {request.package}\n")
    return SpoolAnswer(0, _lines(rows, request.as_json))


def _worktrees(reader: Reader, feature: str, request: WorktreeList) -> SpoolAnswer:
    names = ready_packages(reader, feature)
    rows = [row for row in reader.packages(feature) if request.everything or row.id in names]
    return SpoolAnswer(0, _lines(rows, request.as_json))


def ready_packages(reader: Reader, slug: str) -> tuple[str, ...]:
    """The packages that could be dispatched now."""
    waits_for = {name: one.waits_for for name, one in planned(reader, slug).items()}
    return ready(waits_for, {row.id: State(row.state) for row in reader.packages(slug)})


def _shown(data: Sequence[object], text: str, as_json: bool) -> str:
    return msgspec.json.encode(data).decode() + "\n" if as_json else f"{text}\n"


def _lines(rows: list[Package], as_json: bool) -> str:
    return _shown([row._asdict() for row in rows], "\n".join(f"{r.id} {r.state} {r.title}" for r in rows), as_json)
