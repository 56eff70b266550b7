"""Text of agents as HTML: a small part of Markdown, and diffs with line numbers."""

from __future__ import annotations

from phasegate.interfaces.html.diff import parse_diff
from phasegate.interfaces.html.markdown import render_markdown


def test_markup_in_a_document_stays_text() -> None:
    shown = render_markdown("# <script>alert(1)</script>\n\n- `<b>` and **bold**\n\n<img src=x>")
    assert "<script" not in shown
    assert "<img" not in shown
    assert "<h3>&lt;script&gt;" in shown
    assert "<li><code>&lt;b&gt;</code> and <b>bold</b></li>" in shown


def test_code_and_tables_are_kept_as_blocks() -> None:
    shown = render_markdown("```\n# not a heading\n\nx\n```\n| a | b |\n|---|---|\n| 1 | 2 |")
    assert "<pre># not a heading\n\nx</pre>" in shown
    assert "<td>1</td><td>2</td>" in shown
    assert "---" not in shown


def test_a_diff_has_the_numbers_of_both_sides() -> None:
    diff = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -4,2 +4,3 @@\n same\n--- old\n+new\n+more\n"
    lines = [(line.kind, line.old, line.new) for line in parse_diff(diff)]
    assert lines[-4:] == [
        ("", "4", "4"),
        ("removed", "5", ""),
        ("added", "", "5"),
        ("added", "", "6"),
    ]


def test_front_matter_is_not_shown() -> None:
    page = "---\naudience: [agents]\n---\n# Proposal\n\n---\nrest\n"
    assert "audience" not in render_markdown(page)
    assert "Proposal" in render_markdown(page)
    assert "rest" in render_markdown(page)
