"""What a run prints: progress to stderr, gates and blocks to stdout; a block is always the last thing of all (N1)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from phasegate.doors.cli.live_view import LiveView
from phasegate.doors.cli.render import printable, say
from phasegate.engine.watching import Follower
from phasegate.rules.feature_state import Feature
from phasegate.rules.lifecycle import Stage
from phasegate.rules.telling import Told
from phasegate.rules.workflow import gate_name, resolve_display_name

_MOST_FINDINGS = 20


class Teller:
    """Prints what happens. A block is held back until it is known whether something follows it."""

    def __init__(self, *, quiet: bool = False, view: LiveView | None = None) -> None:
        self._block = ""
        self._quiet = quiet
        self._view = view
        self._warned: set[str] = set()
        self._lock = Lock()

    def __call__(self, told: Told) -> None:
        if self._quiet:
            return
        with self._lock:
            self._tell(told)

    def warn(self, text: str) -> None:
        """A remark of ours, once: ten agents have ten times the same to say."""
        with self._lock:
            if text not in self._warned and not self._quiet:
                self._warned.add(text)
                self._wipe()
                say(f"note: {printable(text)}", err=True)

    def look(self, follower: Follower) -> None:
        """Bring the live lines up to date, where there are any."""
        if self._view is not None and not self._quiet:
            with self._lock:
                self._view.draw(follower)

    def _tell(self, told: Told) -> None:
        self._wipe()
        if told.line:
            self._flush()
            is_gate = told.line.startswith("GATE-")
            say(printable(told.line), err=not is_gate)
        self._block = told.block or self._block

    def end(self, lines: tuple[str, ...] = ()) -> None:
        """Say where things stand, then the last block."""
        self._wipe()
        for line in lines:
            say(printable(line), err=True)
        self._flush()

    def _wipe(self) -> None:
        if self._view is not None:
            self._view.wipe()

    def _flush(self) -> None:
        if self._block:
            say(self._block.removesuffix("\n"))
            self._block = ""


class Remarks(logging.Handler):
    """Warnings of our own, handed to whoever tells."""

    def __init__(self, teller: Teller) -> None:
        super().__init__(logging.WARNING)
        self._teller = teller

    def emit(self, record: logging.LogRecord) -> None:
        self._teller.warn(record.getMessage())


@contextmanager
def remarks_to(teller: Teller) -> Iterator[None]:
    """Have the warnings of the product told while the block runs."""
    logger, handler = logging.getLogger("phasegate"), Remarks(teller)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def standing(feature: Feature) -> tuple[str, ...]:
    """Where a feature stands when a run stops, in words: why, what is kept, and the command that comes next (W6)."""
    workflow = feature.workflow
    branch = f"the work is on feat/{workflow.feature}"
    gate = gate_name(workflow.phase)
    match workflow.stage:
        case Stage.BLOCKED:
            remedy = (f"  what to do: {feature.remediation}",) if feature.remediation else ()
            return (
                f"{workflow.feature} is blocked in {workflow.phase}: {workflow.reason}",
                *_findings(feature),
                *remedy,
                f"  {branch}; the logs: phasegate audit show",
                '  then: phasegate resolve "how", and phasegate run',
            )
        case Stage.GATE_PASSED if workflow.is_last_phase:
            return (f"{gate} was the last gate; {branch}", "  then: phasegate complete")
        case Stage.GATE_PASSED:
            return (f"{gate} has passed; {branch}", "  then: phasegate run, or phasegate advance")
        case Stage.GATE_FAILED:
            return (f"{gate} has failed: {workflow.reason}", "  then: phasegate run, or phasegate retry")
        case Stage.WORKING:
            return (f"{resolve_display_name(workflow.phase)} is in work; {branch}", "  then: phasegate run")
        case Stage.CANCELLED:
            return (f"{workflow.feature} is cancelled: {workflow.reason}",)
        case Stage.COMPLETED:
            return ()


def _findings(feature: Feature) -> Iterator[str]:
    """What the checks and the reviewer of this round said: a person has to decide on it."""
    lines = [line for line in _report(feature).splitlines() if line.strip()]
    if lines:
        yield "  findings:"
        yield from (f"    {line}" for line in lines[:_MOST_FINDINGS])
    if len(lines) > _MOST_FINDINGS:
        yield f"    ... and {len(lines) - _MOST_FINDINGS} more lines"


def _report(feature: Feature) -> str:
    """Behind a passed gate something else is in the way, and its findings are settled."""
    workflow = feature.workflow
    return feature.report if workflow.stage is Stage.BLOCKED and workflow.blocked_at is Stage.WORKING else ""


def as_data(feature: Feature) -> dict[str, object]:
    """The same for programs."""
    workflow = feature.workflow
    return {
        "feature": workflow.feature,
        "type": workflow.type,
        "phase": workflow.phase,
        "stage": str(workflow.stage),
        "round": workflow.round,
        "reason": workflow.reason,
        "findings": _report(feature),
        "remediation": feature.remediation,
        "branch": f"feat/{workflow.feature}",
        "base": feature.base,
        "packages": {name: str(state) for name, state in feature.packages.items()},
    }
