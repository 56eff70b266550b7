"""Where a test lies says what it tests."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src/phasegate"
UNIT = ROOT / "tests/unit"


def misplaced(tests: list[Path], unit: Path, sources: Path) -> list[str]:
    """The unit tests beside which there is nothing in the sources."""
    return sorted(
        str(test.relative_to(unit))
        for test in tests
        if not ((sources / test.parent.relative_to(unit)).is_dir() and test.parent != unit)
        and not (
            sources / test.relative_to(unit).with_name(test.name.removeprefix("test_"))
        ).is_file()
    )


def test_unit_tests_lie_as_the_sources_do() -> None:
    assert misplaced([*UNIT.rglob("test_*.py")], UNIT, SOURCES) == []


def test_a_unit_test_without_a_place_in_the_sources_is_found() -> None:
    made = [
        UNIT / name
        for name in (
            "test_gate.py",
            "tools/test_lock.py",
            "core/workflow/test_gate.py",
            "test_errors.py",
        )
    ]

    assert misplaced(made, UNIT, SOURCES) == ["test_gate.py", "tools/test_lock.py"]
