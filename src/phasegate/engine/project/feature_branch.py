"""The branch of a feature: its documents, read from its head and put on top of it.

Nothing here needs a checkout.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from phasegate.core.paths.scope import Scope
from phasegate.engine.project.project import Project
from phasegate.errors import StateConflict
from phasegate.workspace.commit_log import list_blobs
from phasegate.workspace.objects import NewCommit, PathVersion, write_blobs, write_commits
from phasegate.workspace.refs import missing_branch_error
from phasegate.workspace.repository import is_ancestor, read_blobs
from phasegate.workspace.tree_diff import diff_trees

MAX_DOCUMENT_BYTES = 4_000_000
_MAX_TRIES = 20


class FeatureBranch(NamedTuple):
    """`feat/{slug}` of a feature."""

    project: Project
    slug: str

    @property
    def name(self) -> str:
        return f"feat/{self.slug}"

    @property
    def folder(self) -> str:
        """The feature's folder, from the root of the repository."""
        return f"{self.project.config.paths.features}/{self.slug}"

    def read_head(self) -> str:
        commits = self.project.refs.fetch(self.name)
        if self.name not in commits:
            raise missing_branch_error(self.project.repository, self.name)
        return commits[self.name]

    def list_documents(self, commit: str | None = None) -> dict[str, str]:
        """The documents of the feature's folder, by their names in it, each with the id of its
        content.

        A link is none: what it leads to is not what a critic is shown.
        """
        return self._select_folder(
            list_blobs(self.project.repository, commit or self.read_head(), include_links=False)
        )

    def list_files(self) -> tuple[str, ...]:
        """All that lies in the feature's folder, by its names in it."""
        return tuple(self._select_folder(list_blobs(self.project.repository, self.read_head())))

    def _select_folder(self, blobs: Mapping[str, str]) -> dict[str, str]:
        prefix = f"{self.folder}/"
        return {
            path.removeprefix(prefix): blob
            for path, blob in blobs.items()
            if path.startswith(prefix)
        }

    def read_documents(self, blobs: Mapping[str, str]) -> dict[str, str]:
        """The text of documents, given with the ids of their content.

        What is no text of sensible size is not given.
        """
        contents = read_blobs(self.project.repository.place(), blobs.values())
        return dict(_decode_documents({name: contents[blob] for name, blob in blobs.items()}))

    def find_present_documents(
        self, wanted: tuple[str, ...], commit: str | None = None
    ) -> tuple[str, ...]:
        """Which of the wanted documents are there and not empty.

        `specs/` is there if one lies in it.

        What cannot be read cannot be shown to a critic, so it is not there.
        """
        full = {
            name
            for name, text in self.read_documents(self.list_documents(commit)).items()
            if text.strip()
        }
        return tuple(name for name in wanted if name in full or _has_file_below(name, full))

    def list_changes_since(
        self, judged_commit: str, head: str, *expected_paths: str
    ) -> tuple[str, ...]:
        """What is not as it was in the commit that was judged, but for what is expected.

        Nothing if none was.
        """
        found = (
            diff_trees(self.project.repository.place(), judged_commit, head)
            if judged_commit
            else ()
        )
        expected = Scope(expected_paths)
        return tuple(one.path for one in found if not expected.covers(one.path))

    def commit_files(self, files: Mapping[str, bytes | None], message: str) -> str:
        """Put files (None: gone) on the branch in one commit; the head after it.

        What is there already makes none.
        """
        for _ in range(_MAX_TRIES):
            head = self.read_head()
            changed = self._select_changed(head, files)
            if not changed:
                return head

            commit = self._write_commit(head, changed, message)
            if self.project.refs.move(self.name, head, commit):
                return commit

        raise StateConflict(f"{self.name} keeps moving", "run again")

    def fast_forward(self, commit: str) -> bool:
        """Move the branch on to a commit that has it in its history; False if it has not."""
        repository = self.project.repository
        head = self.read_head()
        if is_ancestor(repository, commit, head):
            return True

        return is_ancestor(repository, head, commit) and self.project.refs.move(
            self.name, head, commit
        )

    def _select_changed(
        self, head: str, files: Mapping[str, bytes | None]
    ) -> dict[str, bytes | None]:
        blobs = list_blobs(self.project.repository, head)
        algorithm = self.project.repository.hash_name
        ids = {
            path: None if data is None else _blob_id(data, algorithm)
            for path, data in files.items()
        }
        return {path: data for path, data in files.items() if blobs.get(path) != ids[path]}

    def _write_commit(self, head: str, files: Mapping[str, bytes | None], message: str) -> str:
        repository = self.project.repository
        signature = self.project.make_signature()
        write_blobs(repository, (data for data in files.values() if data is not None))
        paths = {
            path: None if data is None else _make_version(data, repository.hash_name)
            for path, data in files.items()
        }
        (commit,) = write_commits(
            repository,
            [
                NewCommit(
                    parents=(head,),
                    author=signature,
                    committer=signature,
                    message=message,
                    paths=paths,
                )
            ],
        )

        return commit


def _has_file_below(name: str, full: set[str]) -> bool:
    return name.endswith("/") and any(path.startswith(name) for path in full)


def _decode_documents(contents: Mapping[str, bytes]) -> Iterator[tuple[str, str]]:
    for name, data in contents.items():
        if len(data) <= MAX_DOCUMENT_BYTES:
            try:
                yield name, data.decode("utf-8")
            except UnicodeDecodeError:
                continue


def _make_version(data: bytes, algorithm: str) -> PathVersion:
    return PathVersion("100644", _blob_id(data, algorithm))


def _blob_id(data: bytes, algorithm: str) -> str:
    return hashlib.new(algorithm, b"blob %d\0%s" % (len(data), data)).hexdigest()
