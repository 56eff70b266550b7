"""Describe how long ago something happened.

`status` loads this module: it imports only modules that are loaded anyway.
"""

from __future__ import annotations

_MINUTE_S = 60
_HOUR_S = 3600
_DAY_S = 86_400


def describe_age(seconds: float) -> str:
    """Describe a duration with one unit, e.g. `42 s`, `5 min`, `3 h` or `2 days`."""
    passed_s = max(0, int(seconds))
    if passed_s < 2 * _MINUTE_S:
        return f"{passed_s} s"
    if passed_s < 2 * _HOUR_S:
        return f"{passed_s // _MINUTE_S} min"
    if passed_s < 2 * _DAY_S:
        return f"{passed_s // _HOUR_S} h"

    return f"{passed_s // _DAY_S} days"
