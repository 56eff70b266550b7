"""What an agent inside a job may ask for.

What a person is shown, of its own feature alone; and artifacts, through us.

The texts and objects are those of the commands that a person calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from phasegate.agents.spool.requests import (
    ArtifactListRequest,
    ArtifactReadRequest,
    ArtifactWriteRequest,
    AskRequest,
    NextRequest,
    SpecCheckRequest,
    SpoolRequest,
    StatusRequest,
    WorktreeListRequest,
)
from phasegate.agents.spool.server import SpoolAnswer, SpoolRequestHandler
from phasegate.agents.spool.shim import NO_ANSWER_EXIT
from phasegate.core.answer.block import parse_menu
from phasegate.core.display.next_steps import EVENTS, next_steps
from phasegate.core.plan.work_package import is_package_id
from phasegate.core.text.light_json import to_plain_data
from phasegate.engine.journal.artifacts import (
    StoredArtifact,
    read_artifact_versions,
    store_artifact,
)
from phasegate.engine.journal.asking import ask_question, find_question
from phasegate.engine.journal.feature import read_state_view
from phasegate.engine.notify.notifier import notify_question
from phasegate.engine.project.project import Project
from phasegate.engine.project.secrets import collect_lent_secrets
from phasegate.engine.views.artifacts import ArtifactFiles, render_artifacts
from phasegate.engine.views.overview import Overview, build_overview, find_package_cards
from phasegate.engine.views.package import planned_cards
from phasegate.engine.views.spec_check import check_documents, render_report, report_as_dict
from phasegate.engine.views.status_text import render_overview, render_packages, render_worktrees
from phasegate.errors import ConfigError
from phasegate.storage.record import WritableStore

MAX_ARTIFACTS = 200
MAX_ARTIFACT_BYTES = 20_000_000
# Of all of it: what was replaced is kept too
MAX_HISTORY_FACTOR = 4


def make_request_handler(  # noqa: C901 - a table
    project: Project, store: WritableStore, feature: str, work: str, job: str
) -> SpoolRequestHandler:
    """The one who answers the requests of a job: `work` is its package, or else its phase."""
    asked = _FeatureRequests(project, store, feature, work)

    def answer(request: SpoolRequest) -> SpoolAnswer:
        slug = getattr(request, "feature_slug", None)
        if slug not in (None, feature):
            return SpoolAnswer(2, stderr=f"phasegate: this job belongs to {feature}\n")

        match request:
            case NextRequest():
                return asked.show_next(request)
            case StatusRequest():
                return asked.show_status(request)
            case WorktreeListRequest():
                return asked.list_worktrees(request)
            case SpecCheckRequest():
                return _check_spec(request)
            case ArtifactWriteRequest():
                return asked.write_artifact(request)
            case ArtifactReadRequest():
                data = ArtifactFiles(project.root).read(feature, request.relative_path)
                return SpoolAnswer(0, data.decode(errors="replace"))
            case AskRequest():
                return _handle_question(
                    project=project,
                    store=store,
                    feature=feature,
                    work=work,
                    job=job,
                    request=request,
                )
            case ArtifactListRequest():
                return asked.list_artifacts(request)

    return answer


class _FeatureRequests:
    """Answers about one feature."""

    def __init__(self, project: Project, store: WritableStore, feature: str, work: str) -> None:
        self._project = project
        self._feature = feature
        self._work = work
        self._store = self._reader = store
        self.features_folder = project.config.paths.features.rstrip("/")

    def show_next(self, request: NextRequest) -> SpoolAnswer:
        if request.event is not None and (request.phase is not None or request.event not in EVENTS):
            raise ConfigError(
                "--event is one of " + ", ".join(EVENTS), "and it goes without --phase"
            )

        block = next_steps(
            read_state_view(self._reader, self._feature), request.event, request.phase
        )
        data: dict[str, object] = {"block": block, "items": parse_menu(block) if block else []}
        return _make_answer(data, (block or "").removesuffix("\n"), request.as_json)

    def show_status(self, request: StatusRequest) -> SpoolAnswer:
        if request.package:
            cards = find_package_cards(self._reader, request.package, self._feature)
            return _make_answer(cards, render_packages(cards).removesuffix("\n"), request.as_json)

        found = _hide_other_features(
            build_overview(self._reader, str(self._project.root), self._feature), self._feature
        )
        return _make_answer(
            found, render_overview(found, chosen=True).removesuffix("\n"), request.as_json
        )

    def list_worktrees(self, request: WorktreeListRequest) -> SpoolAnswer:
        cards = [
            card
            for card in planned_cards(self._reader, self._feature)
            if request.include_all or card.is_ready
        ]
        text = render_worktrees(
            cards, self._project.config.paths.worktrees, show_all=request.include_all
        )
        return _make_answer(cards, text, request.as_json)

    def write_artifact(self, request: ArtifactWriteRequest) -> SpoolAnswer:
        content = request.content.encode()
        path = request.relative_path

        if collect_lent_secrets(self._project).has_secret(
            path.encode("utf-8", "surrogateescape") + b"\n" + content
        ):
            raise ConfigError(
                "it holds a key that was lent to this job", "take it out, and write it again"
            )

        _check_artifact_path(self._work, path)
        _check_artifact_quota(
            read_artifact_versions(self._store, self._feature), self._work, path, content
        )
        kept = store_artifact(self._project.document_store, path, content, self._work)
        self._store.append_unconditionally(self._feature, self._project.now(), [kept])

        return SpoolAnswer(
            0, f"wrote {self.features_folder}/{self._feature}/{path} ({len(content)} bytes)\n"
        )

    def list_artifacts(self, request: ArtifactListRequest) -> SpoolAnswer:
        found = ArtifactFiles(self._project.root).list_artifacts(self._feature)
        return _make_answer(
            {"artifacts": found}, render_artifacts(found, self.features_folder), request.as_json
        )


def _hide_other_features(found: Overview, feature: str) -> Overview:
    """What an agent may know of an overview: nothing of other features."""
    own = found.spent.get("feature", found.spent["all"])
    return found._replace(
        features=tuple(one for one in found.features if one.feature == feature),
        waiting=tuple(one for one in found.waiting if one.feature == feature),
        blockers=tuple(one for one in found.blockers if one.feature == feature),
        others=(),
        ended=(),
        spent={"feature": own, "all": own},
        resting=(),
        board="",
    )


def _check_spec(request: SpecCheckRequest) -> SpoolAnswer:
    """The file travels as text: an agent's path is never opened here."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / (Path(request.path).name or "spec.md")
        path.write_text(request.content, encoding="utf-8")
        report = check_documents(path)

    named = render_report(report).replace(str(path), request.path)
    shown = _make_answer(report_as_dict(report), named, request.as_json)

    return shown._replace(
        exit_status=1 if report.findings else 0,
        stdout=shown.stdout.replace(str(path), request.path),
    )


def _handle_question(
    project: Project, store: WritableStore, feature: str, work: str, job: str, request: AskRequest
) -> SpoolAnswer:
    """A question put on record, or whether one was answered."""
    # What is asked in a phase is asked for the feature
    work = work if is_package_id(work) else ""

    if not request.question_id:
        id_ = ask_question(project, store, feature, work, job, request.text, request.options)
        notify_question(
            project=project, store=store, slug=feature, work=work, id_=id_, text=request.text
        )
        return SpoolAnswer(0, f"{id_} {project.config.run.question_timeout_s}\n")

    found = find_question(store, request.question_id, feature)
    if found.work != work:
        return SpoolAnswer(2, stderr="phasegate: that is not a question of this job\n")
    if found.answer is None:
        return SpoolAnswer(NO_ANSWER_EXIT)

    return SpoolAnswer(0, f"{found.answer}\n")


def _check_artifact_path(work: str, path: str) -> None:
    """An agent's artifacts lie in the folder of its package or phase.

    The documents that others rely on are not its.
    """
    if not path.startswith(f"{work}/"):
        if is_package_id(work):
            whose = "as in the document"
        else:
            whose = "documents are written in the checkout"

        raise ConfigError(f"{path} is not below {work}/", f"write evidence there; {whose}")


def _check_artifact_quota(
    versions: Sequence[StoredArtifact], work: str, path: str, content: bytes
) -> None:
    """All artifacts of a package together are bounded, and so are those that others took the place
    of.
    """
    own = [one for one in versions if one.work == work]
    there = {one.path: one.bytes for one in own if one.path != path}

    if len(there) >= MAX_ARTIFACTS:
        raise ConfigError(
            f"{work} has {len(there)} artifacts (limit {MAX_ARTIFACTS})",
            "put several into one file",
        )

    size = sum(there.values()) + len(content)
    ever = sum(one.bytes for one in own) + len(content)
    if size > MAX_ARTIFACT_BYTES or ever > MAX_HISTORY_FACTOR * MAX_ARTIFACT_BYTES:
        why = f"the artifacts of {work} would have {size} bytes (limit {MAX_ARTIFACT_BYTES})"
        raise ConfigError(why, "keep what a reviewer needs, and leave the rest out")


def _make_answer(data: object, text: str, as_json: bool) -> SpoolAnswer:
    """As `render.show` writes it."""
    if as_json:
        return SpoolAnswer(0, msgspec.json.encode(to_plain_data(data)).decode() + "\n")
    return SpoolAnswer(0, f"{text}\n" if text else "")
