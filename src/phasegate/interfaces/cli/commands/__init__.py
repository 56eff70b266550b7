"""The commands, a module for each; `COMMANDS` maps names to modules without importing them."""

from __future__ import annotations

# name -> (module in this package, object in it, help line). The help page shows the lines without
# importing any command.
COMMANDS: dict[str, tuple[str, str, str]] = {
    "adopt": ("adopt", "adopt", "Draft requirements for existing code from its tests."),
    "advance": ("orders", "advance", "Continue with the next phase after a passed gate."),
    "agent-file": (
        "agent_file",
        "agent_file",
        "List, copy, update or check agent files and their prompt sections.",
    ),
    "agents": (
        "agents",
        "agents",
        "Show the installed agents and what is missing for them; test one.",
    ),
    "amend": ("amend", "amend", "Change a requirement of a running feature."),
    "answer": (
        "answer",
        "answer",
        "Answer an agent's question, or parse an agent's answer.",
    ),
    "artifact": ("artifact", "artifact", "Write, read and list the artifacts of a feature."),
    "ask": ("answer", "ask", "Ask the user a question, from inside a job."),
    "audit": (
        "audit",
        "audit",
        "Show the audit trails, or verify that nothing in them was changed.",
    ),
    "back": ("orders", "back", "Return a feature to an earlier phase, with the reason."),
    "block": ("block", "block", "Check a SUGGESTED NEXT STEPS or STATUS block."),
    "board": ("board", "board", "Serve the web board, on this machine only."),
    "cancel": ("orders", "cancel", "Cancel the workflow without a merge; its branches are kept."),
    "check": (
        "check",
        "check",
        "Run the setup and all checks on the base, without an agent.",
    ),
    "complete": ("orders", "complete", "Archive the feature and merge it, after its last gate."),
    "completion": (
        "completion",
        "completion",
        "Print the completion script for bash, zsh or fish.",
    ),
    "config": (
        "config",
        "config",
        "Show the configuration and the source of each value.",
    ),
    "demo": (
        "demo",
        "demo",
        "Run a complete feature in a temporary repository, with scripted agents.",
    ),
    "discover": (
        "discover",
        "discover",
        "Let an agent find the setup and check commands; keep those that work.",
    ),
    "dispatch": (
        "dispatch",
        "dispatch",
        "Run a work package through implementation, checks, review and merge.",
    ),
    "drift": (
        "drift",
        "drift",
        "Show requirements whose tests or code changed outside of a feature.",
    ),
    "escalate": ("orders", "escalate", "Block the workflow until a user resolves it."),
    "fleet": (
        "fleet",
        "fleet",
        "Start a local fleet, check a machine for it, pause or resume it.",
    ),
    "gate": ("orders", "gate", "Check the gate of the current phase now."),
    "help": ("help", "help_", "Show the help of a command, or all commands: help --all."),
    "hook": (
        "hook",
        "hook",
        "Install `phasegate next` as a hook of an agent program, or remove it.",
    ),
    "init": ("init", "init", "Prepare this repository: configuration and project description."),
    "mcp": ("mcp", "mcp", "Run the MCP server on stdio, or install it in an agent program."),
    "next": ("next", "next_", "Print the suggested next steps, and nothing else."),
    "notify": (
        "notify",
        "notify",
        "Send a test notification.",
    ),
    "otel": (
        "otel",
        "otel",
        "Export traces and metrics to an OpenTelemetry collector.",
    ),
    "package": ("package", "package", "List the work packages of a feature, or show one."),
    "plan": (
        "plan",
        "plan",
        "Load the work packages of a feature, or show their dependencies.",
    ),
    "prompt": ("prompt", "prompt", "Show the exact prompt that an agent would get."),
    "receipt": ("receipt", "receipt", "Show, verify or export the receipts of merges."),
    "report": ("report", "report", "Write a self-contained HTML report of a feature."),
    "resolve": ("orders", "resolve", "Record how a blocker was resolved."),
    "retry": ("orders", "retry", "Start another round of the phase after a failed gate."),
    "run": ("run", "run", "Start a workflow, or continue one, until it needs you."),
    "evidence": ("evidence", "evidence", "Accept a finding about the tests of a work package."),
    "scope": ("scope", "scope", "Record an exception to the file scope of a work package."),
    "show": (
        "show",
        "show_subject",
        "Show what waits for your decision; or a package, phase, job or requirement.",
    ),
    "spec": ("spec", "spec", "Check a specification and its packages; import specifications."),
    "start": ("run", "start", "Start a workflow without running anything yet."),
    "status": ("status", "status", "Show the state of all features, packages and blockers."),
    "stop": ("run", "stop", "Stop a run, wherever it was started."),
    "sync": ("sync", "sync", "Poll the forge once: review comments, approvals and merges."),
    "template": (
        "template",
        "template",
        "List, show, check, describe or copy system prompt templates.",
    ),
    "trace": ("trace", "trace", "Show each requirement with its packages, commits and tests."),
    "trust": (
        "trust",
        "trust",
        "Show what this repository asks for, and accept it.",
    ),
    "worker": ("fleet", "worker", "Run features of the fleet in this clone."),
    "worktree": (
        "worktree",
        "worktree",
        "List the work packages that are ready, with their worktrees.",
    ),
}
