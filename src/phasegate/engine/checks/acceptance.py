"""Prove acceptance tests before the code is written, and run the sealed ones on the work.

The bytes of sealed tests come from the record, never from the tree that is checked. They run in a
separate folder of a clean checkout, without the project's test settings.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from phasegate.checks import sealed_runner
from phasegate.checks.evidence import CheckResult, failed_check, passed_check
from phasegate.checks.plan import Purpose
from phasegate.core.machine.feature_state import Feature
from phasegate.core.plan.acceptance import (
    AcceptanceSeal,
    SealedTests,
    SingleFileRunner,
    assign_tests,
    find_acceptance_phase,
    find_interference,
    find_test_outcome,
    find_test_runner,
    hash_requirement,
    list_test_ids,
    select_test_files,
)
from phasegate.core.plan.requirements import read_spec
from phasegate.core.plan.work_package import WorkPackage
from phasegate.engine.checks.manifest import PackageChecker, find_added_lines
from phasegate.engine.checks.plan import make_check_plans
from phasegate.engine.project.feature_branch import FeatureBranch
from phasegate.engine.project.project import Project
from phasegate.errors import UnreadableFile
from phasegate.files.block_reader import read_up_to
from phasegate.typed import read_json
from phasegate.workspace.repository.commit_log import read_commit_trees

ACCEPTANCE_CHECK = "acceptance"
SEALED_FOLDER = ".phasegate-acceptance"
_PROOF_RUNS = 3
_MAX_REPORT_BYTES = 4 * 1024**2
_MAX_PROBLEMS = 20


class _Report(msgspec.Struct, frozen=True):
    """The report of `checks/sealed_runner.py`."""

    outcomes: dict[str, str]
    changed: tuple[str, ...]


class _SignedReport(msgspec.Struct, frozen=True):
    """A report, and its HMAC by the nonce of the run."""

    report: str
    mac: str


class RequirementRow(msgspec.Struct, frozen=True):
    """The result of a requirement's sealed tests on a tree."""

    requirement: str
    revision: str
    tests: tuple[str, ...]
    tree: str
    outcome: str


class SealedResult(NamedTuple):
    """The check for the evidence, and a row for each requirement."""

    check: CheckResult
    rows: tuple[RequirementRow, ...]


def find_project_runner(project: Project, slug: str, commit: str) -> SingleFileRunner | None:
    """Return the runner for acceptance tests, or None if the tests of the project need another."""
    package = _make_package(slug)
    plan = make_check_plans(project, package, commit, commit)[0].plan
    return find_test_runner(plan.commands.get(Purpose.TEST, ""))


def wants_acceptance(
    project: Project, feature: Feature, commit: str
) -> SingleFileRunner | str | None:
    """Return the runner if this phase writes acceptance tests, or why it cannot; else None."""
    phases = feature.workflow.phases
    if (
        feature.workflow.type not in project.config.evidence.acceptance
        or feature.closing
        or feature.phase.key != find_acceptance_phase(phases)
    ):
        return None

    runner = find_project_runner(project, feature.workflow.feature, commit)
    return runner or "the test command of the project is neither pytest nor unittest"


def prove_acceptance_tests(branch: FeatureBranch, commit: str) -> AcceptanceSeal | tuple[str, ...]:
    """Return the seal of tests that are red on a commit without the code, or their problems."""
    project = branch.project
    documents = branch.read_documents(branch.list_documents(commit))
    texts = select_test_files(documents)
    requirements = read_spec(documents.get("spec.md", "")).requirements
    try:
        ids = [id_ for name, text in texts.items() for id_ in list_test_ids(name, text)]
    except SyntaxError as error:
        return (f"acceptance/{error.filename} cannot be parsed: {error.msg}",)

    if not requirements:
        return AcceptanceSeal(commit=commit, files={}, tests={}, revisions={})
    tests = assign_tests(requirements, ids)
    problems = [f"{name} has no acceptance test" for name, found in tests.items() if not found]
    if problems:
        return tuple(problems)

    contents = {name: text.encode() for name, text in texts.items()}
    checker = PackageChecker(project, _make_package(branch.slug), commit)
    runs = _run_tests(checker, commit, contents, _PROOF_RUNS)
    if isinstance(runs, str):
        return (runs,)

    for id_ in ids:
        outcomes = {find_test_outcome(id_, run.outcomes) for run in runs}
        if len(outcomes) > 1:
            problems.append(f"{id_} is not deterministic: {', '.join(sorted(outcomes))}")
        elif "passed" in outcomes:
            problems.append(f"{id_} already passes without the feature, so it proves nothing")
        elif "skipped" in outcomes:
            problems.append(f"{id_} is skipped")
    if problems:
        return tuple(problems[:_MAX_PROBLEMS])

    return AcceptanceSeal(
        commit=commit,
        files={name: project.document_store.put(data) for name, data in contents.items()},
        tests=tests,
        revisions={one.id: hash_requirement(one) for one in requirements},
    )


def check_sealed_tests(checker: PackageChecker, commit: str, sealed: SealedTests) -> SealedResult:
    """Run the sealed tests on a commit; the tests of the due requirements must pass."""
    seal = sealed.seal
    rows: tuple[RequirementRow, ...] = ()
    problems = list(_find_tampering(checker, commit, seal))
    if not problems:
        contents = {
            name: checker.project.document_store.get(digest) for name, digest in seal.files.items()
        }
        runs = _run_tests(checker, commit, contents, 1)
        if isinstance(runs, str):
            problems = [runs]
        else:
            tree = read_commit_trees(checker.project.repository, [commit])[commit].tree
            rows = tuple(_list_rows(seal, tree, runs[0].outcomes))
            problems = [
                f"{row.requirement}: {', '.join(row.tests)}: {row.outcome}"
                for row in rows
                if row.requirement in sealed.due and row.outcome != "passed"
            ]

    if problems:
        remedy = (
            "Make the sealed tests pass without affecting how they run. If a test or its"
            " requirement is wrong, report a blocker: the user reopens them with `phasegate back`."
        )
        summary = "; ".join(problems[:_MAX_PROBLEMS])
        return SealedResult(failed_check(ACCEPTANCE_CHECK, summary, remedy), rows)

    return SealedResult(describe_passed_tests(sealed.due, rows), rows)


def describe_passed_tests(due: Sequence[str], rows: Sequence[RequirementRow]) -> CheckResult:
    """Return the passed check; a requirement without a sealed test is named, not counted."""
    tested = {row.requirement for row in rows}
    notes = [
        f"{row.requirement} ({row.revision}): {row.outcome}"
        for row in rows
        if row.requirement in due
    ]
    notes += [
        f"{name}: no sealed test, judge it by the change" for name in due if name not in tested
    ]
    count = sum(name in tested for name in due)
    return passed_check(ACCEPTANCE_CHECK, f"the sealed tests of {count} requirements pass", notes)


def _find_tampering(checker: PackageChecker, commit: str, seal: AcceptanceSeal) -> Iterator[str]:
    """Yield requirements that changed since the seal, and changes that affect the tests."""
    project = checker.project
    branch = FeatureBranch(project, checker.package.feature_slug)
    blob = branch.list_documents(commit).get("spec.md")
    texts = branch.read_documents({"spec.md": blob}) if blob else {}
    if texts:
        current = {
            one.id: hash_requirement(one) for one in read_spec(texts["spec.md"]).requirements
        }
        for name, revision in seal.revisions.items():
            if current.get(name) != revision:
                yield f"{name} was changed after its tests were sealed"

    added: dict[str, str] = {}
    for content in find_added_lines(project, checker.base_commit, [commit]):
        added[content.path] = content.text.decode(errors="replace")
    yield from find_interference(added, SEALED_FOLDER)


def _list_rows(
    seal: AcceptanceSeal, tree: str, outcomes: Mapping[str, str]
) -> Iterator[RequirementRow]:
    """Yield the outcome of each requirement's sealed tests."""
    for name, tests in seal.tests.items():
        found = {find_test_outcome(id_, outcomes) for id_ in tests}
        yield RequirementRow(
            requirement=name,
            revision=seal.revisions[name],
            tests=tests,
            tree=tree,
            outcome=min(found - {"passed"}, default="passed"),
        )


def _run_tests(
    checker: PackageChecker, commit: str, contents: Mapping[str, bytes], times: int
) -> list[_Report] | str:
    """Run test files on a clean checkout of a commit; return the reports, or why there is none."""
    project = checker.project
    runner = find_project_runner(project, checker.package.feature_slug, checker.base_commit)
    if runner is None:
        return "the test command of the project cannot run single files"

    program = Path(sealed_runner.__file__).read_bytes()
    nonces = [project.clock.new_id() for _ in range(times)]
    extra: dict[str, bytes] = {}
    lines = []
    for number, nonce in enumerate(nonces):
        folder = f"{SEALED_FOLDER}/{number}"
        extra |= {f"{folder}/{name}": data for name, data in contents.items()}
        extra |= {f"{folder}/run.py": program, f"{folder}/nonce": nonce.encode()}
        lines.append(f"{runner.python} {folder}/run.py {runner.name} {' '.join(contents)}")

    evidence = checker.run_checks(commit, (), lines, extra)
    if failed := [check for check in evidence.failures if check.name == Purpose.SETUP]:
        return f"the setup failed: {failed[0].summary}"

    reports = []
    for number, nonce in enumerate(nonces):
        path = checker.tree / SEALED_FOLDER / str(number) / "report.json"
        try:
            data = read_up_to(path, _MAX_REPORT_BYTES, follow_links=False)[0]
            signed = read_json(data, _SignedReport)
            report = read_json(signed.report, _Report)
        except (UnreadableFile, msgspec.MsgspecError):
            excerpt = evidence.checks[-1].excerpt[-300:]
            return f"the acceptance tests could not be run: {excerpt}"
        mac = hmac.digest(nonce.encode(), signed.report.encode(), "sha256").hex()
        if not hmac.compare_digest(mac, signed.mac):
            return "the code under test wrote the acceptance test report"
        if report.changed:
            return f"the code under test changed the test runner: {', '.join(report.changed[:5])}"
        reports.append(report)

    return reports


def _make_package(slug: str) -> WorkPackage:
    return WorkPackage(work_package_id="feature", title="", feature_slug=slug, file_scope=())
