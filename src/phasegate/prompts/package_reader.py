"""A work package read from its document. Apart from the writer, which needs much more: this runs for every package."""

from __future__ import annotations

from phasegate.core.plan.package_fields import PackageReading, read_fields
from phasegate.core.plan.work_package import WorkPackage
from phasegate.core.text.finding import Finding, refuse
from phasegate.core.text.yaml_nodes import Malformed
from phasegate.prompts.front_matter import read_document


def read(text: str, folder_slug: str = "") -> PackageReading:
    """The package that a document describes; the prose below the front matter says nothing to the program."""
    try:
        front = read_document(text).front
    except Malformed as error:
        return PackageReading(None, [error.finding])
    if front is None:
        return PackageReading(None, [Finding(1, "front-matter", "there is none: the document must begin with `---`")])
    return read_fields(front, folder_slug)


def load(text: str, path: str, folder_slug: str = "") -> WorkPackage:
    """The package, or an error that lists everything that is wrong with the document."""
    reading = read(text, folder_slug)
    refuse(path, reading.findings)
    assert reading.package is not None
    return reading.package
