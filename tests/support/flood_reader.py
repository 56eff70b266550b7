"""A reader of floods as a program of its own, so that its memory can be measured.

`python flood_reader.py FILE [--naive]`: FILE holds the pickled request of a job. Prints by how many bytes the peak of
its memory grew, and what it kept.
"""

from __future__ import annotations

import pickle
import resource
import subprocess
import sys
from pathlib import Path

from phasegate.sandbox.bounded_output import LineSplitter, OutputStream
from phasegate.sandbox.job import SandboxedJob
from phasegate.sandbox.request import JobRequest


def main() -> None:
    request: JobRequest = pickle.loads(Path(sys.argv[1]).read_bytes())
    before = peak_bytes()
    if "--naive" in sys.argv:
        everything = subprocess.run(request.argv, cwd=request.cwd, capture_output=True)
        print(peak_bytes() - before, len(everything.stdout) + len(everything.stderr))
        return
    lines, count = LineSplitter(max_line_bytes=1024**2), 0

    def split(stream: OutputStream, chunk: bytes) -> None:
        nonlocal count
        if stream is OutputStream.STDOUT:
            count += len(lines.feed(chunk))

    outcome = SandboxedJob(request).run(split)
    lines.flush()
    kept = (
        outcome.stdout.size,
        outcome.stderr.size,
        outcome.stdout.truncated,
        outcome.stderr.truncated,
        outcome.exit_code,
    )
    print(peak_bytes() - before, *kept, count, lines.skipped_lines > 0)


def peak_bytes() -> int:
    """Of this program alone: on Linux `ru_maxrss` begins with what the process had before it was this program."""
    if sys.platform == "darwin":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024


if __name__ == "__main__":
    main()
