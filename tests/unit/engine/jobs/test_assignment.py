"""A job's own package and tasks."""

from __future__ import annotations

import pytest

from phasegate.agents.envelope import AgentShare
from support.job_ends import implementer
from support.packages import LOGIN_FORM

ALONE = implementer()._replace(package=LOGIN_FORM)


def test_an_implementer_who_works_alone_has_the_tasks_of_its_package() -> None:
    assert ALONE.tasks == LOGIN_FORM.tasks != ()


@pytest.mark.parametrize("role", ["review", "plan", "challenge", "archive"])
def test_no_other_role_has_tasks(role: str) -> None:
    assert ALONE._replace(role=role).tasks == ()


def test_an_implementer_who_shares_a_package_has_no_tasks_of_its_own() -> None:
    share = AgentShare(1, 2, LOGIN_FORM.deliverables.code)
    assert ALONE._replace(share=share).tasks == ()


def test_a_job_of_the_whole_feature_has_neither_package_nor_tasks() -> None:
    job = ALONE._replace(package=None)
    assert (job.package_id, job.tasks) == ("", ())
    assert ALONE.package_id == "WP01"
