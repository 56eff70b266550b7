"""Write the prompt of a job, and build the task that its agent program is started with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from phasegate.agents.envelope import EnvelopeConfig, EnvelopePackage, RunPaths, make_envelope
from phasegate.agents.port import AgentConfig, AgentTask, Harness
from phasegate.core.display.status import HIDDEN_CHARACTERS_PREFIX
from phasegate.core.prompt.hidden_characters import HiddenCharacter, quote_name
from phasegate.core.text.wording import join_names
from phasegate.engine.jobs.assignment import MAX_NAMES_SHOWN, JobAssignment
from phasegate.engine.project.project import Project
from phasegate.engine.project.settings import choose_prompt_files
from phasegate.prompts.assemble import AssembledPrompt, PromptRequest, assemble_prompt
from phasegate.prompts.shipped_texts import load_role_needs


class WrittenPrompt(NamedTuple):
    """The prompt of a job, as a file."""

    path: Path
    # Warnings about hidden characters in its sources
    notices: tuple[str, ...]
    # Hash of the system prompt template, before it was filled
    template_sha256: str


def write_prompt(
    project: Project, assigned: JobAssignment, harness: Harness, folder: Path
) -> WrittenPrompt:
    """Write the prompt of a job to its folder."""
    path = folder / "prompt.xml"
    hidden: tuple[HiddenCharacter, ...] = ()
    template_sha256 = ""
    text = assigned.prepared_prompt
    if not text:
        assembled = _assemble_prompt(project, assigned, harness)
        text = assembled.prompt.to_xml()
        hidden = assembled.hidden
        template_sha256 = assembled.template_sha256

    path.write_text(text, encoding="utf-8")
    project.document_store.put(text.encode())

    return WrittenPrompt(path, _describe_hidden_characters(hidden), template_sha256)


def _describe_hidden_characters(hidden: Sequence[HiddenCharacter]) -> tuple[str, ...]:
    if not hidden:
        return ()

    places = list(dict.fromkeys(f"{quote_name(one.item)}:{one.line}" for one in hidden))
    named = join_names(places, MAX_NAMES_SHOWN)
    return (f"{HIDDEN_CHARACTERS_PREFIX} were escaped in the prompt; check them: {named}",)


def _assemble_prompt(
    project: Project, assigned: JobAssignment, harness: Harness
) -> AssembledPrompt:
    """Assemble the prompt of a job from its template and context."""
    template = assigned.settings.template or harness.row.template
    project_file, templates = choose_prompt_files(project.config, project.trust, project.root)
    request = PromptRequest(
        agent=template,
        phase=assigned.role,
        instructions=assigned.instructions,
        root=project.root,
        paths=assigned.paths,
        output_documents=assigned.new_documents,
        configured_agents=(template,),
        project_file=project_file,
        templates_folder=templates,
        focus=assigned.focus,
        need=load_role_needs().find(assigned.role, assigned.phase),
    )
    return assemble_prompt(request, assigned.pieces)


def make_task(
    project: Project, assigned: JobAssignment, harness: Harness, prompt: Path
) -> AgentTask:
    """Build the AgentTask of a job from its envelope, agent settings and checkout."""
    package = assigned.package
    settings = assigned.settings
    document = assigned.package_document or prompt
    run_paths = RunPaths(
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

    envelope_package = None
    if package:
        envelope_package = EnvelopePackage(package.work_package_id, package.sequence)

    envelope = make_envelope(
        job_id=assigned.job_id,
        feature_slug=assigned.feature,
        paths=run_paths,
        config=config,
        package=envelope_package,
        share=assigned.share,
        role=assigned.role,
    )

    agent = AgentConfig(
        name=assigned.agent,
        command=settings.command,
        env=settings.env,
        scenario=settings.scenario or "",
        model=settings.model or "",
        first_output_timeout_s=settings.first_output_timeout_s,
        mcp_tools=settings.mcp_tools,
    )

    return AgentTask(
        envelope=envelope,
        agent=agent,
        repository=project.root,
        checkout=assigned.checkout,
        prompt_xml=prompt,
        phase=assigned.role,
        workflow_phase=assigned.phase,
        round=assigned.round,
        scope=assigned.scope,
    )
