"""Notify the user that a decision is needed or that a run has ended: `[notify]`.

At most once per event: a notification is recorded before it is sent. A failure to send becomes a
notice and stops nothing.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from phasegate.agents.run.secret_values import find_env_secrets, is_secret_name
from phasegate.checks.secrets import AddedContent, find_secrets
from phasegate.core.display.notification import (
    RUN_ENDED,
    USER_NEEDED,
    Notification,
    shorten_reason,
)
from phasegate.core.display.status import format_next_commands
from phasegate.core.forge.checks import RED_CI
from phasegate.core.machine.feature_events import PullWaits
from phasegate.core.machine.feature_state import Feature
from phasegate.core.workflow.phase_transitions import Stage
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
_REASON_OMITTED = "(reason omitted: it may contain a secret)"
_STAGE_TEXTS = {
    Stage.BLOCKED: "blocked",
    Stage.GATE_PASSED: "gate passed",
    Stage.GATE_FAILED: "gate failed",
    Stage.COMPLETED: "completed",
    Stage.CANCELLED: "cancelled",
    Stage.WORKING: "run ended",
}


class _NotificationClaim(msgspec.Struct, frozen=True):
    # Number of the event that caused the notification
    seq: int
    type: str
    work: str = ""
    # Id of a question: agents may ask several between two events
    question: str = ""


class _Message(NamedTuple):
    type: str
    outcome: str
    reason: str = ""
    # Suggested to the user
    command: str = ""


def notify_feature_end(
    project: Project, store: WritableStore, feature: Feature, fleet_option: str = ""
) -> None:
    """Notify the user that a run has ended, once per event.

    `fleet_option` is appended to the suggested commands.
    """
    if feature.is_published and feature.workflow.stage is Stage.GATE_PASSED:
        # `notify_pull_request` says what it waits for
        return

    workflow = feature.workflow
    is_last = workflow.stage is Stage.GATE_PASSED and workflow.is_last_phase
    outcome = "last gate passed" if is_last else _STAGE_TEXTS[workflow.stage]
    needs_user = is_last or workflow.stage is Stage.BLOCKED
    options = f"{make_feature_option(store, workflow.feature)}{fleet_option}"
    message = _Message(
        type=USER_NEEDED if needs_user else RUN_ENDED,
        outcome=f"{outcome} ({workflow.phase})",
        reason="" if workflow.stage is Stage.WORKING else workflow.reason,
        command=format_next_commands(
            str(workflow.stage),
            is_last_phase=workflow.is_last_phase,
            remediation=feature.remediation,
            command_suffix=options,
        ),
    )
    _record_and_send(project, store, workflow.feature, "", message)


def notify_pull_request(
    project: Project, store: WritableStore, before: Feature, after: Feature
) -> None:
    """Notify the user that a pull request was opened, or that it waits for the user."""
    pull, wait = after.pull, after.pull_wait
    if pull is None or after.merged:
        return

    slug = after.workflow.feature
    command = f"phasegate run{make_feature_option(store, slug)}"
    if before.pull is None or before.pull.number != pull.number:
        message = _Message(USER_NEEDED, "pull request opened", pull.url, command)
    elif wait is not None and wait.needs_user and not _is_same_wait(wait, before.pull_wait):
        message = _Message(USER_NEEDED, "pull request waits", f"{wait.reason}: {pull.url}", command)
    else:
        return

    _record_and_send(project, store, slug, "", message)


def _is_same_wait(wait: PullWaits, before: PullWaits | None) -> bool:
    """Return whether the user was notified before. More checks that fail are not news."""
    if before is None or before == wait:
        return before is not None
    return wait.reason.startswith(RED_CI) and before.reason.startswith(RED_CI)


def notify_package_end(project: Project, store: WritableStore, report: PackageReport) -> None:
    """Notify the user that a dispatched package has ended."""
    message = _Message(RUN_ENDED, "done")
    if not report.accepted:
        command = f"phasegate dispatch {report.package} --feature {report.feature}"
        message = _Message(USER_NEEDED, "blocked", report.reason, command)

    _record_and_send(project, store, report.feature, report.package, message)


def notify_failure(
    project: Project, store: WritableStore, slug: str, reason: str, fleet_option: str = ""
) -> None:
    """Notify the user that a run has failed with an error.

    Nothing is sent if another process runs the feature, because that process sends notifications.
    """
    is_locked = find_live_holder(project.location.locks_folder, slug) is not None
    if read_feature(store, slug) is not None and not is_locked:
        command = f"phasegate run{make_feature_option(store, slug)}{fleet_option}"
        message = _Message(USER_NEEDED, "run failed", reason, command)
        _record_and_send(project, store, slug, "", message)


def notify_question(
    project: Project, store: WritableStore, slug: str, work: str, id_: str, text: str
) -> None:
    """Notify the user of a question of an agent, which waits only for a limited time."""
    command = f'phasegate answer {id_} "..." --feature {slug}'
    message = _Message(USER_NEEDED, "an agent asks", text, command)
    _record_and_send(project, store, slug, work, message, question=id_)


def _record_and_send(
    project: Project,
    store: WritableStore,
    slug: str,
    work: str,
    message: _Message,
    question: str = "",
) -> None:
    """Record a notification, then send it; do nothing if another process has claimed it.

    A failure to send is recorded as a notice.
    """
    if not (project.config.notify.command or project.config.notify.urls):
        return

    # Imported here: HTTP and mail slow down every start, and few users need them
    from phasegate.engine.notify.send import send_notification

    try:
        claim = _NotificationClaim(0, message.type, work, question)
        seq = _claim_notification(project, store, slug, claim)
        if seq is None:
            return

        id_ = "-".join(filter(None, (store.store_id, slug, str(seq), message.type, question)))
        notification = Notification(
            id=id_,
            type=message.type,
            timestamp=project.now(),
            repository=project.root.name,
            feature=slug,
            package=work,
            outcome=message.outcome,
            reason=_redact_reason(message.reason),
            command=message.command,
        )
        failures = [
            f"{delivery.receiver} was not notified: {delivery.why_not}"
            for delivery in send_notification(project, notification)
            if delivery.why_not
        ]
        if failures:
            store.append_unconditionally(
                slug, project.now(), [encode_notice(work, text) for text in failures]
            )
    except PhasegateError as error:
        text = f"no notification was sent: {error.message}"
        store.append_unconditionally(slug, project.now(), [encode_notice(work, text)])


def _claim_notification(
    project: Project, store: WritableStore, slug: str, unclaimed: _NotificationClaim
) -> int | None:
    """Claim the notification of the last event; return the number of that event.

    Return None if it was already claimed. If two processes try, one succeeds.
    """
    while True:
        seq = store.last_seq(slug)
        last_step = 0
        claims = set[_NotificationClaim]()

        for recorded in store.events(slug):
            if recorded.kind in (FEATURE_STEP, PACKAGE_STEP):
                last_step = recorded.seq
            elif recorded.kind == USER_NOTIFIED:
                claims.add(read_json(recorded.payload, _NotificationClaim))

        claim = msgspec.structs.replace(unclaimed, seq=last_step)
        if claim in claims:
            return None

        try:
            store.append(
                slug, seq, project.now(), [NewEvent(USER_NOTIFIED, msgspec.json.encode(claim))]
            )
        except MovedOn:
            continue

        return last_step


def _redact_reason(reason: str) -> str:
    """Remove the secrets of the environment from a reason; omit it if it seems to have others."""
    redactor = Redactor(find_env_secrets(os.environ, filter(is_secret_name, os.environ)))
    data = redactor.feed(reason.encode("utf-8", "replace")) + redactor.flush()
    if find_secrets([AddedContent("", data)]):
        return _REASON_OMITTED
    return shorten_reason(data.decode("utf-8", "replace"))
