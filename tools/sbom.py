"""A software bill of materials (CycloneDX) of the product and of what builds and tests it, from the locks.

The same locks, version and date give the same bytes.
"""

from __future__ import annotations

import json
import tomllib
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tools.locks import EXTRAS, LOCKS, Pin, read_lock

SPEC_VERSION = "1.6"


def bill_of_materials(root: Path, made_at: int) -> str:
    """The bill as JSON. `made_at` is the time of the commit, in seconds: a build has no clock of its own."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    locks = {name: read_lock(root / "requirements" / f"{name}.txt") for name in LOCKS}
    product = _reference(project["name"], project["version"])
    bill = {
        "$schema": f"http://cyclonedx.org/schema/bom-{SPEC_VERSION}.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(made_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application",
                "bom-ref": product,
                "name": project["name"],
                "version": project["version"],
                "purl": product,
                "licenses": [{"license": {"id": project["license"]}}],
            },
        },
        "components": _components(locks),
        "dependencies": _dependencies(product, locks),
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(bill, sort_keys=True))
    return (
        json.dumps({**bill, "serialNumber": f"urn:uuid:{serial}"}, indent=2, sort_keys=True) + "\n"
    )


def _reference(name: str, version: str) -> str:
    return f"pkg:pypi/{name}@{version}"


def _components(locks: dict[str, list[Pin]]) -> list[dict[str, Any]]:
    """Each locked package once. Users install the runtime's, and an extra's where they ask for it; never the others."""
    scopes = {"runtime": "required"} | dict.fromkeys(EXTRAS, "optional")
    scope = {
        _reference(pin.name, pin.version): scopes[lock]
        for lock in reversed(scopes)
        for pin in locks[lock]
    }
    found = {_reference(pin.name, pin.version): pin for pins in locks.values() for pin in pins}
    return [
        {
            "type": "library",
            "bom-ref": reference,
            "name": pin.name,
            "version": pin.version,
            "purl": reference,
            "scope": scope.get(reference, "excluded"),
            "hashes": [{"alg": "SHA-256", "content": digest} for digest in pin.sha256],
        }
        for reference, pin in sorted(found.items())
    ]


def _dependencies(product: str, locks: dict[str, list[Pin]]) -> list[dict[str, Any]]:
    """Who asks for whom; the product asks for what the runtime lock holds for nobody else's sake."""
    asked: dict[str, set[str]] = {product: set()}
    for pins in locks.values():
        of_name = {pin.name: _reference(pin.name, pin.version) for pin in pins}
        for pin in pins:
            asked.setdefault(of_name[pin.name], set())
            for asking in pin.asked_by & of_name.keys():
                asked.setdefault(of_name[asking], set()).add(of_name[pin.name])
    asked[product] = {
        _reference(pin.name, pin.version)
        for pin in locks["runtime"]
        if not pin.asked_by & {other.name for other in locks["runtime"]}
    }
    return [
        {"ref": reference, "dependsOn": sorted(names)} for reference, names in sorted(asked.items())
    ]
