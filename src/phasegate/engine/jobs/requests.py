"""Answer the requests of an agent inside its job.

An agent can read the same views as the user, but only of its own feature, and can write artifacts
through Phasegate. Texts and JSON are the same as those of the user's commands.
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
    CheckRequest,
    NextRequest,
    SpecCheckRequest,
    SpoolRequest,
    StatusRequest,
    WorktreeListRequest,
)
from phasegate.agents.spool.server import SpoolAnswer, SpoolRequestHandler
from phasegate.agents.spool.shim import NO_ANSWER_EXIT
from phasegate.core.answer.block import parse_menu
from phasegate.core.detection.model import describe_command
from phasegate.core.display.next_steps import EVENTS, next_steps
from phasegate.core.paths.repo_path import find_path_problem
from phasegate.core.plan.work_package import WorkPackage, is_package_id
from phasegate.core.text.light_json import to_plain_data
from phasegate.engine.checks.plan import make_check_plans
from phasegate.engine.journal.artifacts import (
    StoredArtifact,
    read_artifact_versions,
    store_artifact,
)
from phasegate.engine.journal.asking import ask_question, find_question
from phasegate.engine.journal.feature import read_state_view
from phasegate.engine.journal.package import find_package
from phasegate.engine.notify.notifier import notify_question
from phasegate.engine.project.feature_branch import FeatureBranch
from phasegate.engine.project.project import Project
from phasegate.engine.project.secrets import collect_lent_secrets
from phasegate.engine.views.artifacts import ArtifactFiles, render_artifacts
from phasegate.engine.views.overview import Overview, build_overview, find_package_cards
from phasegate.engine.views.package import planned_cards
from phasegate.engine.views.spec_check import check_documents, render_report, report_as_dict
from phasegate.engine.views.status_text import render_overview, render_packages, render_worktrees
from phasegate.errors import ConfigError
from phasegate.storage.record import WritableStore
from phasegate.typed import read_json

MAX_ARTIFACTS = 200
MAX_ARTIFACT_BYTES = 20_000_000
# Limit for all versions together, as a multiple: replaced versions are kept
MAX_HISTORY_FACTOR = 4


def make_request_handler(  # noqa: C901 - a table
    project: Project, store: WritableStore, feature: str, work: str, job: str
) -> SpoolRequestHandler:
    """Return the handler for the requests of a job; `work` is its package, or else its phase."""
    requests = _FeatureRequests(project, store, feature, work)

    def handle(request: SpoolRequest) -> SpoolAnswer:  # noqa: C901 - a table
        """Answer a request of the job; refuse other features."""
        slug = getattr(request, "feature_slug", None)
        if slug not in (None, feature):
            return SpoolAnswer(2, stderr=f"phasegate: this job belongs to {feature}\n")

        match request:
            case NextRequest():
                return requests.show_next(request)
            case StatusRequest():
                return requests.show_status(request)
            case WorktreeListRequest():
                return requests.list_worktrees(request)
            case SpecCheckRequest():
                return _check_spec(request)
            case CheckRequest():
                return requests.show_checks(request)
            case ArtifactWriteRequest():
                return requests.write_artifact(request)
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
                return requests.list_artifacts(request)

    return handle


class _FeatureRequests:
    """Handlers for requests about one feature."""

    def __init__(self, project: Project, store: WritableStore, feature: str, work: str) -> None:
        self._project = project
        self._feature = feature
        self._work = work
        self._store = self._reader = store
        self.features_folder = project.config.paths.features.rstrip("/")

    def show_next(self, request: NextRequest) -> SpoolAnswer:
        if request.event is not None and (request.phase is not None or request.event not in EVENTS):
            raise ConfigError(
                "--event must be one of " + ", ".join(EVENTS), "it cannot be combined with --phase"
            )

        block = next_steps(
            read_state_view(self._reader, self._feature), request.event, request.phase
        )
        data: dict[str, object] = {"block": block, "items": parse_menu(block) if block else []}
        return _make_answer(data, (block or "").removesuffix("\n"), request.as_json)

    def show_status(self, request: StatusRequest) -> SpoolAnswer:
        if request.package:
            cards = find_package_cards(self._reader, request.package, self._feature)
            return _make_answer(
                cards, render_packages(cards, {}).removesuffix("\n"), request.as_json
            )

        overview = _hide_other_features(
            build_overview(self._reader, str(self._project.root), self._feature), self._feature
        )
        text = render_overview(overview, chosen=True).removesuffix("\n")
        return _make_answer(overview, text, request.as_json)

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

    def show_checks(self, request: CheckRequest) -> SpoolAnswer:
        """List the commands that the gate will run, with their roots and why they were chosen."""
        package = WorkPackage(
            work_package_id="feature", title="", feature_slug=self._feature, file_scope=()
        )
        if is_package_id(self._work):
            package = find_package(self._reader, self._work, self._feature).package

        head = FeatureBranch(self._project, self._feature).read_head()
        rows = [
            {
                "root": one.plan.root,
                "name": str(purpose),
                "command": describe_command(line),
                "why": one.plan.reasons.get(purpose, ""),
            }
            for one in make_check_plans(self._project, package, head, head)
            for purpose, line in one.plan.commands.items()
            if line
        ]
        text = "\n".join(
            f"{row['name']}: {row['command']}" + (f"  (in {row['root']})" if row["root"] else "")
            for row in rows
        )
        return _make_answer(rows, text or "no commands were found", request.as_json)

    def write_artifact(self, request: ArtifactWriteRequest) -> SpoolAnswer:
        """Store an artifact; refuse secrets, paths outside its folder and content that is too
        large.
        """
        content = request.content.encode()
        path = request.relative_path

        if collect_lent_secrets(self._project).has_secret(
            path.encode("utf-8", "surrogateescape") + b"\n" + content
        ):
            raise ConfigError(
                "it contains a secret of this job", "remove the secret, then write it again"
            )

        _check_artifact_path(self._work, path)
        _check_artifact_quota(
            read_artifact_versions(self._store, self._feature), self._work, path, content
        )
        event = store_artifact(self._project.document_store, path, content, self._work)
        self._store.append_unconditionally(self._feature, self._project.now(), [event])

        return SpoolAnswer(
            0, f"wrote {self.features_folder}/{self._feature}/{path} ({len(content)} bytes)\n"
        )

    def list_artifacts(self, request: ArtifactListRequest) -> SpoolAnswer:
        artifacts = ArtifactFiles(self._project.root).list_artifacts(self._feature)
        text = render_artifacts(artifacts, self.features_folder)
        return _make_answer({"artifacts": artifacts}, text, request.as_json)


def _hide_other_features(overview: Overview, feature: str) -> Overview:
    """Remove other features from an overview: an agent must not see them."""
    spent = overview.spent.get("feature", overview.spent["all"])
    return overview._replace(
        features=tuple(one for one in overview.features if one.feature == feature),
        waiting=tuple(one for one in overview.waiting if one.feature == feature),
        blockers=tuple(one for one in overview.blockers if one.feature == feature),
        others=(),
        ended=(),
        spent={"feature": spent, "all": spent},
        resting=(),
        board="",
    )


def _check_spec(request: SpecCheckRequest) -> SpoolAnswer:
    """Check a spec. The request contains the text, because a path from an agent is never opened."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / (Path(request.path).name or "spec.md")
        if request.documents is None:
            path.write_text(request.content, encoding="utf-8")
        else:
            _write_documents(path, request.documents)
        report = check_documents(path)

    answer = _make_answer(report_as_dict(report), render_report(report), request.as_json)
    return answer._replace(
        exit_status=1 if report.findings else 0,
        stdout=answer.stdout.replace(str(path), request.path),
    )


def _write_documents(folder: Path, encoded: str) -> None:
    """Write the documents of a request below a folder; refuse a name that leads out of it."""
    folder.mkdir()
    for name, text in read_json(encoded.encode(), dict[str, str]).items():
        if find_path_problem(name):
            raise ConfigError(f"{name!a} is not a path of a document", "check a folder")
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def _handle_question(
    project: Project, store: WritableStore, feature: str, work: str, job: str, request: AskRequest
) -> SpoolAnswer:
    """Record a question, or return the answer to an earlier one."""
    # A question from a phase belongs to the feature
    work = work if is_package_id(work) else ""

    if not request.question_id:
        id_ = ask_question(project, store, feature, work, job, request.text, request.options)
        notify_question(
            project=project, store=store, slug=feature, work=work, id_=id_, text=request.text
        )
        return SpoolAnswer(0, f"{id_} {project.config.run.question_timeout_s}\n")

    question = find_question(store, request.question_id, feature)
    if question.work != work:
        return SpoolAnswer(2, stderr="phasegate: the question belongs to another job\n")
    if question.answer is None:
        return SpoolAnswer(NO_ANSWER_EXIT)

    return SpoolAnswer(0, f"{question.answer}\n")


def _check_artifact_path(work: str, path: str) -> None:
    """Refuse an artifact outside of the folder of the agent's package or phase.

    An agent must not overwrite the documents of the feature, which others rely on.
    """
    if path.startswith(f"{work}/"):
        return

    hint = f"write artifacts below {work}/"
    if not is_package_id(work):
        hint += "; write documents in the checkout"
    raise ConfigError(f"{path} is not below {work}/", hint)


def _check_artifact_quota(
    versions: Sequence[StoredArtifact], work: str, path: str, content: bytes
) -> None:
    """Refuse an artifact that exceeds the number or the total size allowed for a package.

    Replaced versions are kept, so the size of all versions is limited too.
    """
    own = [version for version in versions if version.work == work]
    others = {version.path: version.bytes for version in own if version.path != path}

    if len(others) >= MAX_ARTIFACTS:
        raise ConfigError(
            f"{work} has {len(others)} artifacts (limit {MAX_ARTIFACTS})",
            "put several into one file",
        )

    size = sum(others.values()) + len(content)
    size_of_versions = sum(version.bytes for version in own) + len(content)
    if size > MAX_ARTIFACT_BYTES or size_of_versions > MAX_HISTORY_FACTOR * MAX_ARTIFACT_BYTES:
        raise ConfigError(
            f"the artifacts of {work} would have {size} bytes (limit {MAX_ARTIFACT_BYTES})",
            "write only what a reviewer needs",
        )


def _make_answer(data: object, text: str, as_json: bool) -> SpoolAnswer:
    """Format an answer in the same way as the command line does."""
    if as_json:
        return SpoolAnswer(0, msgspec.json.encode(to_plain_data(data)).decode() + "\n")
    return SpoolAnswer(0, f"{text}\n" if text else "")
