"""Read a work package from its document.

This is separate from the writer, which imports much more: it runs for every package.
"""

from __future__ import annotations

from phasegate.core.plan.package_fields import ParsedPackage, parse_package_fields
from phasegate.core.plan.work_package import WorkPackage
from phasegate.core.text.finding import Finding, raise_on_findings
from phasegate.core.text.yaml_nodes import MalformedDocument
from phasegate.prompts.front_matter import read_document


def read_package(text: str, folder_slug: str = "") -> ParsedPackage:
    """Read the package that a document describes.

    The prose below the front matter is ignored.
    """
    try:
        front = read_document(text).front_matter
    except MalformedDocument as error:
        return ParsedPackage(None, [error.finding])

    if front is None:
        return ParsedPackage(
            None, [Finding(1, "front-matter", "there is none: the document must start with `---`")]
        )

    return parse_package_fields(front, folder_slug)


def load_package(text: str, path: str, folder_slug: str = "") -> WorkPackage:
    """Read a package; raise an error that lists everything that is wrong with the document."""
    reading = read_package(text, folder_slug)
    raise_on_findings(path, reading.findings)
    assert reading.package is not None
    return reading.package
