"""Run one agent job: write its prompt, start it in a sandbox, log its trail, interpret its end.

Changes to the files of the checkout are evaluated elsewhere (`engine/steps`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from phasegate.agents.port import (
    AgentEvent,
    AgentReport,
    AgentTask,
    Ending,
    FinishedRun,
    Harness,
    Launch,
    Usage,
    get_harness,
)
from phasegate.agents.run.proxy import EgressPolicy, add_egress_proxy
from phasegate.agents.run.sandboxed import build_job_request, redact_report, run_agent
from phasegate.agents.run.sign_in_files import share_sign_in
from phasegate.agents.spool.requests import ArtifactWriteRequest, SpoolRequest, describe_request
from phasegate.agents.spool.server import RequestSpool, SpoolAnswer, SpoolRequestHandler
from phasegate.config.acp_registry import resolve_harness_row
from phasegate.core.agents.harnesses import HARNESSES
from phasegate.core.answer.parse import parse_answer
from phasegate.core.audit.trail import PHASEGATE_ACTOR, Action, Source
from phasegate.core.machine.package_events import JobEndKind
from phasegate.core.text.visible import escape_unprintable
from phasegate.engine.jobs.admission import Admission, CapReached, OutsideMonitor
from phasegate.engine.jobs.assignment import MAX_NAMES_SHOWN, JobAssignment
from phasegate.engine.jobs.job_end import JobEnd, block_for_outside_changes, interpret_job_end
from phasegate.engine.jobs.job_task import WrittenPrompt, make_task, write_prompt
from phasegate.engine.jobs.live_events import MAX_TEXT_CHARS, LiveTrail, update_activity
from phasegate.engine.jobs.lost_jobs import remove_private_folders
from phasegate.engine.jobs.network_ports import reserve_ports_and_data
from phasegate.engine.jobs.trail import JobTrail, sha256_hex
from phasegate.engine.journal.entries import ANSWER_FILE, LOG_FILES, JobPrompted, encode_prompted
from phasegate.engine.project.ports import TrailSink
from phasegate.engine.project.project import Project
from phasegate.engine.project.resource_limits import get_sandbox_level, make_job_limits
from phasegate.errors import StateConflict
from phasegate.sandbox.egress_proxy import ConnectionAttempt, EgressProxy
from phasegate.sandbox.job import SandboxedJob
from phasegate.sandbox.probe import can_restrict_hosts, choose_level
from phasegate.sandbox.redact import Redactor
from phasegate.sandbox.request import JobRequest, SandboxLevel
from phasegate.storage.row_events import job_ended_event, trail_sealed_event
from phasegate.storage.rows import JobRow, NewEvent
from phasegate.workspace.changes.agent_actions import AgentAction, list_agent_actions
from phasegate.workspace.changes.changes import CheckoutTooLarge, observe_checkout
from phasegate.workspace.checkout.checkout import find_checkout
from phasegate.workspace.checkout.visible_objects import get_visible_objects_folder


class _PreparedJob(NamedTuple):
    """A job that is ready to start."""

    assigned: JobAssignment
    admitted: Admission
    folder: Path
    harness: Harness
    task: AgentTask
    request: JobRequest
    spool: RequestSpool
    # None if the network is not restricted to the hosts of the provider
    proxy: EgressProxy | None
    # None in a sandbox: it prevents changes outside of the checkout
    outside_monitor: OutsideMonitor | None
    prompt: WrittenPrompt
    trail: JobTrail
    live: LiveTrail
    # What an earlier job left in the same checkout, without being harvested
    earlier_actions: frozenset[AgentAction]


def run_job(
    project: Project,
    trails: TrailSink,
    assigned: JobAssignment,
    admitted: Admission,
    register_job: Callable[[SandboxedJob], None] = lambda job: None,
) -> JobEnd:
    """Run an agent until it ends, and return the interpreted end.

    The agent can write to its checkout and to its request spool only. Without a sandbox, changes
    elsewhere in the repository are detected afterwards.
    """
    if admitted.cap_reached is not None:
        return _end_refused_job(
            project, trails, assigned, admitted.started_row, admitted.cap_reached
        )

    with _prepare_job(project, trails, assigned, admitted) as job:
        report, finished = _run_agent(project, job, register_job)

    ended_at = project.now()
    report = _complete_report(job, report)
    end = interpret_job_end(
        assigned=assigned,
        report=report,
        finished=finished,
        has_fallback=admitted.has_fallback,
        now_s=project.clock.time_s(),
        consecutive_limits=admitted.consecutive_limits,
    )

    return _finish_job(project, job, report.answer, end, ended_at)


@contextmanager
def _prepare_job(
    project: Project, trails: TrailSink, assigned: JobAssignment, admitted: Admission
) -> Iterator[_PreparedJob]:
    """Write the prompt, build the sandbox request and log the start.

    The request spool, the shared sign-in and the reserved ports exist while the context is open.
    """
    folder = project.jobs_folder / assigned.job_id
    folder.mkdir(parents=True, mode=0o700)
    harness = get_harness(assigned.settings.harness)
    prompt = write_prompt(project, assigned, harness, folder)
    task = make_task(project, assigned, harness, prompt.path)
    level = choose_level(get_sandbox_level(project), needs_network=harness.launch(task).network)
    task = replace(task, sandboxed=level is not SandboxLevel.NONE)
    launch = harness.launch(task)
    trail = JobTrail(trails, assigned, project.now)
    user_home = Path.home() if assigned.settings.share_sign_in else None

    with (
        RequestSpool(folder / "spool") as spool,
        share_sign_in(launch.sign_in_files, user_home, folder / "home") as sign_in,
        reserve_ports_and_data(folder, project.location.locks_folder) as variables,
    ):
        request = build_job_request(
            task,
            launch,
            folder,
            spool,
            tag=assigned.job_id,
            level=level,
            timeout_s=assigned.settings.timeout_s,
            sign_in=sign_in,
            tools=assigned.setup_programs,
            limits=make_job_limits(project),
        )
        request = request._replace(
            env={**variables, **request.env},
            writable=(*request.writable, Path(variables["PHASEGATE_DATA"])),
            # The git repository of the checkout uses these objects (alternates): readable, never
            # writable.
            readable=(*request.readable, get_visible_objects_folder(project.repository)),
            stdout_log=folder / LOG_FILES[0],
            stderr_log=folder / LOG_FILES[1],
        )
        request, proxy = _restrict_network(trail, assigned, launch, request)
        _log_start(trail, assigned, request, prompt.path)
        for text in prompt.notices:
            trail.write(PHASEGATE_ACTOR.build_event(Action.NOTICE, Source.OBSERVED, text=text))

        yield _PreparedJob(
            assigned=assigned,
            admitted=admitted,
            folder=folder,
            harness=harness,
            task=task,
            request=request,
            spool=spool,
            proxy=proxy,
            outside_monitor=(
                admitted.start_outside_monitor() if level is SandboxLevel.NONE else None
            ),
            prompt=prompt,
            trail=trail,
            live=LiveTrail(trail.agent, trail.write, project.clock.monotonic_s),
            earlier_actions=frozenset(
                map(_without_time, _find_agent_actions(project, assigned))
                if assigned.attempt
                else ()
            ),
        )


def _run_agent(
    project: Project, job: _PreparedJob, register_job: Callable[[SandboxedJob], None]
) -> tuple[AgentReport, FinishedRun]:
    """Run the agent in its sandbox; answer its requests and log its events while it runs."""
    handle_request = _log_requests(job.trail, job.admitted.handle_request)
    on_event = _make_event_handler(project, job)

    with job.spool.serve_in_background(handle_request):
        sandboxed = SandboxedJob(job.request)
        # Lets another thread stop the job
        register_job(sandboxed)
        parser = job.harness.make_parser(job.task, sandboxed)
        return run_agent(sandboxed, parser, on_event, job.trail.log_signal)


def _complete_report(job: _PreparedJob, report: AgentReport) -> AgentReport:
    """Redact secrets, and add the hosts that the proxy refused to the remedy of a failed run."""
    report = redact_report(report, job.request.secrets)
    if job.proxy is None or not job.proxy.refused_hosts or report.ending is Ending.COMPLETED:
        return report

    remedy = _suggest_hosts(job.assigned, report, job.proxy.refused_hosts)
    return replace(report, remedy=remedy)


def _finish_job(
    project: Project, job: _PreparedJob, answer: str, end: JobEnd, ended_at: str
) -> JobEnd:
    """Complete the trail, remove the agent's private folders and build the journal rows."""
    trail = job.trail
    job.live.flush_command()
    trail.log_agent_actions(
        [
            action
            for action in _find_agent_actions(project, job.assigned)
            if _without_time(action) not in job.earlier_actions
        ],
        ended_at,
        Redactor(job.request.secrets).redact_text,
    )

    project.activities.pop(job.assigned.job_id, None)
    if not job.folder.is_dir():
        raise StateConflict(
            f"{job.folder} was removed while its job ran", "run again: the job is repeated"
        )

    remove_private_folders(job.folder)
    (job.folder / ANSWER_FILE).write_text(answer, encoding="utf-8", errors="replace")

    end = end._replace(notices=job.prompt.notices)
    job.live.note_blockers(end.blockers)
    trail.log_end(end, ended_at)

    outside_changes = job.outside_monitor.list_changes() if job.outside_monitor else []
    if outside_changes:
        end = block_for_outside_changes(end, outside_changes)
        trail.write(
            trail.agent.build_event(Action.SCOPE_VIOLATION, Source.OBSERVED, detail=end.reason)
        )

    end_row = _make_end_row(project, job.admitted.started_row, end, job.prompt.path)
    prompted = encode_prompted(JobPrompted(job.assigned.job_id, job.prompt.template_sha256))
    return end._replace(rows=(end_row, prompted, trail_sealed_event(trail.close())))


def _restrict_network(
    trail: JobTrail, assigned: JobAssignment, launch: Launch, request: JobRequest
) -> tuple[JobRequest, EgressProxy | None]:
    """Add an egress proxy that allows only the hosts of the provider.

    If they are unknown, it allows every host but this machine. The request is returned unchanged if
    the sandbox level cannot isolate the network, or if the user opened it.
    """
    settings = assigned.settings
    row = resolve_harness_row(settings.harness, settings.command) or HARNESSES[settings.harness]
    policy = EgressPolicy(row, settings.allowed_hosts, launch.pass_env)
    if not launch.network or not can_restrict_hosts(request.level, not policy.allows_everything):
        return request, None

    def log_attempt(attempt: ConnectionAttempt) -> None:
        trail.write(
            trail.agent.build_event(
                Action.REACH_HOST,
                Source.OBSERVED,
                host=f"{attempt.host}:{attempt.port}",
                allowed=attempt.allowed,
            )
        )

    return add_egress_proxy(request, policy, log_attempt)


def _suggest_hosts(assigned: JobAssignment, report: AgentReport, refused: Sequence[str]) -> str:
    names = ", ".join(escape_unprintable(name) for name in refused[:MAX_NAMES_SHOWN])
    hint = (
        f"connections to {names} were refused; to allow them, set `allowed_hosts` in "
        f"[agents.{assigned.agent}]"
    )
    if report.remedy:
        return f"{report.remedy}; {hint}"
    return hint


def _make_event_handler(project: Project, job: _PreparedJob) -> Callable[[AgentEvent], None]:
    redact = Redactor(job.request.secrets).redact_text

    def on_event(event: AgentEvent) -> None:
        event = replace(event, text=redact(event.text), path=redact(event.path))
        update_activity(project.activities, job.assigned.job_id, event)
        job.live(event)

    return on_event


def _without_time(action: AgentAction) -> AgentAction:
    return action._replace(at_s=0.0)


def _log_requests(trail: JobTrail, handler: SpoolRequestHandler) -> SpoolRequestHandler:
    """Wrap a request handler so that every request of the agent is logged in the trail at once."""

    def handle_and_log(request: SpoolRequest) -> SpoolAnswer:
        """Answer a request and write an artifact or command to the trail."""
        answer = handler(request)
        if isinstance(request, ArtifactWriteRequest) and answer.exit_status == 0:
            data = request.content.encode()
            trail.write(
                trail.agent.build_event(
                    Action.WRITE_ARTIFACT,
                    Source.OBSERVED,
                    path=request.relative_path,
                    bytes=len(data),
                    hash=sha256_hex(data),
                )
            )
        elif command := describe_request(request, answer.exit_status):
            trail.write(
                trail.agent.build_event(
                    Action.RUN_COMMAND,
                    Source.OBSERVED,
                    command=command[:MAX_TEXT_CHARS],
                    exit_code=answer.exit_status,
                )
            )

        return answer

    return handle_and_log


def _find_agent_actions(project: Project, assigned: JobAssignment) -> list[AgentAction]:
    """List the commits and file changes in the agent's checkout.

    Empty if the checkout cannot be read: the step that harvests the work reports the reason.
    """
    if assigned.own_checkout is None:
        return []

    checkout = find_checkout(project.repository, assigned.own_checkout)
    if checkout is None:
        return []

    try:
        observed = observe_checkout(checkout, litter=assigned.scope.litter)
        if isinstance(observed, CheckoutTooLarge):
            return []
        return list_agent_actions(checkout, observed)
    except StateConflict:
        return []


def _end_refused_job(
    project: Project,
    trails: TrailSink,
    assigned: JobAssignment,
    started: JobRow,
    refused: CapReached,
) -> JobEnd:
    """Close a job that a spending cap prevented from starting, with a note in its trail."""
    trail = JobTrail(trails, assigned, project.now)
    trail.write(
        PHASEGATE_ACTOR.build_event(
            Action.NOTICE, Source.OBSERVED, text=f"not started: {refused.reason}"
        )
    )
    rows = (
        job_ended_event(started._replace(ended=project.now(), outcome=str(JobEndKind.BLOCKED))),
        trail_sealed_event(trail.close()),
    )

    return JobEnd(
        outcome=JobEndKind.BLOCKED,
        reason=refused.reason,
        remediation=refused.remedy,
        answer=parse_answer("", assigned.role),
        finished=FinishedRun(exit_status=None, stdout="", stderr=""),
        rows=rows,
    )


def _log_start(trail: JobTrail, assigned: JobAssignment, request: JobRequest, prompt: Path) -> None:
    """Log the preparation, the start, the reason for a retry and the documents of a job."""
    trail.write_all(assigned.entries_before_start)
    started = PHASEGATE_ACTOR.build_event(
        Action.START,
        Source.OBSERVED,
        harness=assigned.settings.harness,
        cwd=str(request.cwd),
        argv=list(request.argv),
        env=sorted(request.env),
        level=str(request.level),
        timeout_s=request.timeout_s,
        prompt_sha256=sha256_hex(prompt.read_bytes()),
    )

    trail.write(replace(started, agent=assigned.agent))

    if assigned.retry_reason:
        trail.write(
            PHASEGATE_ACTOR.build_event(
                Action.RETRY,
                Source.OBSERVED,
                attempt=max(assigned.attempt, 1),
                reason=assigned.retry_reason,
            )
        )

    trail.log_documents(assigned.pieces)


def _make_end_row(project: Project, started: JobRow, ended: JobEnd, prompt: Path) -> NewEvent:
    """Create the event that records the end of a job."""
    usage = ended.usage or Usage()
    row = started._replace(
        ended=project.now(),
        outcome=str(ended.outcome),
        prompt_hash=sha256_hex(prompt.read_bytes()),
        output_hash=sha256_hex(ended.finished.stdout.encode()),
        tokens=usage.input_tokens + usage.output_tokens,
        input_tokens=usage.input_tokens,
        cached_tokens=usage.cached_input_tokens,
        output_tokens=usage.output_tokens,
        cost_usd=usage.cost_usd or 0.0,
        retry_at_s=ended.retry_at_s,
        logs="\n".join(str(prompt.with_name(name)) for name in LOG_FILES),
    )
    return job_ended_event(row)
