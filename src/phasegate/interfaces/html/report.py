"""Renders the report: one self-contained page about one feature, readable without Phasegate."""

from __future__ import annotations

from pathlib import Path

from phasegate.engine.views.report import ReportView
from phasegate.interfaces.html.environment import parse_timestamp, render
from phasegate.interfaces.html.feature import build_feature_page

_STYLE_SHEET = Path(__file__).parents[1] / "board" / "static" / "board.css"


def render_report(report: ReportView, made_at: str) -> str:
    """Render the whole page."""
    gate_checks = [
        {"phase": phase, "round": check} for phase in report.view.phases for check in phase.rounds
    ]
    return render(
        "report.html",
        feature=build_feature_page(report.view, report.packages, parse_timestamp(made_at)),
        report=report,
        gate_checks=gate_checks,
        style=_STYLE_SHEET.read_text(encoding="utf-8"),
        made_at=made_at,
    )
