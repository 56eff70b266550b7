"""Each forge's adapter keeps the promises of `port.Forge`. `make test-forges` holds it against their descriptions."""

from __future__ import annotations

import random
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from phasegate.core.forge.checks import CheckPolicy, judge_checks
from phasegate.core.forge.pull_decision import PullRequestSnapshot, ReviewDecision
from phasegate.errors import TemporarilyUnavailable
from phasegate.forge.http import ApiError, HttpResponse, RateLimit
from phasegate.forge.port import Forge, MergeOutcome, PullSpec
from phasegate.forge.registry import FORGES, connect_forge
from phasegate.forge.stored_responses import StoredResponses
from support.fake_forge import REPOSITORY, TOKEN, FakeForge, fake_forge
from support.forge_talk import make_source, talk
from support.git_project import git


@pytest.mark.demand("X7.g")
@pytest.mark.parametrize("kind", sorted(FORGES))
def test_every_call_of_the_port_has_the_same_ends_at_every_forge(kind: str, tmp_path: Path) -> None:
    with fake_forge(kind, make_source(tmp_path), tmp_path / "forge") as fake:
        talk(connect_forge(kind, fake.url, REPOSITORY, TOKEN), fake)


@contextmanager
def opened(kind: str, room: Path, **answers: object) -> Iterator[tuple[Forge, FakeForge]]:
    """A forge with one open pull request, 1, from `one` onto `main`."""
    with fake_forge(kind, make_source(room), room / "forge") as fake:
        for name, value in answers.items():
            setattr(fake, name, value)
        fake.create("one", "main", "One", "Text", draft=False)
        yield connect_forge(kind, fake.url, REPOSITORY, TOKEN, wait=lambda _: None), fake


def verdict(look: PullRequestSnapshot) -> bool | None:
    return judge_checks(look.checks, CheckPolicy.ANY, "main").passed


@pytest.mark.demand("X7.f")
@pytest.mark.parametrize("kind", sorted(FORGES))
def test_checks_are_green_only_once_a_check_of_others_registered(kind: str, tmp_path: Path) -> None:
    with opened(kind, tmp_path, ci={}) as (forge, fake):
        forge.set_status(fake.head("one"), True, "7 gates passed")
        assert verdict(forge.fetch_pull(1)) is None
        assert forge.fetch_pull(1).checks.base_has_checks is False
        fake.ci = {"ci/test": "success"}
        assert verdict(forge.fetch_pull(1)) is True


@pytest.mark.demand("X7.f")
@pytest.mark.parametrize("kind", sorted(FORGES))
def test_a_red_check_on_a_later_page_is_seen(kind: str, tmp_path: Path) -> None:
    many = {f"ci/{number:03}": "success" for number in range(230)}
    with opened(kind, tmp_path, ci=many) as (forge, fake):
        assert verdict(forge.fetch_pull(1)) is True
        fake.ci = {**many, "lint": "failure"}
        assert verdict(forge.fetch_pull(1)) is False


@pytest.mark.demand("X7.f")
@pytest.mark.parametrize("kind", sorted(FORGES))
def test_an_approval_counts_for_the_head_that_it_was_given_for(kind: str, tmp_path: Path) -> None:
    with opened(kind, tmp_path) as (forge, fake):
        fake.approve(1)
        assert forge.fetch_pull(1).review_decision is ReviewDecision.APPROVED
        git(fake.bare, "update-ref", "refs/heads/one", "two")
        assert forge.fetch_pull(1).review_decision is ReviewDecision.NOT_APPROVED
        fake.approve(1)
        assert forge.fetch_pull(1).review_decision is ReviewDecision.APPROVED


@pytest.mark.parametrize(
    ("state", "passed"),
    [
        ("success", True),
        ("skipped", True),
        *((state, None) for state in ("created", "preparing", "pending", "running")),
        *((state, None) for state in ("scheduled", "manual", "waiting_for_resource")),
        ("failed", False),
        ("canceled", False),
        ("a new state", False),
    ],
)
def test_states_of_gitlab_are_read_by_their_meaning(
    tmp_path: Path, state: str, passed: bool | None
) -> None:
    with opened("gitlab", tmp_path, ci={"job": state}) as (forge, _):
        assert verdict(forge.fetch_pull(1)) is passed


def test_a_gitlab_account_that_may_not_merge_is_not_told_that_its_token_is_invalid(
    tmp_path: Path,
) -> None:
    with opened("gitlab", tmp_path) as (forge, fake):
        fake.faults = [lambda method, path: 401 if path.endswith("/merge") else None]
        refused = forge.merge_pull(1, fake.head("one"), "merge", queue=False)
        assert (refused.outcome, "may not merge" in refused.detail) == (MergeOutcome.REFUSED, True)
        fake.faults = [lambda method, path: 401]
        with pytest.raises(ApiError, match="401"):
            forge.fetch_pull(1)


def test_gitea_needs_no_administrator_to_tell_who_may_write(tmp_path: Path) -> None:
    with opened("gitea", tmp_path, is_admin=False) as (forge, fake):
        fake.remark(1, "At a line")
        fake.remark(1, "At a line", who="mallory")
        fake.approve(1, "mallory")
        look = forge.fetch_pull(1)
        assert {one.author: one.may_write for one in look.remarks if one.path} == {
            "ada": True,
            "mallory": False,
        }
        assert look.review_decision is ReviewDecision.NOT_APPROVED
        fake.approve(1, "grace")
        assert forge.fetch_pull(1).review_decision is ReviewDecision.APPROVED


def test_gitea_finds_a_pull_request_among_thousands_of_old_ones(tmp_path: Path) -> None:
    with opened("gitea", tmp_path, old_pulls=20_000) as (forge, fake):
        assert [one.number for one in forge.find_pulls("one", "main")] == [1]
        assert forge.find_pulls("two", "main") == []
        assert len(fake.exchanges) <= 4


@pytest.mark.demand("X7.a")
def test_a_resolved_thread_after_a_hundred_others_is_settled(tmp_path: Path) -> None:
    with opened("github", tmp_path, threads_before=250) as (forge, fake):
        fake.remark(1, "Resolved").resolved = True
        fake.remark(1, "Open")
        settled = {one.text: one.is_settled for one in forge.fetch_pull(1).remarks}
        assert settled == {"Resolved": True, "Open": False}


@pytest.mark.parametrize("kind", sorted(FORGES))
def test_labels_that_failed_once_are_set_by_the_next_call_and_others_stay(
    kind: str, tmp_path: Path
) -> None:
    with opened(kind, tmp_path) as (forge, fake):
        spec = PullSpec("one", "main", "One", "Text", labels=("phasegate",))
        (pull,) = forge.find_pulls("one", "main")
        fake.pulls[1].labels = ["theirs"]
        fake.faults = [lambda method, path: 502 if method != "GET" else None]
        with pytest.raises(TemporarilyUnavailable):
            forge.add_labels_and_reviewers(pull, spec)
        fake.faults = []
        assert [*forge.add_labels_and_reviewers(pull, spec)] == []
        assert len(fake.pulls[1].labels) == 2
        assert fake.pulls[1].labels[0] == "theirs"


@pytest.mark.parametrize("kind", sorted(FORGES))
def test_an_unknown_reviewer_is_a_notice_and_the_known_ones_are_asked(
    kind: str, tmp_path: Path
) -> None:
    with opened(kind, tmp_path, unknown_people=("nobody", "no-one")) as (forge, fake):
        (pull,) = forge.find_pulls("one", "main")
        spec = PullSpec("one", "main", "One", "Text")
        known = spec._replace(reviewers=("ada",))
        assert [*forge.add_labels_and_reviewers(pull, known)] == [], "control"
        asked = [*fake.pulls[1].reviewers]
        assert len(asked) == 1

        fake.pulls[1].reviewers = []
        (pull,) = forge.find_pulls("one", "main")
        mixed = spec._replace(reviewers=("nobody", "ada", "no-one"))
        problems = forge.add_labels_and_reviewers(pull, mixed)
        assert [text.partition(":")[0] for text in problems] == [
            "cannot request a review from nobody",
            "cannot request a review from no-one",
        ]
        assert fake.pulls[1].reviewers == asked


@pytest.mark.demand("X7.b")
@pytest.mark.parametrize("kind", sorted(FORGES))
def test_a_look_succeeds_although_three_of_ten_calls_fail(kind: str, tmp_path: Path) -> None:
    with opened(kind, tmp_path) as (forge, fake):
        chance = random.Random(7)
        fake.faults = [lambda method, path: 502 if chance.random() < 0.3 else None]
        for _ in range(10):
            assert verdict(forge.fetch_pull(1)) is True
        fake.faults = [lambda method, path: 502]
        with pytest.raises(TemporarilyUnavailable):
            forge.fetch_pull(1)


@pytest.mark.parametrize("kind", ["github", "gitlab"])
def test_a_look_without_news_costs_two_requests_at_most_also_in_the_next_run(
    kind: str, tmp_path: Path
) -> None:
    folder = tmp_path / "responses"
    with opened(kind, tmp_path) as (_, fake):
        fake.approve(1)
        fake.remark(1, "At a line")
        looks = []
        for token in (TOKEN, TOKEN):
            store = StoredResponses(folder, fake.url, token)
            forge = connect_forge(kind, fake.url, REPOSITORY, token, store=store)
            fake.exchanges.clear()
            looks.append(forge.fetch_pull(1))
        charged = [one for one in fake.exchanges if one.status not in (304, 404)]
        assert len(charged) <= 2, charged
        assert looks[0] == looks[1]
        fake.ci = {"lint": "failure"}
        assert verdict(forge.fetch_pull(1)) is False


def test_a_stored_response_that_another_program_wrote_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "responses"
    kept = StoredResponses(folder, "https://x", "token")
    kept.write("/a", HttpResponse(200, b"no", {"etag": "1"}))
    assert StoredResponses(folder, "https://x", "token").read("/a") is not None
    (file,) = folder.iterdir()
    data = file.read_bytes()
    file.write_bytes(data.replace(b64encode(b"no"), b64encode(b"ok")))
    assert file.read_bytes() != data
    assert StoredResponses(folder, "https://x", "token").read("/a") is None
    assert StoredResponses(folder, "https://x", "other").read("/a") is None


def test_looks_leave_the_last_part_of_a_rate_limit_to_others(tmp_path: Path) -> None:
    folder = tmp_path / "responses"
    with opened("github", tmp_path) as (_, fake):
        store = StoredResponses(folder, fake.url, TOKEN)
        reset_at_s = int(time.time()) + 300
        store.write_rate_limit("core", RateLimit(5000, 400, reset_at_s))
        forge = connect_forge("github", fake.url, REPOSITORY, TOKEN, store=store)
        assert forge.fetch_pull(1).pull.number == 1
        store.write_rate_limit("core", RateLimit(5000, 200, reset_at_s))
        again = StoredResponses(folder, fake.url, TOKEN)
        other = connect_forge("github", fake.url, REPOSITORY, TOKEN, store=again)
        with pytest.raises(TemporarilyUnavailable) as refused:
            other.fetch_pull(1)
        assert 200 < refused.value.retry_after_s <= 300
        assert other.merge_pull(1, fake.head("one"), "merge", queue=False).outcome is (
            MergeOutcome.MERGED
        )
