"""What steps may know of the record, read from it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from phasegate.engine.claims import CLAIMED
from phasegate.engine.packages import PLAN_LOADED, read_plan
from phasegate.engine.ports import RecordReader
from phasegate.engine.scope_exceptions import ALLOWED, ScopeException
from phasegate.engine.steps import Claimed, Known
from phasegate.rules.spending import Spent


def read_known(record: RecordReader, slug: str, package: str = "") -> Known:
    """What the steps of a feature, or of one of its packages, may know now."""
    begun = ""
    documents: Mapping[str, str] = {}
    allowed: list[ScopeException] = []
    claims: list[Claimed] = []
    for recorded in record.events(slug):
        begun = begun or recorded.ts
        if recorded.kind == PLAN_LOADED and not package:
            documents = read_plan(recorded.payload)
        elif recorded.kind == ALLOWED:
            allowed.append(msgspec.json.decode(recorded.payload, type=ScopeException))
        elif recorded.kind == CLAIMED:
            claims.append(msgspec.json.decode(recorded.payload, type=Claimed))
    return Known(
        begun,
        documents,
        () if package else tuple(record.packages(slug)),
        tuple(one for one in allowed if one.package == package),
        tuple(one for one in claims if package in ("", one.package)),
        Spent() if package else record.spent(slug),
        "" if package else record.head().hash,
    )
