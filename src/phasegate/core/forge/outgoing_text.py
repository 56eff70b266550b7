"""Make text of agents safe to leave the machine: commit messages, titles, bodies, comments.

A forge, a CI server or a bot acts on words in such text. Each of them is broken by an invisible
character, so that it reads the same and triggers nothing.
"""

from __future__ import annotations

import re

MAX_QUOTED_CHARS = 4_000
# Word joiner: invisible, and a forge recognises no trigger across it
_JOINER = "\u2060"
# Mentions, references to issues, requests, epics, labels, snippets and milestones; images
_TRIGGERS = re.compile(r"(?<=[@#!&~$%])(?=[\w(\[])")
_CLOSING_KEYWORD = re.compile(
    r"\b(close[sd]?|closing|fix(?:e[sd]|ing)?|resolv(?:e[sd]?|ing)|implement(?:s|ed|ing)?)\b"
    r"(?=[\s:]+\S*(?:[#/!]|[A-Z]-\d))",
    re.I,
)
_COMMAND = re.compile(r"^(\s*)/(?=\w)", re.M)
_ADDRESS = re.compile(r"(?<=\w):(?=//)|(?<=/)(?=/[\w[])|(?<=\bwww)(?=\.)", re.I)
_GITHUB_ISSUE = re.compile(r"(?<=\bGH)(?=-\d)", re.I)
# `[skip ci]`, `[ci-skip]`, `[no ci]`, `[skip actions]`, `***NO_CI***`, `skip-checks: true`
_CI_COMMAND = re.compile(
    r"(?<=\[)(?=\s*(?:[\w.]+[ _-]+)?(?:skip|no)[ _-]+[\w .-]{1,40}\])"
    r"|(?<=\[)(?=\s*[\w.]+[ _-]+skip\s*\])"
    r"|(?<=NO)(?=_CI\b)|(?<=\bskip)(?=-checks\s*:)",
    re.I,
)
# A trailer that names an author or reviewer, or that a server acts on, such as `Signed-off-by:`
_TRAILER = re.compile(r"^(\s*[\w-]+-(?:by|id|to|on|with|in))[ \t]*(?=:)", re.I | re.M)


def defuse_triggers(text: str) -> str:
    """Return the text without anything that a forge, a CI server or a bot acts on.

    Markup is kept: the text may become a commit message.
    """
    # Hidden characters could break our own patterns, or a reader's eye
    text = "".join(letter for letter in text if letter.isprintable() or letter in "\n\t")
    text = _CLOSING_KEYWORD.sub(lambda match: f"{match[1][0]}{_JOINER}{match[1][1:]}", text)
    text = _TRAILER.sub(rf"\1{_JOINER}", text)
    for pattern in (_ADDRESS, _GITHUB_ISSUE, _CI_COMMAND, _TRIGGERS):
        text = pattern.sub(lambda match: match[0] + _JOINER, text)

    return _COMMAND.sub(rf"\1{_JOINER}/", text)


def escape_for_forge(text: str) -> str:
    """Escape mentions, references, closing keywords, commands and markup for a forge."""
    return defuse_triggers(text).replace("&", "&amp;").replace("<", "&lt;").replace("`", "'")


def make_pull_title(text: str) -> str:
    """Return a title without text that triggers an action on a forge, such as closing an issue."""
    return defuse_triggers(" ".join(text.split()))


def quote_untrusted(text: str) -> str:
    """Quote untrusted text, without mentions, references, commands or markup."""
    lines = text[:MAX_QUOTED_CHARS].splitlines()
    return "\n".join(f"> {escape_for_forge(line)}" for line in lines) or "> (nothing)"
