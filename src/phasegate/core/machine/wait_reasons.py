"""Texts in a stored reason that other modules recognise. Imports nothing: `status` loads this."""

from __future__ import annotations

# The end of a reason: behind the last gate, a pull request
WAITING_AT_FORGE_SUFFIX = " waits for people"
