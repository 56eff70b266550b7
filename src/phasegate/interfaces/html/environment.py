"""The Jinja2 environment of the board and the report.

Every value is escaped (autoescape), and characters that a reader cannot see are shown as escapes.
Templates use attributes only, no inline style or script: the content security policy allows none.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from phasegate.core.display.status import FeatureCard, describe_merge
from phasegate.core.text.elapsed import describe_age
from phasegate.core.text.visible import escape_unprintable
from phasegate.core.text.wording import pluralize
from phasegate.engine.views.overview import JobRow
from phasegate.engine.views.verdicts import describe_outcome
from phasegate.interfaces.html.diff import parse_diff
from phasegate.interfaces.html.markdown import render_markdown


def render(template: str, **context: object) -> str:
    """Render a template of this package."""
    return _ENVIRONMENT.get_template(template).render(context)


def render_macro(template: str, macro: str, *arguments: object) -> str:
    """Render one macro of a template: a fragment that replaces a part of an open page."""
    return str(getattr(_ENVIRONMENT.get_template(template).module, macro)(*arguments))


def build_path(repository: str, *parts: str) -> str:
    """Return the URL path of a page in a repository."""
    return "/".join(("", "at", *(quote(part, safe="") for part in (repository, *parts))))


def parse_timestamp(ts: str) -> float:
    """Return a recorded time as seconds since 1970."""
    return datetime.fromisoformat(ts).timestamp()


def format_duration(seconds: float) -> str:
    """Format a duration with one unit, e.g. `3.2 s` or `14 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"

    return f"{seconds / 3600:.1f} h"


def format_number(number: int) -> str:
    """Group the digits of a number by spaces; a dash for 0, which agents report for unknown."""
    return f"{number:,}".replace(",", " ") if number else "–"


def format_claim(value: object) -> str:
    """Format a value of an agent's result in words."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(format_claim, value))
    if isinstance(value, dict):
        return ", ".join(f"{name} {format_claim(one)}" for name, one in value.items() if one)
    return str(value)


def format_cost(cost_usd: float) -> str:
    """Format dollars; a dash if no agent reported any."""
    return f"${cost_usd:.2f}" if cost_usd >= 0.005 else "–"


def shorten_phase_name(name: str) -> str:
    """Return the name of a phase without its number."""
    return name.partition(" - ")[2].replace("Cicd", "CI/CD") or name


def describe_card_merge(card: FeatureCard) -> str:
    """Describe where the work of a feature was merged; empty while it is in progress."""
    return describe_merge(card.type, card.stage, card.base, card.merged)


def _format_local_time(ts: str, time_format: str) -> str:
    return datetime.fromisoformat(ts).astimezone().strftime(time_format)


def _format_job_duration(job: JobRow) -> str:
    """Format the run time of a job; up to now while it runs."""
    end = parse_timestamp(job.ended) if job.ended else datetime.now(UTC).timestamp()
    return format_duration(max(0.0, end - parse_timestamp(job.started)))


def _format_age(ts: str) -> str:
    """Describe how long ago a recorded time is."""
    return f"{describe_age(datetime.now(UTC).timestamp() - parse_timestamp(ts))} ago"


def _classify_outcome(job: JobRow, verdicts: Mapping[str, str]) -> str:
    """Return the CSS class of a job's outcome."""
    if describe_outcome(job, verdicts) in ("PASS", "done", "running"):
        return "is-good" if job.ended else ""
    return "is-bad"


def _shorten(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else f"{text[: max_chars - 1]}…"


def _finalize(value: object) -> object:
    """Show unprintable characters as escapes. Markup comes from macros and is already escaped."""
    if isinstance(value, Markup):
        return value
    return "" if value is None else escape_unprintable(str(value), keep="\n\t")


_ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    finalize=_finalize,
    undefined=StrictUndefined,
    auto_reload=False,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_ENVIRONMENT.globals.update(path=build_path, merge_text=describe_card_merge)
_ENVIRONMENT.tests["list"] = lambda value: isinstance(value, list)
_ENVIRONMENT.filters.update(
    age=_format_age,
    claim=format_claim,
    cost=format_cost,
    diff_lines=parse_diff,
    duration=format_duration,
    job_duration=_format_job_duration,
    local_time=_format_local_time,
    markdown=render_markdown,
    number=format_number,
    outcome=describe_outcome,
    outcome_class=_classify_outcome,
    phase_name=shorten_phase_name,
    pluralize=pluralize,
    shorten=_shorten,
)
