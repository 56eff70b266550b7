"""A project whose agents are shell scripts and whose test run is an echo: a whole dispatch in about half a second."""

from __future__ import annotations

import json
from pathlib import Path

from support.dispatch_project import DispatchProject, make_project, package

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
    harness = f'harness = "command"\ncommand = {json.dumps(["/bin/sh", str(program)])}\ntimeout_s = 60'
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
    harness = f'harness = "command"\ncommand = {json.dumps(["/bin/sh", str(program)])}\ntimeout_s = 60'
    make_project(top, {"WP01": package(test=ECHO)}, harness=harness, run='sandbox = "none"')
