"""Tell somebody who is not looking that a person is needed, or that a run has ended: `[notify]`.

Once an event: that it is told is on record before it is sent. A failure is a notice, and stops nothing.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from phasegate.agents.run.secret_values import names_a_secret, secrets_of
from phasegate.checks.secrets import Added, find_secrets
from phasegate.core.display.notification import ENDED, NEEDED, Notification, short_reason
from phasegate.core.display.status import next_commands
from phasegate.core.machine.feature_state import Feature
from phasegate.core.workflow.lifecycle import Stage
from phasegate.engine.journal.entries import FEATURE_STEP, PACKAGE_STEP, notice
from phasegate.engine.journal.feature import naming, read_feature
from phasegate.engine.project.project import Project
from phasegate.errors import MovedOn, PhasegateError
from phasegate.sandbox.redact import Redactor
from phasegate.storage.lock_holder import feature_holder
from phasegate.storage.record import WritableRecord
from phasegate.storage.rows import Event
from phasegate.typed import read_json

if TYPE_CHECKING:
    from phasegate.engine.journal.package import PackageReport

TOLD = "person.told"
_LEFT_OUT = "(the reason is left out: it looks like it holds a secret)"
_OUTCOMES = {
    Stage.BLOCKED: "it is blocked",
    Stage.GATE_PASSED: "a gate has passed",
    Stage.GATE_FAILED: "a gate has failed",
    Stage.COMPLETED: "it is completed",
    Stage.CANCELLED: "it is cancelled",
    Stage.WORKING: "the run has ended",
}


class _Told(msgspec.Struct, frozen=True):
    seq: int  # of the event that was told
    type: str
    work: str = ""
    question: str = ""  # the id of what an agent asks: several may be asked between two events


def tell_about_feature(project: Project, store: WritableRecord, feature: Feature, of_fleet: str = "") -> None:
    """A run has come to its end: tell it, if it was not told before. `of_fleet`: what its commands end with."""
    workflow = feature.workflow
    is_last = workflow.stage is Stage.GATE_PASSED and workflow.is_last_phase
    outcome = "its last gate has passed" if is_last else _OUTCOMES[workflow.stage]
    type_ = NEEDED if is_last or workflow.stage is Stage.BLOCKED else ENDED
    of = f"{naming(store, workflow.feature)}{of_fleet}"
    command = next_commands(str(workflow.stage), is_last_phase=workflow.is_last_phase, naming=of)
    reason = workflow.reason if workflow.stage is not Stage.WORKING else ""
    _tell(project, store, workflow.feature, "", (type_, f"{outcome} ({workflow.phase})", reason, command))


def tell_about_package(project: Project, store: WritableRecord, report: PackageReport) -> None:
    """A dispatch by hand has come to its end."""
    again = f"phasegate dispatch {report.package} --feature {report.feature}"
    what = (ENDED, "it is done", "", "") if report.accepted else (NEEDED, "it is blocked", report.reason, again)
    _tell(project, store, report.feature, report.package, what)


def tell_about_failure(project: Project, store: WritableRecord, slug: str, why: str, of_fleet: str = "") -> None:
    """A run could not go on: the machine, or somebody else, is in the way."""
    is_held = feature_holder(project.location.locks, slug) is not None  # another run is at it: that one tells
    command = f"phasegate run{naming(store, slug)}{of_fleet}"
    if read_feature(store, slug) is not None and not is_held:
        _tell(project, store, slug, "", (NEEDED, "the run has failed", why, command))


def tell_about_question(project: Project, store: WritableRecord, slug: str, work: str, id_: str, text: str) -> None:
    """An agent asks, and waits only so long."""
    command = f'phasegate answer {id_} "..." --feature {slug}'
    _tell(project, store, slug, work, (NEEDED, "an agent asks", text, command), id_)


def _tell(
    project: Project, store: WritableRecord, slug: str, work: str, what: tuple[str, str, str, str], question: str = ""
) -> None:
    """Put it on record, then send it. Nothing that goes wrong here ends a run that went well."""
    if not (project.config.notify.command or project.config.notify.urls):
        return
    from phasegate.engine.notify.send import send  # HTTP and mail cost every run its start-up, and few use them

    type_, outcome, reason, command = what
    try:
        if (seq := _claimed(project, store, slug, _Told(0, type_, work, question))) is None:
            return
        id_ = "-".join(filter(None, (store.store_id, slug, str(seq), type_, question)))
        told = Notification(
            id_, type_, project.now(), project.root.name, slug, work, outcome, _harmless(reason), command
        )
        failures = [f"{one.receiver} was not told: {one.why_not}" for one in send(project, told) if one.why_not]
        if failures:
            store.append_now(slug, project.now(), [notice(work, text) for text in failures])
    except PhasegateError as error:
        with_reason = f"nobody was told: {error.message}"
        store.append_now(slug, project.now(), [notice(work, with_reason)])


def _claimed(project: Project, store: WritableRecord, slug: str, told: _Told) -> int | None:
    """The number of the last event, now ours to tell; None if it was told. Of two processes one gets it."""
    while True:
        seq, last, known = store.seq(slug), 0, set[_Told]()
        for recorded in store.events(slug):
            if recorded.kind in (FEATURE_STEP, PACKAGE_STEP):
                last = recorded.seq
            elif recorded.kind == TOLD:
                known.add(read_json(recorded.payload, _Told))
        claim = msgspec.structs.replace(told, seq=last)
        if claim in known:
            return None
        try:
            store.append(slug, seq, project.now(), [Event(TOLD, msgspec.json.encode(claim))])
        except MovedOn:
            continue
        return last


def _harmless(reason: str) -> str:
    """A reason without secrets: those of our environment, and what has the form of one."""
    redactor = Redactor(secrets_of(os.environ, filter(names_a_secret, os.environ)))
    data = redactor.feed(reason.encode("utf-8", "replace")) + redactor.rest()
    return _LEFT_OUT if find_secrets([Added("", data)]) else short_reason(data.decode("utf-8", "replace"))
