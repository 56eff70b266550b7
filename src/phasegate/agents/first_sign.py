"""Silence before the first sign of the model: a program may wait there for hours without a word.

Qwen Code at HTTP 429 with a long Retry-After is such a one. It is stopped, and the run ends with a name for it.
"""

from __future__ import annotations

import threading

from phasegate.agents.port import AgentReport, Ending, Talk


class FirstSign:
    """Stops a job whose model gives no sign in time. Nothing is watched before `begin`."""

    def __init__(self, talk: Talk, within_s: float) -> None:
        self.missed = False
        self._within_s = within_s
        self._talk = talk
        self._timer: threading.Timer | None = None

    def begin(self) -> None:
        """The job starts now."""
        self._timer = threading.Timer(self._within_s, self._give_up)
        self._timer.daemon = True
        self._timer.start()

    def seen(self) -> None:
        """The model gave a sign, or nobody waits for one any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self.missed = True
        self._talk.stop()

    def report(self) -> AgentReport:
        """What a run brought that was stopped for its silence."""
        reason = f"no sign of its model within {self._within_s:.0f} s; it may be waiting at a limit of its provider"
        remedy = "if its model is slow to begin, raise `first_sign_s` of the agent"
        return AgentReport("", Ending.SILENT, reason, remedy=remedy)
