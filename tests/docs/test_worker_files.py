"""The systemd unit and the Containerfile of a worker use what exists: commands, options, settings, files."""

from __future__ import annotations

import re
from configparser import ConfigParser
from pathlib import Path

import click

from phasegate.config.load import load_config
from phasegate.interfaces.cli.main import app

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "docs" / "ci" / "phasegate-worker.service"
CONTAINERFILE = ROOT / "docs" / "ci" / "Containerfile"
HOW_TO = ROOT / "docs" / "how-to" / "from-one-machine-to-three.md"


def check_command(words: list[str]) -> None:
    command = app.get_command(click.Context(app), words[0])
    assert command is not None, words
    command.make_parser(click.Context(command)).parse_args(words[1:])


def instructions() -> dict[str, list[str]]:
    """The instructions of the Containerfile, each with its values."""
    text = CONTAINERFILE.read_text(encoding="utf-8").replace("\\\n", " ")
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        found.setdefault(name, []).append(value)
    return found


def test_the_unit_starts_a_worker_and_lets_it_drain() -> None:
    unit = ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(UNIT.read_text(encoding="utf-8"))
    service = unit["Service"]
    program, *words = service["ExecStart"].split()
    assert Path(program).name == "phasegate"
    assert words == ["worker"]
    check_command(words)
    assert (service["KillMode"], service["KillSignal"]) == ("mixed", "SIGTERM")
    assert service["TimeoutStopSec"] == "2h", "an agent has time to end"


def test_the_image_installs_what_exists_and_starts_a_worker(tmp_path: Path) -> None:
    found = instructions()
    installs = " ".join(found["RUN"])
    locks = re.findall(r"-r /opt/phasegate/(\S+)", installs)
    assert locks == ["requirements/runtime.txt", "requirements/fleet.txt"]
    assert all((ROOT / name).is_file() for name in locks)
    assert {"bubblewrap", "git"} <= {*installs.split()}
    assert (found["ENTRYPOINT"], found["CMD"]) == (['["phasegate"]'], ['["worker"]'])
    assert found["STOPSIGNAL"] == ["SIGTERM"]

    environ = dict(setting.split("=", 1) for setting in found["ENV"])
    (tmp_path / "phasegate.toml").write_text('[storage]\nurl = "s3://team"\n')
    config = load_config(tmp_path, environ).config
    assert f"http://{config.fleet.health_address}/healthz" in found["HEALTHCHECK"][0]


def test_the_page_uses_both_files_and_real_commands() -> None:
    page = HOW_TO.read_text(encoding="utf-8")
    for path in (UNIT, CONTAINERFILE):
        assert f"(../ci/{path.name})" in page
        assert str(path.relative_to(ROOT)) in page
    (order,) = re.findall(r"^podman exec \S+ phasegate (.+)$", page, re.M)
    check_command(order.split())
