"""Detect the security scanners that a project uses, from its own settings.

A scanner is run only where the project names it: in a settings file, a requirements file, its
scripts, its pre-commit hooks or its CI.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

# Settings file of a scanner, and the command
_BY_SETTINGS = {
    ".gitleaks.toml": "gitleaks detect --no-banner --no-git --source .",
    ".semgrep.yml": "semgrep scan --error --quiet --config .semgrep.yml",
    ".semgrep.yaml": "semgrep scan --error --quiet --config .semgrep.yaml",
    ".bandit": "bandit -q -r . --ini .bandit",
}
# Words in the project's settings, scripts or CI, and the command
_BY_WORD = {
    "[tool.bandit": "bandit -q -r . -c pyproject.toml",
    "bandit": "bandit -q -r .",
    "pip-audit": "pip-audit",
    "npm audit": "npm audit --audit-level=high",
    "gitleaks": "gitleaks detect --no-banner --no-git --source .",
    "semgrep": "semgrep scan --error --quiet --config auto",
}


def detect_scans(paths: Collection[str], texts: Mapping[str, str]) -> tuple[str, ...]:
    """Return the scan commands of a project, at most one for each scanner.

    `texts` are its manifests, hooks and CI files, by path.
    """
    commands = [command for name, command in _BY_SETTINGS.items() if name in paths]
    everything = "\n".join(texts.values())
    commands += [command for word, command in _BY_WORD.items() if word in everything]
    by_scanner: dict[str, str] = {}
    for command in commands:
        by_scanner.setdefault(command.partition(" ")[0], command)

    return tuple(by_scanner.values())
