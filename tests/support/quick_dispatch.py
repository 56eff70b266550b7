"""Projects whose agents are shell scripts and whose test run is an echo: a whole dispatch in about half a second."""

from __future__ import annotations

import json
from pathlib import Path

from support.dispatch_project import DispatchProject, make_project, package
from support.git_project import make_repository

ECHO = "echo '1 passed in 0.01s'"
FIRST, SECOND = "src/login.ts", "src/logout.ts"
# Two implementers, each with its own file; the reviewer wants a second round. The envelope on stdin tells them apart.
TWO_ROUNDS = f"""
envelope=$(cat)
if [ "$PHASEGATE_PHASE" = review ]; then
  if [ "$PHASEGATE_ROUND" = 1 ]; then echo "<review>NEEDS_CHANGES</review>"; else echo "<review>PASS</review>"; fi
  exit 0
fi
case "$envelope" in *'"agent_index":1'*|*'"agent_index": 1'*) file={SECOND};; *) file={FIRST};; esac
mkdir -p src
echo "round $PHASEGATE_ROUND" >> $file
git add $file
git commit -q -m "WP01: Round $PHASEGATE_ROUND of $file"
echo '{{"job_id": "'$AGILEPLUS_JOB_ID'", "wp_id": "WP01", "success": true, "status": "completed"}}'
"""


def two_agents_two_rounds(folder: Path, run: str = "", script: str = TWO_ROUNDS) -> DispatchProject:
    """A package that two agents do in two rounds."""
    program = folder / "agent.sh"
    program.write_text(script)
    harness = (
        f'harness = "command"\ncommand = {json.dumps(["/bin/sh", str(program)])}\ntimeout_s = 60'
    )
    documents = {"WP01": package(files=[FIRST, SECOND], test=ECHO, num_agents=2)}
    made = make_project(folder, documents, harness=harness, run=run)
    return made._replace(scenario=program)  # by which processes that are left over are found


# One implementer; each run of it is counted beside the project.
COUNTED = """
cat > /dev/null
echo "$PHASEGATE_PHASE" >> "RUNS"
if [ "$PHASEGATE_PHASE" = review ]; then echo "<review>PASS</review>"; exit 0; fi
mkdir -p src
echo "export const done = true;" > src/login.ts
git add src
git commit -q -m "WP01: Write it"
echo '{"job_id": "'$AGILEPLUS_JOB_ID'", "wp_id": "WP01", "success": true, "status": "completed"}'
"""


def one_agent_counted(top: Path) -> None:
    """A package of one file in `top`; which phases were run stands in `runs` beside it."""
    program = top.parent / "agent.sh"
    program.write_text(COUNTED.replace("RUNS", str(top.parent / "runs")))
    harness = (
        f'harness = "command"\ncommand = {json.dumps(["/bin/sh", str(program)])}\ntimeout_s = 60'
    )
    make_project(top, {"WP01": package(test=ECHO)}, harness=harness, run='sandbox = "none"')


# A whole `run quick "Say bye"` with one package: everybody does what is asked at once.
WHOLE = """
cat > /dev/null
specs=kitty-specs/001-say-bye
case $PHASEGATE_PHASE in
plan)
  mkdir -p $specs
  echo "# Proposal" > $specs/proposal.md
  cat > $specs/spec.md <<'END'
# Spec
<!-- spec-kitty: fr-count=1 -->
<!-- sk:fr id="FR-BYE-001" priority="high" -->
It says bye.
<!-- /sk:fr -->
END
  cat > $specs/tasks.md <<'END'
# Tasks

- [ ] 2.1 Say bye
  - File: bye.py
  - Spec: FR-BYE-001
  - Do: bye says bye.
END
  ;;
implement)
  echo "def bye(): pass" > bye.py
  git add bye.py
  git commit -q -m "WP01: Do it"
  echo '<task_status id="2.1">completed</task_status>'
  echo '{"job_id": "'$AGILEPLUS_JOB_ID'", "wp_id": "WP01", "success": true, "status": "completed"}'
  exit 0 ;;
archive) echo "- Bye." > CHANGELOG.md ;;
esac
echo "<review>PASS</review>"
"""
OUR_CHECK = f"""
[run]
sandbox = "none"
[checks.python]
setup = ""
build = ""
test = "{ECHO}"
lint = ""
typecheck = ""
coverage = ""
"""


def whole_run(top: Path) -> None:
    """A repository in `top` in which `run quick "Say bye" --merge` goes through at once."""
    program = top.parent / "agent.sh"
    program.write_text(WHOLE)
    agent = (
        f'[agents.actor]\nharness = "command"\ncommand = {json.dumps(["/bin/sh", str(program)])}\n'
    )
    make_repository(top / "repo", {"requirements.txt": "", "phasegate.toml": agent + OUR_CHECK})
