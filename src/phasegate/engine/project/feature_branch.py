"""The branch of a feature: its documents, read from its head and put on top of it. Nothing here needs a checkout."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from phasegate.core.paths.scope import Scope
from phasegate.engine.project.project import Project
from phasegate.errors import StateConflict
from phasegate.workspace.commit_log import blobs_of
from phasegate.workspace.objects import NewCommit, Version, write_blobs, write_commits
from phasegate.workspace.refs import branch_is_gone
from phasegate.workspace.repository import is_ancestor, read_blobs
from phasegate.workspace.tree_diff import differences

LARGEST_DOCUMENT_BYTES = 4_000_000
_TRIES = 20


class Branch(NamedTuple):
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

    def head(self) -> str:
        commits = self.project.refs.fetch(self.name)
        if self.name not in commits:
            raise branch_is_gone(self.project.repository, self.name)
        return commits[self.name]

    def documents(self, commit: str | None = None) -> dict[str, str]:
        """The documents of the feature's folder, by their names in it, each with the id of its content.

        A link is none: what it leads to is not what a critic is shown.
        """
        return self._listed(blobs_of(self.project.repository, commit or self.head(), links=False))

    def files(self) -> tuple[str, ...]:
        """All that lies in the feature's folder, by its names in it."""
        return tuple(self._listed(blobs_of(self.project.repository, self.head())))

    def _listed(self, blobs: Mapping[str, str]) -> dict[str, str]:
        prefix = f"{self.folder}/"
        return {path.removeprefix(prefix): blob for path, blob in blobs.items() if path.startswith(prefix)}

    def read(self, names: Mapping[str, str]) -> dict[str, str]:
        """The text of documents, given with the ids of their content. What is no text of sensible size is not given."""
        contents = read_blobs(self.project.repository.place(), names.values())
        return dict(_texts({name: contents[blob] for name, blob in names.items()}))

    def present(self, wanted: tuple[str, ...], commit: str | None = None) -> tuple[str, ...]:
        """Which of the wanted documents are there and not empty; `specs/` is there if one lies in it.

        What cannot be read cannot be shown to a critic, so it is not there.
        """
        full = {name for name, text in self.read(self.documents(commit)).items() if text.strip()}
        return tuple(name for name in wanted if name in full or _holds(name, full))

    def changed_since(self, judged: str, head: str, *but: str) -> tuple[str, ...]:
        """What is not as it was in the commit that was judged, but for what is expected; nothing if none was."""
        found = differences(self.project.repository.place(), judged, head) if judged else ()
        expected = Scope(but)
        return tuple(one.path for one in found if not expected.covers(one.path))

    def put(self, files: Mapping[str, bytes | None], message: str) -> str:
        """Put files (None: gone) on the branch in one commit; the head after it. What is there already makes none."""
        for _ in range(_TRIES):
            head = self.head()
            changed = self._changed(head, files)
            if not changed:
                return head
            commit = self._commit(head, changed, message)
            if self.project.refs.move(self.name, head, commit):
                return commit
        raise StateConflict(f"{self.name} keeps moving", "run again")

    def take_in(self, commit: str) -> bool:
        """Move the branch on to a commit that has it in its history; False if it has not."""
        repository, head = self.project.repository, self.head()
        if is_ancestor(repository, commit, head):
            return True
        return is_ancestor(repository, head, commit) and self.project.refs.move(self.name, head, commit)

    def _changed(self, head: str, files: Mapping[str, bytes | None]) -> dict[str, bytes | None]:
        blobs = blobs_of(self.project.repository, head)
        algorithm = self.project.repository.hash_name
        ids = {path: None if data is None else _blob_id(data, algorithm) for path, data in files.items()}
        return {path: data for path, data in files.items() if blobs.get(path) != ids[path]}

    def _commit(self, head: str, files: Mapping[str, bytes | None], message: str) -> str:
        repository, signature = self.project.repository, self.project.signature()
        write_blobs(repository, (data for data in files.values() if data is not None))
        paths = {path: None if data is None else _version(data, repository.hash_name) for path, data in files.items()}
        (commit,) = write_commits(repository, [NewCommit((head,), signature, signature, message, paths)])
        return commit


def _holds(name: str, full: set[str]) -> bool:
    return name.endswith("/") and any(path.startswith(name) for path in full)


def _texts(contents: Mapping[str, bytes]) -> Iterator[tuple[str, str]]:
    for name, data in contents.items():
        if len(data) <= LARGEST_DOCUMENT_BYTES:
            try:
                yield name, data.decode("utf-8")
            except UnicodeDecodeError:
                continue


def _version(data: bytes, algorithm: str) -> Version:
    return Version("100644", _blob_id(data, algorithm))


def _blob_id(data: bytes, algorithm: str) -> str:
    return hashlib.new(algorithm, b"blob %d\0%s" % (len(data), data)).hexdigest()
