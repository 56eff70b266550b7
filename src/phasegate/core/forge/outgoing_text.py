"""Make text of agents safe to leave the machine: commit messages, titles, bodies, comments.

A forge, a CI server or a bot acts on words in such text. Each of them is broken by an invisible
character, so that it reads the same and triggers nothing.
"""

from __future__ import annotations

import re

MAX_QUOTED_CHARS = 4_000
# Word joiner: invisible, and a forge recognizes no trigger across it
_JOINER = "\u2060"
# Mentions, references to issues, requests, epics, labels, snippets and milestones; images
_TRIGGERS = re.compile(r"(?<=[@#!&~$%])(?=[\w(\[])")
_CLOSING_KEYWORD = re.compile(
    r"\b(close[sd]?|closing|fix(?:e[sd]|ing)?|resolv(?:e[sd]?|ing)|implement(?:s|ed|ing)?"
    r"|complet(?:e[sd]?|ing)|bug)\b"
    r"(?=[\s:]+(?:\S*(?:[#/!]|[A-Z]-\d)|T\d|(?:ticket|bug):\d)|\s*:\s*\d)",
    re.I,
)
_COMMAND = re.compile(r"^(\s*)/(?=\w)", re.M)
_ADDRESS = re.compile(r"(?<=\w):(?=//)|(?<=/)(?=/[\w[])|(?<=\bwww)(?=\.)", re.I)
_GITHUB_ISSUE = re.compile(r"(?<=\bGH)(?=-\d)", re.I)
# `[skip ci]`, `[ci-skip]`, `[skipci]`, `[no ci]`, `[skip actions]`, `[CF-Pages-Skip]`,
# `***NO_CI***`, `skip-checks: true`, `+semver: major`
_CI_COMMAND = re.compile(
    r"(?<=\[)(?=\s*(?:[\w.]+[\s_-]+)?(?:skip|no)[\s_-]+[\w .-]{1,40}\])"
    r"|(?<=\[)(?=\s*[\w.]+(?:[ _-]+\w+){0,2}[ _-]+skip\s*\])"
    r"|(?<=\[)(?=\s*(?:skip|no)ci\s*\]|\s*ciskip\s*\])"
    r"|(?<=NO)(?=_CI\b)|(?<=\bskip)(?=-checks\s*:)|(?<=\+semver)(?=\s*:)",
    re.I,
)
# References of GitLab without a sign, such as `[vulnerability:1]`
_NAMED_REFERENCE = re.compile(
    r"(?<=\[)(?=(?:issue|epic|work_item|vulnerability|feature_flag|contact|wiki_page|cadence):)",
    re.I,
)
# A trailer that names an author or reviewer, or that a server acts on, such as `Signed-off-by:`,
# `Release-As:` or `Skip-CI:`
_TRAILER = re.compile(
    r"^(\s*[\w-]+-(?:by|id|to|on|with|in|as|ci|skip|submit|merge|url|release|revision|dch|bug"
    r"|checks|queue))[ \t]*(?=:)",
    re.I | re.M,
)
# Bots that obey their name at the start of a line, such as `bors r+`, and marks of drafts
_BOT_COMMAND = re.compile(
    r"^(\s*[\[(]?)(b(?=ors\b)|h(?=omu\b)|a(?=zp\b)|d(?=ependabot\b|raft[:\])])|m(?=ergify\b)"
    r"|w(?=ip[:\])]))(?=\w+[ :\])])",
    re.I | re.M,
)
# Links, escaped characters such as `GH\-7`, headings, tables, code blocks and rulers
_MARKUP = re.compile(r"^([ \t]*)(?=[#~=>]|--)|(?=[\\\[|])", re.M)


def defuse_triggers(text: str) -> str:
    """Return the text without anything that a forge, a CI server or a bot acts on.

    Markup is kept: the text may become a commit message.
    """
    # Hidden characters could break our own patterns, or a reader's eye
    text = "".join(letter for letter in text if letter.isprintable() or letter in "\n\t")
    text = _CLOSING_KEYWORD.sub(lambda match: f"{match[1][0]}{_JOINER}{match[1][1:]}", text)
    text = _TRAILER.sub(rf"\1{_JOINER}", text)
    text = _BOT_COMMAND.sub(rf"\1\2{_JOINER}", text)
    for pattern in (_ADDRESS, _GITHUB_ISSUE, _CI_COMMAND, _NAMED_REFERENCE, _TRIGGERS):
        text = pattern.sub(lambda match: match[0] + _JOINER, text)

    return _COMMAND.sub(rf"\1{_JOINER}/", text)


def escape_for_forge(text: str) -> str:
    """Escape mentions, references, closing keywords, commands and markup for a forge."""
    safe = _MARKUP.sub(r"\1\\", defuse_triggers(text))
    return safe.replace("&", "&amp;").replace("<", "&lt;").replace("`", "'")


def make_pull_title(text: str) -> str:
    """Return a title without text that triggers an action on a forge, such as closing an issue."""
    return defuse_triggers(" ".join(text.split()))


def quote_untrusted(text: str) -> str:
    """Quote untrusted text, without mentions, references, commands or markup."""
    lines = text[:MAX_QUOTED_CHARS].splitlines()
    return "\n".join(f"> {escape_for_forge(line)}" for line in lines) or "> (nothing)"
