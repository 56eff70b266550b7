"""Coverage reports: each form, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from phasegate.checks.coverage_report import (
    CoverageCounts,
    InvalidCoverageReport,
    find_uncounted_files,
    read_coverage,
)

ISTANBUL_DOCTYPE = (
    '<!DOCTYPE coverage SYSTEM "http://cobertura.sourceforge.net/xml/coverage-04.dtd">'
)
COBERTURA = """<?xml version="1.0" ?>{doctype}
<coverage line-rate="1.0" lines-covered="99" lines-valid="99"><packages><package name="a"><classes>
<class filename="a.py">
<methods><method name="f"><lines><line number="1" hits="1"/></lines></method></methods>
<lines><line number="1" hits="1"/><line number="2" hits="0"/>
<line number="3" hits="12"/><line number="4" hits="0"/></lines>
</class></classes></package></packages></coverage>"""

REPORTS = {
    "coverage.py": (
        '{"meta": {}, "files": {}, "totals": {"covered_lines": 3, "num_statements": 4}}',
        CoverageCounts(3, 4),
    ),
    "coverage.py with branches": (
        '{"totals": {"covered_lines": 3, "num_statements": 4, "covered_branches": 1, "num_branches": 4}}',
        CoverageCounts(4, 8),
    ),
    "istanbul": (
        '{"total": {"lines": {"total": 8, "covered": 6, "skipped": 0, "pct": 100}}}',
        CoverageCounts(6, 8),
    ),
    "lcov": (
        "TN:\nSF:a.js\nFN:1,f\nDA:1,1\nDA:2,0\nLF:2\nLH:2\nend_of_record\nSF:b.js\nDA:1,5\nend_of_record\n",
        CoverageCounts(2, 3),
    ),
    "cobertura": (COBERTURA.format(doctype=""), CoverageCounts(2, 4)),
    "cobertura with its doctype": (
        COBERTURA.format(doctype=ISTANBUL_DOCTYPE),
        CoverageCounts(2, 4),
    ),
    "go": (
        "mode: set\na/a.go:1.2,3.4 3 1\na/a.go:5.2,6.4 2 0\na/a.go:5.2,6.4 2 0\n",
        CoverageCounts(3, 5),
    ),
}


@pytest.mark.demand("D8.d")
@pytest.mark.parametrize(("text", "counted"), REPORTS.values(), ids=list(REPORTS))
def test_a_report_is_counted_from_its_lines_whatever_its_own_total_says(
    tmp_path: Path, text: str, counted: CoverageCounts
) -> None:
    path = tmp_path / "report"
    path.write_text(text)
    assert read_coverage(path)[:2] == counted[:2]


NAMED = {
    "coverage.py": '{"files": {"src/a.py": {}}, "totals": {"covered_lines": 3, "num_statements": 4}}',
    "istanbul": '{"total": {"lines": {"total": 8, "covered": 6}}, "/home/me/project/src/a.py": {"lines": {}}}',
    "lcov": "SF:src/a.py\nDA:1,1\nend_of_record\n",
    "cobertura": COBERTURA.format(doctype=""),
    "go": "mode: set\nexample.invalid/x/src/a.py:1.2,3.4 3 1\n",
}


@pytest.mark.demand("D8.d")
@pytest.mark.parametrize("text", NAMED.values(), ids=list(NAMED))
def test_code_that_a_report_leaves_out_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "report"
    path.write_text(text)
    assert find_uncounted_files(read_coverage(path), ("src/a.py", "src/b.py", "style.css")) == [
        "src/b.py"
    ]


BOMB = '<!DOCTYPE c [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
REFUSED = {
    "empty": "",
    "an entity": COBERTURA.format(doctype=BOMB),
    "an outside entity": COBERTURA.format(
        doctype='<!DOCTYPE c [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
    ),
    "a parameter entity": COBERTURA.format(
        doctype='<!DOCTYPE c [<!ENTITY % x SYSTEM "file:///etc/passwd"> %x;]>'
    ),
    "not well-formed": "<coverage><packages>",
    "another document": "<html><line hits='1'/></html>",
    "no lines": "<coverage line-rate='1.0'/>",
    "no totals": "{}",
    "no statements": '{"totals": {"covered_lines": 0, "num_statements": 0}}',
    "more than there is": '{"totals": {"covered_lines": 5, "num_statements": 4}}',
    "less than nothing": '{"totals": {"covered_lines": -1, "num_statements": 4}}',
    "numbers as text": '{"totals": {"covered_lines": "4", "num_statements": 4}}',
    "fractions": '{"totals": {"covered_lines": 3.5, "num_statements": 4}}',
    "deep": "[" * 100_000,
    "deep object": '{"a":' * 100_000,
    "lcov that breaks off": "SF:a.js\nDA:1,1\n",
    "words": "coverage: 100%",
    "go without blocks": "mode: set\n",
}


@pytest.mark.demand("D8.d")
@pytest.mark.parametrize("text", REFUSED.values(), ids=list(REFUSED))
def test_what_is_no_believable_report_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "report"
    path.write_text(text)
    with pytest.raises(InvalidCoverageReport):
        read_coverage(path)


@pytest.mark.demand("D8.d")
def test_a_report_that_is_no_plain_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").write_text(REPORTS["lcov"][0])
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "folder").mkdir()
    assert read_coverage(tmp_path / "real")
    for name in ("link", "folder", "missing"):
        with pytest.raises(InvalidCoverageReport):
            read_coverage(tmp_path / name)
