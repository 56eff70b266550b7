"""Writes prompts/profiles/quick.json from the profiles: what `init` reads, at no cost.

Usage: python tools/quick_profiles.py [--check]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec

from phasegate.prompts.profiles import all_profiles
from phasegate.rules.profile import Profile
from phasegate.rules.work_package import COMMANDS

TARGET = Path(__file__).parents[1] / "src/phasegate/prompts/profiles/quick.json"


def quick_text() -> str:
    """The file as it must be."""
    rows = [_row(profile) for profile in all_profiles()]
    return msgspec.json.format(msgspec.json.encode(rows), indent=1).decode() + "\n"


def _row(profile: Profile) -> dict[str, object]:
    commands = {purpose: getattr(profile, purpose) for purpose in COMMANDS if getattr(profile, purpose)}
    return {
        "name": profile.name,
        "title": profile.title,
        "detect": profile.detect,
        "hints": profile.hints,
        "commands": commands,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the file is not as it must be")
    if not parser.parse_args().check:
        TARGET.write_text(quick_text(), encoding="utf-8")
    elif TARGET.read_text(encoding="utf-8") != quick_text():
        print("prompts/profiles/quick.json is stale: run `make quick-profiles`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
