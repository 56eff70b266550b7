"""What a job printed, for people."""

from __future__ import annotations

from phasegate.engine.job_view import JobView
from phasegate.record.location import Location


def log_text(location: Location, view: JobView) -> str:
    """Everything that an agent program wrote to stdout and stderr; a headline names each file where there are two."""
    texts = [(log.path, (location.root / log.path).read_text(encoding="utf-8", errors="replace")) for log in view.logs]
    if len(texts) < 2:
        return "".join(text for _, text in texts)
    return "\n".join(f"== {path}\n{text}" for path, text in texts)
