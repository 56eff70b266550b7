"""An agent that misuses its spool: links, pipes, floods, swapped folders; a naive reader falls for the same."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from phasegate.agents.spool.requests import ArtifactWriteRequest, SpoolRequest, StatusRequest
from phasegate.agents.spool.server import (
    MAX_REQUESTS_PER_JOB,
    MAX_REQUESTS_PER_POLL,
    MAX_SPOOL_ENTRIES,
    RequestSpool,
    SpoolAnswer,
)

NAME = f"{'a' * 32}.json"


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[RequestSpool]:
    with RequestSpool(tmp_path / "spool") as made:
        yield made


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def requested(*arguments: str) -> str:
    return json.dumps({"arguments": arguments})


def answered(spool: RequestSpool, name: str = NAME) -> dict[str, object]:
    found: dict[str, object] = json.loads((spool.folder / "answers" / name).read_text())
    return found


def serve(spool: RequestSpool) -> list[SpoolRequest]:
    """One look at the spool; what came through to the one who answers."""
    seen: list[SpoolRequest] = []
    spool.serve_pending(lambda request: (seen.append(request), SpoolAnswer(0, "fine"))[1])
    return seen


def naive_serve(folder: Path) -> None:
    """What one would write first: it reads what is there, and writes beside it."""
    for path in (folder / "requests").iterdir():
        text = path.read_text()
        (folder / "answers" / path.name).write_text(f"you asked {text}")


@pytest.mark.demand("D14.e")
def test_a_request_that_is_a_link_reads_nothing(spool: RequestSpool, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(
        requested(
            "artifact",
            "write",
            "--feature-slug",
            "s",
            "--relative-path",
            "p",
            "--content",
            "canary",
        )
    )
    (spool.folder / "requests" / NAME).symlink_to(secret)
    naive_serve(spool.folder)
    assert "canary" in (spool.folder / "answers" / NAME).read_text(), "control"
    (spool.folder / "answers" / NAME).unlink()
    assert serve(spool) == []
    assert "canary" not in json.dumps(answered(spool))
    assert secret.exists()


@pytest.mark.demand("D14.e")
def test_a_request_that_is_a_hard_link_is_not_read(spool: RequestSpool, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text(requested("status", "WP01"))
    os.link(outside, spool.folder / "requests" / NAME)
    assert serve(spool) == []
    assert answered(spool)["exit_status"] == 2
    (spool.folder / "requests" / NAME).write_text(requested("status", "WP01"))
    (spool.folder / "answers" / NAME).unlink()
    assert serve(spool) == [StatusRequest("WP01")], "the same request as a plain file comes through"


@pytest.mark.demand("D14.e")
def test_a_pipe_or_a_folder_holds_up_nothing(spool: RequestSpool) -> None:
    os.mkfifo(spool.folder / "requests" / NAME)
    (spool.folder / "requests" / f"{'b' * 32}.json").mkdir()
    assert serve(spool) == []
    (spool.folder / "requests" / f"{'c' * 32}.json").write_text(requested("status"))
    assert serve(spool) == [StatusRequest(None)]


@pytest.mark.demand("D14.e")
def test_an_answer_is_never_written_through_a_link(spool: RequestSpool, tmp_path: Path) -> None:
    victims = {name: tmp_path / name for name in ("victim", "draft-victim")}
    for victim in victims.values():
        victim.write_text("precious")
    (spool.folder / "requests" / NAME).write_text(requested("status"))
    (spool.folder / "answers" / NAME).symlink_to(victims["victim"])
    naive_serve(spool.folder)
    assert victims["victim"].read_text() != "precious", "control"
    victims["victim"].write_text("precious")
    (spool.folder / "answers" / f"{NAME}.new").symlink_to(victims["draft-victim"])
    serve(spool)
    assert {victim.read_text() for victim in victims.values()} == {"precious"}


@pytest.mark.demand("D14.e")
def test_a_folder_that_is_swapped_for_a_link_leads_nowhere(
    spool: RequestSpool, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / NAME).write_text(requested("status", "WP99"))
    for part in ("requests", "answers"):
        (spool.folder / part).rename(tmp_path / f"old-{part}")
        (spool.folder / part).symlink_to(outside)
    naive_serve(spool.folder)
    assert "you asked" in (outside / NAME).read_text(), "control"
    (outside / NAME).write_text(requested("status", "WP99"))
    assert serve(spool) == []
    assert names(outside) == [NAME]


BAD = [
    "",
    "{",
    "[]",
    "null",
    '{"arguments": "status"}',
    '{"arguments": [1]}',
    '{"arguments": [["status"]]}',
    '{"arguments": []}',
    '{"arguments": ' + "[" * 100_000,
    '{"arguments": ["status", "\\ud800"]}',
    '{"other": ["status"]}',
    requested("advance"),
    requested("status", "x" * 9_000_000),
]


@pytest.mark.demand("D14.e")
@pytest.mark.parametrize("text", BAD, ids=range(len(BAD)))
def test_a_malformed_request_is_refused_and_the_next_one_is_served(
    spool: RequestSpool, text: str
) -> None:
    (spool.folder / "requests" / NAME).write_text(text)
    assert serve(spool) == []
    assert answered(spool)["exit_status"] == 2
    (spool.folder / "requests" / f"{'b' * 32}.json").write_text(requested("status"))
    assert serve(spool) == [StatusRequest(None)]


@pytest.mark.demand("D14.e")
@pytest.mark.parametrize(
    "name", ["../x.json", "x.json", f"{'A' * 32}.json", f"{'a' * 32}.json.new", ".json", "a" * 200]
)
def test_a_file_of_another_name_is_not_looked_at(spool: RequestSpool, name: str) -> None:
    (spool.folder / "requests" / name).write_text(requested("status"))
    assert serve(spool) == []
    assert names(spool.folder / "answers") == []


@pytest.mark.demand("D14.e")
def test_requests_are_served_a_few_at_once_and_counted(spool: RequestSpool) -> None:
    total = 0
    for number in range(MAX_REQUESTS_PER_JOB + 1):
        (spool.folder / "requests" / f"{number:032x}.json").write_text(requested("status"))
    while names(spool.folder / "requests"):
        seen = serve(spool)
        assert len(seen) <= MAX_REQUESTS_PER_POLL
        total += len(seen)
    assert total == MAX_REQUESTS_PER_JOB
    assert spool.served_count == MAX_REQUESTS_PER_JOB + 1


@pytest.mark.demand("D14.e")
def test_a_flood_of_files_closes_the_spool(spool: RequestSpool) -> None:
    for number in range(MAX_SPOOL_ENTRIES + 1):
        (spool.folder / "requests" / f"junk{number}").touch()
    assert serve(spool) == []
    assert "more than" in spool.close_reason
    (spool.folder / "requests" / NAME).write_text(requested("status"))
    assert serve(spool) == []


@pytest.mark.demand("D14.e")
def test_what_is_asked_reaches_the_answerer_as_a_value_and_nothing_more(
    spool: RequestSpool,
) -> None:
    """Paths are for whoever answers to judge: the spool writes no artifact itself."""
    text = requested(
        "artifact",
        "write",
        "--feature-slug",
        "..",
        "--relative-path",
        "../../x",
        "--content",
        "$(id)",
    )
    (spool.folder / "requests" / NAME).write_text(text)
    assert serve(spool) == [ArtifactWriteRequest("..", "../../x", "$(id)")]
    assert not (spool.folder.parent / "x").exists()


@pytest.mark.demand("D14.e")
def test_an_answer_that_is_too_large_is_not_given(spool: RequestSpool) -> None:
    (spool.folder / "requests" / NAME).write_text(requested("status"))
    spool.serve_pending(lambda request: SpoolAnswer(0, "x" * 2_000_000))
    assert answered(spool)["exit_status"] == 2
