"""What the end of an agent's run means: exit status, answer and blockers together."""

from __future__ import annotations

from itertools import product

import pytest

from phasegate.agents.port import AgentReport, Ending, FinishedRun
from phasegate.core.machine.package_events import JobEndKind
from support.job_ends import judged_implementer, result

SUCCESS, FAILURE, NONE = result(success=True), result(success=False), "All is done.\n"


@pytest.mark.demand("D7.g", "D7.i")
def test_only_a_clean_end_with_a_success_and_no_blocker_is_done() -> None:
    for ending, answer, blockers, stderr in product(
        Ending, (SUCCESS, FAILURE, NONE, ""), ((), ("no access",)), ("", "BLOCKER: no key\n")
    ):
        report = AgentReport(answer, ending, "why", blockers=blockers)
        ended = judged_implementer(report, FinishedRun(0, answer, stderr))
        is_done = ending is Ending.COMPLETED and answer == SUCCESS and not blockers and not stderr
        assert (ended.outcome is JobEndKind.DONE) is is_done, (ending, answer, blockers, stderr)
        assert is_done or ended.reason


@pytest.mark.demand("D7.a")
def test_the_success_of_another_job_is_not_taken() -> None:
    other = result(success=True, job="00000000-0000-4000-8000-000000000000")
    ended = judged_implementer(AgentReport(other, Ending.COMPLETED), FinishedRun(0, other, ""))
    assert ended.outcome is JobEndKind.UNREADABLE
    assert "invalid" in ended.reason
