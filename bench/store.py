"""The store: where a thousand packages stand, read as `status` reads it."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from bench.audit import FEATURE, TS, make_repository
from bench.measure import Row, command, in_turn
from phasegate.storage.journal_store import open_store
from phasegate.storage.location import Location
from phasegate.storage.row_events import package_changed_event
from phasegate.storage.rows import PackageRow

READ_GOAL, GROWTH_GOAL = 6, 5.5
READ = """
import sys
from pathlib import Path
from phasegate.storage.location import Location
from phasegate.storage.reader import open_store_reader
root = Path(sys.argv[1])
with open_store_reader(Location(root, root / ".git", root)) as store:
    assert len(store.packages("001-user-login")) == int(sys.argv[2])
"""


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as room:
        few, many = fill(Path(room) / "few", 1000), fill(Path(room) / "many", 5000)
        read_few = command([sys.executable, "-c", READ, str(few.root), "1000"])
        read_many = command([sys.executable, "-c", READ, str(many.root), "5000"])
        ours, nothing = in_turn(read_few, command([sys.executable, "-c", "pass"]))
        more, fewer = in_turn(read_many, read_few)
    return [
        Row("read where 1 000 packages stand, imports included", ours, nothing, READ_GOAL),
        Row("the same for 5 000, against 1 000", more, fewer, GROWTH_GOAL),
    ]


def fill(room: Path, packages: int) -> Location:
    """A journal with three steps a package."""
    location = make_repository(room)
    with open_store(location, "bench", TS) as store:
        for state in ("PLANNED", "DOING", "FOR_REVIEW"):
            changes = [
                PackageRow(FEATURE, f"WP{number:04}", "a title", state, since=TS)
                for number in range(packages)
            ]
            store.append_unconditionally(
                FEATURE, TS, [package_changed_event(change) for change in changes]
            )
    return location
