"""The peers of the benchmarks: pinned, apart, kept from our environment, missed aloud. Nothing here is installed."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.__main__ import table
from bench.measure import PeerTime, Row
from bench.peer_asks import INIT, NEXT, STATUS
from bench.peer_runs import bare, peer_times, rounds_within
from bench.peers import COMPLETE, PACKAGES, cache_folder, folder_of, installed, program_in
from tools.agent_tests import Unreachable
from tools.bench_peers import install

ROOT = Path(__file__).parents[2]
BACKLOG = PACKAGES[0]


def put_npm_on_the_path(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    folder.mkdir()
    (folder / "npm").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin")


def test_every_version_is_exact_and_no_host_is_named() -> None:
    assert all(package.version.replace(".", "").isdigit() for package in PACKAGES)
    assert all(package.pin.endswith(package.version) for package in PACKAGES)
    for source in ("bench/peers.py", "tools/bench_peers.py"):
        assert "://" not in (ROOT / source).read_text()


def test_half_an_installation_is_never_used(tmp_path: Path) -> None:
    program = program_in(BACKLOG, folder_of(BACKLOG, tmp_path))
    program.parent.mkdir(parents=True)
    program.touch()
    assert installed("backlog", tmp_path) is None
    (folder_of(BACKLOG, tmp_path) / COMPLETE).touch()
    assert installed("backlog", tmp_path) == program


def test_another_version_has_another_folder(tmp_path: Path) -> None:
    assert folder_of(BACKLOG, tmp_path) != folder_of(BACKLOG._replace(version="1.0.0"), tmp_path)


def test_the_peers_stay_outside_the_checkout() -> None:
    assert cache_folder({"HOME": "/home/somebody"}) == Path(
        "/home/somebody/.cache/phasegate-bench-peers"
    )
    assert cache_folder({"HOME": "/home/somebody", "XDG_CACHE_HOME": "/var/c"}).parent == Path(
        "/var/c"
    )


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 'npm error code ENOTFOUND' >&2; exit 1", "the package registry does not answer"),
        ("echo 'npm error code E404' >&2; exit 1", "E404"),
        ("exit 0", "brings no program backlog"),
    ],
    ids=["no network", "no such package", "no such program"],
)
def test_what_cannot_be_had_is_left_out_with_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, why: str
) -> None:
    put_npm_on_the_path(monkeypatch, tmp_path / "bin", script)
    with pytest.raises(Unreachable, match=why):
        install(BACKLOG, tmp_path / "cache")
    assert installed("backlog", tmp_path / "cache") is None


def test_a_peer_is_installed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = tmp_path / "calls"
    put_npm_on_the_path(
        monkeypatch,
        tmp_path / "bin",
        f'echo "$@" >> {calls}; mkdir -p node_modules/.bin; touch node_modules/.bin/backlog',
    )
    assert install(BACKLOG, tmp_path / "cache") == install(BACKLOG, tmp_path / "cache")
    (called,) = calls.read_text().splitlines()
    assert called.endswith(BACKLOG.pin)
    assert "--no-package-lock" in called
    assert "--ignore-scripts" in called


def test_a_peer_sees_nothing_of_our_environment_but_the_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOME_TOKEN", "secret")
    env = bare(Path("/home/bench"), "/bin")
    assert (env["PATH"], env["HOME"], env["DO_NOT_TRACK"]) == ("/bin", "/home/bench", "1")
    assert "secret" not in env.values()


@pytest.mark.parametrize(("one_s", "rounds"), [(0.1, 9), (0.0, 9), (5.0, 3), (9.0, 1), (60.0, 1)])
def test_a_slow_peer_gets_fewer_rounds_and_always_one(one_s: float, rounds: int) -> None:
    assert rounds_within(20.0, one_s) == rounds


def test_the_table_says_which_peer_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    missing = peer_times(lambda: None, NEXT[:1])
    known = PeerTime("spec-kitty", 80.26, "with 200 packages")
    line = table([Row("next", 20.0, 10.0, 2.3, peers=(*missing, known))])[-1]
    assert line.endswith("| yes | backlog: not installed, spec-kitty 80.3 × (with 200 packages) |")


def test_no_peer_decides_whether_a_goal_is_met() -> None:
    assert Row("next", 20.0, 10.0, 2.3, peers=(PeerTime("faster", 0.1),)).met


def test_each_question_expects_something_and_is_asked_of_a_peer_that_is_pinned() -> None:
    programs = {package.program for package in PACKAGES}
    assert all(ask.expects and ask.program in programs for ask in (*NEXT, *STATUS, *INIT))
    assert {ask.program for ask in INIT} == programs


def test_what_is_written_for_a_peer_has_as_many_items_as_it_must_show(tmp_path: Path) -> None:
    (tmp_path / "kitty-specs/many-parts-01/tasks").mkdir(parents=True)
    for ask in STATUS:
        ask.write(tmp_path)
    counts = {
        "backlog": len([*tmp_path.glob("backlog/tasks/*.md")]),
        "openspec": len([*tmp_path.glob("openspec/changes/*/tasks.md")]),
        "task-master": (tmp_path / ".taskmaster/tasks/tasks.json").read_text().count("Build part"),
        "spec-kitty": len([*tmp_path.glob("kitty-specs/*/tasks/WP*.md")]),
    }
    assert counts == {ask.program: ask.times for ask in STATUS}
