"""What agents say of their work, beside what was observed."""

from __future__ import annotations

from pathlib import Path

import msgspec

from phasegate.core.machine.package_events import PackagePrepared, PackagePublished
from phasegate.engine.journal.entries import (
    AGENT_CLAIMED,
    AGENT_CLAIMED_FALSELY,
    encode_package_step,
)
from phasegate.engine.views.claims import (
    find_pull_request_url,
    read_agent_claims,
    render_agent_claims,
)
from phasegate.storage.rows import NewEvent
from support.plain_project import TS, MemoryStore

SLUG = "001-a"
JOBS = tuple(f"00000000-0000-4000-8000-{number:012}" for number in range(4))


def claim(job: str, package: str, round_: int, index: int, summary: str) -> NewEvent:
    said = {"job_id": job, "wp_id": package, "success": True, "status": "completed"}
    payload = {
        "package": package,
        "round": round_,
        "agent_index": index,
        "agent": f"agent{index}",
        "duration_s": 1.0,
        "said": {**said, "summary": summary},
    }
    return NewEvent(AGENT_CLAIMED, msgspec.json.encode(payload))


def test_only_the_last_round_of_the_package_is_reported(tmp_path: Path) -> None:
    with MemoryStore(tmp_path) as store:
        events = [
            claim(JOBS[0], "WP01", 1, 2, "first"),
            claim(JOBS[1], "WP01", 2, 1, "second, one"),
            claim(JOBS[2], "WP01", 2, 0, "second, zero"),
            claim(JOBS[3], "WP02", 3, 0, "another package"),
        ]
        store.append_unconditionally(SLUG, TS, events)
        found = read_agent_claims(store, SLUG, "WP01")
    assert [one.words["summary"] for one in found] == ["second, zero", "second, one"]


def test_a_false_claim_stands_beside_the_job_that_made_it(tmp_path: Path) -> None:
    false = {"job": JOBS[1], "claims": [["42 tests passed", "no test ran"]]}
    with MemoryStore(tmp_path) as store:
        events = [
            claim(JOBS[0], "WP01", 1, 0, "honest"),
            claim(JOBS[1], "WP01", 1, 1, "many\n  words"),
            NewEvent(AGENT_CLAIMED_FALSELY, msgspec.json.encode(false)),
        ]
        store.append_unconditionally(SLUG, TS, events)
        lines = [*render_agent_claims(read_agent_claims(store, SLUG, "WP01"))]
    assert lines == [
        "agent0 says, summary: honest",
        "agent1 says, summary: many words",
        "agent1 says: 42 tests passed; observed: no test ran",
    ]


def test_the_pull_request_of_a_package_is_the_one_that_was_published_last(tmp_path: Path) -> None:
    with MemoryStore(tmp_path) as store:
        events = [
            encode_package_step("WP01", PackagePrepared("published")),
            encode_package_step("WP01", PackagePublished(1, "https://f/1", "c1")),
            encode_package_step("WP02", PackagePublished(3, "https://f/3", "c3")),
            encode_package_step("WP01", PackagePublished(2, "https://f/2", "c2")),
        ]
        store.append_unconditionally(SLUG, TS, events)
        urls = [find_pull_request_url(store, SLUG, name) for name in ("WP01", "WP02", "WP03")]
    assert urls == ["https://f/2", "https://f/3", ""]
