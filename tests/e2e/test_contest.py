"""Best of several: attempts at one package, judged by the same manifest, compared blind, the best one merged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from phasegate.core.plan.work_package import PackageState
from phasegate.core.workflow.workflow_phases import WORKFLOWS
from support.dispatch_project import FEATURE, DispatchProject, make_project, turn
from support.feature_project import PASS, make_feature_project, smooth

FORM = "src/login.ts"
# One script is every agent: it plays by its first argument.
AGENT = """
name=$1
if [ "$PHASEGATE_PHASE" != review ]; then
  mkdir -p src
  case $name in
    first) echo "FIRST" > src/login.ts ;;
    rival) echo "SECOND" > src/login.ts ;;
  esac
  git add src && git commit -q -m "WP01: Write the form"
  echo '{"job_id": "'$AGILEPLUS_JOB_ID'", "wp_id": "WP01", "success": true, "status": "completed"}'
  exit 0
fi
for letter in A B; do
  if grep -q better phasegate-candidates/$letter/src/login.ts 2>/dev/null; then echo "BEST: $letter"; fi
done
echo "<review>PASS</review>"
"""


def contest(
    folder: Path, first: str, second: str, judge: str = AGENT, run: str = ""
) -> DispatchProject:
    """Two agents that write these texts, and a third that judges."""
    program = folder / "agent.sh"
    program.write_text(judge.replace("FIRST", first).replace("SECOND", second))

    def agent(name: str) -> str:
        return f'harness = "command"\ncommand = {json.dumps(["/bin/sh", str(program), name])}\n'

    others = "".join(f"[agents.{name}]\n{agent(name)}" for name in ("rival", "judge"))
    roles = '[roles]\nimplement = "actor"\nreview = "judge"\n'
    return make_project(
        folder,
        harness=agent("first"),
        agent=f"{others}{roles}",
        run=f'competing_agents = ["actor", "rival"]\n{run}',
    )


def shown(project: DispatchProject) -> list[dict[str, object]]:
    done = project.command("show", "WP01", "--json")
    assert done.code == 0, done.stderr
    attempts: list[dict[str, object]] = done.json["package"]["attempts"]
    return attempts


@pytest.mark.demand("D5.a", "D7.g")
def test_an_attempt_that_fails_the_tests_loses_and_both_are_on_record(tmp_path: Path) -> None:
    project = contest(tmp_path, "TODO", "better")
    done = project.command("dispatch", "WP01")
    assert done.code == 0, done.stdout + done.stderr
    assert "attempt 1 failed: test" in done.stderr
    assert "attempt 2 selected" in done.stderr
    assert project.git("show", f"{FEATURE}:{FORM}") == "better"
    first, second = shown(project)
    assert (first["agent"], first["outcome"], first["taken"]) == ("actor", "failed: test", False)
    assert (second["agent"], second["outcome"], second["taken"]) == (
        "rival",
        "passed the manifest",
        True,
    )
    assert project.git("show", f"{first['ref']}:{FORM}") == "TODO", (
        "what was not taken is kept as a ref"
    )
    assert [job.agent for job in project.jobs()].count("judge") == 1, (
        "of one that passed there is no choice"
    )
    assert project.worktrees() == set()
    assert not [
        name for name in project.git("branch", "--format=%(refname)").split() if "-try" in name
    ]
    assert project.audit_problems() == []
    assert "attempt 1  actor  failed: test" in project.command("show", "WP01").stdout
    assert ": failed - " not in project.command("show", "WP01", "--evidence").stdout


def test_of_two_that_pass_the_reviewer_chooses_without_knowing_who_made_them(
    tmp_path: Path,
) -> None:
    project = contest(tmp_path, "good", "better")
    report = project.dispatch()
    assert report.state is PackageState.DONE, report.reason
    assert project.git("show", f"{FEATURE}:{FORM}") == "better"
    comparison, review = [job for job in project.jobs() if job.agent == "judge"]
    asked = project.prompt(comparison.id)
    assert "Compare 2 solutions" in asked
    assert "+good" in asked
    assert "+better" in asked
    assert not [name for name in ("actor", "rival", "attempt 1", "try1") if name in asked]
    assert "change.diff" in project.prompt(review.id), "what was chosen is reviewed by itself"
    assert [one["taken"] for one in shown(project)] == [False, True]


@pytest.mark.demand("W4.l")
def test_who_compares_the_solutions_is_given_what_a_person_decided(tmp_path: Path) -> None:
    agent = f'harness = "scripted"\nscenario = {json.dumps(str(tmp_path / "scenario.json"))}\n'
    agents = "".join(f"[agents.{name}]\n{agent}" for name in ("actor", "rival"))
    roles = '[roles]\nplan = "actor"\nimplement = "actor"\nreview = "actor"\nchallenge = "actor"\n'
    contests = '[run]\ncompeting_agents = ["actor", "rival"]\n'
    project = make_feature_project(tmp_path, agents=f"{agents}{roles}", config=contests)
    project.play(turn("review", {"print": "BEST: A"}, PASS), *smooth(WORKFLOWS["quick"]))
    project.start()
    assert project.call("escalate", "a question").code == 0
    assert project.call("resolve", "count in metres").code == 0
    done = project.call("run")
    assert done.code == 0, done.stderr
    compared = [text for text in project.prompts("review") if "Compare 2 solutions" in text]
    assert compared
    assert all("The user decided: count in metres\n" in text for text in compared)
    assert all("(decision.md): follow it" in text for text in compared)


@pytest.mark.parametrize("said", ["", "BEST: A\\nBEST: B", "BEST: C"])
def test_a_choice_that_cannot_be_read_takes_nothing_and_is_made_again_when_a_person_says_so(
    tmp_path: Path, said: str
) -> None:
    answer = f"if [ $PHASEGATE_ROUND = 1 ]; then printf '{said}\\n<review>PASS</review>\\n'; exit 0; fi\nfor letter"
    judge = AGENT.replace("for letter", answer)
    project = contest(tmp_path, "good", "better", judge)
    report = project.dispatch()
    assert report.state is PackageState.BLOCKED
    assert "does not name the best" in report.reason
    assert FORM not in project.files_of(FEATURE)
    again = project.dispatch()
    assert again.state is PackageState.DONE, again.reason
    assert len([job for job in project.jobs() if job.phase == "implement"]) == 2, (
        "what passed is not made again"
    )


def test_where_none_passes_the_best_goes_on_with_its_findings(tmp_path: Path) -> None:
    fixing = (
        "case $name$PHASEGATE_ROUND in rival2) echo better > src/login.ts ;; esac\n  git add src"
    )
    project = contest(tmp_path, "TODO", "TODO", AGENT.replace("git add src", fixing))
    script = (tmp_path / "agent.sh").read_text()
    # The first one strays besides: the second is nearer.
    (tmp_path / "agent.sh").write_text(
        script.replace('first) echo "TODO"', 'first) echo x > stray.txt; echo "TODO"')
    )
    report = project.dispatch()
    assert (report.state, report.round) == (PackageState.DONE, 2), report.reason
    makers = [job.agent for job in project.jobs() if job.phase == "implement"]
    assert sorted(makers[:2]) == ["actor", "rival"]
    assert makers[2:] == ["rival"], "later rounds are those of the one whose attempt was taken"


def test_an_agent_that_cannot_deliver_is_out_and_the_other_goes_on(tmp_path: Path) -> None:
    broken = AGENT.replace(
        "mkdir -p src",
        "if [ $name = first ]; then echo 'BLOCKER: no network'; exit 1; fi\n mkdir -p src",
    )
    project = contest(tmp_path, "good", "better", broken)
    report = project.dispatch()
    assert report.state is PackageState.DONE, report.reason
    assert project.git("show", f"{FEATURE}:{FORM}") == "better"
    assert "no network" in str(shown(project)[0]["outcome"])


def test_where_no_agent_can_deliver_the_package_is_blocked(tmp_path: Path) -> None:
    project = contest(
        tmp_path,
        "good",
        "better",
        AGENT.replace("mkdir -p src", "echo 'BLOCKER: no network'; exit 1"),
    )
    report = project.dispatch()
    assert report.state is PackageState.BLOCKED
    assert "every attempt failed" in report.reason
    assert project.files_of(FEATURE) == project.files_of("main")


def test_an_agent_that_the_person_names_does_it_alone(tmp_path: Path) -> None:
    project = contest(tmp_path, "better", "better", run="")
    done = project.command("dispatch", "WP01", "--agent", "rival")
    assert done.code == 0, done.stdout + done.stderr
    assert {job.agent for job in project.jobs()} == {"rival"}
    assert shown(project) == []


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('competing_agents = ["actor"]', "a single agent cannot compete"),
        ('competing_agents = ["actor", "nobody"]', "no agent `nobody` is configured"),
    ],
)
def test_a_contest_that_cannot_be_is_refused(tmp_path: Path, line: str, why: str) -> None:
    project = make_project(tmp_path, run="")
    config = project.root / "phasegate.toml"
    config.write_text(config.read_text().replace("[run]\n", f"[run]\n{line}\n"))
    done = project.command("dispatch", "WP01")
    assert done.code == 2
    assert why in done.stderr
