"""Write a receipt of every merge: an in-toto statement as a git note, which anyone can verify.

The statement is stored and recorded before the note is written. After a crash, the next run writes
the recorded receipt, so that it is built and signed once.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping

import msgspec

from phasegate import __version__
from phasegate.core.audit.trail import TrailEvent, TrailValue
from phasegate.core.machine.feature_events import AnyFeatureEvent, JobEnded, Merged
from phasegate.core.machine.feature_state import Feature
from phasegate.core.machine.package_events import (
    AnyPackageEvent,
    PackageJobStarted,
    Reviewed,
    Validated,
)
from phasegate.core.text.wording import shorten
from phasegate.core.workflow.origin import ENGINE_ORIGIN, OrderOrigin
from phasegate.engine.jobs.agent_version import read_agent_version
from phasegate.engine.jobs.step import CHECKS_RAN
from phasegate.engine.journal.entries import (
    ACCEPTANCE_CHECKED,
    FEATURE_STEP,
    JOB_PROMPTED,
    PACKAGE_STEP,
    RECEIPT_WRITTEN,
    SCOPE_ALLOWED,
    GivenAnswer,
    JobPrompted,
    ScopeException,
    WrittenReceipt,
    read_feature_step,
    read_package_step,
)
from phasegate.engine.journal.feature import FeatureJournal
from phasegate.engine.journal.questions import QUESTION_ANSWERED
from phasegate.engine.project.agents import list_builtin_agents
from phasegate.engine.project.ports import RecordReader
from phasegate.engine.project.project import Project
from phasegate.engine.views.trace import trace_feature
from phasegate.errors import ConfigError
from phasegate.storage.rows import JobRow, NewEvent, RecordedEvent
from phasegate.typed import read_json
from phasegate.verifier.verify_receipt import (
    NAMESPACE,
    PAYLOAD_TYPE,
    PREDICATE_TYPE,
    STATEMENT_TYPE,
    encode_pae,
)
from phasegate.workspace.repository.commit_log import list_blobs, read_commit_trees
from phasegate.workspace.repository.merge import SigningFailed
from phasegate.workspace.repository.notes import NOTES_REF, read_note, write_note
from phasegate.workspace.repository.repository import resolve_commit
from phasegate.workspace.repository.signing import SigningKey, find_signing_key, sign_text

_MAX_TEXT_CHARS = 300
Json = dict[str, object]


def write_receipt(project: Project, record: RecordReader, journal: FeatureJournal) -> None:
    """Write the receipt of a merged feature, once. Notify the user if it is not signed."""
    feature = journal.state
    commit = feature.merged
    if not commit:
        return
    if resolve_commit(project.repository, commit) is None:
        journal.queue_notices(f"no receipt was written: {commit[:12]} is not in this repository")
        return

    receipt = find_receipt(record, feature.workflow.feature, commit)
    if receipt is None:
        receipt = _make_receipt(project, record, feature)
        journal.queue_notices(_describe_receipt(receipt))
        journal.record(rows=(NewEvent(RECEIPT_WRITTEN, msgspec.json.encode(receipt)),))

    text = project.document_store.get(receipt.sha256)
    if read_note(project.repository, commit) != text:
        write_note(project.repository, commit, text, project.make_signature())


def find_receipt(record: RecordReader, slug: str, commit: str) -> WrittenReceipt | None:
    """Return the recorded receipt of a merge."""
    for recorded in record.events(slug):
        if recorded.kind == RECEIPT_WRITTEN:
            receipt = read_json(recorded.payload, WrittenReceipt)
            if receipt.commit == commit:
                return receipt
    return None


def _describe_receipt(receipt: WrittenReceipt) -> str:
    if receipt.format:
        return f"receipt in {NOTES_REF}, signed with {receipt.key}"
    return f"receipt in {NOTES_REF}, not signed: {receipt.problem}"


def _make_receipt(project: Project, record: RecordReader, feature: Feature) -> WrittenReceipt:
    """Build the statement, sign it if git is configured for signing, and store it."""
    repository = project.repository
    key = find_signing_key(repository)
    receipt = WrittenReceipt(feature.merged, "", problem="git has no user.signingkey")
    signature: bytes | SigningFailed = b""
    payload = b""

    if isinstance(key, SigningKey):
        receipt = WrittenReceipt(feature.merged, "", key.format, key.fingerprint)
        payload = _build_statement(project, record, feature, receipt)
        signature = sign_text(repository, key, encode_pae(PAYLOAD_TYPE, payload), NAMESPACE)

    for failed in (key, signature):
        if isinstance(failed, SigningFailed):
            receipt = WrittenReceipt(feature.merged, "", problem=failed.reason)

    signatures = []
    if receipt.format and isinstance(signature, bytes):
        signatures = [{"keyid": receipt.key, "sig": base64.b64encode(signature).decode()}]
    else:
        payload = _build_statement(project, record, feature, receipt)

    envelope = {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": PAYLOAD_TYPE,
        "signatures": signatures,
    }
    text = msgspec.json.encode(envelope) + b"\n"
    return msgspec.structs.replace(receipt, sha256=project.document_store.put(text))


def _build_statement(
    project: Project, record: RecordReader, feature: Feature, receipt: WrittenReceipt
) -> bytes:
    """Build the signed statement of a merge from its recorded events."""
    slug = feature.workflow.feature
    repository = project.repository
    facts = _Facts(record.jobs(slug))
    for recorded in record.events(slug):
        facts.add(recorded)

    commits = read_commit_trees(
        repository, [feature.merged, *(str(one["commit"]) for one in facts.evidence)]
    )
    merged = commits[feature.merged]
    base, *others = [*merged.parents] or [feature.merged]
    work = others[0] if others else feature.merged
    places = read_commit_trees(repository, [base, work])
    head = record.chain_head()

    statement = {
        "_type": STATEMENT_TYPE,
        "subject": [
            {
                "name": feature.base,
                "digest": {"gitCommit": feature.merged, "gitTree": merged.tree},
            }
        ],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "phasegate": __version__,
            "feature": slug,
            "workflow": feature.workflow.type,
            "description": feature.description,
            "signing": {"format": receipt.format, "key": receipt.key},
            "base": {"branch": feature.base, "commit": base, "tree": places[base].tree},
            "work": {"commit": work, "tree": places[work].tree},
            "requirements": list(_list_requirements(project, slug, feature.merged)),
            "packages": list(facts.packages.values()),
            "acceptance": list(facts.acceptance.values()),
            "evidence": [
                {**one, "tree": commits[str(one["commit"])].tree} for one in facts.evidence
            ],
            "agents": list(_list_agents(project, facts.jobs)),
            "jobs": [_describe_job(job, facts.templates) for job in facts.jobs.values()],
            "gates": [
                {"phase": gate.phase, "round": gate.round, "outcome": gate.outcome, "at": gate.at}
                for gate in record.gates(slug)
            ],
            "decisions": facts.decisions,
            "audit": {
                "entries": head.entries,
                "hash": head.hash,
                "merged_entry": facts.merged_entry,
            },
        },
    }
    return msgspec.json.encode(statement)


class _Facts:
    """What the journal of a feature says about its evidence and its decisions."""

    def __init__(self, jobs: list[JobRow]) -> None:
        self.jobs = {job.id: job for job in jobs}
        self.templates: dict[str, str] = {}
        self.evidence: list[Json] = []
        # The last check of each package
        self.packages: dict[str, Json] = {}
        # The last result of each requirement's sealed tests
        self.acceptance: dict[object, Json] = {}
        self.decisions: list[Json] = []
        self.merged_entry = 0
        # The agent that reviewed each package last
        self._reviewers: dict[str, str] = {}

    def add(self, recorded: RecordedEvent) -> None:
        """Add an entry of the journal."""
        kind = recorded.kind
        payload = recorded.payload

        if kind == FEATURE_STEP:
            self._add_feature_step(recorded, read_feature_step(payload))
        elif kind == PACKAGE_STEP:
            self._add_package_step(recorded.ts, *read_package_step(payload))
        elif kind == CHECKS_RAN:
            entries = read_json(payload, list[tuple[str, TrailEvent]])
            self.evidence += [_describe_command(at, entry.fields) for at, entry in entries]
        elif kind == ACCEPTANCE_CHECKED:
            rows = read_json(payload, list[Json])
            self.acceptance |= {row["requirement"]: row for row in rows}
        elif kind == JOB_PROMPTED:
            prompted = read_json(payload, JobPrompted)
            self.templates[prompted.job] = prompted.template_sha256
        elif kind == SCOPE_ALLOWED:
            allowed = read_json(payload, ScopeException)
            text = f"{allowed.path}: {allowed.reason}"
            self._add_decision(recorded.ts, allowed.package, "scope exception", text, allowed.by)
        elif kind == QUESTION_ANSWERED:
            answer = read_json(payload, GivenAnswer)
            self._add_decision(recorded.ts, "", "answer", answer.text, answer.by)

    def _add_feature_step(self, recorded: RecordedEvent, event: AnyFeatureEvent) -> None:
        if isinstance(event, Merged):
            self.merged_entry = recorded.position
        elif isinstance(event, JobEnded) and event.verdict:
            job = self.jobs[event.job]
            by = OrderOrigin(agent=job.agent)
            self._add_decision(recorded.ts, job.workflow_phase, "verdict", event.verdict, by)
        else:
            self._add_order(recorded.ts, "", event)

    def _add_package_step(self, ts: str, package: str, event: AnyPackageEvent) -> None:
        """Add the result of a step of a package: checks, verdict or order."""
        if isinstance(event, PackageJobStarted) and event.role == "review":
            self._reviewers[package] = event.agent
        elif isinstance(event, Validated):
            self.packages[package] = {
                "id": package,
                "commit": event.commit,
                "passed": not event.failures,
                "report_sha256": event.evidence,
            }
        elif isinstance(event, Reviewed):
            by = OrderOrigin(agent=self._reviewers.get(package, ""))
            self._add_decision(ts, package, "verdict", event.verdict, by)
        else:
            self._add_order(ts, package, event)

    def _add_order(self, ts: str, work: str, event: AnyFeatureEvent | AnyPackageEvent) -> None:
        """Add an order of the user: an event with an origin that is not the engine."""
        by = getattr(event, "by", ENGINE_ORIGIN)
        if by == ENGINE_ORIGIN:
            return

        texts = (getattr(event, name, "") for name in ("why", "how", "reason", "description"))
        what = str(event.__struct_config__.tag)
        self._add_decision(ts, work, what, next(filter(None, texts), ""), by)

    def _add_decision(self, ts: str, work: str, what: str, text: str, by: OrderOrigin) -> None:
        self.decisions.append(
            {
                "at": ts,
                "work": work,
                "what": what,
                "text": shorten(text, _MAX_TEXT_CHARS),
                "by": by,
            }
        )


def _describe_command(at: str, fields: Mapping[str, TrailValue]) -> Json:
    texts = {name: fields.get(name, "") for name in ("check", "root", "command", "outcome")}
    counts = {name: fields.get(name) for name in ("exit_code", "tests", "tests_failed")}
    return {
        "at": at,
        **texts,
        **counts,
        "commit": fields["commit"],
        "report_sha256": fields["evidence"],
    }


def _describe_job(job: JobRow, templates: Mapping[str, str]) -> Json:
    """Return the fields of an agent run in a receipt."""
    return {
        "id": job.id,
        "agent": job.agent,
        "role": job.phase,
        "phase": job.workflow_phase,
        "package": job.wp,
        "round": job.round,
        "outcome": job.outcome,
        "prompt_sha256": job.prompt_hash,
        "template_sha256": templates.get(job.id, ""),
        "output_sha256": job.output_hash,
    }


def _list_agents(project: Project, jobs: Mapping[str, JobRow]) -> Iterator[Json]:
    """Yield each agent that ran a job, with the version of its program at the merge."""
    configured = project.config.agents or list_builtin_agents()
    models = {job.agent: job.model for job in jobs.values()}
    for name, model in sorted(models.items()):
        agent: Json = {"name": name, "model": model, "harness": "", "version": ""}
        if settings := configured.get(name):
            version = read_agent_version(project, settings)
            agent["harness"] = str(settings.harness)
            agent["version"] = version.number or f"unknown: {version.problem}"
        yield agent


def _list_requirements(project: Project, slug: str, commit: str) -> Iterator[Json]:
    """Yield each requirement with the tests that cover it; none without a specification."""
    try:
        report = trace_feature(project, slug)
    except ConfigError:
        return

    blobs = list_blobs(project.repository, commit)
    for one in report.requirements:
        yield {
            "id": one.id,
            "text": one.text,
            "packages": one.packages,
            "commits": [link.id for link in one.commits],
            "tests": [
                {"path": link.path, "gitBlob": blobs[link.path], "names_it": link.names_it}
                for link in one.tests
                if link.path in blobs
            ],
        }
