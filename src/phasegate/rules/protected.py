"""What steers Phasegate, the agents, git and the build: an agent's change to it needs a person's word.

A plan may name such a path. The change is then shown to a person, and taken over only as they saw it.
"""

from __future__ import annotations

import re
from functools import cache

from phasegate.rules.glob import compile_any
from phasegate.rules.repo_path import fold

PROTECTED = (
    # Phasegate's own settings and words
    *("/phasegate.toml", "/templates/system/**", "/agentd/**", "/.worktreeinclude"),
    # settings, hooks and standing instructions of agent programs, at any depth
    *(".claude/", ".codex/", ".gemini/", ".cursor/", ".qwen/", ".opencode/", ".agents/", ".aider*", ".mcp.json"),
    *("opencode.json", "opencode.jsonc", "AGENTS.md", "AGENTS.override.md", "CLAUDE.md", "CLAUDE.local.md"),
    *("GEMINI.md", "QWEN.md", ".cursorrules", ".clinerules", ".windsurfrules", "copilot-instructions.md"),
    # CI
    *("/.github/workflows/**", "/.github/actions/**", "/.github/CODEOWNERS", "/CODEOWNERS", "/.gitlab-ci.yml"),
    *("/.gitlab/ci/**", "/.circleci/**", "/.buildkite/**", "/.forgejo/workflows/**", "/.gitea/workflows/**"),
    *("/azure-pipelines.yml", "/bitbucket-pipelines.yml", "/.travis.yml", "/.drone.yml", "/.woodpecker.yml"),
    *("Jenkinsfile",),
    # git, and what runs at a commit or when a folder is entered
    *(".gitattributes", ".gitmodules", ".gitconfig", ".lfsconfig", ".githooks/", ".husky/", ".pre-commit-config.yaml"),
    *("lefthook.yml", "lefthook.yaml", ".lefthook.yml", ".lintstagedrc*", ".envrc", ".vscode/", ".devcontainer/"),
)


def is_protected(path: str, patterns: tuple[str, ...] = PROTECTED) -> bool:
    """Whether a path steers something. Case does not matter: some file systems do not tell it apart."""
    return _folded(patterns).match(fold(path)) is not None


@cache
def _folded(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return compile_any(tuple(fold(pattern) for pattern in patterns))
