"""Parts of stored reasons that other modules recognize.

Imports nothing: `status` loads this module.
"""

from __future__ import annotations

# End of the reason after the last gate while a pull request is open
WAITING_AT_FORGE_SUFFIX = " is waiting for review and merge"
# The second one is in older rows
WAITING_AT_FORGE_SUFFIXES = (WAITING_AT_FORGE_SUFFIX, " waits for people")
