"""Artifacts: the last version of a path counts, and a prompt has room for so much of them."""

from __future__ import annotations

import pytest

from phasegate.engine.journal.artifacts import (
    MAX_PROMPT_ARTIFACTS,
    MAX_PROMPT_CHARS,
    StoredArtifact,
    make_artifact_pieces,
    read_artifact_versions,
    read_artifacts,
    store_artifact,
)
from phasegate.errors import ConfigError
from support.memory_ports import MemoryPapers, MemoryRecord

SLUG, TS = "001-a", "2026-01-01T00:00:00.000Z"


def write(record: MemoryRecord, papers: MemoryPapers, path: str, text: str, work: str) -> None:
    event = store_artifact(papers, path, text.encode(), work)
    record.append_unconditionally(SLUG, TS, [event])


def test_the_last_version_of_a_path_counts_and_all_versions_are_kept() -> None:
    record, papers = MemoryRecord(), MemoryPapers()
    write(record, papers, "notes/b.md", "first", "WP01")
    write(record, papers, "notes/a.md", "other", "WP02")
    write(record, papers, "notes/b.md", "second", "WP01")
    current = read_artifacts(record, SLUG)
    assert [(one.path, papers.get(one.content_hash)) for one in current] == [
        ("notes/a.md", b"other"),
        ("notes/b.md", b"second"),
    ]
    assert len(read_artifact_versions(record, SLUG)) == 3


def test_a_path_belongs_to_the_work_that_wrote_it_last() -> None:
    record, papers = MemoryRecord(), MemoryPapers()
    write(record, papers, "notes/a.md", "first", "WP01")
    write(record, papers, "notes/a.md", "second", "WP02")
    assert read_artifacts(record, SLUG, "WP01") == ()
    assert [one.path for one in read_artifacts(record, SLUG, "WP02")] == ["notes/a.md"]


def test_a_path_outside_of_the_feature_is_not_stored() -> None:
    papers = MemoryPapers()
    with pytest.raises(ConfigError):
        store_artifact(papers, "../a.md", b"x", "WP01")
    assert papers.papers == {}


def test_a_long_artifact_is_cut_in_the_prompt_and_says_how_much_is_missing() -> None:
    papers = MemoryPapers()
    whole = StoredArtifact("a.md", 0, papers.put(b"x" * MAX_PROMPT_CHARS), "")
    longer = StoredArtifact("b.md", 0, papers.put(b"x" * (MAX_PROMPT_CHARS + 7)), "")
    first, second = make_artifact_pieces(papers, [whole, longer])
    assert first.content == "x" * MAX_PROMPT_CHARS
    assert second.content.startswith("x" * MAX_PROMPT_CHARS + "\n[... 7 more characters")


def test_artifacts_beyond_the_limit_are_named_and_not_shown() -> None:
    papers = MemoryPapers()
    paper = papers.put(b"text")
    stored = [
        StoredArtifact(f"{number:02}\x1b.md", 4, paper, "")
        for number in range(MAX_PROMPT_ARTIFACTS + 2)
    ]
    *shown, omitted = make_artifact_pieces(papers, stored)
    assert len(shown) == MAX_PROMPT_ARTIFACTS
    assert omitted.content == "20\\x1b.md\n21\\x1b.md\n"
    assert len([*make_artifact_pieces(papers, stored[:-2])]) == MAX_PROMPT_ARTIFACTS
