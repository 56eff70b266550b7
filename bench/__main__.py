"""Run the benchmarks and print one table: ours, the reference, the ratio, the goal, met or not, and the peers."""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from pathlib import Path

from bench.measure import Row, pressure

# The repositories of the benchmarks are their own.
os.environ["PHASEGATE_TRUST"] = "1"
MODULES = (
    "hook",
    "init",
    "status",
    "answer_scan",
    "project_tree",
    "template_fill",
    "prompts",
    "spec_check",
    "agent_stream",
    "audit",
    "store",
    "scope_check",
    "workspace",
    "dispatch",
    "setup_cache",
    "test_strength",
    "looks",
    "fleet",
)
README = Path(__file__).with_name("README.md")
MARK = "<!-- last run -->\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "modules",
        nargs="*",
        metavar="MODULE",
        help=f"which ones; all by default: {', '.join(MODULES)}",
    )
    parser.add_argument("--save", action="store_true", help="write the table into bench/README.md")
    options = parser.parse_args()
    unknown = set(options.modules) - set(MODULES)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(MODULES)}")
    found = [row for name in options.modules or MODULES for row in measured(name)]
    lines = table(found)
    print("\n".join(lines))
    if options.save:
        head = README.read_text().partition(MARK)[0]
        README.write_text(head + MARK + "\n" + "\n".join(lines) + f"\n\n{pressure()}\n")
    return 0 if all(row.met for row in found) else 1


def measured(name: str) -> list[Row]:
    print(f"{name} ...", file=sys.stderr, flush=True)
    rows: list[Row] = import_module(f"bench.{name}").rows()
    return rows


def table(rows: list[Row]) -> list[str]:
    head = [
        "| what | ours | reference | unit | ratio | goal | met | peers' CPU time, as a multiple of ours |",
        "|---|---:|---:|---|---:|---:|---|---|",
    ]
    return head + [
        f"| {row.name} | {row.ours:.2f} | {row.reference:.2f} | {row.unit} | {row.ratio:.2f}"
        f" | {'>=' if row.at_least else '<='} {row.goal:g} | {'yes' if row.met else 'NO'}"
        f" | {', '.join(map(str, row.peers))} |"
        for row in rows
    ]


if __name__ == "__main__":
    sys.exit(main())
