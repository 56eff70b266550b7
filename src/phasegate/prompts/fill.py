"""Fill the placeholders of a shipped text in one pass; a value is never looked into."""

from __future__ import annotations

import re
from collections.abc import Mapping

_PLACEHOLDER = re.compile(r"\{\{([A-Z_]+)\}\}")


def fill(template: str, values: Mapping[str, str]) -> str:
    """The text with every placeholder replaced. One without a value is a mistake of ours, and a KeyError."""
    return _PLACEHOLDER.sub(lambda found: values[found[1]], template)
