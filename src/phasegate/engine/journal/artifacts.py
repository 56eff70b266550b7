"""Store and read the artifacts of `phasegate artifact write`.

The content is stored by hash, for reviewers and later agents. It is never written to the user's
checkout. The journal has one event per version; the last version of a path counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from phasegate.core.prompt.budget import ContextPiece, PieceKind
from phasegate.core.text.visible import escape_unprintable
from phasegate.engine.project.ports import DocumentStore, RecordReader
from phasegate.storage.artifacts import validate_artifact
from phasegate.storage.rows import NewEvent
from phasegate.typed import read_json

ARTIFACT_WRITTEN = "artifact.written"
# Per artifact
MAX_PROMPT_CHARS = 20_000
MAX_PROMPT_ARTIFACTS = 20


class StoredArtifact(msgspec.Struct, frozen=True):
    """Describe a stored file."""

    # Relative to the feature's folder
    path: str
    bytes: int
    # SHA-256 of its content, the key of the document store
    content_hash: str = msgspec.field(name="paper")
    # Its package or phase; empty for the feature
    work: str


def store_artifact(documents: DocumentStore, path: str, content: bytes, work: str) -> NewEvent:
    """Store the content of an artifact; return the event to record."""
    validate_artifact(path, content)
    return NewEvent(
        ARTIFACT_WRITTEN,
        msgspec.json.encode(StoredArtifact(path, len(content), documents.put(content), work)),
    )


def read_artifacts(
    record: RecordReader, feature: str, work: str = ""
) -> tuple[StoredArtifact, ...]:
    """Return the current artifacts of a feature, or of one of its packages, sorted by path."""
    return select_current_artifacts(read_artifact_versions(record, feature), work)


def select_current_artifacts(
    versions: Iterable[StoredArtifact], work: str = ""
) -> tuple[StoredArtifact, ...]:
    """Select the last version of every path, sorted by path; `work` restricts it to a package."""
    current = {artifact.path: artifact for artifact in versions}
    return tuple(current[path] for path in sorted(current) if work in ("", current[path].work))


def read_artifact_versions(record: RecordReader, feature: str) -> list[StoredArtifact]:
    """Return all versions of all artifacts, oldest first.

    Replaced versions are included, because they use space too.
    """
    events = (recorded for recorded in record.events(feature) if recorded.kind == ARTIFACT_WRITTEN)
    return [read_json(recorded.payload, StoredArtifact) for recorded in events]


def make_artifact_pieces(
    documents: DocumentStore, artifacts: Iterable[StoredArtifact]
) -> Iterator[ContextPiece]:
    """Yield artifacts as prompt context, limited in number and length; omitted ones are listed."""
    all_artifacts = [*artifacts]

    for artifact in all_artifacts[:MAX_PROMPT_ARTIFACTS]:
        text = documents.get(artifact.content_hash).decode("utf-8", "replace")
        excess = len(text) - MAX_PROMPT_CHARS
        if excess > 0:
            text = text[:MAX_PROMPT_CHARS]
            text += f"\n[... {excess} more characters: phasegate artifact read]\n"

        yield ContextPiece(PieceKind.REVISED, artifact.path, text)

    omitted = [
        escape_unprintable(artifact.path) for artifact in all_artifacts[MAX_PROMPT_ARTIFACTS:]
    ]
    if omitted:
        yield ContextPiece(PieceKind.REVISED, "artifacts-left-out.txt", "\n".join(omitted) + "\n")
