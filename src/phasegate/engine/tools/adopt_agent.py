"""Let an agent characterize existing code, and keep the tests that pass (`adopt --agent`)."""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

from phasegate.checks.evidence import CheckOutcome, CheckResult
from phasegate.checks.plan import Purpose
from phasegate.core.plan.work_package import WorkPackage
from phasegate.core.specs.adopt import find_tests
from phasegate.core.specs.bindings import list_public_symbols
from phasegate.core.specs.characterize import (
    draft_characterized,
    name_test_file,
    parse_proposal,
    select_slice,
)
from phasegate.core.specs.spec_file import MalformedSpec
from phasegate.core.text.visible import escape_unprintable
from phasegate.engine.checks.manifest import PackageChecker
from phasegate.engine.checks.plan import make_check_plans
from phasegate.engine.checks.run_baseline import BaseTree
from phasegate.engine.project.agents import choose_agent
from phasegate.engine.project.current_specs import read_texts
from phasegate.engine.project.project import Project
from phasegate.engine.tools.agent_trial import ask_agent
from phasegate.engine.tools.spec_files import (
    AdoptedCode,
    list_taken_ids,
    list_tests,
    propose_adoption,
    read_capability,
    read_code,
)
from phasegate.engine.views.specs import require_head
from phasegate.errors import ConfigError, StateConflict
from phasegate.prompts.shipped_texts import render_instructions
from phasegate.storage.journal_store import Store
from phasegate.workspace.repository.commit_log import list_blobs
from phasegate.workspace.repository.disk_files import blob_id
from phasegate.workspace.repository.objects import (
    NewCommit,
    PathVersion,
    write_blobs,
    write_commits,
)

# Characters of code for one agent run
_MAX_SLICE_CHARS = 120_000
_AGAIN = "run adopt again, or with another agent"


def adopt_with_agent(
    project: Project, store: Store, folder: str, capability: str, limit: int, agent: str
) -> AdoptedCode:
    """Ask an agent for requirements with tests, run these, and propose the shown requirements.

    Nothing is written to the user's checkout.
    """
    commit = require_head(project)
    code = read_code(project, commit, folder)
    current = read_capability(project, commit, capability)
    chosen, left = select_slice(code, current, _MAX_SLICE_CHARS)
    if not chosen:
        raise ConfigError(
            f"every file of {folder} has requirements already",
            f"edit {project.config.deliver.specs}/{capability}.md, or adopt another folder: "
            "phasegate adopt FOLDER --agent NAME",
        )

    package = WorkPackage(work_package_id="adopt", title="", feature_slug="adopt", file_scope=())
    plans = make_check_plans(project, package, commit, commit)
    command = plans[0].plan.commands.get(Purpose.TEST, "")
    if not command:
        raise ConfigError(
            "no test command is known",
            'let an agent find it: phasegate discover; or set test = "..." in [checks.NAME] '
            "of phasegate.toml",
        )

    tests = list_tests(project, commit)
    paths = list_blobs(project.repository, commit)
    test_file = name_test_file(capability, chosen[0], paths, tests)
    listed = "\n".join(f"- `{escape_unprintable(path)}`" for path in chosen)
    values = {
        "FOLDER": folder,
        "FILES": listed,
        "LIMIT": str(limit),
        "TEST_FILE": test_file,
        "COMMAND": command,
    }
    member = choose_agent(project, "review", "", agent)
    text = render_instructions("adopt", values)
    _, answer = ask_agent(project, store, member, commit, text, "adopt")
    sliced = {path: code[path] for path in chosen}
    checker = PackageChecker(project, package, commit)
    try:
        proposal = parse_proposal(answer)
        proposal = msgspec.structs.replace(proposal, requirements=proposal.requirements[:limit])
        drafted = draft_characterized(
            capability=capability,
            proposal=proposal,
            test_file=test_file,
            code=sliced,
            current=current,
            find_outcome=_run_test_file(checker, commit, test_file, proposal.tests),
            used=list_taken_ids(project, commit),
        )
        # Without the removed tests, the others must pass still
        find_outcome = _run_test_file(checker, commit, test_file, drafted.tests)
        if any(find_outcome(name) != "passed" for name in drafted.passing):
            raise MalformedSpec("its tests do not pass without those that were dropped")
    except MalformedSpec as error:
        raise StateConflict(f"the agent's proposal: {error}", _AGAIN) from error

    texts = {**read_texts(project, commit, tests), test_file: drafted.tests}
    covered = {name for _, named in find_tests(sliced, texts) for name in named}
    symbols = [one for path, text in sliced.items() for one in list_public_symbols(path, text)]
    return msgspec.structs.replace(
        propose_adoption(project, commit, capability, drafted.spec),
        uncovered=tuple(one for one in symbols if one not in covered),
        left=left,
        failing=drafted.failing,
        inferred=drafted.inferred,
        test_file=test_file,
        tests=drafted.tests,
    )


def _run_test_file(
    checker: PackageChecker, commit: str, path: str, text: str
) -> Callable[[str], str]:
    """Run the project's tests with a new file; return a function that finds a test's outcome."""
    if not text:
        return lambda _: "not run"

    repository = checker.project.repository
    data = text.encode()
    write_blobs(repository, [data])
    signature = checker.project.make_signature()
    (changed,) = write_commits(
        repository,
        [
            NewCommit(
                parents=(commit,),
                author=signature,
                committer=signature,
                message="Characterise existing code\n",
                paths={path: PathVersion("100644", blob_id(data, repository.hash_name))},
            )
        ],
    )
    evidence = checker.run_checks(changed, (Purpose.SETUP, Purpose.TEST))
    reports = BaseTree(checker.project, checker.package, commit).get_reports()
    before = [check for report in reports for check in report.checks]
    known = {name for check in before for name in _list_changed_functions(check)}
    outcomes: dict[str, set[str]] = {}
    for check in evidence.checks:
        _refuse_unusable_run(check, known)
        prefix = f"{check.root}/" if check.root else ""
        for case in check.tests.cases if check.tests else ():
            # Without a name, the file could not be loaded
            if prefix + case.file == path and case.name:
                name = case.name.partition("[")[0]
                name = name.replace(".", "::") if path.endswith(".py") else name
                outcomes.setdefault(name, set()).add(case.outcome)

    if not outcomes:
        tail = evidence.checks[-1].summary
        raise StateConflict(
            f"the test command reported no test of {path}: {tail}",
            "phasegate check shows its output; it needs pytest, unittest or node --test",
        )

    def find(name: str) -> str:
        return min(outcomes.get(name, {"not run"}) - {"passed"}, default="passed")

    return find


def _refuse_unusable_run(check: CheckResult, known: Collection[str]) -> None:
    """Refuse a setup that failed, and a run that changed more of its runner than known."""
    if check.name == Purpose.SETUP and check.outcome is CheckOutcome.FAILED:
        raise StateConflict(f"the setup failed: {check.summary}", check.remedy)
    changed = {*_list_changed_functions(check)} - {*known}
    if changed or (check.tests and check.tests.is_forged):
        raise StateConflict("the agent's tests changed how tests are run", _AGAIN)


def _list_changed_functions(check: CheckResult) -> tuple[str, ...]:
    return (check.tests.changed_functions if check.tests else ()) or ()
