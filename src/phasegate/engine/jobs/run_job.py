"""One run of one agent: prompt, envelope, cage, trail, answer.

What it did to the files is for others to judge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from phasegate.agents.envelope import EnvelopeConfig, EnvelopePackage, RunPaths, make_envelope
from phasegate.agents.port import (
    AgentConfig,
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
from phasegate.agents.run.sign_in import lend_sign_in
from phasegate.agents.spool.requests import ArtifactWriteRequest, SpoolRequest
from phasegate.agents.spool.server import RequestSpool, SpoolAnswer, SpoolRequestHandler
from phasegate.config.acp_registry import resolve_harness_row
from phasegate.core.agents.harnesses import HARNESSES
from phasegate.core.answer.parse import parse_answer
from phasegate.core.audit.trail import PHASEGATE_ACTOR, Action, Source, TrailEvent, TrailValue
from phasegate.core.display.status import HIDDEN_CHARACTERS_PREFIX
from phasegate.core.machine.package_events import JobEndKind
from phasegate.core.prompt.hidden_characters import HiddenCharacter, quote_name
from phasegate.core.text.visible import escape_unprintable
from phasegate.engine.jobs.admission import Admission, CapReached
from phasegate.engine.jobs.assignment import (
    MAX_NAMES_SHOWN,
    JobAssignment,
    JobEnd,
    block_for_outside_changes,
    interpret_job_end,
)
from phasegate.engine.jobs.live_events import LiveTrail, update_activity
from phasegate.engine.jobs.ports_and_data import reserve_ports_and_data
from phasegate.engine.jobs.trail import JobTrail, sha256_hex
from phasegate.engine.journal.entries import ANSWER_FILE, LOG_FILES
from phasegate.engine.project.job_limits import get_sandbox_level, make_job_limits
from phasegate.engine.project.ports import TrailSink, format_timestamp
from phasegate.engine.project.project import Project
from phasegate.errors import StateConflict
from phasegate.prompts.assemble import AssembledPrompt, PromptRequest, assemble_prompt
from phasegate.sandbox.egress_proxy import ConnectionAttempt, EgressProxy
from phasegate.sandbox.job import SandboxedJob
from phasegate.sandbox.orphans import kill_tagged_processes
from phasegate.sandbox.probe import can_restrict_hosts, choose_level
from phasegate.sandbox.redact import Redactor
from phasegate.sandbox.request import JobRequest, SandboxLevel
from phasegate.storage.row_events import job_ended_event, trail_sealed_event
from phasegate.storage.rows import JobRow, NewEvent
from phasegate.workspace.agent_actions import AgentAction, list_agent_actions
from phasegate.workspace.agent_git_writer import list_object_stores
from phasegate.workspace.changes import CheckoutTooLarge, observe_checkout
from phasegate.workspace.checkout import find_checkout
from phasegate.workspace.removal import remove_tree


def run_job(
    project: Project,
    trails: TrailSink,
    assigned: JobAssignment,
    admitted: Admission,
    register_job: Callable[[SandboxedJob], None] = lambda cage: None,
) -> JobEnd:
    """Run an agent to its end.

    It can change its checkout and its spool; where no sandbox sees to it, we look.
    """
    if admitted.cap_reached is not None:
        return _end_refused_job(
            project, trails, assigned, admitted.started_row, admitted.cap_reached
        )

    folder = project.jobs_folder / assigned.job_id
    folder.mkdir(parents=True, mode=0o700)
    harness = get_harness(assigned.settings.harness)
    prompt, hidden = _write_prompt(project, assigned, harness, folder)
    task = _make_task(project, assigned, harness, prompt)
    level = choose_level(get_sandbox_level(project), needs_network=harness.launch(task).network)
    task = msgspec.structs.replace(task, sandboxed=level is not SandboxLevel.NONE)
    launch = harness.launch(task)
    trail = JobTrail(trails, assigned, project.now)
    if assigned.settings.sign_in:
        person_home = Path.home()
    else:
        person_home = None

    with (
        RequestSpool(folder / "spool") as spool,
        lend_sign_in(launch.sign_in_files, person_home, folder / "home") as sign_in,
        reserve_ports_and_data(folder, project.location.locks_folder) as own,
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

        # The checkout's own git borrows the objects of the person's repository: to be read, never
        # written.
        readable = (*request.readable, *list_object_stores(project.repository))
        writable = (*request.writable, Path(own["PHASEGATE_DATA"]))
        request = request._replace(env={**own, **request.env}, writable=writable)
        request = request._replace(
            readable=readable, stdout_log=folder / LOG_FILES[0], stderr_log=folder / LOG_FILES[1]
        )
        request, broker = _restrict_network(trail, assigned, launch, request)
        _log_start(trail, assigned, request, prompt)

        for text in hidden:
            trail.write(
                TrailEvent(
                    actor="phasegate",
                    action=Action.NOTICE,
                    source=Source.OBSERVED,
                    fields={"text": text},
                )
            )

        if level is SandboxLevel.NONE:
            watch = admitted.start_outside_monitor()
        else:
            watch = None

        live = LiveTrail(trail.agent, trail.write, project.clock.monotonic_s)
        with spool.serve_in_background(_log_artifact_writes(trail, admitted.handle_request)):
            cage = SandboxedJob(request)
            # Whoever started this may stop it from another thread
            register_job(cage)
            hear = _make_event_handler(project, assigned.job_id, live, request.secrets)
            report, finished = run_agent(
                cage, harness.make_parser(task, cage), hear, trail.log_signal
            )

    ended_at = project.now()
    live.flush_command()
    trail.log_agent_actions(
        _find_agent_actions(project, assigned), ended_at, Redactor(request.secrets).redact_text
    )
    report = redact_report(report, request.secrets)
    if broker is not None and broker.refused_hosts and report.ending is not Ending.COMPLETED:
        report = msgspec.structs.replace(
            report, remedy=_suggest_hosts(assigned, report, broker.refused_hosts)
        )

    project.activities.pop(assigned.job_id, None)
    if not folder.is_dir():
        raise StateConflict(
            f"{folder} was removed while its job ran", "run again: the job is done again"
        )

    _remove_private_folders(folder)
    (folder / ANSWER_FILE).write_text(report.answer, encoding="utf-8", errors="replace")
    ended = interpret_job_end(
        assigned=assigned,
        report=report,
        finished=finished,
        has_fallback=admitted.has_fallback,
        now_s=project.clock.time_s(),
        consecutive_limits=admitted.consecutive_limits,
    )

    ended = ended._replace(notices=hidden)
    live.note_blockers(ended.blockers)
    trail.log_end(ended, ended_at)

    if watch is not None and (changed := watch.list_changes()):
        ended = block_for_outside_changes(ended, changed)
        trail.write(
            trail.agent.build_event(Action.SCOPE_VIOLATION, Source.OBSERVED, detail=ended.reason)
        )

    return ended._replace(
        rows=(
            _make_end_row(project, admitted.started_row, ended, prompt),
            trail_sealed_event(trail.close()),
        )
    )


def _restrict_network(
    trail: JobTrail, assigned: JobAssignment, launch: Launch, request: JobRequest
) -> tuple[JobRequest, EgressProxy | None]:
    """The request with a way out to its provider only, where a network of its own can be made and
    that is known.
    """
    settings = assigned.settings
    row = resolve_harness_row(settings.harness, settings.command) or HARNESSES[settings.harness]
    outward = EgressPolicy(row, settings.hosts, launch.pass_env)
    if not launch.network or not can_restrict_hosts(request.level, outward.has_known_hosts):
        return request, None

    def note(reached: ConnectionAttempt) -> None:
        fields: dict[str, TrailValue] = {
            "host": f"{reached.host}:{reached.port}",
            "allowed": reached.allowed,
        }
        trail.write(trail.agent.build_event(Action.REACH_HOST, Source.OBSERVED, **fields))

    return add_egress_proxy(request, outward, note)


def _suggest_hosts(assigned: JobAssignment, report: AgentReport, refused: Sequence[str]) -> str:
    names = ", ".join(escape_unprintable(name) for name in refused[:MAX_NAMES_SHOWN])
    hint = f"it was not let through to {names}: if that is wanted, set `hosts` in [agents.{assigned.agent}]"
    if report.remedy:
        return f"{report.remedy}; {hint}"
    return hint


def _make_event_handler(
    project: Project, job: str, live: LiveTrail, secrets: tuple[bytes, ...]
) -> Callable[[AgentEvent], None]:
    hide = Redactor(secrets).redact_text

    def hear(event: AgentEvent) -> None:
        event = msgspec.structs.replace(event, text=hide(event.text), path=hide(event.path))
        update_activity(project.activities, job, event)
        live(event)

    return hear


def _log_artifact_writes(trail: JobTrail, answer: SpoolRequestHandler) -> SpoolRequestHandler:
    """Answer as before; what is stored goes into the trail at once."""

    def answered(request: SpoolRequest) -> SpoolAnswer:
        said = answer(request)
        if isinstance(request, ArtifactWriteRequest) and said.exit_status == 0:
            data = request.content.encode()
            fields: dict[str, TrailValue] = {
                "path": request.relative_path,
                "bytes": len(data),
                "hash": sha256_hex(data),
            }
            trail.write(trail.agent.build_event(Action.WRITE_ARTIFACT, Source.OBSERVED, **fields))

        return said

    return answered


def _find_agent_actions(project: Project, assigned: JobAssignment) -> list[AgentAction]:
    """What the agent left; nothing where that cannot be told.

    Whoever takes the work over will say why.
    """
    if assigned.own_checkout:
        found = find_checkout(project.repository, assigned.own_checkout)
    else:
        found = None

    if found is None:
        return []

    try:
        seen = observe_checkout(found, litter=assigned.scope.litter)
        if isinstance(seen, CheckoutTooLarge):
            return []
        return list_agent_actions(found, seen)
    except StateConflict:
        return []


def _end_refused_job(
    project: Project,
    trails: TrailSink,
    assigned: JobAssignment,
    started: JobRow,
    refused: CapReached,
) -> JobEnd:
    """The end of a job that a cap kept from its start. Its trail says so."""
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
    answer = parse_answer("", assigned.phase)
    nothing = FinishedRun(exit_status=None, stdout="", stderr="")

    return JobEnd(
        outcome=JobEndKind.BLOCKED,
        reason=refused.reason,
        remediation=refused.remedy,
        cleanup_required=False,
        answer=answer,
        finished=nothing,
        rows=rows,
    )


def clean_up_job(project: Project, job: str) -> None:
    """End what lives on of a job that nobody saw the end of: two agents must not work in one place.

    Its home goes too: a sign-in that was lent to it may still lie there.
    """
    kill_tagged_processes(job)
    _remove_private_folders(project.jobs_folder / job)


def read_last_seen(project: Project, row: JobRow) -> str:
    """When a job that nobody saw the end of last gave a sign: what it printed last, else its start.

    Its trail does not tell: what a dead process left unfinished there is finished by the next one.
    """
    logs = (project.jobs_folder / row.id / name for name in LOG_FILES)
    moments_s = [path.stat().st_mtime for path in logs if path.exists()]
    if moments_s:
        return max(row.started, min(format_timestamp(max(moments_s)), project.now()))

    return row.started


def make_lost_row(row: JobRow, last_seen: str) -> NewEvent:
    """The end of a job that nobody saw, as the journal knows it."""
    return job_ended_event(row._replace(ended=last_seen, outcome=str(JobEndKind.LOST)))


def _remove_private_folders(folder: Path) -> None:
    """Remove what an agent kept for itself, however much or deep that is; the logs of its job stay."""
    for own in (folder / "home", folder / "tmp", folder / "data"):
        if own.is_dir():
            remove_tree(own)


def _write_prompt(
    project: Project, assigned: JobAssignment, harness: Harness, folder: Path
) -> tuple[Path, tuple[str, ...]]:
    """The prompt, and what a person is told of characters that hide in its sources."""
    path = folder / "prompt.xml"
    hidden: tuple[HiddenCharacter, ...] = ()
    text = assigned.prepared_prompt
    if not text:
        made = _assemble_prompt(project, assigned, harness)
        text = made.prompt.to_xml()
        hidden = made.hidden

    path.write_text(text, encoding="utf-8")
    project.document_store.put(text.encode())

    return path, _describe_hidden_characters(hidden)


def _describe_hidden_characters(hidden: Sequence[HiddenCharacter]) -> tuple[str, ...]:
    if not hidden:
        return ()

    places = ", ".join(
        dict.fromkeys(f"{quote_name(one.item)}:{one.line}" for one in hidden[:MAX_NAMES_SHOWN])
    )
    if len(hidden) > MAX_NAMES_SHOWN:
        more = f" and {len(hidden) - MAX_NAMES_SHOWN} more"
    else:
        more = ""

    return (
        f"{HIDDEN_CHARACTERS_PREFIX} were shown to the agent as escapes; look at them: {places}{more}",
    )


def _assemble_prompt(
    project: Project, assigned: JobAssignment, harness: Harness
) -> AssembledPrompt:
    template = assigned.settings.template or harness.row.template
    paths = project.config.paths
    request = PromptRequest(
        agent=template,
        phase=assigned.phase,
        instructions=assigned.instructions,
        root=project.root,
        paths=assigned.paths,
        output_documents=assigned.documents_to_write,
        configured_agents=(template,),
        project_file=paths.project,
        templates_folder=paths.templates,
    )
    return assemble_prompt(request, assigned.pieces)


def _make_task(
    project: Project, assigned: JobAssignment, harness: Harness, prompt: Path
) -> AgentTask:
    package = assigned.package
    settings = assigned.settings
    document = assigned.package_document or prompt
    places = RunPaths(
        repository=project.root,
        worktrees=project.worktrees_folder,
        checkout=assigned.checkout,
        prompt=document,
        context=assigned.context_documents,
    )

    config = EnvelopeConfig(
        kind=harness.row.kind,
        timeout_secs=int(settings.timeout_s),
        pr_target_branch=f"feat/{assigned.feature}",
        num_agents=assigned.share.agent_count if assigned.share else 1,
        max_review_cycles=assigned.max_rounds,
    )

    if package:
        of_package = EnvelopePackage(package.work_package_id, package.sequence)
    else:
        of_package = None

    envelope = make_envelope(
        job_id=assigned.job_id,
        feature_slug=assigned.feature,
        paths=places,
        config=config,
        package=of_package,
        share=assigned.share,
        role=assigned.phase,
    )

    agent = AgentConfig(
        name=assigned.agent,
        command=settings.command,
        env=settings.env,
        scenario=settings.scenario or "",
        model=settings.model or "",
        first_output_timeout_s=settings.first_sign_s,
        mcp_tools=settings.mcp_tools,
    )

    return AgentTask(
        envelope=envelope,
        agent=agent,
        repository=project.root,
        checkout=assigned.checkout,
        prompt_xml=prompt,
        phase=assigned.phase,
        workflow_phase=assigned.workflow_phase,
        round=assigned.round,
        scope=assigned.scope,
    )


def _log_start(trail: JobTrail, assigned: JobAssignment, request: JobRequest, prompt: Path) -> None:
    """What was done for it, that it starts, why again, and what it is given."""
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

    trail.write(msgspec.structs.replace(started, agent=assigned.agent))

    if assigned.retry_reason:
        fields: dict[str, TrailValue] = {
            "attempt": assigned.retries + 1,
            "reason": assigned.retry_reason,
        }
        trail.write(PHASEGATE_ACTOR.build_event(Action.RETRY, Source.OBSERVED, **fields))

    trail.log_documents(assigned.pieces)


def _make_end_row(project: Project, started: JobRow, ended: JobEnd, prompt: Path) -> NewEvent:
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
        retry_at_s=(ended.retry_at_s or 0.0) if ended.outcome is JobEndKind.RATE_LIMITED else 0.0,
        logs="\n".join(str(prompt.with_name(name)) for name in LOG_FILES),
    )
    return job_ended_event(row)
