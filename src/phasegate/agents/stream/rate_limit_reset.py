"""Find the time at which a rate limit ends in an error message.

Examples: "resets at 3pm (UTC)", "try again in 2 hours", a date.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

MAX_TEXT_CHARS = 16_000
# A time further in the future must be a parsing error.
MAX_RESET_DELAY_S = 32 * 86_400.0

_RESET_WORDS = r"\b(?:resets?|retry|retrydelay|try again|available again|reset)"
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_SPAN = r"[0-9]{1,9}(?:\.[0-9]{1,9})? ?(?:ms|[wdhms])[a-z]{0,8}(?![a-z])"
_RELATIVE = re.compile(
    rf'{_RESET_WORDS}[ "\'_-]*(?:in|after)?[ "\':=]*'
    rf"((?:{_SPAN}[ ,]*(?:and )?){{1,5}}|[0-9]{{1,7}}\b)",
    re.I,
)
_PART = re.compile(r"([0-9.]+) ?(ms|[wdhms])", re.I)
_UNIX = re.compile(r"\b(?:limit reached\||resets?[ _]?(?:at)?[\"': =]+)([0-9]{10})\b", re.I)
_ISO = re.compile(
    r"\b20[0-9]{2}-[01][0-9]-[0-3][0-9][T ][0-2][0-9]:[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,6})?)?Z?"
)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_CLOCK = re.compile(
    rf"{_RESET_WORDS}(?: at)?[: ]+"
    rf"(?:({'|'.join(_MONTHS)})[a-z]* ([0-9]{{1,2}})(?:st|nd|rd|th)?,? ?(20[0-9]{{2}})?,? ?"
    r"(?:at )?)?"
    r"([0-9]{1,2})(?::([0-5][0-9]))? ?(am|pm)?\b(?: ?\(?(UTC|GMT|[A-Z][A-Za-z]+/[A-Za-z_]+)\b)?",
    re.I,
)


def find_reset_time_s(text: str, now_s: float, local_zone: tzinfo | None = None) -> float | None:
    """Return the Unix reset time of a rate limit, or None if the text has no plausible time."""
    end = text[-MAX_TEXT_CHARS:]
    zone = local_zone or _get_local_zone()

    for parse in _PARSERS:
        try:
            reset_at_s = parse(end, now_s, zone)
        except (ValueError, OverflowError, KeyError, OSError):
            # A date that does not exist, or an unknown time zone.
            continue

        if reset_at_s is not None and now_s - 1 <= reset_at_s <= now_s + MAX_RESET_DELAY_S:
            return reset_at_s

    return None


def _parse_iso(text: str, now_s: float, local: tzinfo | None) -> float | None:
    match = _ISO.search(text)
    if match is None or not re.search(_RESET_WORDS, text[: match.start()], re.I):
        return None

    zone = UTC if match[0].endswith("Z") else local
    reset_time = datetime.fromisoformat(match[0].rstrip("Z"))
    return reset_time.replace(tzinfo=zone).timestamp()


def _parse_unix(text: str, now_s: float, local: tzinfo | None) -> float | None:
    match = _UNIX.search(text)
    if match:
        return float(match[1])
    return None


def _parse_relative(text: str, now_s: float, local: tzinfo | None) -> float | None:
    """Parse a wait such as "try again in 2 hours"; return the Unix time of its end."""
    match = _RELATIVE.search(text)
    if match is None:
        return None

    if match[1].isdigit():
        # "resets 3" may mean 3 o'clock; "retry after 3" means seconds.
        if match[0].lower().startswith("reset"):
            return None
        return now_s + float(match[1])

    delay_s = 0.0
    for amount, unit in _PART.findall(match[1]):
        delay_s += float(amount) * _UNITS[unit.lower()]

    return now_s + delay_s


def _parse_clock(text: str, now_s: float, local: tzinfo | None) -> float | None:
    """Parse a time of day such as "resets 3:00 pm (UTC)"; return its next Unix time."""
    match = _CLOCK.search(text)
    if match is None or not (match[5] or match[6]):
        return None

    month, day, year, hour, minute, am_or_pm, zone_name = match.groups()
    zone = ZoneInfo(zone_name) if zone_name else local
    now = datetime.fromtimestamp(now_s, zone)
    hours = int(hour)
    if am_or_pm:
        hours %= 12
        if am_or_pm.lower() == "pm":
            hours += 12

    reset_time = now.replace(hour=hours, minute=int(minute or 0), second=0, microsecond=0)
    if month:
        month_number = _MONTHS.index(month.lower()) + 1
        reset_time = reset_time.replace(
            year=int(year or now.year), month=month_number, day=int(day)
        )
    elif reset_time < now:
        reset_time += timedelta(days=1)

    return reset_time.timestamp()


def _get_local_zone() -> tzinfo | None:
    return datetime.now().astimezone().tzinfo


_PARSERS: tuple[Callable[[str, float, tzinfo | None], float | None], ...] = (
    _parse_iso,
    _parse_unix,
    _parse_relative,
    _parse_clock,
)
