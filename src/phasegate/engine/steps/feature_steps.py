"""Steps of a feature's phases and of its merge, as functions from values to events."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from phasegate.checks.excerpt import format_names
from phasegate.core.answer.prose import cut_markers
from phasegate.core.machine.feature_events import (
    AnyFeatureEvent,
    DocumentsWritten,
    GateChecked,
    JobEnded,
    JobStarted,
    Merged,
    PhasesFolded,
    ReportWritten,
    ReviewWaived,
    ScopeViolated,
)
from phasegate.core.machine.feature_state import ROLE_BY_STEP, Feature, Step, add_user_note
from phasegate.core.machine.package_events import JobEndKind, failure_key
from phasegate.core.machine.size_estimate import (
    ESTIMATE_FILE,
    ESTIMATE_PHASE,
    fold_plan,
    parse_estimate,
)
from phasegate.core.plan.acceptance import AcceptanceSeal
from phasegate.core.plan.task_status import NO_STATUS, decode_task_statuses
from phasegate.core.prompt.audience import FRONT_MATTER
from phasegate.core.text.markdown_lines import collapse_whitespace
from phasegate.core.workflow.phases import TASKS_FILE, PhaseWork
from phasegate.core.workflow.workflow_phases import gate_name
from phasegate.engine.checks.acceptance import prove_acceptance_tests, wants_acceptance
from phasegate.engine.checks.evidence_text import describe_evidence
from phasegate.engine.checks.feature_checks import (
    gather_review_evidence,
    run_phase_commands,
    sum_durations_s,
)
from phasegate.engine.checks.known_checks import hash_code_tree
from phasegate.engine.jobs.assignment import JobAssignment
from phasegate.engine.jobs.job_end import JobEnd
from phasegate.engine.jobs.step import AgentRequest, StepContext, StepResult
from phasegate.engine.jobs.trail_notes import (
    TrailNoteBuilder,
    make_check_entries,
    make_checks_event,
)
from phasegate.engine.journal.entries import ACCEPTANCE_SEALED, AgentClaim
from phasegate.engine.project.agents import NamedAgent
from phasegate.engine.project.feature_branch import FeatureBranch
from phasegate.engine.project.project import Project
from phasegate.engine.project.secrets import collect_lent_secrets
from phasegate.engine.steps.briefing import WRITER_ROLES, build_phase_job, writer_scope
from phasegate.engine.steps.context_documents import is_planning_document
from phasegate.engine.steps.feature_merge import (
    clean_up_feature,
    list_decisions,
    merge_feature,
    skipped_hook_notices,
)
from phasegate.engine.steps.harvest import AgentChanges, harvest_documents
from phasegate.engine.steps.planning import PackagePlanner, check_plan
from phasegate.engine.steps.spec_update import describe_delta_problems
from phasegate.engine.steps.validate_package import select_latest_claims
from phasegate.engine.steps.workplace import (
    STATE_FOLDER,
    copy_for_review,
    raise_if_unsaved,
    write_state_file,
)
from phasegate.prompts.shipped_texts import render_report
from phasegate.storage.rows import NewEvent, PackageRow
from phasegate.workspace.checkout.checkout import Assignment, find_checkout
from phasegate.workspace.checkout.checkout_creation import CheckoutOptions
from phasegate.workspace.checkout.removal import remove_tree
from phasegate.workspace.checkout_lifecycle import (
    UnsavedWork,
    delete_merged_branch,
    ensure_checkout,
    remove_checkout,
    reset_checkout,
)
from phasegate.workspace.repository.commit_log import list_blobs, read_commit_trees
from phasegate.workspace.repository.merge import find_fork_point

CODE_REVIEW = "08-code-review"
REVIEWED_TREE_CHECK = "comparison with the reviewed commit"
MAX_SUMMARY_CHARS = 2_000


class FeatureSteps:
    """Steps of a feature; implements `UnitSteps`."""

    def __init__(self, project: Project, slug: str) -> None:
        self._project = project
        self._branch = FeatureBranch(project, slug)

    def run(  # noqa: C901 - one case per step
        self, feature: Feature, context: StepContext
    ) -> StepResult[AnyFeatureEvent]:
        """Run the first step that is due, and return its events."""
        match feature.todo[0]:
            case Step.HARVEST:
                return self._harvest_documents(feature, context)
            case Step.PLAN:
                return PackagePlanner(self._project, feature, context).make_packages()
            case Step.FIX:
                return PackagePlanner(self._project, feature, context).add_fix_package()
            case Step.COMMANDS:
                return self._run_commands(feature)
            case Step.REVIEW if waived := self._find_waived_review(feature):
                return StepResult((waived,))
            case Step.REPORT:
                return self._write_report(feature, context)
            case Step.GATE:
                return self.check_gate(feature)
            case Step.MERGE:
                notes = TrailNoteBuilder(self._project, context.workers)
                merged = merge_feature(self._project, feature, context, notes)
                is_merged = isinstance(merged, Merged)
                notices = skipped_hook_notices(self._project) if is_merged else ()
                rows = (make_checks_event(notes.checks),) if is_merged and notes.checks else ()

                return StepResult(
                    events=(merged,), rows=rows, notices=notices, trail_notes=notes.entries
                )
            case Step.PUBLISH | Step.AWAIT | Step.CLEAN_UP if (
                feature.pull or feature.todo[0] is Step.PUBLISH
            ):
                return self._run_forge_step(feature, context)
            case Step.CLEAN_UP:
                return StepResult((clean_up_feature(self._project, feature, context.packages),))
            case step:
                raise AssertionError(f"unexpected step {step}")

    def _run_forge_step(
        self, feature: Feature, context: StepContext
    ) -> StepResult[AnyFeatureEvent]:
        """Publish a pull request, poll it, or clean up after it.

        Forge modules are imported only here: runs without a forge do not load them.
        """
        from phasegate.engine.steps.feature_pull_request import (
            FeaturePullRequest,
            delete_feature_branch,
        )

        if feature.todo[0] is Step.CLEAN_UP:
            notices = delete_feature_branch(self._project, feature)
            return StepResult(
                (clean_up_feature(self._project, feature, context.packages),), notices=notices
            )

        steps = FeaturePullRequest(self._project, feature, context)
        if feature.todo[0] is Step.PUBLISH:
            return steps.publish()

        return steps.poll()

    # --- agents

    def list_agent_requests(self, feature: Feature) -> tuple[AgentRequest, ...]:
        """Return a request for the agent run that is due, or an empty tuple."""
        role = ROLE_BY_STEP.get(feature.todo[0])
        if role is None or feature.open_job is not None or self._find_waived_review(feature):
            return ()

        is_retry = feature.asked_again or feature.retries

        return (
            AgentRequest(
                role=role,
                phase=feature.phase.key,
                round=feature.round,
                agent_index=0,
                retries=feature.retries,
                asked_again=feature.asked_again,
                retry_reason=feature.workflow.reason if is_retry else "",
                attempt=feature.retries + feature.asked_again + feature.pauses + feature.losses,
                previous_answer=feature.last_answer,
            ),
        )

    def assign_job(
        self,
        feature: Feature,
        request: AgentRequest,
        agent: NamedAgent,
        job: str,
        context: StepContext,
    ) -> JobAssignment:
        """Assign a job: a checkout for a writer, a throw-away copy for a critic or reviewer.

        A reviewer gets the commit on which the commands ran.
        """
        assignment = self._assignment(feature)

        if request.role in WRITER_ROLES:
            commit = self._branch.read_head()
            checkout = ensure_checkout(
                self._project.repository, assignment, self.checkout_options()
            )
            folder = checkout.folder
            set_aside = checkout.record.set_aside
        else:
            commit = feature.evaluated_commit or self._branch.read_head()
            folder = copy_for_review(self._project, assignment.name, commit)
            set_aside = (STATE_FOLDER,)

        write_state_file(
            folder, context.state_json, list_blobs(self._project.repository, commit), set_aside
        )
        for words in context.user_answers:
            feature = add_user_note(feature, words, feature.workflow.index)

        assigned = build_phase_job(
            branch=self._branch,
            feature=feature,
            request=request,
            agent=agent,
            job=job,
            folder=folder,
            commit=commit,
            artifacts=context.artifacts,
            replies=_find_replies(feature, context),
            evidence=self._find_evidence(feature, request, commit),
        )
        return assigned._replace(
            own_checkout=assignment if request.role in WRITER_ROLES else None,
            entries_before_start=context.check_entries,
        )

    def _find_evidence(self, feature: Feature, request: AgentRequest, commit: str) -> str:
        """Return the evidence for a reviewer: of the phase's commands, or of the same tree."""
        if request.role != "review" or feature.phase.work is not PhaseWork.REVIEW:
            return feature.report

        start = find_fork_point(self._project.repository, feature.base, commit)
        slug, phase = self._branch.slug, feature.phase.key
        evidence = gather_review_evidence(self._project, slug, phase, start, commit)
        # The user sees it too, before the merge
        path = f"evidence/{slug}/{phase}-{feature.round}.md"
        self._project.document_store.put(evidence.encode(), path)
        return evidence

    def make_started_event(self, request: AgentRequest, assigned: JobAssignment) -> JobStarted:
        return JobStarted(assigned.job_id, request.role, assigned.agent, assigned.reviewed_commit)

    def describe_agent(self, _request: AgentRequest, assigned: JobAssignment) -> str:
        return assigned.agent

    def apply_job_end(
        self, request: AgentRequest, assigned: JobAssignment, job_end: JobEnd
    ) -> StepResult[AnyFeatureEvent]:
        """Return the event of an ended job; remove a reviewer's checkout."""
        answer = job_end.answer
        if request.role not in WRITER_ROLES:
            remove_tree(assigned.checkout)

        text = answer.text
        if job_end.outcome is not JobEndKind.UNREADABLE:
            text = cut_markers(f"{request.previous_answer}\n{text}")

        event = JobEnded(
            job=assigned.job_id,
            end=job_end.outcome,
            reason=job_end.reason,
            remediation=job_end.remediation,
            verdict=answer.verdict,
            text=text,
        )
        return StepResult((event,), job_end.rows)

    def list_open_jobs(self, feature: Feature) -> tuple[str, ...]:
        if feature.open_job:
            return (feature.open_job.job,)
        return ()

    def save_lost_work(self, feature: Feature) -> None:
        checkout = find_checkout(self._project.repository, self._assignment(feature))
        if checkout is not None and ROLE_BY_STEP.get(feature.todo[0]) in WRITER_ROLES:
            raise_if_unsaved(reset_checkout(checkout, self.checkout_options()))

    def make_lost_event(self, job: str, reason: str, last_seen: str) -> JobEnded:
        return JobEnded(job=job, end=JobEndKind.LOST, reason=reason, last_seen=last_seen)

    # --- steps without an agent

    def _harvest_documents(
        self, feature: Feature, context: StepContext
    ) -> StepResult[AnyFeatureEvent]:
        """Commit the documents that the agent wrote, within its scope."""
        notes = TrailNoteBuilder(self._project, context.workers)
        assignment = self._assignment(feature)
        checkout = ensure_checkout(self._project.repository, assignment, self.checkout_options())
        role = "archive" if feature.closing else "plan"
        scope = writer_scope(self._branch, role, self._branch.read_head())
        title = f"{assignment.work_id}: documents, round {feature.round}"
        if feature.closing:
            title = "Update the changelog"
        changes = AgentChanges(
            checkout,
            scope,
            title,
            self._project.make_signature(),
            lent_secrets=collect_lent_secrets(self._project),
        )

        if problems := harvest_documents(self._branch, changes, notes):
            # Nothing is committed. The changes are saved; if that fails, the checkout is kept and
            # reported.
            reset = reset_checkout(checkout, self.checkout_options())
            if isinstance(reset, UnsavedWork):
                problems = (*problems, f"{reset.folder} is kept: {reset.reason}")

            return StepResult((ScopeViolated(problems),), trail_notes=notes.entries)

        raise_if_unsaved(
            remove_checkout(
                checkout,
                self._project.make_signature(),
                collect_lent_secrets(self._project),
                keep_for_reuse=True,
            )
        )

        delete_merged_branch(self._project.repository, assignment.branch, self._branch.name)
        self._add_front_matter(assignment.work_id, notes)
        required = () if feature.closing else feature.phase.artifacts
        present = self._branch.find_present_documents(required)
        missing = tuple(name for name in required if name not in present)
        if feature.closing:
            self._write_decisions("\n".join((feature.decisions, *context.user_answers)))

        head = self._branch.read_head()

        return StepResult(
            (
                DocumentsWritten(
                    head,
                    missing,
                    not feature.closing and self._has_same_files(head, feature.written_commit),
                    documents=self._branch.count_documents(present),
                ),
            ),
            trail_notes=notes.entries,
        )

    def _has_same_files(self, head: str, earlier: str) -> bool:
        """Return True if two commits have the same tree.

        A writer may leave out front matter, which is then added again.
        """
        if not earlier:
            return False
        found = read_commit_trees(self._project.repository, [head, earlier])
        return found[head].tree == found[earlier].tree

    def _add_front_matter(self, work_id: str, notes: TrailNoteBuilder) -> None:
        """Add front matter to planning documents without any: all context documents have it."""
        documents = self._branch.read_documents(self._branch.list_documents())
        incomplete = {
            f"{self._branch.folder}/{name}": f"{FRONT_MATTER}{text}".encode()
            for name, text in documents.items()
            if is_planning_document(name) and text.strip() and not text.startswith("---")
        }
        if incomplete:
            message = f"{work_id}: front matter of documents\n"
            notes.add_merge(self._branch.commit_files(incomplete, message), message)

    def _write_decisions(self, decisions: str) -> None:
        """Add the user's decisions to the specification, so that it describes the built feature."""
        documents = self._branch.read_documents(self._branch.list_documents())
        name = next((name for name in ("spec.md", "proposal.md") if name in documents), "")
        section = list_decisions(decisions)
        if name and section and section not in documents[name]:
            text = f"{documents[name].rstrip()}\n{section}"
            self._branch.commit_files(
                {f"{self._branch.folder}/{name}": text.encode()}, f"archive: decisions in {name}\n"
            )

    def find_folded_phases(self, feature: Feature) -> tuple[PhasesFolded, ...]:
        """Return the event that folds the planning phases, if the quick scan estimates little.

        Anything unclear means: all phases.
        """
        if not feature.fits_size or feature.phase.key != ESTIMATE_PHASE:
            return ()
        if fold_plan(feature.plan) is None:
            return ()

        blob = self._branch.list_documents().get(ESTIMATE_FILE)
        texts = self._branch.read_documents({ESTIMATE_FILE: blob}) if blob else {}
        estimate = parse_estimate(texts.get(ESTIMATE_FILE, ""))
        if estimate is None or not estimate.is_small:
            return ()

        return (
            PhasesFolded(
                f"the quick scan estimates a {estimate.size} change, {estimate.risk} risk"
            ),
        )

    def _find_waived_review(self, feature: Feature) -> ReviewWaived | None:
        """Return the event that skips the review of work that was already reviewed as a package."""
        name = feature.sole_reviewed_package
        if feature.todo[0] is not Step.REVIEW or feature.phase.key != CODE_REVIEW or not name:
            return None

        head = self._branch.read_head()
        reviewed = hash_code_tree(self._project, feature.reviewed_commits[name])
        if hash_code_tree(self._project, head) != reviewed:
            return None

        return ReviewWaived(name, head)

    def _run_commands(self, feature: Feature) -> StepResult[AnyFeatureEvent]:
        """Run the commands of a phase.

        A phase without commands stops and asks for some: they may have been configured since.
        """
        phase = feature.phase
        settings = self._project.config.phases.get(phase.key)
        commands = phase.commands or (settings.commands if settings else None) or ()
        head = self._branch.read_head()
        start = find_fork_point(self._project.repository, feature.base, head)
        event, evidence = run_phase_commands(
            self._project, self._branch.slug, phase.key, start, head, commands
        )
        document = self._project.document_store.put(describe_evidence(evidence).encode())
        row = make_checks_event(make_check_entries(evidence, head, document, self._project.now()))

        return StepResult(
            events=(event,), rows=(row,), command_durations_s=sum_durations_s(evidence)
        )

    def _write_report(self, feature: Feature, context: StepContext) -> StepResult[AnyFeatureEvent]:
        """Write the document of a phase in which no agent writes one."""
        phase = feature.phase
        if phase.work is PhaseWork.PACKAGES:
            text = self._render_implementation_report(feature, context)
        else:
            text = _render_review_report(feature)

        path = f"{self._branch.folder}/{_report_file_name(feature)}"
        commit = self._branch.commit_files(
            {path: text.encode()}, f"{phase.key}: {_report_file_name(feature)}\n"
        )

        return StepResult((ReportWritten(commit),))

    def _render_implementation_report(self, feature: Feature, context: StepContext) -> str:
        rows = sorted(context.packages, key=lambda row: (len(row.id), row.id))
        values = {
            "FEATURE": self._branch.slug,
            "BRANCH": self._branch.name,
            "PACKAGES": "\n".join(_render_package_row(row, feature) for row in rows),
            "DETAILS": "\n".join(_render_package_section(row, context) for row in rows),
        }
        return render_report("implementation", values)

    def check_gate(self, feature: Feature) -> StepResult[AnyFeatureEvent]:
        """Check the gate of the phase: its documents, the plan of tasks and the reviewed commit.

        Acceptance tests that were written in this phase are proven and sealed.
        The branch must still be at the reviewed commit: another process may have moved it.
        """
        branch = self._branch
        phase = feature.phase
        head = branch.read_head()
        present = branch.find_present_documents(phase.artifacts, head)
        problems: tuple[str, ...] = ()
        checks = {}
        if TASKS_FILE in present:
            problems = check_plan(branch, head)
            checks["plan of tasks"] = not problems

        is_planning = phase.work is PhaseWork.PLANNING
        if is_planning and (wrong := describe_delta_problems(branch, head)):
            problems = (*problems, *wrong)
            checks["changes of requirements"] = False

        # Written by the REPORT step, which runs after the review.
        own_files = (
            ()
            if phase.work is PhaseWork.PLANNING
            else (f"{branch.folder}/{_report_file_name(feature)}",)
        )
        if changed_later := branch.list_changes_since(feature.evaluated_commit, head, *own_files):
            checks[REVIEWED_TREE_CHECK] = False
            problems = (
                *problems,
                f"changed on {branch.name} after its review: {format_names(changed_later)}",
            )

        rows: tuple[NewEvent, ...] = ()
        notices: tuple[str, ...] = ()
        runner = wants_acceptance(self._project, feature, head)
        if isinstance(runner, str):
            notices = (f"no acceptance tests are sealed: {runner}",)
        elif runner is not None:
            proven = prove_acceptance_tests(branch, head)
            checks["acceptance tests"] = isinstance(proven, AcceptanceSeal)
            if isinstance(proven, AcceptanceSeal):
                rows = (NewEvent(ACCEPTANCE_SEALED, msgspec.json.encode(proven)),)
            else:
                problems = (*problems, *proven)

        text = "\n".join(problems)
        results = f"{present} {checks} {dict(feature.commands)} {feature.verdict}"

        event = GateChecked(
            present, checks, text, failure_key(f"{results}\n{text}\n{feature.report}")
        )
        return StepResult((event,), rows, notices)

    # --- helpers

    def _assignment(self, feature: Feature) -> Assignment:
        return Assignment(self._branch.slug, "archive" if feature.closing else feature.phase.key)

    def checkout_options(self) -> CheckoutOptions:
        """Return the options with which a writer's checkout is created."""
        signature = self._project.make_signature()
        worktrees = self._project.worktrees_folder
        return CheckoutOptions(
            agent=signature.who,
            signature=signature,
            set_aside=(STATE_FOLDER,),
            worktrees=worktrees,
            lent=collect_lent_secrets(self._project),
        )


def _find_replies(feature: Feature, context: StepContext) -> str:
    """Return the replies to the findings, of the writer or of the last fix package."""
    if feature.phase.work is PhaseWork.PLANNING or not context.claims:
        return feature.replies
    last = context.claims[-1]
    return f"{last.package}: {last.said.summary or ''}"


def _render_package_row(row: PackageRow, feature: Feature) -> str:
    state = row.state if row.id in feature.packages else "replaced"
    tasks = decode_task_statuses(row.tasks)
    done = sum(status == "COMPLETED" for status in tasks.values())
    title = row.title.replace("|", "/")
    progress = f"{done} of {len(tasks)}" if tasks else "-"
    return f"| {row.id} | {state} | {row.round} | {progress} | {title} |"


def _render_package_section(row: PackageRow, context: StepContext) -> str:
    """Render a package's task statuses and its agents' summaries, round by round."""
    summary = _summarize_rounds([one for one in context.claims if one.package == row.id])
    tasks = "\n".join(
        f"| {name} | {status or NO_STATUS} |"
        for name, status in decode_task_statuses(row.tasks).items()
    )
    template = "implementation-package" if tasks else "implementation-package-plain"
    values = {
        "WP_ID": row.id,
        "TITLE": collapse_whitespace(row.title),
        "TASKS": tasks,
        "SUMMARY": summary.replace("<", "&lt;") or "-",
    }

    return render_report(template, values)


def _summarize_rounds(claims: Sequence[AgentClaim]) -> str:
    """Return the summary of the work, followed by what later rounds changed."""
    parts: list[str] = []
    for round_ in dict.fromkeys(claim.round for claim in claims):
        latest = select_latest_claims(claims, round_)
        text = collapse_whitespace(" ".join(one.said.summary or "" for one in latest))
        if text:
            parts.append(f"Round {round_}: {text}" if parts else text)

    return " ".join(parts)[:MAX_SUMMARY_CHARS]


def _report_file_name(feature: Feature) -> str:
    phase = feature.phase
    if phase.artifacts:
        return phase.artifacts[0]
    return f"{gate_name(phase.key).replace('GATE', 'REVIEW')}.md"


def _render_review_report(feature: Feature) -> str:
    """Render the report of the phase's review."""
    commands = (
        f"{name} {'passed' if passed else 'failed'}" for name, passed in feature.commands.items()
    )
    verdict = str(feature.verdict or "none")
    if feature.is_review_waived:
        verdict = "not needed: every check passed, and none is worse than on the base"

    return render_report(
        "review",
        {
            "GATE": gate_name(feature.phase.key),
            "PHASE": feature.phase.key,
            "ROUND": str(feature.workflow.round),
            "VERDICT": verdict,
            "COMMANDS": ", ".join(commands) or "none",
            "REPORT": feature.report,
        },
    )
