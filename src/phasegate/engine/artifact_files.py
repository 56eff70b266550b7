"""The artifacts of a feature, for people: written, read and listed below its folder, wherever that is configured."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from phasegate.engine.surroundings import root_around, settings_around
from phasegate.record.artifacts import list_artifacts, list_features, read_artifact, write_artifact


class ListedArtifact(NamedTuple):
    """One artifact; `path` is relative to the folder of its feature."""

    feature_slug: str
    path: str
    bytes: int


class ArtifactFiles:
    """The artifacts of the repository around a folder."""

    def __init__(self, folder: Path) -> None:
        self._root = root_around(folder)
        self.below = settings_around(self._root).config.paths.features.rstrip("/")

    def write(self, slug: str, path: str, content: bytes) -> str:
        """Write one file below the feature's folder; where it is, relative to the repository."""
        write_artifact(self._root, slug, path, content, below=self.below)
        return f"{self.below}/{slug}/{path}"

    def read(self, slug: str, path: str) -> bytes:
        return read_artifact(self._root, slug, path, below=self.below)

    def listed(self, slug: str | None = None) -> list[ListedArtifact]:
        """The artifacts of one feature, or of all."""
        slugs = list_features(self._root, below=self.below) if slug is None else [slug]
        listed = {one: list_artifacts(self._root, one, below=self.below) for one in slugs}
        return [ListedArtifact(one, about.path, about.bytes) for one, found in listed.items() for about in found]
