"""What is stored with `artifact write`: kept in the record, by content, for those who judge and those who follow.

It never goes into the person's checkout. The journal says which file was written; the last one of a path counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from phasegate.core.prompt.budget import Piece, PieceKind
from phasegate.core.text.visible import visible
from phasegate.engine.project.ports import Papers, RecordReader
from phasegate.storage.artifacts import expect_artifact
from phasegate.storage.rows import Event
from phasegate.typed import read_json

ARTIFACT_WRITTEN = "artifact.written"
LONGEST_SHOWN = 20_000  # characters of one artifact in a prompt
MOST_SHOWN = 20


class KeptArtifact(msgspec.Struct, frozen=True):
    """One file that was stored; `paper` is the hash of its content."""

    path: str  # relative to the feature's folder
    bytes: int
    paper: str
    work: str  # the package or phase it belongs to; empty: the feature


def keep_artifact(papers: Papers, path: str, content: bytes, work: str) -> Event:
    """Keep the content; the event that makes it known."""
    expect_artifact(path, content)
    return Event(ARTIFACT_WRITTEN, msgspec.json.encode(KeptArtifact(path, len(content), papers.put(content), work)))


def kept_artifacts(record: RecordReader, feature: str, work: str = "") -> tuple[KeptArtifact, ...]:
    """What is kept of a feature, or of one package of it, by path."""
    found = {one.path: one for one in all_versions(record, feature)}
    return tuple(found[path] for path in sorted(found) if work in ("", found[path].work))


def all_versions(record: RecordReader, feature: str) -> list[KeptArtifact]:
    """Everything that was ever stored, oldest first: a file that took the place of another takes room too."""
    events = (recorded for recorded in record.events(feature) if recorded.kind == ARTIFACT_WRITTEN)
    return [read_json(recorded.payload, KeptArtifact) for recorded in events]


def artifact_pieces(papers: Papers, artifacts: Iterable[KeptArtifact]) -> Iterator[Piece]:
    """Artifacts as context: the first ones, each up to a length; what is left out is named."""
    every = [*artifacts]
    for one in every[:MOST_SHOWN]:
        text = papers.get(one.paper).decode("utf-8", "replace")
        rest = len(text) - LONGEST_SHOWN
        cut = f"\n[... {rest} more characters: phasegate artifact read]\n" if rest > 0 else ""
        yield Piece(PieceKind.REVISED, one.path, text[:LONGEST_SHOWN] + cut)
    if left_out := [visible(one.path) for one in every[MOST_SHOWN:]]:
        yield Piece(PieceKind.REVISED, "artifacts-left-out.txt", "\n".join(left_out) + "\n")
