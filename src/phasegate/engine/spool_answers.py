"""What an agent inside a job may ask for: it sees its own feature, and writes artifacts through us."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from phasegate.agents.request_spool import Answerer, SpoolAnswer
from phasegate.agents.spool_request import ArtifactList, ArtifactRead, ArtifactWrite, SpoolRequest, Status, WorktreeList
from phasegate.engine.lent_keys import lent_keys
from phasegate.engine.package_view import planned_cards
from phasegate.engine.project import Project
from phasegate.engine.views import PackageCard, package_cards, with_jobs
from phasegate.errors import ConfigError
from phasegate.record.artifacts import Artifact, list_artifacts, read_artifact, write_artifact
from phasegate.record.reader import Reader
from phasegate.rules.plain_json import as_data

MOST_ARTIFACTS = 200
MOST_ARTIFACT_BYTES = 20_000_000


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
                content = request.content.encode()
                if lent_keys(project).are_in(
                    request.relative_path.encode("utf-8", "surrogateescape") + b"\n" + content
                ):
                    raise ConfigError("it holds a key that was lent to this job", "take it out, and write it again")
                _check_place(work, request.relative_path)
                _check_room(list_artifacts(project.root, feature, below=below), work, request.relative_path, content)
                write_artifact(project.root, feature, request.relative_path, content, below=below)
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


def _check_room(there: Sequence[Artifact], work: str, path: str, content: bytes) -> None:
    """All artifacts of a package together are bounded: they lie in the person's own checkout."""
    others = [one for one in there if one.path.startswith(f"{work}/") and one.path != path]
    size = sum(one.bytes for one in others) + len(content)
    if len(others) >= MOST_ARTIFACTS:
        raise ConfigError(f"{work} has {len(others)} artifacts (limit {MOST_ARTIFACTS})", "put several into one file")
    if size > MOST_ARTIFACT_BYTES:
        why = f"the artifacts of {work} would have {size} bytes (limit {MOST_ARTIFACT_BYTES})"
        raise ConfigError(why, "keep what a reviewer needs, and leave the rest out")


def _status(reader: Reader, feature: str, request: Status) -> SpoolAnswer:
    cards = package_cards(reader, feature, wanted=request.package)
    if not cards:
        return SpoolAnswer(1, stderr=f"phasegate: there is no package {request.package}\n")
    return _listed([with_jobs(reader, card) for card in cards] if request.package else cards, request.as_json)


def _worktrees(reader: Reader, feature: str, request: WorktreeList) -> SpoolAnswer:
    cards = planned_cards(reader, feature)
    return _listed([card for card in cards if request.everything or card.is_ready], request.as_json)


def _listed(cards: Sequence[PackageCard], as_json: bool) -> SpoolAnswer:
    return SpoolAnswer(0, _shown(cards, "\n".join(f"{card.id} {card.state} {card.title}" for card in cards), as_json))


def _shown(data: Sequence[object], text: str, as_json: bool) -> str:
    return msgspec.json.encode(as_data([*data])).decode() + "\n" if as_json else f"{text}\n"
