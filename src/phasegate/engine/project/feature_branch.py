"""Read the documents on a feature's branch and commit to it, without a checkout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from phasegate.core.paths.scope import Scope
from phasegate.engine.project.project import Project
from phasegate.errors import StateConflict
from phasegate.workspace.repository.commit_log import list_blobs
from phasegate.workspace.repository.disk_files import blob_id
from phasegate.workspace.repository.objects import (
    NewCommit,
    PathVersion,
    write_blobs,
    write_commits,
)
from phasegate.workspace.repository.refs import missing_branch_error
from phasegate.workspace.repository.repository import is_ancestor, read_blobs
from phasegate.workspace.repository.tree_diff import diff_trees

MAX_DOCUMENT_BYTES = 4_000_000
_MAX_TRIES = 20


class FeatureBranch(NamedTuple):
    """The branch `feat/{slug}` of a feature."""

    project: Project
    slug: str

    @property
    def name(self) -> str:
        return f"feat/{self.slug}"

    @property
    def folder(self) -> str:
        """The feature's folder, relative to the root of the repository."""
        return f"{self.project.config.paths.features}/{self.slug}"

    @property
    def document_path(self) -> str:
        """The path of the feature's single document in the base after the merge."""
        config = self.project.config
        return config.deliver.document.replace("{slug}", self.slug).replace(
            "{features}", config.paths.features
        )

    def read_head(self) -> str:
        commits = self.project.refs.fetch(self.name)
        if self.name not in commits:
            raise missing_branch_error(self.project.repository, self.name)
        return commits[self.name]

    def list_documents(self, commit: str | None = None) -> dict[str, str]:
        """Return the documents in the feature's folder and their blob ids.

        Symbolic links are left out: their target is not what a critic reads.
        """
        return self._select_folder(
            list_blobs(self.project.repository, commit or self.read_head(), include_links=False)
        )

    def _select_folder(self, blobs: Mapping[str, str]) -> dict[str, str]:
        prefix = f"{self.folder}/"
        return {
            path.removeprefix(prefix): blob
            for path, blob in blobs.items()
            if path.startswith(prefix)
        }

    def read_documents(self, blobs: Mapping[str, str]) -> dict[str, str]:
        """Read the texts of documents by their blob ids; skip binary and too large files."""
        contents = read_blobs(self.project.repository.place(), blobs.values())
        return dict(_decode_documents({name: contents[blob] for name, blob in blobs.items()}))

    def find_present_documents(
        self, wanted: tuple[str, ...], commit: str | None = None
    ) -> tuple[str, ...]:
        """Return the wanted documents that exist and are not empty.

        A folder such as `specs/` exists if it has a document. A document that cannot be read cannot
        be shown to a critic, so it counts as missing.
        """
        documents = self.read_documents(self.list_documents(commit))
        present = {name for name, text in documents.items() if text.strip()}
        return tuple(name for name in wanted if name in present or _has_file_below(name, present))

    def count_documents(self, names: tuple[str, ...]) -> int:
        """Return the number of documents with one of the names, or in one of the folders."""
        folders = tuple(name for name in names if name.endswith("/"))
        found = self.list_documents()
        return sum(name in names or name.startswith(folders) for name in found)

    def list_changes_since(
        self, judged_commit: str, head: str, *expected_paths: str
    ) -> tuple[str, ...]:
        """Return the paths that changed since the reviewed commit, except expected ones.

        The result is empty if there was no review.
        """
        if not judged_commit:
            return ()

        expected = Scope(expected_paths)
        changes = diff_trees(self.project.repository.place(), judged_commit, head)
        return tuple(change.path for change in changes if not expected.covers(change.path))

    def commit_files(self, files: Mapping[str, bytes | None], message: str) -> str:
        """Commit files to the branch and return the new head; None as content deletes a file.

        No commit is made if nothing changes.
        """
        for _ in range(_MAX_TRIES):
            head = self.read_head()
            changed = self._select_changed(head, files)
            if not changed:
                return head

            commit = self._write_commit(head, changed, message)
            if self.project.refs.move(self.name, head, commit):
                return commit

        raise StateConflict(
            f"{self.name} kept changing while Phasegate tried to commit to it",
            "run the command again",
        )

    def fast_forward(self, commit: str) -> bool:
        """Move the branch forward to a descendant of its head; return False for other commits."""
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
            path: None if data is None else blob_id(data, algorithm) for path, data in files.items()
        }
        return {path: data for path, data in files.items() if blobs.get(path) != ids[path]}

    def _write_commit(self, head: str, files: Mapping[str, bytes | None], message: str) -> str:
        """Write a commit with changed files on top of `head`; return its id."""
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


def _has_file_below(name: str, present: set[str]) -> bool:
    return name.endswith("/") and any(path.startswith(name) for path in present)


def _decode_documents(contents: Mapping[str, bytes]) -> Iterator[tuple[str, str]]:
    for name, data in contents.items():
        if len(data) <= MAX_DOCUMENT_BYTES:
            try:
                yield name, data.decode("utf-8")
            except UnicodeDecodeError:
                continue


def _make_version(data: bytes, algorithm: str) -> PathVersion:
    return PathVersion("100644", blob_id(data, algorithm))
