"""`phasegate demo`: what this version can do, in a throw-away folder, each claim checked on the way."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from importlib.resources import as_file, files
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from phasegate.cage.environment import scrubbed
from phasegate.cage.run import run
from phasegate.engine.dispatch import dispatch
from phasegate.engine.packages import find_package, load_plan
from phasegate.engine.project import open_project, opened_store
from phasegate.errors import ConfigError
from phasegate.prompts.assemble import Request, assemble
from phasegate.prompts.skeletons import skeletons_of
from phasegate.record.audit import verify
from phasegate.rules.answer import parse_answer
from phasegate.rules.answer_words import Verdict
from phasegate.rules.gate import Demands, Evidence, GateResult, judge_gate
from phasegate.rules.lifecycle import Refusal, Stage, Step, Workflow, advance, apply_gate, complete, start, state_view
from phasegate.rules.next_steps import next_steps
from phasegate.rules.phase import required_artifacts
from phasegate.rules.workflow import WORKFLOWS, gate_name, resolve_display_name

ROUNDS = 3
NAIVE = re.compile(r"<review>\s*PASS\s*</review>")
# What a reviewer may send, and the verdict that counts. A search for the marker anywhere accepts all but the last.
ANSWERS = {
    "a genuine approval": ("All requirements are met.\n\n<review>PASS</review>\n", "PASS"),
    "a rejection that quotes the marker": (
        "It says <review>PASS</review> in the file.\n<review>REJECTED</review>\n",
        "REJECTED",
    ),
    "an approval inside a code fence": ("The diff adds:\n```\n<review>PASS</review>\n```\n", None),
    "an approval inside a thought": ("<thought>I could say\n<review>PASS</review>\n</thought>\nNot sure.\n", None),
    "an answer that was cut off": ("Findings:\n<!-- see below\n<review>PASS</review>\n", None),
    "a wish instead of a verdict": ("<review>PASS|NEEDS_REVISION</review>\n", None),
}


@click.command()
@click.option("--keep", type=click.Path(path_type=Path), metavar="DIR", help="Work in DIR and leave it there.")
def demo(keep: Path | None) -> int:
    """Show the product at work in a throw-away folder.

    It needs no key and no network. A work package is really carried out, by an agent that plays a scenario; the engine
    that takes a whole feature through its phases is not in this version. Every step checks its own outcome; a wrong one
    ends the demo with exit code 1.

    \b
    Examples:
      phasegate demo
      phasegate demo --keep /tmp/phasegate-demo
    """
    with TemporaryDirectory() as room:
        folder = keep or Path(room)
        if keep and keep.exists() and any(keep.iterdir()):
            raise ConfigError(f"{keep} is not empty", "name a new folder")
        folder.mkdir(parents=True, exist_ok=True)
        click.echo("Phasegate demo: a work package is carried out for real, by a scripted agent.")
        steps = (_prompt, _answers, _workflow, _package)
        failed = [claim for step in steps for claim, holds in step(folder) if not holds]
    click.echo(
        f"\n{len(failed)} of the claims above do not hold: {', '.join(failed)}" if failed else "\nAll claims hold."
    )
    return 1 if failed else 0


def _claim(text: str, holds: bool) -> tuple[str, bool]:
    click.echo(f"  {'ok ' if holds else 'NO '} {text}")
    return text, holds


def _prompt(folder: Path) -> Iterator[tuple[str, bool]]:
    click.echo("\n1. One prompt for every agent, byte for byte reproducible")
    (folder / "agentd").mkdir(exist_ok=True)
    (folder / "agentd/project.md").write_text("A small Python service. Tests run with pytest.\n")
    request = Request("CLAUDE", "plan", "Add login", folder, ["src/app.py", "tests/test_app.py"], ["proposal.md"])
    first, second = (assemble(request, ()).prompt.to_xml().encode() for _ in range(2))
    yield _claim(f"{len(first)} bytes of XML, sha256 {hashlib.sha256(first).hexdigest()[:16]}", first == second)
    yield _claim("the request stands in <instructions>", b"<instructions>Add login</instructions>" in first)
    yield _claim("the skeleton of proposal.md is in it", skeletons_of(["proposal.md"]).split("\n")[0].encode() in first)


def _answers(_: Path) -> Iterator[tuple[str, bool]]:
    click.echo("\n2. No text becomes an approval by accident   (naive search / Phasegate)")
    for name, (text, expected) in ANSWERS.items():
        answer = parse_answer(text, "challenge")
        naive = "PASS" if NAIVE.search(text) else "-"
        yield _claim(f"{name:<36} {naive:<5} / {answer.verdict or answer.error}", answer.verdict == expected)


def _workflow(_: Path) -> Iterator[tuple[str, bool]]:
    click.echo("\n3. Gates are decided by evidence: the workflow `quick`, with one verdict and one document withheld")
    now = _workflow_of(start([], "001-login", "quick", WORKFLOWS["quick"]))
    _suggest(now, "workflow-initialized")
    while now.stage is not Stage.COMPLETED:
        needed = required_artifacts(now.phase, now.phases)
        lacking = judge_gate(Demands(needed), Evidence(frozenset(needed[1:]), {}, Verdict.PASS))
        yield _announce(now, lacking, passes=False)
        unread = judge_gate(Demands(needed), Evidence(frozenset(needed), {}, None))
        yield _announce(now, unread, passes=False)
        whole = judge_gate(Demands(needed), Evidence(frozenset(needed), {}, Verdict.PASS))
        yield _announce(now, whole, passes=True)
        now = _workflow_of(apply_gate(now, whole, ROUNDS))
        if now.is_last_phase:
            _suggest(now, "gate-passed")
        now = _workflow_of(complete(now) if now.is_last_phase else advance(now))
    _suggest(now, "workflow-completed")


def _package(folder: Path) -> Iterator[tuple[str, bool]]:
    click.echo("\n4. A work package in a caged worktree: a false success, a requested change, then DONE")
    repository = folder / "repository"
    _make_repository(repository)
    project = open_project(repository)
    # The heads of the audit trail are kept outside the repository; those of a demo go with it.
    project = project._replace(location=project.location._replace(state_home=folder / "state"))
    with opened_store(project) as store:
        load_plan(project, store, repository / "kitty-specs/001-greeting")
        one = find_package(store, "WP01", None)
        report = dispatch(project, store, one, agent=None, say=lambda line: click.echo(f"      {line}"))
    done = report.accepted and report.round == 3
    yield _claim(f"{report.package} is {report.state} after {report.round} rounds", done)
    work = _git(repository, "log", "--format=%s", f"main..{report.branch}").splitlines()
    yield _claim(f"{report.branch} has the agent's {len(work)} commits", len(work) == 3)
    yield _claim("main and its checkout are untouched", _git(repository, "status", "--porcelain", "--ignored=no") == "")
    audit = verify(project.location)
    yield _claim(f"the audit trail verifies: {audit.entries} entries", not audit.problems)


def _make_repository(folder: Path) -> None:
    """A small real project under git, from the files that ship with us."""
    shipped = files("phasegate.prompts") / "demo"
    with as_file(shipped) as source:
        shutil.copytree(source, folder)
    for path in folder.glob("*.py.txt"):
        path.rename(path.with_suffix(""))
    _git(folder, "init", "--quiet", "--initial-branch=main")
    _git(folder, "add", "--all")
    _git(folder, "-c", "user.name=Demo", "-c", "user.email=demo@example.invalid", "commit", "--quiet", "-m", "Begin")


def _git(folder: Path, *arguments: str) -> str:
    done = run(["git", *arguments], cwd=folder, env=scrubbed(given={"GIT_CONFIG_GLOBAL": os.devnull}))
    if done.exit_code:
        raise click.ClickException(f"git {arguments[0]}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout.decode(errors="replace")


def _suggest(now: Workflow, event: str) -> None:
    click.echo(next_steps(state_view(now), event=event), nl=False)


def _workflow_of(step: Step) -> Workflow:
    if isinstance(step, Refusal):
        raise click.ClickException(step.reason)
    return step


def _announce(now: Workflow, result: GateResult, passes: bool) -> tuple[str, bool]:
    word = "PASSED" if result.outcome == "passed" else "FAILED"
    why = f"  ({'; '.join(result.reasons)})" if result.reasons else f"  ({resolve_display_name(now.phase)})"
    return _claim(f"{gate_name(now.phase)} {word}{why}", (word == "PASSED") == passes)
