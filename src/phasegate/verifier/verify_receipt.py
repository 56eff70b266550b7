#!/usr/bin/env python3
"""Verify the receipt of a merge: with git, ssh-keygen or gpg, and this file only.

The receipt is an in-toto Statement in a DSSE envelope. It is read from the git note of the merge
(refs/notes/phasegate) or from a file. Exit status: 0 verified and signed by a trusted key, 1 a
check failed, 2 wrong usage, 3 all checks pass but no trusted key signed the receipt.

    git fetch origin refs/notes/phasegate:refs/notes/phasegate
    python3 verify.py --key signer.pub [--repo DIR] [--replay] [COMMIT]
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

NOTES_REF = "refs/notes/phasegate"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:phasegate:receipt:v1"
NAMESPACE = "phasegate-receipt"
CHECKPOINT_NAMESPACE = "phasegate-checkpoint"
# The identifier of this type of signature in a C2SP signed note
NOTE_SIGNATURE_TYPE = b"\xffphasegate-detached-v1"
PROOF_TYPE = "c2sp.org/tlog-proof@v1"
_CHAIN_DOMAIN = b"phasegate domain chain 1"
# Commands find the programs that the setup installed
_BIN_FOLDERS = (".venv/bin", "node_modules/.bin", ".phasegate-tools/bin")
_COUNTS = (
    re.compile(r"^Ran (\d+) tests? in ", re.M),
    re.compile(r"^=* ?(?:(?P<failed>\d+) failed, )?(?P<passed>\d+) passed\b.* in [\d.]+", re.M),
    re.compile(r"^(?:# |\u2139 )tests (\d+)$", re.M),
)


class Invalid(Exception):
    """The receipt does not match; the message names the difference."""


def demand(condition: object, problem: str) -> None:
    """Raise Invalid unless the condition holds."""
    if not condition:
        raise Invalid(problem)


def decode_json(text: str | bytes) -> Any:
    """Decode JSON; a key that appears twice is invalid."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        demand(len(dict(pairs)) == len(pairs), "a key appears twice in the JSON text")

        return dict(pairs)

    def no_constant(name: str) -> NoReturn:
        raise Invalid(f"{name} is not JSON")

    try:
        return json.loads(text, object_pairs_hook=unique, parse_constant=no_constant)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"it is not JSON: {error}") from error


def decode_base64(text: str) -> bytes:
    """Decode canonical base64."""
    try:
        data = base64.b64decode(text, validate=True)
    except (ValueError, TypeError) as error:
        raise Invalid(f"it is not base64: {error}") from error
    demand(base64.b64encode(data).decode() == text, "it is not canonical base64")

    return data


def encode_pae(payload_type: str, payload: bytes) -> bytes:
    """Return the bytes that a DSSE signature covers."""
    kind = payload_type.encode()

    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


# --- Merkle trees, as in RFC 6962


def hash_leaf(data: bytes) -> bytes:
    """Return the hash of a leaf."""
    return hashlib.sha256(b"\0" + data).digest()


def hash_children(left: bytes, right: bytes) -> bytes:
    """Return the hash of an inner node."""
    return hashlib.sha256(b"\1" + left + right).digest()


def compute_root(leaves: Sequence[bytes]) -> bytes:
    """Return the Merkle root (RFC 6962) of leaf hashes; an odd last node moves up unchanged."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    level = list(leaves)

    while len(level) > 1:
        pairs = [hash_children(*level[i : i + 2]) for i in range(0, len(level) - 1, 2)]
        level = pairs + level[len(pairs) * 2 :]

    return level[0]


def check_inclusion(
    index: int, size: int, leaf: bytes, proof: Sequence[bytes], root: bytes
) -> bool:
    """Return whether a leaf hash is at an index of a tree (RFC 9162, 2.1.3.2)."""
    if not 0 <= index < size:
        return False

    return _fold_proof(index, size - 1, leaf, proof)[1] == root


def check_consistency(
    size1: int, size2: int, root1: bytes, root2: bytes, proof: Sequence[bytes]
) -> bool:
    """Return whether a tree is the beginning of another (RFC 9162, 2.1.4.2)."""
    if not 0 < size1 < size2:
        return 0 <= size1 <= size2 and not proof and (size1 == 0 or root1 == root2)

    path = list(proof)
    if size1 & (size1 - 1) == 0:
        # The smaller tree is a node of the larger one
        path.insert(0, root1)
    if not path:
        return False

    node = size1 - 1
    last = size2 - 1

    while node & 1:
        node >>= 1
        last >>= 1

    return _fold_proof(node, last, path[0], path[1:]) == (root1, root2)


def _fold_proof(node: int, last: int, start: bytes, proof: Sequence[bytes]) -> tuple[bytes, bytes]:
    """Return the roots of the tree that ends with the node, and of the whole tree.

    They are empty if the proof has a wrong length.
    """
    before = start
    whole = start

    for sibling in proof:
        if last == 0:
            return b"", b""

        if node & 1 or node == last:
            before = hash_children(sibling, before)
            whole = hash_children(sibling, whole)

            while node and not node & 1:
                node >>= 1
                last >>= 1
        else:
            whole = hash_children(whole, sibling)

        node >>= 1
        last >>= 1

    if last:
        return b"", b""

    return before, whole


# --- signed notes and checkpoints (C2SP)


def split_note(note: bytes) -> tuple[bytes, list[tuple[str, bytes]]]:
    """Return the text of a signed note, and its signatures: key name, key id and signature."""
    text, separator, lines = note.rpartition(b"\n\n")
    demand(separator and lines[-1:] in (b"", b"\n"), "the checkpoint is not a signed note")
    signatures = []

    for line in lines.decode("utf-8", "strict").splitlines():
        match = re.fullmatch("\u2014 ([^ +]+) ([^ ]+)", line)
        if match is None:
            raise Invalid("a signature line of the note is malformed")
        signatures.append((match[1], decode_base64(match[2])))

    return text + b"\n", signatures


def parse_checkpoint(text: bytes) -> tuple[str, int, bytes]:
    """Return origin, size and root hash of a checkpoint."""
    lines = text.decode("utf-8", "strict").split("\n")
    demand(len(lines) >= 4 and lines[-1] == "", "the checkpoint is incomplete")
    origin, size, root = lines[:3]
    demand(origin and re.fullmatch(r"0|[1-9][0-9]*", size), "the checkpoint has no valid size")
    digest = decode_base64(root)
    demand(len(digest) == 32, "the root hash of the checkpoint has a wrong length")

    return origin, int(size), digest


def compute_key_id(name: str, fingerprint: str) -> bytes:
    """Return the id of a key in a signed note."""
    text = name.encode() + b"\n" + NOTE_SIGNATURE_TYPE + fingerprint.encode()

    return hashlib.sha256(text).digest()[:4]


# --- programs


def run(
    argv: Sequence[str], stdin: bytes = b"", **options: Any
) -> subprocess.CompletedProcess[bytes]:
    """Run a program and return its result."""
    try:
        return subprocess.run(argv, input=stdin, capture_output=True, check=False, **options)
    except FileNotFoundError as error:
        raise Invalid(f"{argv[0]} is not installed") from error


class Git:
    """Reads a repository and recomputes the name of every object that it returns."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.environment = {**os.environ, "GIT_NO_REPLACE_OBJECTS": "1", "LC_ALL": "C"}
        self._reader = subprocess.Popen(
            ("git", "-C", folder, "cat-file", "--batch"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self.environment,
        )

    def ask(self, *arguments: str) -> bytes | None:
        """Return the output of git, or None if it failed."""
        result = run(("git", "-C", self.folder, *arguments), env=self.environment)
        if result.returncode:
            return None

        return result.stdout

    def read(self, kind: str, name: str) -> bytes:
        """Return the content of an object, whose hash must be its name."""
        demand(re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", name), f"{name!r} names no object")
        requests = self._reader.stdin
        answers = self._reader.stdout
        assert requests is not None
        assert answers is not None
        requests.write(name.encode() + b"\n")
        requests.flush()

        found = answers.readline().split()
        demand(len(found) == 3, f"the {kind} {name} is missing or damaged")
        content = answers.read(int(found[2]))
        answers.read(1)
        algorithm = "sha1" if len(name) == 40 else "sha256"
        header = f"{kind} {len(content)}\0".encode()
        digest = hashlib.new(algorithm, header + content, usedforsecurity=False).hexdigest()
        demand(digest == name, f"the content of the {kind} {name} was changed")

        return content

    def read_commit(self, name: str) -> tuple[str, list[str]]:
        """Return the tree and the parents of a commit."""
        head = self.read("commit", name).split(b"\n\n", 1)[0].decode("utf-8", "replace")
        fields = [line.split(" ", 1) for line in head.split("\n") if " " in line]
        parents = [value for key, value in fields if key == "parent"]

        return next(value for key, value in fields if key == "tree"), parents

    def list_tree(self, tree: str, prefix: str = "") -> Iterator[tuple[str, str]]:
        """Yield the path and the blob of every file; each tree and each blob is hashed again."""
        data = self.read("tree", tree)
        width = len(tree) // 2

        while data:
            head, _, rest = data.partition(b"\0")
            mode, _, name = head.partition(b" ")
            child, data = rest[:width].hex(), rest[width:]
            path = prefix + os.fsdecode(name)
            if mode == b"40000":
                yield from self.list_tree(child, f"{path}/")
            elif mode != b"160000":
                self.read("blob", child)
                yield path, child


# --- signatures


def check_signature(armored: bytes, message: bytes, namespace: str, options: Any) -> str:
    """Check a signature; return the trusted signer, or an empty text if the key is not trusted."""
    with tempfile.TemporaryDirectory() as folder:
        signature = Path(folder) / "signature"
        signature.write_bytes(armored)
        if armored.startswith(b"-----BEGIN SSH SIGNATURE-----"):
            return _check_ssh(signature, message, namespace, options)
        demand(
            armored.startswith(b"-----BEGIN PGP SIGNATURE-----"),
            "the signature has an unknown format",
        )
        signed = Path(folder) / "message"
        signed.write_bytes(message)
        result = run(("gpg", "--status-fd", "1", "--verify", str(signature), str(signed)))
        valid = re.findall(rb"^\[GNUPG:\] VALIDSIG (\w+)(?: .* (\w+))?$", result.stdout, re.M)
        demand(result.returncode == 0 and valid, "the gpg signature does not match the receipt")
        wanted = (options.fingerprint or "").replace(" ", "").upper().encode()
        demand(
            not wanted or wanted in valid[0],
            f"it was signed with another key, {valid[0][0].decode()}",
        )

        return valid[0][0].decode() if wanted else ""


def _check_ssh(signature: Path, message: bytes, namespace: str, options: Any) -> str:
    """Verify an ssh signature; return its trusted signer, or "" for an unknown key."""
    common = ("-n", namespace, "-s", str(signature))
    allowed = options.allowed_signers
    if options.key:
        allowed = str(signature.with_name("allowed"))
        kind, key = Path(options.key).read_text(encoding="utf-8").split()[:2]
        Path(allowed).write_text(f"signer {kind} {key}\n", encoding="utf-8")
    if not allowed:
        result = run(("ssh-keygen", "-Y", "check-novalidate", *common), message)
        demand(result.returncode == 0, "the ssh signature does not match the receipt")

        return ""
    found = run(("ssh-keygen", "-Y", "find-principals", "-f", allowed, "-s", str(signature)))
    names = found.stdout.decode("utf-8", "replace").split()
    demand(found.returncode == 0 and names, "no trusted key made the signature")
    verify = ("ssh-keygen", "-Y", "verify", "-f", allowed, "-I", names[0], *common)
    demand(run(verify, message).returncode == 0, "the ssh signature does not match the receipt")

    return names[0]


def open_envelope(text: bytes, options: Any) -> tuple[Any, str]:
    """Check the envelope and its signatures; return the statement and the trusted signer."""
    envelope = decode_json(text)
    demand(
        isinstance(envelope, dict) and set(envelope) == {"payload", "payloadType", "signatures"},
        "the envelope does not have the DSSE fields",
    )
    demand(envelope["payloadType"] == PAYLOAD_TYPE, "the payload type is not that of a receipt")
    payload = decode_base64(envelope["payload"])
    message = encode_pae(envelope["payloadType"], payload)
    statement = decode_json(payload)
    signing = statement.get("predicate", {}).get("signing", {})
    signatures = envelope["signatures"]
    demand(isinstance(signatures, list), "the signatures are not a list")
    demand(bool(signatures) == bool(signing.get("format")), "a signature was removed or added")
    signer = ""

    for one in signatures:
        demand(isinstance(one, dict) and set(one) == {"keyid", "sig"}, "a signature is malformed")
        demand(one["keyid"] == signing.get("key"), "the key id differs")
        signer = check_signature(decode_base64(one["sig"]), message, NAMESPACE, options)

    return statement, signer


# --- the statement


def check_statement(git: Git, statement: Any, commit: str) -> dict[str, str]:
    """Compare the statement with the repository; return the files of the merged tree."""
    demand(statement.get("_type") == STATEMENT_TYPE, "it is not an in-toto Statement v1")
    demand(statement.get("predicateType") == PREDICATE_TYPE, "it is not a receipt of this version")
    predicate = statement["predicate"]
    tree, parents = git.read_commit(commit)
    base, work = predicate["base"], predicate["work"]
    digest = {"gitCommit": commit, "gitTree": tree}
    demand(
        statement["subject"] == [{"name": base["branch"], "digest": digest}],
        f"the subject is not commit {commit} with tree {tree} on {base['branch']}",
    )
    demand(
        parents and base["commit"] == parents[0], "the base is not the first parent of the merge"
    )
    demand(work["commit"] in (*parents[1:], commit), "the merged work is not a parent of the merge")

    for what, place in (("base", base), ("merged work", work)):
        demand(
            git.read_commit(place["commit"])[0] == place["tree"], f"the tree of the {what} differs"
        )

    files = dict(git.list_tree(tree))

    for requirement in predicate["requirements"]:
        for test in requirement["tests"]:
            demand(
                files.get(test["path"]) == test["gitBlob"],
                f"the test {test['path']} of {requirement['id']} differs from the receipt",
            )

    for ran in predicate["evidence"]:
        if git.ask("cat-file", "-e", f"{ran['commit']}^{{commit}}") is not None:
            demand(
                git.read_commit(ran["commit"])[0] == ran["tree"],
                f"{ran['check']} did not run on the tree that the receipt names",
            )

    return files


def list_merge_evidence(predicate: Any, tree: str) -> list[Any]:
    """Return the commands that ran on the merged tree; the last run of each."""
    ran = [one for one in predicate["evidence"] if one["tree"] == tree and one["command"]]

    return list({(one["root"], one["check"], one["command"]): one for one in ran}.values())


def count_tests(output: str) -> int | None:
    """Return the number of tests in the summary of a known runner."""
    for pattern in _COUNTS:
        found = list(pattern.finditer(output))
        if found:
            return sum(int(number or 0) for number in found[-1].groups())

    return None


def replay(git: Git, commit: str, evidence: Sequence[Any]) -> Iterator[str]:
    """Run the recorded commands on a clean checkout; yield a line for each."""
    demand(evidence, "no recorded command ran on the merged tree: there is nothing to replay")

    with tempfile.TemporaryDirectory(prefix="receipt-") as folder:
        checkout = Path(folder) / "tree"
        source = Path(git.folder).resolve()
        clone = (
            "git",
            "clone",
            "--quiet",
            "--no-checkout",
            "--no-local",
            str(source),
            str(checkout),
        )
        demand(run(clone, env=git.environment).returncode == 0, "the repository cannot be cloned")
        Git(str(checkout)).ask("checkout", "--quiet", "--detach", commit)

        for one in evidence:
            place = checkout / one["root"]
            path = [str(place / name) for name in _BIN_FOLDERS]
            environment = {
                **os.environ,
                "CI": "1",
                "PYTHONDONTWRITEBYTECODE": "1",
                "PATH": os.pathsep.join([*path, os.environ.get("PATH", os.defpath)]),
            }
            result = run(("sh", "-c", one["command"]), cwd=place, env=environment)
            demand(
                result.returncode == one["exit_code"],
                f"`{one['command']}` ended with {result.returncode}, not {one['exit_code']}",
            )
            tests = count_tests((result.stdout + b"\n" + result.stderr).decode("utf-8", "replace"))
            demand(
                None in (tests, one["tests"]) or tests == one["tests"],
                f"`{one['command']}` ran {tests} tests, not {one['tests']}",
            )
            counted = f", {tests} tests" if tests is not None else ""

            yield f"replayed `{one['command']}`: exit status {result.returncode}{counted}"


# --- an exported bundle: documents, and the audit chain with its checkpoint


def encode_fields(fields: Sequence[bytes]) -> bytes:
    """Join fields, each preceded by its length."""
    return b"".join(len(field).to_bytes(8, "big") + field for field in fields)


def encode_entry(previous: str, entry: Any) -> bytes:
    """Encode an entry of the chain with the hash of the previous one."""
    texts = [previous]

    for name in ("position", "feature", "seq", "ts", "kind"):
        texts.append(str(entry[name]))

    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]

    return encode_fields([_CHAIN_DOMAIN, *encoded, decode_base64(entry["payload"])])


def check_bundle(folder: Path, predicate: Any, options: Any) -> Iterator[str]:
    """Check the documents, the chain and the checkpoint of a folder; yield a line for each."""
    wanted = {ran["report_sha256"] for ran in predicate["evidence"]}
    wanted |= {job["prompt_sha256"] for job in predicate["jobs"]}
    wanted.discard("")

    for digest in sorted(wanted):
        content = (folder / "documents" / digest).read_bytes()
        demand(hashlib.sha256(content).hexdigest() == digest, f"document {digest} was changed")

    yield f"{len(wanted)} documents have the hashes of the receipt"

    note = (folder / "checkpoint").read_bytes()
    text, signatures = split_note(note)
    name, size, root = parse_checkpoint(text)
    signing = predicate["signing"]
    demand(
        bool(signatures) == bool(signing["format"]), "the checkpoint is not signed in the same way"
    )

    for _, data in signatures:
        demand(
            data[:4] == compute_key_id(name, signing["key"]),
            "the checkpoint was signed with another key",
        )
        check_signature(data[4:], text, CHECKPOINT_NAMESPACE, options)

    audit = predicate["audit"]
    store = name.removeprefix("phasegate/").encode()
    hashes = [hashlib.sha256(encode_fields([_CHAIN_DOMAIN, store])).hexdigest()]
    leaves = []

    with (folder / "chain.jsonl").open("rb") as chain:
        for line in chain:
            data = encode_entry(hashes[-1], decode_json(line))
            hashes.append(hashlib.sha256(data).hexdigest())
            leaves.append(hash_leaf(data))

    demand(hashes[audit["entries"]] == audit["hash"], "the audit chain differs from the receipt")

    yield f"the audit chain has the head of the receipt at entry {audit['entries']}"
    demand(size <= len(leaves), "the checkpoint covers more entries than the chain has")
    demand(compute_root(leaves[:size]) == root, "the checkpoint's root hash differs")

    yield f"the checkpoint of {size} entries has the root of the chain"

    head, _, proved = (folder / "merge.tlog-proof").read_bytes().partition(b"\n\n")
    demand(proved == note, "the proof is for another checkpoint")
    form, index, *path = head.decode("utf-8").split("\n")
    place = audit["merged_entry"] - 1
    demand((form, index) == (PROOF_TYPE, f"index {place}"), "the proof is for another entry")
    nodes = [decode_base64(line) for line in path]
    demand(check_inclusion(place, size, leaves[place], nodes, root), "the inclusion proof is wrong")

    yield f"the merge is entry {place + 1} of the log"

    before = folder / "checkpoint.previous"
    if before.exists():
        _, older, root1 = parse_checkpoint(split_note(before.read_bytes())[0])
        lines = (folder / "consistency").read_text(encoding="utf-8").split()
        nodes = [decode_base64(line) for line in lines]
        demand(check_consistency(older, size, root1, root, nodes), "the log was rewritten")

        yield f"the checkpoint continues that of {older} entries"


# --- command line


def verify(options: Any) -> int:
    """Run all checks and print a line for each; return the exit status."""
    git = Git(options.repo)
    found = git.ask("rev-parse", "--verify", "--quiet", f"{options.commit}^{{commit}}")
    demand(found, f"there is no commit {options.commit}")
    commit = (found or b"").decode().strip()
    if options.receipt:
        text: bytes | None = Path(options.receipt).read_bytes()
    else:
        text = git.ask("notes", f"--ref={NOTES_REF}", "show", commit)
    demand(text is not None, f"commit {commit} has no note in {NOTES_REF}")

    statement, signer = open_envelope(text or b"", options)

    try:
        files = check_statement(git, statement, commit)
        predicate = statement["predicate"]
        tree = statement["subject"][0]["digest"]["gitTree"]
        evidence = list_merge_evidence(predicate, tree)
        print(f"commit {commit}: tree {tree} with {len(files)} files was recomputed")
        print(
            f"{len(predicate['requirements'])} requirements, {len(evidence)} commands on this tree"
        )
        if options.bundle:
            for line in check_bundle(Path(options.bundle), predicate, options):
                print(line)
        if options.replay:
            for line in replay(git, commit, evidence):
                print(line)
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise Invalid(f"a field is missing or malformed: {error!r}") from error

    signing = predicate["signing"]
    if signer:
        print(f"VERIFIED: signed by {signer} ({signing['key']})")

        return 0
    if signing["format"]:
        print(f"NOT TRUSTED: signed by an unknown key, {signing['key']}; pass --key to trust it")
    else:
        print("NOT SIGNED: the content matches, but anyone can have written this receipt")

    return 3


def main() -> int:
    """Parse the arguments and verify."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("commit", nargs="?", default="HEAD", help="the merge commit")
    parser.add_argument("--repo", default=".", help="the repository")
    parser.add_argument("--key", help="file with the ssh public key of the signer")
    parser.add_argument("--allowed-signers", help="file with trusted keys, as for git")
    parser.add_argument("--fingerprint", help="fingerprint of the gpg key of the signer")
    parser.add_argument("--receipt", help="read the receipt from this file, not from the note")
    parser.add_argument("--bundle", help="also check this folder of `phasegate receipt export`")
    parser.add_argument("--replay", action="store_true", help="run the recorded commands again")
    options = parser.parse_args()

    try:
        return verify(options)
    except (Invalid, OSError, UnicodeDecodeError) as error:
        print(f"NOT VERIFIED: {error}")

        return 1


if __name__ == "__main__":
    sys.exit(main())
