"""Read and write git notes about merges, in a separate ref."""

from __future__ import annotations

from phasegate.git import git, sync_written_folders
from phasegate.workspace.repository.objects import Signature
from phasegate.workspace.repository.repository import Repository
from phasegate.workspace.repository.repository_locks import repository_lock

NOTES_REF = "refs/notes/phasegate"


def read_note(repository: Repository, commit: str) -> bytes | None:
    """Return the note about a commit, or None if there is none."""
    found = git(
        repository.refs_place,
        "notes",
        f"--ref={NOTES_REF}",
        "list",
        commit,
        accepted_exit_codes=(0, 1),
    )
    blob = found.stdout.decode().strip()
    if not blob:
        return None
    return git(repository.refs_place, "cat-file", "blob", blob).stdout


def write_note(repository: Repository, commit: str, text: bytes, signature: Signature) -> None:
    """Write the note about a commit, byte for byte; an existing note is replaced."""
    place = repository.refs_place
    who = signature.who
    identity = ("-c", f"user.name={who.name}", "-c", f"user.email={who.email}")
    blob = git(place, "hash-object", "-w", "--stdin", stdin=text).stdout.decode().strip()

    with repository_lock(repository) as lock:
        files = (f"{NOTES_REF}.lock", "NOTES_MERGE_REF.lock", "packed-refs.lock")
        lock.announce_lock_files(repository.common_dir / name for name in files)
        sync_written_folders()
        # -C keeps the bytes of the blob
        arguments = ("notes", f"--ref={NOTES_REF}", "add", "-f", "-C", blob, commit)
        git(place, *arguments, settings=identity, stdout_to=lock.descriptor)

    sync_written_folders()
