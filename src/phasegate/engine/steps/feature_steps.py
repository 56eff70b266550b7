"""The steps of a feature's phases and of its closing, each from values to events."""

from __future__ import annotations

import msgspec

from phasegate.checks.excerpt import listed
from phasegate.core.machine.feature_events import (
    GateChecked,
    Happened,
    JobEnded,
    JobStarted,
    Merged,
    Reported,
    Strayed,
    Written,
)
from phasegate.core.machine.feature_state import ROLES, Feature, Step, told
from phasegate.core.machine.package_events import End, failure_key
from phasegate.core.plan.task_status import NO_STATUS, from_line
from phasegate.core.text.markdown_lines import squeeze
from phasegate.core.workflow.phases import TASKS, Work
from phasegate.core.workflow.workflows import gate_name
from phasegate.engine.checks.manifest import describe
from phasegate.engine.checks.phase_commands import run_commands, seconds_of
from phasegate.engine.jobs.assignment import Assigned, Ended
from phasegate.engine.jobs.step import CHECKED, Did, Errand, Known
from phasegate.engine.jobs.trail_notes import JobNotes, lines_of
from phasegate.engine.project.agents import Member
from phasegate.engine.project.feature_branch import Branch
from phasegate.engine.project.project import Project
from phasegate.engine.project.secrets import lent_keys
from phasegate.engine.steps.briefing import WRITERS, brief_phase, write_scope
from phasegate.engine.steps.feature_merge import merge_feature, skipped_hooks, tidy
from phasegate.engine.steps.harvest import Left, take_documents
from phasegate.engine.steps.planning import Plans, plan_findings
from phasegate.engine.steps.validate import said_last
from phasegate.engine.steps.workplace import STATE_FOLDER, copy_for_review, expect_saved, show_state
from phasegate.prompts.shipped_texts import report
from phasegate.storage.rows import Event, Package
from phasegate.workspace.checkout import Assignment, find_checkout
from phasegate.workspace.checkout_creation import Terms
from phasegate.workspace.checkout_lifecycle import Unsaved, drop_branch, remove_checkout, start_over, take_checkout
from phasegate.workspace.commit_log import blobs_of
from phasegate.workspace.merge import fork_point
from phasegate.workspace.removal import remove_tree

SAME_TREE = "comparison with what was judged"
LONGEST_SUMMARY = 2_000


class PhaseSteps:
    """Fulfils `steps.Steps` for a feature."""

    def __init__(self, project: Project, slug: str) -> None:
        self._project, self._branch = project, Branch(project, slug)

    def carry_out(self, feature: Feature, known: Known) -> Did[Happened]:
        match feature.todo[0]:
            case Step.HARVEST:
                return self._harvest(feature, known)
            case Step.PLAN:
                return Plans(self._project, feature, known).make()
            case Step.MEND:
                return Plans(self._project, feature, known).mend()
            case Step.COMMANDS:
                return self._commands(feature)
            case Step.REPORT:
                return self._report(feature, known)
            case Step.GATE:
                return Did((self.at_the_gate(feature),))
            case Step.MERGE:
                notes = JobNotes(self._project, known.workers)
                merged = merge_feature(self._project, feature, notes)
                skipped = skipped_hooks(self._project) if isinstance(merged, Merged) else ()
                return Did((merged,), notices=skipped, trail=notes.all)
            case Step.PUBLISH | Step.AWAIT | Step.TIDY if feature.pull or feature.todo[0] is Step.PUBLISH:
                return self._at_forge(feature, known)
            case Step.TIDY:
                return Did((tidy(self._project, feature),))
            case step:
                raise AssertionError(f"{step} is not ours to carry out")

    def _at_forge(self, feature: Feature, known: Known) -> Did[Happened]:
        """A pull request is published, looked at, and done with. Nothing of a forge is loaded where there is none."""
        from phasegate.engine.steps.feature_pull import PullSteps, tidy_remote

        if feature.todo[0] is Step.TIDY:
            notices = tidy_remote(self._project, feature)
            return Did((tidy(self._project, feature),), notices=notices)
        steps = PullSteps(self._project, feature, known)
        return steps.publish() if feature.todo[0] is Step.PUBLISH else steps.look()

    # --- agents

    def errands(self, feature: Feature) -> tuple[Errand, ...]:
        role = ROLES.get(feature.todo[0])
        if role is None or feature.open_job is not None:
            return ()
        again, retries = feature.asked_again, feature.retries
        reason = feature.workflow.reason if again or retries else ""
        return (Errand(role, feature.phase.key, feature.round, 0, retries, again, reason),)

    def assign(self, feature: Feature, errand: Errand, member: Member, job: str, known: Known) -> Assigned:
        """A critic sees a copy that is thrown away. What the commands ran on is what a reviewer sees."""
        assignment = self._assignment(feature)
        if errand.role in WRITERS:
            commit = self._branch.head()
            checkout = take_checkout(self._project.repository, assignment, self.terms())
            folder, aside = checkout.folder, checkout.record.set_aside
        else:
            commit = feature.judged or self._branch.head()
            folder, aside = copy_for_review(self._project, assignment.name, commit), (STATE_FOLDER,)
        show_state(folder, known.state, blobs_of(self._project.repository, commit), aside)
        for words in known.answers:
            feature = told(feature, words, feature.workflow.index)
        briefed = brief_phase(self._branch, feature, errand, member, job, folder, commit, known.artifacts)
        return briefed._replace(own=assignment if errand.role in WRITERS else None, before=known.checked)

    def started(self, errand: Errand, assigned: Assigned) -> JobStarted:
        return JobStarted(assigned.job, errand.role, assigned.agent, assigned.commit)

    def agent_name(self, _errand: Errand, assigned: Assigned) -> str:
        return assigned.agent

    def take_in(self, errand: Errand, assigned: Assigned, ended: Ended) -> Did[Happened]:
        answer = ended.answer
        if errand.role not in WRITERS:
            remove_tree(assigned.checkout)
        event = JobEnded(assigned.job, ended.end, ended.reason, ended.remediation, answer.verdict, answer.text)
        return Did((event,), ended.rows)

    def open_jobs(self, feature: Feature) -> tuple[str, ...]:
        return (feature.open_job.job,) if feature.open_job else ()

    def save(self, feature: Feature) -> None:
        found = find_checkout(self._project.repository, self._assignment(feature))
        if found is not None and ROLES.get(feature.todo[0]) in WRITERS:
            expect_saved(start_over(found, self.terms()))

    def lost(self, job: str, why: str, last_seen: str) -> JobEnded:
        return JobEnded(job, End.LOST, why, last_seen=last_seen)

    # --- what we do ourselves

    def _harvest(self, feature: Feature, known: Known) -> Did[Happened]:
        notes = JobNotes(self._project, known.workers)
        assignment = self._assignment(feature)
        checkout = take_checkout(self._project.repository, assignment, self.terms())
        scope = write_scope(self._branch, "archive" if feature.closing else "plan")
        title = f"{assignment.work}: documents, round {feature.round}"
        left = Left(checkout, scope, title, self._project.signature(), lent=lent_keys(self._project))
        if against := take_documents(self._branch, left, notes):
            # Nothing is taken over. What was written is saved; where it cannot be, it stays, and that is told too.
            renewed = start_over(checkout, self.terms())
            kept = (f"{renewed.folder} is kept: {renewed.reason}",) if isinstance(renewed, Unsaved) else ()
            return Did((Strayed((*against, *kept)),), trail=notes.all)
        expect_saved(
            remove_checkout(checkout, self._project.signature(), lent_keys(self._project), keep_for_reuse=True)
        )
        drop_branch(self._project.repository, assignment.branch, self._branch.name)
        wanted = () if feature.closing else feature.phase.artifacts
        there = self._branch.present(wanted)
        missing = tuple(name for name in wanted if name not in there)
        head = self._branch.head()
        return Did((Written(head, missing, not feature.closing and head == feature.written),), trail=notes.all)

    def _commands(self, feature: Feature) -> Did[Happened]:
        """A phase that has no command may have been given some since: that is what its stop asks for."""
        phase = feature.phase
        own = self._project.config.phases.get(phase.key)
        commands = phase.commands or (own.commands if own else None) or ()
        head = self._branch.head()
        start = fork_point(self._project.repository, feature.base, head)
        ran, evidence = run_commands(self._project, self._branch.slug, start, head, commands)
        paper = self._project.papers.put(describe(evidence).encode())
        seen = Event(CHECKED, msgspec.json.encode(lines_of(evidence, head, paper, self._project.now())))
        return Did((ran,), (seen,), parts=seconds_of(evidence))

    def _report(self, feature: Feature, known: Known) -> Did[Happened]:
        """Write the document of a phase in which no agent writes one."""
        phase = feature.phase
        text = self._implementation(known) if phase.work is Work.PACKAGES else _review(feature)
        path = f"{self._branch.folder}/{_report_name(feature)}"
        commit = self._branch.put({path: text.encode()}, f"{phase.key}: {_report_name(feature)}\n")
        return Did((Reported(commit),))

    def _implementation(self, known: Known) -> str:
        rows = sorted(known.packages, key=lambda row: (len(row.id), row.id))
        values = {
            "FEATURE": self._branch.slug,
            "BRANCH": self._branch.name,
            "PACKAGES": "\n".join(map(_package_line, rows)),
            "DETAILS": "\n".join(_package_section(row, known) for row in rows),
        }
        return report("implementation", values)

    def at_the_gate(self, feature: Feature) -> GateChecked:
        """What is found at the gate of the phase now: its documents, and whether the tasks can be carried out.

        What was judged must be what is there: somebody may have moved the branch meanwhile.
        """
        branch, phase = self._branch, feature.phase
        head = branch.head()
        there = branch.present(phase.artifacts, head)
        problems = plan_findings(branch, head) if TASKS in there else ()
        checks = {"plan of tasks": not problems} if TASKS in there else {}
        ours = () if phase.work is Work.PLANNING else (f"{branch.folder}/{_report_name(feature)}",)
        if later := branch.changed_since(feature.judged, head, *ours):
            checks[SAME_TREE] = False
            problems = (*problems, f"changed on {branch.name} after it was judged: {listed(later)}")
        found = "\n".join(problems)
        said = f"{there} {checks} {dict(feature.commands)} {feature.verdict}\n{found}\n{feature.report}"
        return GateChecked(there, checks, found, failure_key(said))

    # --- what the steps share

    def _assignment(self, feature: Feature) -> Assignment:
        return Assignment(self._branch.slug, "archive" if feature.closing else feature.phase.key)

    def terms(self) -> Terms:
        """With what the checkout of a writer is made."""
        signature, worktrees = self._project.signature(), self._project.worktrees
        return Terms(signature.who, signature, (STATE_FOLDER,), worktrees=worktrees, lent=lent_keys(self._project))


def _package_line(row: Package) -> str:
    tasks = from_line(row.tasks)
    done = sum(status == "COMPLETED" for status in tasks.values())
    title = row.title.replace("|", "/")
    return f"| {row.id} | {row.state} | {row.round} | {f'{done} of {len(tasks)}' if tasks else '-'} | {title} |"


def _package_section(row: Package, known: Known) -> str:
    """The statuses of a package's tasks, and what its agents said they built in the last round."""
    claims = said_last([one for one in known.claims if one.package == row.id], row.round)
    summary = " ".join(one.said.summary or "" for one in claims).replace("<", "&lt;")
    tasks = "\n".join(f"| {name} | {status or NO_STATUS} |" for name, status in from_line(row.tasks).items())
    said = squeeze(summary)[:LONGEST_SUMMARY] or "-"
    form = "implementation-package" if tasks else "implementation-package-plain"
    return report(form, {"WP_ID": row.id, "TITLE": squeeze(row.title), "TASKS": tasks, "SUMMARY": said})


def _report_name(feature: Feature) -> str:
    phase = feature.phase
    return phase.artifacts[0] if phase.artifacts else f"{gate_name(phase.key).replace('GATE', 'REVIEW')}.md"


def _review(feature: Feature) -> str:
    commands = (f"{name} {'passed' if passed else 'failed'}" for name, passed in feature.commands.items())
    return report(
        "review",
        {
            "GATE": gate_name(feature.phase.key),
            "PHASE": feature.phase.key,
            "ROUND": str(feature.workflow.round),
            "VERDICT": str(feature.verdict or "none"),
            "COMMANDS": ", ".join(commands) or "none",
            "REPORT": feature.report,
        },
    )
