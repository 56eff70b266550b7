"""The project's structure, folded to fit."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from phasegate.core.prompt.project_tree import FoldPhrases, render_project_tree
from phasegate.core.text.token_estimate import estimate_tokens
from phasegate.workspace.repository.repository import list_files
from support.growth import assert_grows_no_faster_than_its_input

PHRASES = FoldPhrases(
    "… {files} files", "… {files} files in {folders} folders", "{first}/ to {last}/, all alike"
)
MANY = [
    f"package{a:02}/module{b:02}/file{c:02}.py"
    for a in range(10)
    for b in range(10)
    for c in range(30)
]


def tree(paths: list[str], room: int = 5_000) -> str:
    return render_project_tree(paths, room, PHRASES)


@pytest.mark.demand("T3.b")
def test_a_small_tree_is_shown_whole_folders_first() -> None:
    paths = [
        "README.md",
        "src/app/main.py",
        "src/app/util/text.py",
        "src/setup.py",
        "docs/only/deep/page.md",
    ]
    assert tree(paths).split("\n") == [
        "docs/only/deep/",
        "  page.md",
        "src/",
        "  app/",
        "    util/",
        "      text.py",
        "    main.py",
        "  setup.py",
        "README.md",
    ]


@pytest.mark.demand("P4.a", "T3.b")
@pytest.mark.parametrize("room", [20, 100, 400, 2_000, 10_000])
def test_a_large_tree_fits_and_every_file_is_shown_or_counted(room: int) -> None:
    text = tree(MANY, room)
    assert estimate_tokens(text) <= room or room == 20
    shown = sum(line.endswith(".py") for line in text.split("\n"))
    counted = sum(
        int(line.split("… ")[1].split(" files")[0].replace(" ", ""))
        for line in text.split("\n")
        if "…" in line
    )
    assert shown + counted == len(MANY)


@pytest.mark.demand("P4.a")
def test_what_is_folded_is_counted_with_its_folders() -> None:
    assert tree(MANY, 300).split("\n")[0] == "package00/ … 300 files in 10 folders"
    assert "      " not in tree(MANY, 1_000)


@pytest.mark.demand("P4.a")
def test_of_a_crowded_folder_the_first_entries_are_shown_and_the_rest_counted() -> None:
    lines = tree([f"file{number:05}" for number in range(12_345)]).split("\n")
    assert len(lines) == 61
    assert lines[0] == "file00000"
    assert lines[-1] == "… 12 285 files"


@pytest.mark.demand("P4.a", "M1.a")
def test_small_folders_that_are_alike_share_a_row_and_are_counted() -> None:
    paths = [f"locale/{name}/LC_MESSAGES/all.po" for name in ("ar", "de", "fr", "it", "pl", "zh")]
    assert tree([*paths, "locale/README.md", "locale/tool/a.py"]).split("\n") == [
        "locale/",
        "  tool/",
        "    a.py",
        "  ar/ to zh/, all alike … 6 files in 12 folders",
        "  README.md",
    ]


@pytest.mark.demand("P4.a", "M1.a")
def test_with_files_in_scope_only_their_folders_are_open() -> None:
    paths = ["docs/a.md", "src/app/main.py", "src/other/x.py", "tests/test_main.py", "README.md"]
    focused = render_project_tree(paths, 5_000, PHRASES, ["src/app/main.py", "tests/test_new.py"])
    assert focused.split("\n") == [
        "docs/ … 1 files",
        "src/",
        "  app/",
        "    main.py",
        "  other/ … 1 files",
        "tests/",
        "  test_main.py",
        "README.md",
    ]


@pytest.mark.demand("P3.a")
def test_the_order_of_the_paths_does_not_matter() -> None:
    shuffled = [*MANY]
    random.Random(1).shuffle(shuffled)
    assert tree(shuffled, 700) == tree(MANY, 700)


@pytest.mark.demand("T3.b")
def test_a_name_can_neither_break_its_line_nor_hide() -> None:
    names = [
        "a\nroot: b",
        "c\r",
        "d\u202etxt.exe",
        "e\x1b[2J",
        " lead",
        'quote"back\\',
        "bytes\udcff",
        "plain name é",
        "tab\t",
    ]
    lines = tree(names).split("\n")
    assert sorted(lines) == sorted(
        [
            '"a\\u{a}root: b"',
            '"c\\u{d}"',
            '"d\\u{202e}txt.exe"',
            '"e\\u{1b}[2J"',
            '" lead"',
            '"quote\\"back\\\\"',
            '"bytes\\u{dcff}"',
            "plain name é",
            '"tab\\u{9}"',
        ]
    )


@pytest.mark.demand("T3.b")
def test_odd_lists_of_paths_do_no_harm() -> None:
    assert tree([]) == ""
    assert tree(["nested/repository/"]).split("\n") == ["nested/repository/"]
    deep = "/".join(["d"] * 5_000) + "/file"
    assert tree([deep, "a"], 100).endswith("a")


@pytest.mark.demand("T3.b")
def test_the_listing_is_gits_own_view(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    for name in ("tracked.py", "untracked\n.py", "ignored.log", "sub/é.txt", ".gitignore"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("*.log\n")
    git("add", "tracked.py", ".gitignore")
    assert sorted(list_files(tmp_path)) == [
        ".gitignore",
        "sub/é.txt",
        "tracked.py",
        "untracked\n.py",
    ]
    assert list_files(tmp_path / "sub") == ["é.txt"]


@pytest.mark.demand("T3.b")
def test_listing_runs_nothing_that_the_repository_configures(tmp_path: Path) -> None:
    subprocess.run(["git", "init"], cwd=tmp_path, check=True, capture_output=True)
    monitor = tmp_path / "monitor"
    monitor.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    monitor.chmod(0o755)
    subprocess.run(["git", "config", "core.fsmonitor", str(monitor)], cwd=tmp_path, check=True)
    subprocess.run(["git", "status"], cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "ran").exists()  # git alone runs it
    (tmp_path / "ran").unlink()
    assert list_files(tmp_path) == ["monitor"]
    assert not (tmp_path / "ran").exists()


def test_outside_a_repository_there_is_nothing_to_list(tmp_path: Path) -> None:
    assert list_files(tmp_path) == []


@pytest.mark.demand("P4.a")
def test_the_tree_grows_no_faster_than_the_list() -> None:
    def paths(folders: int) -> list[str]:
        return [
            f"a{number % 50}/b{number}/c{file}.py"
            for number in range(folders)
            for file in range(20)
        ]

    assert_grows_no_faster_than_its_input(tree, paths, 500, 4_000)
