"""Read, verify and export the receipts of merges."""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import NamedTuple

import msgspec

from phasegate.core.audit.chain import ChainLink, chain_origin_hash, encode_chain_entry
from phasegate.engine.journal.entries import RECEIPT_WRITTEN, WrittenReceipt
from phasegate.engine.project.project import Project
from phasegate.errors import ConfigError
from phasegate.sandbox.run_program import ProgramResult, run_program
from phasegate.storage.reader import StoreReader, open_store_reader
from phasegate.typed import read_json
from phasegate.verifier.verify_receipt import (
    CHECKPOINT_NAMESPACE,
    compute_key_id,
    compute_root,
    hash_leaf,
    parse_checkpoint,
    split_note,
)
from phasegate.workspace.repository.merge import SigningFailed
from phasegate.workspace.repository.signing import SigningKey, find_signing_key, sign_text

_REPLAY_TIMEOUT_S = 4 * 3600.0


class StoredReceipt(NamedTuple):
    """A recorded receipt, with its envelope and its statement."""

    feature: str
    written: WrittenReceipt
    envelope: bytes
    statement: dict[str, object]


def read_verifier() -> str:
    """Return the text of the program that verifies receipts without Phasegate."""
    return (files("phasegate.verifier") / "verify_receipt.py").read_text(encoding="utf-8")


def run_verifier(project: Project, arguments: Sequence[str]) -> ProgramResult:
    """Run the verifier in a separate process, on this repository."""
    with as_file(files("phasegate.verifier") / "verify_receipt.py") as program:
        return run_program(
            [sys.executable, "-I", str(program), "--repo", str(project.root), *arguments],
            cwd=Path.cwd(),
            env=os.environ,
            timeout_s=_REPLAY_TIMEOUT_S,
        )


def find_stored_receipt(project: Project, feature: str | None) -> StoredReceipt:
    """Return the newest receipt of a feature, or of all; raise ConfigError if there is none."""
    with _open_reader(project) as reader:
        recorded = [
            event
            for name in ([feature] if feature else reader.features())
            for event in reader.events_of_kinds(name, RECEIPT_WRITTEN)
        ]
    if not recorded:
        raise _no_receipt_error()

    newest = max(recorded, key=lambda event: event.position)
    written = read_json(newest.payload, WrittenReceipt)
    envelope = project.document_store.get(written.sha256)
    payload = base64.b64decode(read_json(envelope, dict[str, object])["payload"])  # type: ignore[arg-type]
    return StoredReceipt(newest.feature, written, envelope, read_json(payload, dict[str, object]))


def _open_reader(project: Project) -> StoreReader:
    reader = open_store_reader(project.location)
    if reader is None:
        raise _no_receipt_error()
    return reader


def _no_receipt_error() -> ConfigError:
    return ConfigError(
        "no merge with a receipt is recorded here",
        "merge a feature: phasegate complete; to verify a clone: phasegate receipt verify",
    )


def export_receipt(project: Project, receipt: StoredReceipt, folder: Path) -> tuple[str, ...]:
    """Write a receipt, its documents, the audit chain and its checkpoint; return the file names.

    The checkpoint is a C2SP signed note over a tree of RFC 6962, and the proof shows that the
    merge is in it.
    """
    (folder / "documents").mkdir(parents=True, exist_ok=True)
    names = ["receipt.json", "checkpoint", "merge.tlog-proof", "chain.jsonl"]
    (folder / names[0]).write_bytes(receipt.envelope)
    with _open_reader(project) as reader:
        links = list(reader.chain_links())
        origin = chain_origin_hash(reader.store_id)
        name = f"phasegate/{reader.store_id}"

    leaves = [hash_leaf(data) for data in _encode_links(origin, links)]
    checkpoint = sign_checkpoint(project, format_checkpoint(name, leaves))
    predicate = receipt.statement["predicate"]
    assert isinstance(predicate, dict)
    index = predicate["audit"]["merged_entry"] - 1
    path = "".join(f"{_encode(node)}\n" for node in prove_inclusion(leaves, index))
    proof = f"c2sp.org/tlog-proof@v1\nindex {index}\n{path}\n".encode()
    if (folder / names[1]).exists():
        names += _continue_checkpoint(folder, leaves)
    (folder / names[1]).write_bytes(checkpoint)
    (folder / names[2]).write_bytes(proof + checkpoint)
    lines = [
        msgspec.json.encode({**link.entry._asdict(), "payload": link.entry.payload})
        for link in links
    ]
    (folder / names[3]).write_bytes(b"".join(line + b"\n" for line in lines))

    digests = {ran["report_sha256"] for ran in predicate["evidence"]}
    digests |= {job["prompt_sha256"] for job in predicate["jobs"]}
    for digest in sorted(filter(None, digests)):
        (folder / "documents" / digest).write_bytes(project.document_store.get(digest))
        names.append(f"documents/{digest}")
    return tuple(names)


def _continue_checkpoint(folder: Path, leaves: Sequence[bytes]) -> tuple[str, str]:
    """Keep the checkpoint of an earlier export, and write the proof that the log continues it."""
    old = (folder / "checkpoint").read_bytes()
    _, size, _ = parse_checkpoint(split_note(old)[0])
    (folder / "checkpoint.previous").write_bytes(old)
    proof = "".join(f"{_encode(node)}\n" for node in prove_consistency(leaves, size))
    (folder / "consistency").write_text(proof, encoding="utf-8")
    return "checkpoint.previous", "consistency"


def _encode_links(previous: str, links: Sequence[ChainLink]) -> Iterator[bytes]:
    for link in links:
        yield encode_chain_entry(previous, link.entry)
        previous = link.hash


def format_checkpoint(name: str, leaves: Sequence[bytes]) -> bytes:
    """Format the text of a checkpoint: origin, size and root hash."""
    return f"{name}\n{len(leaves)}\n{_encode(compute_root(leaves))}\n".encode()


def sign_checkpoint(project: Project, text: bytes) -> bytes:
    """Return the signed note of a text; without signature lines if git has no signing key."""
    key = find_signing_key(project.repository)
    if not isinstance(key, SigningKey):
        return text + b"\n"

    signature = sign_text(project.repository, key, text, CHECKPOINT_NAMESPACE)
    if isinstance(signature, SigningFailed):
        raise ConfigError(f"the checkpoint cannot be signed: {signature.reason}", "unlock the key")

    name = text.partition(b"\n")[0].decode()
    signed = _encode(compute_key_id(name, key.fingerprint) + signature)
    return text + f"\n\u2014 {name} {signed}\n".encode()


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


def prove_inclusion(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """Return the inclusion proof of a leaf (RFC 6962, 2.1.1)."""
    if len(leaves) <= 1:
        return []

    split = _split_point(len(leaves))
    if index < split:
        return [*prove_inclusion(leaves[:split], index), compute_root(leaves[split:])]
    return [*prove_inclusion(leaves[split:], index - split), compute_root(leaves[:split])]


def prove_consistency(leaves: Sequence[bytes], size: int, complete: bool = True) -> list[bytes]:
    """Return the proof that the first leaves are an earlier tree (RFC 6962, 2.1.2)."""
    if size == len(leaves):
        return [] if complete else [compute_root(leaves)]

    split = _split_point(len(leaves))
    if size <= split:
        return [*prove_consistency(leaves[:split], size, complete), compute_root(leaves[split:])]
    return [*prove_consistency(leaves[split:], size - split, False), compute_root(leaves[:split])]


def _split_point(size: int) -> int:
    """Return the largest power of two below a size."""
    return 1 << (size - 1).bit_length() - 1
