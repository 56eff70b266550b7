"""Texts in a stored reason that other modules recognise. Imports nothing: `status` loads this."""

from __future__ import annotations

AT_A_FORGE = " waits for people"  # the end of a reason: behind the last gate, a pull request
