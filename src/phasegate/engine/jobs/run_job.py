"""One run of one agent: prompt, envelope, cage, trail, answer. What it did to the files is for others to judge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from phasegate.agents.envelope import EnvelopeConfig, EnvelopePackage, RunPlaces, make_envelope
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
    harness_of,
)
from phasegate.agents.run.proxy import Outward, with_way_out
from phasegate.agents.run.sandboxed import job_request, run_agent, without_secrets
from phasegate.agents.run.sign_in import lent
from phasegate.agents.spool.requests import ArtifactWrite, SpoolRequest
from phasegate.agents.spool.server import Answerer, RequestSpool, SpoolAnswer
from phasegate.config.acp_registry import row_of
from phasegate.core.agents.harnesses import ROWS
from phasegate.core.answer.parse import parse_answer
from phasegate.core.audit.trail import US, Action, Done, Source, Value
from phasegate.core.display.status import HIDDEN_TOLD
from phasegate.core.machine.package_events import End
from phasegate.core.prompt.hidden_characters import Hidden, shown_name
from phasegate.core.text.visible import visible
from phasegate.engine.jobs.admission import Admitted, CapReached
from phasegate.engine.jobs.assignment import MOST_NAMED, Assigned, Ended, judged, strayed
from phasegate.engine.jobs.live_events import LiveTrail, shown_live
from phasegate.engine.jobs.ports_and_data import own_surroundings
from phasegate.engine.jobs.trail import JobTrail, digest
from phasegate.engine.journal.entries import ANSWER, LOGS
from phasegate.engine.project.job_limits import job_limits, wanted_level
from phasegate.engine.project.ports import TrailSink, stamp
from phasegate.engine.project.project import Project
from phasegate.errors import StateConflict
from phasegate.prompts.assemble import Assembled, PromptRequest, assemble
from phasegate.sandbox.egress_proxy import Broker, Reached
from phasegate.sandbox.job import CagedJob
from phasegate.sandbox.orphans import end_tagged
from phasegate.sandbox.probe import bounds_hosts, choose
from phasegate.sandbox.redact import Redactor
from phasegate.sandbox.request import Level, Request
from phasegate.storage.row_events import job_ended, trail_sealed
from phasegate.storage.rows import Event, Job
from phasegate.workspace.agent_actions import Deed, deeds_in
from phasegate.workspace.agent_git_writer import object_stores
from phasegate.workspace.changes import TooMuch, observe
from phasegate.workspace.checkout import find_checkout
from phasegate.workspace.removal import remove_tree


def run_job(
    project: Project,
    trails: TrailSink,
    assigned: Assigned,
    admitted: Admitted,
    announce: Callable[[CagedJob], None] = lambda cage: None,
) -> Ended:
    """Run an agent to its end. It can change its checkout and its spool; where no sandbox sees to it, we look."""
    if admitted.refused is not None:
        return _not_started(project, trails, assigned, admitted.row, admitted.refused)
    folder = project.jobs / assigned.job
    folder.mkdir(parents=True, mode=0o700)
    harness = harness_of(assigned.settings.harness)
    prompt, hidden = _write_prompt(project, assigned, harness, folder)
    task = _task(project, assigned, harness, prompt)
    level = choose(wanted_level(project), needs_network=harness.launch(task).network)
    task = msgspec.structs.replace(task, caged=level is not Level.NONE)
    launch = harness.launch(task)
    trail = JobTrail(trails, assigned, project.now)
    person_home = Path.home() if assigned.settings.sign_in else None
    with (
        RequestSpool(folder / "spool") as spool,
        lent(launch.sign_in_files, person_home, folder / "home") as sign_in,
        own_surroundings(folder, project.location.locks) as own,
    ):
        request = job_request(
            task,
            launch,
            folder,
            spool,
            tag=assigned.job,
            level=level,
            timeout_s=assigned.settings.timeout_s,
            sign_in=sign_in,
            tools=assigned.programs,
            limits=job_limits(project),
        )
        # The checkout's own git borrows the objects of the person's repository: to be read, never written.
        readable = (*request.readable, *object_stores(project.repository))
        writable = (*request.writable, Path(own["PHASEGATE_DATA"]))
        request = request._replace(env={**own, **request.env}, writable=writable)
        request = request._replace(readable=readable, stdout_log=folder / LOGS[0], stderr_log=folder / LOGS[1])
        request, broker = _bounded(trail, assigned, launch, request)
        _note_start(trail, assigned, request, prompt)
        for text in hidden:
            trail.write(Done("phasegate", Action.NOTICE, Source.OBSERVED, {"text": text}))
        watch = admitted.look_outside() if level is Level.NONE else None
        live = LiveTrail(trail.agent, trail.write, project.clock.monotonic_s)
        with spool.serving(_noting_artifacts(trail, admitted.answer)):
            cage = CagedJob(request)
            announce(cage)  # whoever started this may stop it from another thread
            hear = _listener(project, assigned.job, live, request.secrets)
            report, finished = run_agent(cage, harness.reading(task, cage), hear, trail.signal)
    ended_at = project.now()
    live.end_command()
    trail.deeds(_deeds(project, assigned), ended_at, Redactor(request.secrets).whole)
    report = without_secrets(report, request.secrets)
    if broker is not None and broker.refused and report.ending is not Ending.COMPLETED:
        report = msgspec.structs.replace(report, remedy=_refused_hosts(assigned, report, broker.refused))
    project.activities.pop(assigned.job, None)
    if not folder.is_dir():
        raise StateConflict(f"{folder} was removed while its job ran", "run again: the job is done again")
    _empty(folder)
    (folder / ANSWER).write_text(report.answer, encoding="utf-8", errors="replace")
    ended = judged(assigned, report, finished, admitted.has_a_stand_in, project.clock.time_s(), admitted.limits_before)
    ended = ended._replace(notices=hidden)
    live.block(ended.blockers)
    trail.end(ended, ended_at)
    if watch is not None and (changed := watch.changes()):
        ended = strayed(ended, changed)
        trail.write(trail.agent.did(Action.SCOPE_VIOLATION, Source.OBSERVED, detail=ended.reason))
    return ended._replace(rows=(_ended_row(project, admitted.row, ended, prompt), trail_sealed(trail.close())))


def _bounded(trail: JobTrail, assigned: Assigned, launch: Launch, request: Request) -> tuple[Request, Broker | None]:
    """The request with a way out to its provider only, where a network of its own can be made and that is known."""
    settings = assigned.settings
    row = row_of(settings.harness, settings.command) or ROWS[settings.harness]
    outward = Outward(row, settings.hosts, launch.pass_env)
    if not launch.network or not bounds_hosts(request.level, outward.is_bounded):
        return request, None

    def note(reached: Reached) -> None:
        fields: dict[str, Value] = {"host": f"{reached.host}:{reached.port}", "allowed": reached.allowed}
        trail.write(trail.agent.did(Action.REACH_HOST, Source.OBSERVED, **fields))

    return with_way_out(request, outward, note)


def _refused_hosts(assigned: Assigned, report: AgentReport, refused: Sequence[str]) -> str:
    names = ", ".join(visible(name) for name in refused[:MOST_NAMED])
    hint = f"it was not let through to {names}: if that is wanted, set `hosts` in [agents.{assigned.agent}]"
    return f"{report.remedy}; {hint}" if report.remedy else hint


def _listener(project: Project, job: str, live: LiveTrail, secrets: tuple[bytes, ...]) -> Callable[[AgentEvent], None]:
    hide = Redactor(secrets).whole

    def hear(event: AgentEvent) -> None:
        event = msgspec.structs.replace(event, text=hide(event.text), path=hide(event.path))
        shown_live(project.activities, job, event)
        live(event)

    return hear


def _noting_artifacts(trail: JobTrail, answer: Answerer) -> Answerer:
    """Answer as before; what is stored goes into the trail at once."""

    def answered(request: SpoolRequest) -> SpoolAnswer:
        said = answer(request)
        if isinstance(request, ArtifactWrite) and said.exit_status == 0:
            data = request.content.encode()
            fields: dict[str, Value] = {"path": request.relative_path, "bytes": len(data), "hash": digest(data)}
            trail.write(trail.agent.did(Action.WRITE_ARTIFACT, Source.OBSERVED, **fields))
        return said

    return answered


def _deeds(project: Project, assigned: Assigned) -> list[Deed]:
    """What the agent left; nothing where that cannot be told: whoever takes the work over will say why."""
    found = find_checkout(project.repository, assigned.own) if assigned.own else None
    if found is None:
        return []
    try:
        seen = observe(found, litter=assigned.scope.litter)
        return [] if isinstance(seen, TooMuch) else deeds_in(found, seen)
    except StateConflict:
        return []


def _not_started(project: Project, trails: TrailSink, assigned: Assigned, started: Job, refused: CapReached) -> Ended:
    """The end of a job that a cap kept from its start. Its trail says so."""
    trail = JobTrail(trails, assigned, project.now)
    trail.write(US.did(Action.NOTICE, Source.OBSERVED, text=f"not started: {refused.reason}"))
    rows = (
        job_ended(started._replace(ended=project.now(), outcome=str(End.BLOCKED))),
        trail_sealed(trail.close()),
    )
    answer, nothing = parse_answer("", assigned.phase), FinishedRun(None, "", "")
    return Ended(End.BLOCKED, refused.reason, refused.remedy, False, answer, nothing, rows)


def clear_away(project: Project, job: str) -> None:
    """End what lives on of a job that nobody saw the end of: two agents must not work in one place.

    Its home goes too: a sign-in that was lent to it may still lie there.
    """
    end_tagged(job)
    _empty(project.jobs / job)


def last_seen(project: Project, row: Job) -> str:
    """When a job that nobody saw the end of last gave a sign: what it printed last, else its start.

    Its trail does not tell: what a dead process left unfinished there is finished by the next one.
    """
    logs = (project.jobs / row.id / name for name in LOGS)
    moments_s = [path.stat().st_mtime for path in logs if path.exists()]
    return max(row.started, min(stamp(max(moments_s)), project.now())) if moments_s else row.started


def lost_row(row: Job, last_seen: str) -> Event:
    """The end of a job that nobody saw, as the journal knows it."""
    return job_ended(row._replace(ended=last_seen, outcome=str(End.LOST)))


def _empty(folder: Path) -> None:
    """Remove what an agent kept for itself, however much or deep that is; the logs of its job stay."""
    for own in (folder / "home", folder / "tmp", folder / "data"):
        if own.is_dir():
            remove_tree(own)


def _write_prompt(project: Project, assigned: Assigned, harness: Harness, folder: Path) -> tuple[Path, tuple[str, ...]]:
    """The prompt, and what a person is told of characters that hide in its sources."""
    path = folder / "prompt.xml"
    hidden: tuple[Hidden, ...] = ()
    text = assigned.prompt
    if not text:
        made = _assembled(project, assigned, harness)
        text, hidden = made.prompt.to_xml(), made.hidden
    path.write_text(text, encoding="utf-8")
    project.papers.put(text.encode())
    return path, _told_of_hidden(hidden)


def _told_of_hidden(hidden: Sequence[Hidden]) -> tuple[str, ...]:
    if not hidden:
        return ()
    places = ", ".join(dict.fromkeys(f"{shown_name(one.item)}:{one.line}" for one in hidden[:MOST_NAMED]))
    more = f" and {len(hidden) - MOST_NAMED} more" if len(hidden) > MOST_NAMED else ""
    return (f"{HIDDEN_TOLD} were shown to the agent as escapes; look at them: {places}{more}",)


def _assembled(project: Project, assigned: Assigned, harness: Harness) -> Assembled:
    template = assigned.settings.template or harness.row.template
    paths = project.config.paths
    request = PromptRequest(
        template,
        assigned.phase,
        assigned.instructions,
        project.root,
        assigned.paths,
        assigned.documents,
        configured=(template,),
        project_file=paths.project,
        templates=paths.templates,
    )
    return assemble(request, assigned.pieces)


def _task(project: Project, assigned: Assigned, harness: Harness, prompt: Path) -> AgentTask:
    package, settings = assigned.work, assigned.settings
    document = assigned.document or prompt
    places = RunPlaces(project.root, project.worktrees, assigned.checkout, document, assigned.context)
    config = EnvelopeConfig(
        harness.row.kind,
        int(settings.timeout_s),
        f"feat/{assigned.feature}",
        assigned.share.agent_count if assigned.share else 1,
        assigned.rounds,
    )
    of_package = EnvelopePackage(package.work_package_id, package.sequence) if package else None
    envelope = make_envelope(assigned.job, assigned.feature, places, config, of_package, assigned.share, assigned.phase)
    agent = AgentConfig(
        assigned.agent,
        settings.command,
        settings.env,
        settings.scenario or "",
        settings.model or "",
        settings.first_sign_s,
        settings.mcp_tools,
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


def _note_start(trail: JobTrail, assigned: Assigned, request: Request, prompt: Path) -> None:
    """What was done for it, that it starts, why again, and what it is given."""
    trail.write_all(assigned.before)
    started = US.did(
        Action.START,
        Source.OBSERVED,
        harness=assigned.settings.harness,
        cwd=str(request.cwd),
        argv=list(request.argv),
        env=sorted(request.env),
        level=str(request.level),
        timeout_s=request.timeout_s,
        prompt_sha256=digest(prompt.read_bytes()),
    )
    trail.write(msgspec.structs.replace(started, agent=assigned.agent))
    if assigned.why_again:
        fields: dict[str, Value] = {"attempt": assigned.retries + 1, "reason": assigned.why_again}
        trail.write(US.did(Action.RETRY, Source.OBSERVED, **fields))
    trail.hand_over(assigned.pieces)


def _ended_row(project: Project, started: Job, ended: Ended, prompt: Path) -> Event:
    usage = ended.usage or Usage()
    row = started._replace(
        ended=project.now(),
        outcome=str(ended.end),
        prompt_hash=digest(prompt.read_bytes()),
        output_hash=digest(ended.finished.stdout.encode()),
        tokens=usage.input_tokens + usage.output_tokens,
        input_tokens=usage.input_tokens,
        cached_tokens=usage.cached_input_tokens,
        output_tokens=usage.output_tokens,
        cost_usd=usage.cost_usd or 0.0,
        retry_at_s=(ended.retry_at_s or 0.0) if ended.end is End.LIMITED else 0.0,
        logs="\n".join(str(prompt.with_name(name)) for name in LOGS),
    )
    return job_ended(row)
