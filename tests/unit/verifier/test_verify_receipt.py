"""The verifier's own formats against public test vectors; sources and licences: tests/fixtures/transparency/README.md."""

from __future__ import annotations

import base64
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from phasegate.core.audit.chain import ChainEntry, encode_chain_entry
from phasegate.engine.views.receipt import format_checkpoint, prove_consistency, prove_inclusion
from phasegate.verifier import verify_receipt as verifier

VECTORS = json.loads(
    (Path(__file__).parents[2] / "fixtures/transparency/merkle.json").read_text(encoding="utf-8")
)
SIGNED_NOTE = (
    "This is an example message.\n\n\u2014 example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2"
    "ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n"
).encode()
CHECKPOINT = (
    "example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n\n"
    "\u2014 example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/"
    "Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=\n"
).encode()


def raw(text: str | None) -> bytes:
    return base64.b64decode(text or "")


def proof_of(case: dict[str, Any]) -> list[bytes]:
    return [raw(node) for node in case["proof"] or ()]


@pytest.mark.demand("E4.e")
@pytest.mark.parametrize("name", VECTORS["inclusion"])
def test_inclusion_proofs_of_transparency_dev_get_the_published_result(name: str) -> None:
    case = VECTORS["inclusion"][name]
    accepted = verifier.check_inclusion(
        case["leafIdx"], case["treeSize"], raw(case["leafHash"]), proof_of(case), raw(case["root"])
    )
    assert accepted is not case["wantErr"]


@pytest.mark.parametrize("name", VECTORS["consistency"])
def test_consistency_proofs_of_transparency_dev_get_the_published_result(name: str) -> None:
    case = VECTORS["consistency"][name]
    accepted = verifier.check_consistency(
        case["size1"], case["size2"], raw(case["root1"]), raw(case["root2"]), proof_of(case)
    )
    assert accepted is not case["wantErr"]


def test_our_own_proofs_verify_for_every_size_and_no_other_leaf_does() -> None:
    leaves = [verifier.hash_leaf(bytes([number])) for number in range(20)]
    for size in range(1, 21):
        root = verifier.compute_root(leaves[:size])
        for index in range(size):
            path = prove_inclusion(leaves[:size], index)
            assert verifier.check_inclusion(index, size, leaves[index], path, root)
            assert not verifier.check_inclusion(index, size, leaves[index - 1], path, root) or (
                size == 1
            )
        for older in range(1, size + 1):
            path = prove_consistency(leaves[:size], older)
            old_root = verifier.compute_root(leaves[:older])
            assert verifier.check_consistency(older, size, old_root, root, path)
            assert not verifier.check_consistency(older, size, b"\0" * 32, root, path)


def test_the_example_of_a_signed_note_is_split_and_its_key_id_follows_the_formula() -> None:
    text, [(name, signature)] = verifier.split_note(SIGNED_NOTE)
    key = raw("AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k")
    assert (text, name) == (b"This is an example message.\n", "example.com/foo")
    assert signature[:4] == sha256(name.encode() + b"\n" + key).digest()[:4]


def test_the_example_of_a_checkpoint_is_read_and_ours_has_its_form() -> None:
    text, signatures = verifier.split_note(CHECKPOINT)
    origin, size, root = verifier.parse_checkpoint(text)
    assert (origin, size, len(root), len(signatures)) == (
        "example.com/behind-the-sofa",
        20852163,
        32,
        1,
    )
    leaf = verifier.hash_leaf(b"one")
    assert verifier.parse_checkpoint(format_checkpoint("a/b", [leaf])) == ("a/b", 1, leaf)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"a\n",
        b"a\n1\n",
        b"a\n01\n" + base64.b64encode(b"\0" * 32) + b"\n",
        b"a\n-1\n" + base64.b64encode(b"\0" * 32) + b"\n",
        b"a\n1\n" + base64.b64encode(b"\0" * 31) + b"\n",
        b"\n1\n" + base64.b64encode(b"\0" * 32) + b"\n",
    ],
)
def test_a_malformed_checkpoint_is_refused(text: bytes) -> None:
    with pytest.raises(verifier.Invalid):
        verifier.parse_checkpoint(text)


def test_the_example_of_dsse_has_the_published_encoding() -> None:
    published = b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    assert verifier.encode_pae("http://example.com/HelloWorld", b"hello world") == published


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', "{", "[NaN]", "[" * 100_000])
def test_ambiguous_or_broken_json_is_refused(text: str) -> None:
    with pytest.raises(verifier.Invalid):
        verifier.decode_json(text)


@pytest.mark.parametrize("text", ["YQ", "YQ==\n", "YR==", "Y Q==", "*"])
def test_base64_that_is_not_canonical_is_refused(text: str) -> None:
    with pytest.raises(verifier.Invalid):
        verifier.decode_base64(text)


def test_the_verifier_encodes_entries_of_the_chain_as_phasegate_does() -> None:
    entry = ChainEntry(
        position=7, feature="001-a", seq=3, ts="2026-01-01", kind="k", payload=b'{"a":"\xc3\xa4"}'
    )
    exported = {**entry._asdict(), "payload": base64.b64encode(entry.payload).decode()}
    assert verifier.encode_entry("ab", exported) == encode_chain_entry("ab", entry)
