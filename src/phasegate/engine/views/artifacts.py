"""Write, read and list the artifacts of a feature.

The documents of an active feature are on its branch. Files in the checkout take precedence, and
evidence is in the record. `write` changes an artifact where it is; a new one goes to the record,
never to an untracked file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

from phasegate.core.paths.artifact_path import require_slug
from phasegate.core.plan.work_package import is_package_id, is_safe_slug
from phasegate.core.text.visible import escape_unprintable
from phasegate.engine.journal.artifacts import read_artifacts, store_artifact
from phasegate.engine.project.feature_branch import FeatureBranch
from phasegate.engine.project.project import open_project, open_project_store
from phasegate.errors import ConfigError
from phasegate.storage.artifacts import (
    list_artifacts,
    list_features,
    read_artifact,
    validate_artifact,
    write_artifact,
)
from phasegate.storage.reader import open_store_reader
from phasegate.workspace.repository.refs import BRANCH_PREFIX
from phasegate.workspace.repository.repository import read_blobs, read_refs
from phasegate.workspace.repository.rewrite import ORIGINAL_PREFIX, read_original_head

IN_RECORD = "record"


class ListedArtifact(NamedTuple):
    """One artifact of a feature.

    `path` is relative to the feature's folder. `branch` is empty for a file in the checkout and
    `record` for one that an agent stored.
    """

    feature_slug: str
    path: str
    bytes: int
    branch: str = ""

    @property
    def location_text(self) -> str:
        """Describe where the artifact is, unless it is in the checkout."""
        if self.branch:
            return f"{'in the' if self.branch == IN_RECORD else 'on'} {self.branch}"
        return ""


def render_artifacts(artifacts: Sequence[ListedArtifact], features_folder: str) -> str:
    """Render artifacts as text, one per line."""
    lines = (
        escape_unprintable(
            f"{features_folder}/{artifact.feature_slug}/{artifact.path}  "
            f"{artifact.bytes} bytes  {artifact.location_text}"
        ).rstrip()
        for artifact in artifacts
    )
    return "\n".join(lines) or "no artifacts"


class ArtifactFiles:
    """Artifacts of the repository that contains a folder."""

    def __init__(self, folder: Path) -> None:
        self._project = open_project(folder)
        self._root = self._project.root
        self.features_folder = self._project.config.paths.features.rstrip("/")

    def write(self, slug: str, path: str, content: bytes) -> ListedArtifact:
        """Write an artifact of an existing feature; return its path and where it was written."""
        features = self._list_features()
        if require_slug(slug) not in features:
            raise ConfigError(
                f"there is no feature {slug}", f"available: {', '.join(features) or 'none yet'}"
            )

        validate_artifact(path, content)
        if path in self._list_checkout(slug):
            write_artifact(self._root, slug, path, content, specs_folder=self.features_folder)
            return ListedArtifact(slug, path, len(content))

        branch = FeatureBranch(self._project, slug)
        has_branch = branch.name in self._project.refs.fetch(branch.name)
        if has_branch and path in self._read_branch(slug):
            branch.commit_files({f"{branch.folder}/{path}": content}, f"{slug}: Write {path}")
            return ListedArtifact(slug, path, len(content), branch.name)

        folder = path.partition("/")[0]
        event = store_artifact(
            self._project.document_store, path, content, folder if is_package_id(folder) else ""
        )
        with open_project_store(self._project) as store:
            store.append_unconditionally(slug, self._project.now(), [event])

        return ListedArtifact(slug, path, len(content), IN_RECORD)

    def read(self, slug: str, path: str) -> bytes:
        """Return the content of an artifact, wherever it is."""
        if path not in self._list_checkout(slug):
            contents = {**self._read_stored(slug), **self._read_branch(slug)}
            if path in contents:
                return contents[path]

        return read_artifact(self._root, slug, path, specs_folder=self.features_folder)

    def list_artifacts(self, slug: str | None = None) -> list[ListedArtifact]:
        """List the artifacts of one feature, or of all."""
        slugs = self._list_features() if slug is None else [slug]

        return [artifact for name in slugs for artifact in sorted(self._feature_artifacts(name))]

    def _list_features(self) -> list[str]:
        prefix = f"{BRANCH_PREFIX}feat/"
        branches = (ref.removeprefix(prefix) for ref in read_refs(self._project.repository, prefix))
        with open_store_reader(self._project.location) or nullcontext() as reader:
            recorded = reader.features() if reader else []
        return sorted(
            {
                *list_features(self._root, specs_folder=self.features_folder),
                *filter(is_safe_slug, (*branches, *recorded)),
            }
        )

    def _feature_artifacts(self, slug: str) -> Iterator[ListedArtifact]:
        """Yield a feature's artifacts in the checkout, on its branch, then stored."""
        in_checkout = self._list_checkout(slug)
        yield from (ListedArtifact(slug, path, size) for path, size in in_checkout.items())
        on_branch = self._read_branch(slug)
        name = f"feat/{slug}"
        where = name if name in self._project.refs.fetch(name) else ORIGINAL_PREFIX + slug
        for path, data in on_branch.items():
            if path not in in_checkout:
                yield ListedArtifact(slug, path, len(data), where)

        for path, data in self._read_stored(slug).items():
            if path not in in_checkout and path not in on_branch:
                yield ListedArtifact(slug, path, len(data), IN_RECORD)

    def _list_checkout(self, slug: str) -> dict[str, int]:
        """Return the path and size of each artifact in the checkout."""
        artifacts = list_artifacts(self._root, slug, specs_folder=self.features_folder)
        return {artifact.path: artifact.bytes for artifact in artifacts}

    def _read_stored(self, slug: str) -> dict[str, bytes]:
        """Read the artifacts that agents stored in the record."""
        with open_store_reader(self._project.location) or nullcontext() as reader:
            stored = read_artifacts(reader, slug) if reader else ()

        return {
            artifact.path: self._project.document_store.get(artifact.content_hash)
            for artifact in stored
        }

    def _read_branch(self, slug: str) -> dict[str, bytes]:
        branch = FeatureBranch(self._project, require_slug(slug))
        head = read_original_head(self._project.repository, slug)
        blobs = branch.list_documents(head) if head else {}
        contents = read_blobs(self._project.repository.place(), blobs.values())
        return {path: contents[blob] for path, blob in blobs.items()}
