"""What an agent inside a job may ask for: what a person is shown, of its own feature alone; and artifacts, through us.

The texts and objects are those of the commands that a person calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from phasegate.agents.spool.requests import (
    ArtifactList,
    ArtifactRead,
    ArtifactWrite,
    Ask,
    Next,
    SpecCheck,
    SpoolRequest,
    Status,
    WorktreeList,
)
from phasegate.agents.spool.server import Answerer, SpoolAnswer
from phasegate.agents.spool.shim import NO_ANSWER
from phasegate.core.answer.block import parse_menu
from phasegate.core.display.next_steps import EVENTS, next_steps
from phasegate.core.plan.work_package import is_package_id
from phasegate.core.text.light_json import as_data
from phasegate.engine.journal.artifacts import KeptArtifact, all_versions, keep_artifact
from phasegate.engine.journal.asking import ask, find_question
from phasegate.engine.journal.feature import state_of
from phasegate.engine.notify.notifier import tell_about_question
from phasegate.engine.project.project import Project
from phasegate.engine.project.secrets import lent_keys
from phasegate.engine.views.artifacts import ArtifactFiles, artifact_lines
from phasegate.engine.views.overview import Overview, find_cards, overview
from phasegate.engine.views.package import planned_cards
from phasegate.engine.views.spec_check import check_documents, report_lines, report_object
from phasegate.engine.views.status_text import overview_text, package_text, worktree_text
from phasegate.errors import ConfigError
from phasegate.storage.record import WritableRecord

MOST_ARTIFACTS = 200
MOST_ARTIFACT_BYTES = 20_000_000
MOST_VERSIONS = 4  # of all of it: what was replaced is kept too


def answerer(project: Project, store: WritableRecord, feature: str, work: str, job: str) -> Answerer:  # noqa: C901 - a table
    """The one who answers the requests of a job: `work` is its package, or else its phase."""
    asked = _OwnFeature(project, store, feature, work)

    def answer(request: SpoolRequest) -> SpoolAnswer:
        slug = getattr(request, "feature_slug", None)
        if slug not in (None, feature):
            return SpoolAnswer(2, stderr=f"phasegate: this job belongs to {feature}\n")
        match request:
            case Next():
                return asked.next(request)
            case Status():
                return asked.status(request)
            case WorktreeList():
                return asked.worktrees(request)
            case SpecCheck():
                return _spec_check(request)
            case ArtifactWrite():
                return asked.write(request)
            case ArtifactRead():
                data = ArtifactFiles(project.root).read(feature, request.relative_path)
                return SpoolAnswer(0, data.decode(errors="replace"))
            case Ask():
                return _question(project, store, feature, work, job, request)
            case ArtifactList():
                return asked.list(request)

    return answer


class _OwnFeature:
    """Answers about one feature."""

    def __init__(self, project: Project, store: WritableRecord, feature: str, work: str) -> None:
        self._project, self._feature, self._work = project, feature, work
        self._store = self._reader = store
        self.below = project.config.paths.features.rstrip("/")

    def next(self, request: Next) -> SpoolAnswer:
        if request.event is not None and (request.phase is not None or request.event not in EVENTS):
            raise ConfigError("--event is one of " + ", ".join(EVENTS), "and it goes without --phase")
        block = next_steps(state_of(self._reader, self._feature), request.event, request.phase)
        data: dict[str, object] = {"block": block, "items": parse_menu(block) if block else []}
        return _shown(data, (block or "").removesuffix("\n"), request.as_json)

    def status(self, request: Status) -> SpoolAnswer:
        if request.package:
            cards = find_cards(self._reader, request.package, self._feature)
            return _shown(cards, package_text(cards).removesuffix("\n"), request.as_json)
        found = _own(overview(self._reader, str(self._project.root), self._feature), self._feature)
        return _shown(found, overview_text(found, chosen=True).removesuffix("\n"), request.as_json)

    def worktrees(self, request: WorktreeList) -> SpoolAnswer:
        cards = [card for card in planned_cards(self._reader, self._feature) if request.everything or card.is_ready]
        text = worktree_text(cards, self._project.config.paths.worktrees, everything=request.everything)
        return _shown(cards, text, request.as_json)

    def write(self, request: ArtifactWrite) -> SpoolAnswer:
        content, path = request.content.encode(), request.relative_path
        if lent_keys(self._project).are_in(path.encode("utf-8", "surrogateescape") + b"\n" + content):
            raise ConfigError("it holds a key that was lent to this job", "take it out, and write it again")
        _check_place(self._work, path)
        _check_room(all_versions(self._store, self._feature), self._work, path, content)
        kept = keep_artifact(self._project.papers, path, content, self._work)
        self._store.append_now(self._feature, self._project.now(), [kept])
        return SpoolAnswer(0, f"wrote {self.below}/{self._feature}/{path} ({len(content)} bytes)\n")

    def list(self, request: ArtifactList) -> SpoolAnswer:
        found = ArtifactFiles(self._project.root).listed(self._feature)
        return _shown({"artifacts": found}, artifact_lines(found, self.below), request.as_json)


def _own(found: Overview, feature: str) -> Overview:
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


def _spec_check(request: SpecCheck) -> SpoolAnswer:
    """The file travels as text: an agent's path is never opened here."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / (Path(request.path).name or "spec.md")
        path.write_text(request.content, encoding="utf-8")
        report = check_documents(path)
    named = report_lines(report).replace(str(path), request.path)
    shown = _shown(report_object(report), named, request.as_json)
    return shown._replace(exit_status=1 if report.findings else 0, stdout=shown.stdout.replace(str(path), request.path))


def _question(project: Project, store: WritableRecord, feature: str, work: str, job: str, request: Ask) -> SpoolAnswer:
    """A question put on record, or whether one was answered."""
    work = work if is_package_id(work) else ""  # what is asked in a phase is asked for the feature
    if not request.known:
        id_ = ask(project, store, feature, work, job, request.text, request.options)
        tell_about_question(project, store, feature, work, id_, request.text)
        return SpoolAnswer(0, f"{id_} {project.config.run.question_wait_s}\n")
    found = find_question(store, request.known, feature)
    if found.work != work:
        return SpoolAnswer(2, stderr="phasegate: that is not a question of this job\n")
    return SpoolAnswer(NO_ANSWER) if found.answer is None else SpoolAnswer(0, f"{found.answer}\n")


def _check_place(work: str, path: str) -> None:
    """An agent's artifacts lie in the folder of its package or phase: the documents that others rely on are not its."""
    if not path.startswith(f"{work}/"):
        whose = "as in the document" if is_package_id(work) else "documents are written in the checkout"
        raise ConfigError(f"{path} is not below {work}/", f"write evidence there; {whose}")


def _check_room(versions: Sequence[KeptArtifact], work: str, path: str, content: bytes) -> None:
    """All artifacts of a package together are bounded, and so are those that others took the place of."""
    own = [one for one in versions if one.work == work]
    there = {one.path: one.bytes for one in own if one.path != path}
    if len(there) >= MOST_ARTIFACTS:
        raise ConfigError(f"{work} has {len(there)} artifacts (limit {MOST_ARTIFACTS})", "put several into one file")
    size, ever = sum(there.values()) + len(content), sum(one.bytes for one in own) + len(content)
    if size > MOST_ARTIFACT_BYTES or ever > MOST_VERSIONS * MOST_ARTIFACT_BYTES:
        why = f"the artifacts of {work} would have {size} bytes (limit {MOST_ARTIFACT_BYTES})"
        raise ConfigError(why, "keep what a reviewer needs, and leave the rest out")


def _shown(data: object, text: str, as_json: bool) -> SpoolAnswer:
    """As `render.show` writes it."""
    if as_json:
        return SpoolAnswer(0, msgspec.json.encode(as_data(data)).decode() + "\n")
    return SpoolAnswer(0, f"{text}\n" if text else "")
