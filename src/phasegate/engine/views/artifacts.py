"""The artifacts of a feature, for people.

Written, read and listed below its folder, wherever that is configured.

The documents of a feature in work are on its branch; what lies in the checkout comes first, and
evidence is in the record. `write` changes what is there where it is. What is new goes to the
record: never an untracked file.
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
from phasegate.workspace.refs import BRANCH_PREFIX
from phasegate.workspace.repository import read_blobs, read_refs

IN_RECORD = "record"


class ListedArtifact(NamedTuple):
    """One artifact; `path` is relative to the folder of its feature, `branch` where it is not in
    the checkout.

    What an agent stored is in the record.
    """

    feature_slug: str
    path: str
    bytes: int
    branch: str = ""

    @property
    def location_text(self) -> str:
        """Where it is, if not in the checkout, in words."""
        if self.branch:
            return f"{'in the' if self.branch == IN_RECORD else 'on'} {self.branch}"
        return ""


def render_artifacts(found: Sequence[ListedArtifact], features_folder: str) -> str:
    """Artifacts as people read them, one a line."""
    lines = (
        escape_unprintable(
            f"{features_folder}/{one.feature_slug}/{one.path}  {one.bytes} bytes  {one.location_text}"
        ).rstrip()
        for one in found
    )
    return "\n".join(lines) or "no artifacts"


class ArtifactFiles:
    """The artifacts of the repository around a folder."""

    def __init__(self, folder: Path) -> None:
        self._project = open_project(folder)
        self._root = self._project.root
        self.features_folder = self._project.config.paths.features.rstrip("/")

    def write(self, slug: str, path: str, content: bytes) -> ListedArtifact:
        """Write one artifact of a feature that there is; what was written, and where it is."""
        if require_slug(slug) not in (known := self._list_features()):
            raise ConfigError(
                f"there is no feature {slug}", f"known are: {', '.join(known) or 'none yet'}"
            )

        validate_artifact(path, content)
        if any(
            path == one.path
            for one in list_artifacts(self._root, slug, specs_folder=self.features_folder)
        ):
            write_artifact(self._root, slug, path, content, specs_folder=self.features_folder)
            return ListedArtifact(slug, path, len(content))

        branch = FeatureBranch(self._project, slug)
        if path in self._read_branch(slug):
            branch.commit_files({f"{branch.folder}/{path}": content}, f"{slug}: Write {path}")
            return ListedArtifact(slug, path, len(content), branch.name)

        folder = path.partition("/")[0]
        kept = store_artifact(
            self._project.document_store, path, content, folder if is_package_id(folder) else ""
        )
        with open_project_store(self._project) as store:
            store.append_unconditionally(slug, self._project.now(), [kept])

        return ListedArtifact(slug, path, len(content), IN_RECORD)

    def read(self, slug: str, path: str) -> bytes:
        there = {
            one.path for one in list_artifacts(self._root, slug, specs_folder=self.features_folder)
        }
        if path not in there and path in (
            found := {**self._read_stored(slug), **self._read_branch(slug)}
        ):
            return found[path]

        return read_artifact(self._root, slug, path, specs_folder=self.features_folder)

    def list_artifacts(self, slug: str | None = None) -> list[ListedArtifact]:
        """The artifacts of one feature, or of all."""
        if slug is None:
            slugs = self._list_features()
        else:
            slugs = [slug]

        return [
            one
            for name in slugs
            for one in sorted(self._feature_artifacts(name), key=lambda one: one.path)
        ]

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
        there = {
            one.path: one.bytes
            for one in list_artifacts(self._root, slug, specs_folder=self.features_folder)
        }
        yield from (ListedArtifact(slug, path, size) for path, size in there.items())
        on_branch = self._read_branch(slug)
        stored = self._read_stored(slug)
        for path, data in on_branch.items():
            if path not in there:
                yield ListedArtifact(slug, path, len(data), f"feat/{slug}")

        for path, data in stored.items():
            if path not in there and path not in on_branch:
                yield ListedArtifact(slug, path, len(data), IN_RECORD)

    def _read_stored(self, slug: str) -> dict[str, bytes]:
        """What agents stored."""
        with open_store_reader(self._project.location) or nullcontext() as reader:
            if reader:
                kept = read_artifacts(reader, slug)
            else:
                kept = ()

        return {one.path: self._project.document_store.get(one.paper) for one in kept}

    def _read_branch(self, slug: str) -> dict[str, bytes]:
        branch = FeatureBranch(self._project, require_slug(slug))
        head = self._project.refs.fetch(branch.name).get(branch.name)
        if head:
            blobs = branch.list_documents(head)
        else:
            blobs = {}

        contents = read_blobs(self._project.repository.place(), blobs.values())
        return {path: contents[blob] for path, blob in blobs.items()}
