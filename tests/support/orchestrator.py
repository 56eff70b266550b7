"""A small orchestrator as a program of its own, to be killed by tests: `python orchestrator.py FILE`.

FILE holds the pickled request of a job. With `--naive` it does what a careless one would: starts it, and waits.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

from phasegate.sandbox.job import SandboxedJob
from phasegate.sandbox.request import JobRequest


def main() -> None:
    request: JobRequest = pickle.loads(Path(sys.argv[1]).read_bytes())
    if "--terminal" in sys.argv:
        os.open(
            sys.argv[sys.argv.index("--terminal") + 1], os.O_RDWR
        )  # a session without one gets it as its own
    if "--naive" in sys.argv:
        subprocess.run(request.argv, cwd=request.cwd, start_new_session=True)
        return
    outcome = SandboxedJob(request).run()
    print(outcome._replace(stdout=outcome.stdout._replace(head=b"", tail=b"")))


if __name__ == "__main__":
    main()
