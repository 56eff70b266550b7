"""Tell somebody who is not looking that a person is needed, or that a run has ended: `[notify]`.

Once an event: that it is told is on record before it is sent. A failure is a notice, and stops
nothing.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from phasegate.agents.run.secret_values import find_env_secrets, is_secret_name
from phasegate.checks.secrets import AddedContent, find_secrets
from phasegate.core.display.notification import (
    PERSON_NEEDED,
    RUN_ENDED,
    Notification,
    shorten_reason,
)
from phasegate.core.display.status import format_next_commands
from phasegate.core.machine.feature_state import Feature
from phasegate.core.workflow.lifecycle import Stage
from phasegate.engine.journal.entries import FEATURE_STEP, PACKAGE_STEP, encode_notice
from phasegate.engine.journal.feature import make_feature_option, read_feature
from phasegate.engine.project.project import Project
from phasegate.errors import MovedOn, PhasegateError
from phasegate.sandbox.redact import Redactor
from phasegate.storage.lock_holder import find_live_holder
from phasegate.storage.record import WritableStore
from phasegate.storage.rows import NewEvent
from phasegate.typed import read_json

if TYPE_CHECKING:
    from phasegate.engine.journal.package import PackageReport

USER_NOTIFIED = "person.told"
_REASON_OMITTED = "(the reason is left out: it looks like it holds a secret)"
_STAGE_TEXTS = {
    Stage.BLOCKED: "it is blocked",
    Stage.GATE_PASSED: "a gate has passed",
    Stage.GATE_FAILED: "a gate has failed",
    Stage.COMPLETED: "it is completed",
    Stage.CANCELLED: "it is cancelled",
    Stage.WORKING: "the run has ended",
}


class _NotificationClaim(msgspec.Struct, frozen=True):
    # Of the event that was told
    seq: int
    type: str
    work: str = ""
    # The id of what an agent asks: several may be asked between two events
    question: str = ""


def notify_feature_end(
    project: Project, store: WritableStore, feature: Feature, fleet_option: str = ""
) -> None:
    """A run has come to its end: tell it, if it was not told before.

    `of_fleet`: what its commands end with.
    """
    workflow = feature.workflow
    is_last = workflow.stage is Stage.GATE_PASSED and workflow.is_last_phase
    if is_last:
        outcome = "its last gate has passed"
    else:
        outcome = _STAGE_TEXTS[workflow.stage]

    if is_last or workflow.stage is Stage.BLOCKED:
        type_ = PERSON_NEEDED
    else:
        type_ = RUN_ENDED

    of = f"{make_feature_option(store, workflow.feature)}{fleet_option}"
    command = format_next_commands(
        str(workflow.stage), is_last_phase=workflow.is_last_phase, command_suffix=of
    )
    if workflow.stage is not Stage.WORKING:
        reason = workflow.reason
    else:
        reason = ""

    _record_and_send(
        project,
        store,
        workflow.feature,
        "",
        (type_, f"{outcome} ({workflow.phase})", reason, command),
    )


def notify_package_end(project: Project, store: WritableStore, report: PackageReport) -> None:
    """A dispatch by hand has come to its end."""
    again = f"phasegate dispatch {report.package} --feature {report.feature}"
    if report.accepted:
        what = (RUN_ENDED, "it is done", "", "")
    else:
        what = (PERSON_NEEDED, "it is blocked", report.reason, again)

    _record_and_send(project, store, report.feature, report.package, what)


def notify_failure(
    project: Project, store: WritableStore, slug: str, reason: str, fleet_option: str = ""
) -> None:
    """A run could not go on: the machine, or somebody else, is in the way."""
    # Another run is at it: that one tells
    is_held = find_live_holder(project.location.locks_folder, slug) is not None
    command = f"phasegate run{make_feature_option(store, slug)}{fleet_option}"
    if read_feature(store, slug) is not None and not is_held:
        _record_and_send(
            project, store, slug, "", (PERSON_NEEDED, "the run has failed", reason, command)
        )


def notify_question(
    project: Project, store: WritableStore, slug: str, work: str, id_: str, text: str
) -> None:
    """An agent asks, and waits only so long."""
    command = f'phasegate answer {id_} "..." --feature {slug}'
    _record_and_send(
        project=project,
        store=store,
        slug=slug,
        work=work,
        what=(PERSON_NEEDED, "an agent asks", text, command),
        question=id_,
    )


def _record_and_send(
    project: Project,
    store: WritableStore,
    slug: str,
    work: str,
    what: tuple[str, str, str, str],
    question: str = "",
) -> None:
    """Put it on record, then send it. Nothing that goes wrong here ends a run that went well."""
    if not (project.config.notify.command or project.config.notify.urls):
        return

    from phasegate.engine.notify.send import (
        # HTTP and mail cost every run its start-up, and few use them
        send_notification,
    )

    type_, outcome, reason, command = what

    try:
        if (
            seq := _claim_notification(
                project, store, slug, _NotificationClaim(0, type_, work, question)
            )
        ) is None:
            return

        id_ = "-".join(filter(None, (store.store_id, slug, str(seq), type_, question)))
        told = Notification(
            id=id_,
            type=type_,
            timestamp=project.now(),
            repository=project.root.name,
            feature=slug,
            package=work,
            outcome=outcome,
            reason=_redact_reason(reason),
            command=command,
        )

        failures = [
            f"{one.receiver} was not told: {one.why_not}"
            for one in send_notification(project, told)
            if one.why_not
        ]
        if failures:
            store.append_unconditionally(
                slug, project.now(), [encode_notice(work, text) for text in failures]
            )
    except PhasegateError as error:
        with_reason = f"nobody was told: {error.message}"
        store.append_unconditionally(slug, project.now(), [encode_notice(work, with_reason)])


def _claim_notification(
    project: Project, store: WritableStore, slug: str, unclaimed: _NotificationClaim
) -> int | None:
    """The number of the last event, now ours to tell; None if it was told.

    Of two processes one gets it.
    """
    while True:
        seq = store.last_seq(slug)
        last = 0
        known = set[_NotificationClaim]()

        for recorded in store.events(slug):
            if recorded.kind in (FEATURE_STEP, PACKAGE_STEP):
                last = recorded.seq
            elif recorded.kind == USER_NOTIFIED:
                known.add(read_json(recorded.payload, _NotificationClaim))

        claim = msgspec.structs.replace(unclaimed, seq=last)
        if claim in known:
            return None

        try:
            store.append(
                slug, seq, project.now(), [NewEvent(USER_NOTIFIED, msgspec.json.encode(claim))]
            )
        except MovedOn:
            continue

        return last


def _redact_reason(reason: str) -> str:
    """A reason without secrets: those of our environment, and what has the form of one."""
    redactor = Redactor(find_env_secrets(os.environ, filter(is_secret_name, os.environ)))
    data = redactor.feed(reason.encode("utf-8", "replace")) + redactor.flush()
    if find_secrets([AddedContent("", data)]):
        return _REASON_OMITTED
    return shorten_reason(data.decode("utf-8", "replace"))
