"""When a limit ends, read from the words of whoever set it.

"resets at 3pm (UTC)", "try again in 2 hours", a date.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

MAX_TEXT_CHARS = 16_000
# What lies further off is a misreading
MAX_RESET_DELAY_S = 32 * 86_400.0

_RESET_WORDS = r"\b(?:resets?|retry|retrydelay|try again|available again|reset)"
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_SPAN = r"[0-9]{1,9}(?:\.[0-9]{1,9})? ?(?:ms|[wdhms])[a-z]{0,8}(?![a-z])"
_RELATIVE = re.compile(
    rf'{_RESET_WORDS}[ "\'_-]*(?:in|after)?[ "\':=]*((?:{_SPAN}[ ,]*(?:and )?){{1,5}}|[0-9]{{1,7}}\b)',
    re.I,
)
_PART = re.compile(r"([0-9.]+) ?(ms|[wdhms])", re.I)
_UNIX = re.compile(r"\b(?:limit reached\||resets?[ _]?(?:at)?[\"': =]+)([0-9]{10})\b", re.I)
_ISO = re.compile(
    r"\b20[0-9]{2}-[01][0-9]-[0-3][0-9][T ][0-2][0-9]:[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,6})?)?Z?"
)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_CLOCK = re.compile(
    rf"{_RESET_WORDS}(?: at)?[: ]+(?:({'|'.join(_MONTHS)})[a-z]* ([0-9]{{1,2}})(?:st|nd|rd|th)?,? ?(20[0-9]{{2}})?,? ?"
    r"(?:at )?)?"
    r"([0-9]{1,2})(?::([0-5][0-9]))? ?(am|pm)?\b(?: ?\(?(UTC|GMT|[A-Z][A-Za-z]+/[A-Za-z_]+)\b)?",
    re.I,
)


def find_reset_time_s(text: str, now_s: float, local_zone: tzinfo | None = None) -> float | None:
    """Seconds since 1970 at which a limit ends, or None where the text does not say so or makes no
    sense.
    """
    end = text[-MAX_TEXT_CHARS:]

    for read in _PARSERS:
        try:
            found = read(end, now_s, local_zone)
        except (ValueError, OverflowError, KeyError, OSError):
            # A day that does not exist, an unknown time zone
            continue

        if found is not None and now_s - 1 <= found <= now_s + MAX_RESET_DELAY_S:
            return found

    return None


def _parse_iso(text: str, now_s: float, local: tzinfo | None) -> float | None:
    found = _ISO.search(text)
    if found is None or not re.search(_RESET_WORDS, text[: found.start()], re.I):
        return None

    moment = datetime.fromisoformat(found[0].rstrip("Z"))
    return moment.replace(
        tzinfo=UTC if found[0].endswith("Z") else local or _get_local_zone()
    ).timestamp()


def _parse_unix(text: str, now_s: float, local: tzinfo | None) -> float | None:
    found = _UNIX.search(text)
    if found:
        return float(found[1])
    return None


def _parse_relative(text: str, now_s: float, local: tzinfo | None) -> float | None:
    found = _RELATIVE.search(text)
    if found is None:
        return None

    if found[1].isdigit():
        # "resets 3" may be an hour; "retry after 3" is not.
        if found[0].lower().startswith("reset"):
            return None
        return now_s + float(found[1])

    return now_s + sum(
        float(amount) * _UNITS[unit.lower()] for amount, unit in _PART.findall(found[1])
    )


def _parse_clock(text: str, now_s: float, local: tzinfo | None) -> float | None:
    found = _CLOCK.search(text)
    if found is None or not (found[5] or found[6]):
        return None

    month, day, year, hour, minute, half, zone = found.groups()
    now = datetime.fromtimestamp(now_s, ZoneInfo(zone) if zone else local or _get_local_zone())
    if half:
        hours = int(hour) % 12 + 12 * (half.lower() == "pm")
    else:
        hours = int(hour)

    moment = now.replace(hour=hours, minute=int(minute or 0), second=0, microsecond=0)
    if month:
        number = _MONTHS.index(month.lower()) + 1
        return moment.replace(year=int(year or now.year), month=number, day=int(day)).timestamp()

    return (moment if moment >= now else moment + timedelta(days=1)).timestamp()


def _get_local_zone() -> tzinfo | None:
    return datetime.now().astimezone().tzinfo


_PARSERS: tuple[Callable[[str, float, tzinfo | None], float | None], ...] = (
    _parse_iso,
    _parse_unix,
    _parse_relative,
    _parse_clock,
)
