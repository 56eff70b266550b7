"""What is stored with `artifact write`.

Kept in the record, by content, for those who judge and those who follow.

It never goes into the person's checkout. The journal says which file was written; the last one of a
path counts.
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
# Characters of one artifact in a prompt
MAX_PROMPT_CHARS = 20_000
MAX_PROMPT_ARTIFACTS = 20


class StoredArtifact(msgspec.Struct, frozen=True):
    """One file that was stored; `paper` is the hash of its content."""

    # Relative to the feature's folder
    path: str
    bytes: int
    paper: str
    # The package or phase it belongs to; empty: the feature
    work: str


def store_artifact(documents: DocumentStore, path: str, content: bytes, work: str) -> NewEvent:
    """Keep the content; the event that makes it known."""
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
    """Everything that was ever stored, oldest first.

    A file that took the place of another takes room too.
    """
    events = (recorded for recorded in record.events(feature) if recorded.kind == ARTIFACT_WRITTEN)
    return [read_json(recorded.payload, StoredArtifact) for recorded in events]


def make_artifact_pieces(
    documents: DocumentStore, artifacts: Iterable[StoredArtifact]
) -> Iterator[ContextPiece]:
    """Artifacts as context: the first ones, each up to a length; what is left out is named."""
    every = [*artifacts]

    for one in every[:MAX_PROMPT_ARTIFACTS]:
        text = documents.get(one.paper).decode("utf-8", "replace")
        rest = len(text) - MAX_PROMPT_CHARS
        if rest > 0:
            cut = f"\n[... {rest} more characters: phasegate artifact read]\n"
        else:
            cut = ""

        yield ContextPiece(PieceKind.REVISED, one.path, text[:MAX_PROMPT_CHARS] + cut)

    if left_out := [escape_unprintable(one.path) for one in every[MAX_PROMPT_ARTIFACTS:]]:
        yield ContextPiece(PieceKind.REVISED, "artifacts-left-out.txt", "\n".join(left_out) + "\n")
