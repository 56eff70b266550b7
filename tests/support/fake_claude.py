"""A stand-in for the `claude` program: it prints the recorded shapes of its stream, turn by turn, as a file tells it.

The turns lie in `turns.json` beside it, the calls so far in `calls.jsonl`. Run as a program it needs nothing of ours.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
GOOD = {"type": "result", "subtype": "success", "is_error": False}
BAD = {
    "type": "result",
    "subtype": "success",
    "is_error": True,
    "api_error_status": 429,
    "total_cost_usd": 0,
}


def main() -> None:
    sys.stdin.read()
    turns = json.loads((HERE / "turns.json").read_text())
    calls = HERE / "calls.jsonl"
    number = len(calls.read_text().splitlines()) if calls.exists() else 0
    turn = turns[min(number, len(turns) - 1)]
    called = {"as": sys.argv[1], "phase": os.environ["PHASEGATE_PHASE"], "at_s": time.time()}
    with calls.open("a") as file:
        file.write(json.dumps(called) + "\n")
    limited = "limit_s" in turn and turn.get("only", sys.argv[1]) == sys.argv[1]
    sys.exit(at_a_limit(turn["limit_s"]) if limited else work(turn))


def at_a_limit(seconds: float | None) -> int:
    """A limit that ends after so many seconds; None: it does not say when."""
    say(
        {
            "type": "system",
            "subtype": "api_retry",
            "attempt": 1,
            "error_status": 429,
            "error": "rate_limit",
        }
    )
    if seconds is not None:
        info = {"status": "rejected", "resetsAt": time.time() + seconds}
        say({"type": "rate_limit_event", "rate_limit_info": info})
    say({**BAD, "result": "API Error: Request rejected (429) · usage limit reached", "usage": {}})
    return 1


def work(turn: dict[str, Any]) -> int:
    if os.environ["PHASEGATE_PHASE"] == "implement":
        Path("src").mkdir(exist_ok=True)
        Path("src/login.ts").write_text("export const done = true;\n")
        result = {
            "job_id": os.environ["AGILEPLUS_JOB_ID"],
            "wp_id": "WP01",
            "success": True,
            "status": "completed",
        }
        answer = f"```json\n{json.dumps(result)}\n```\n"
    else:
        answer = "I have read it.\n\nBEST: A\n\n<review>PASS</review>\n"
    usage = {"input_tokens": turn.get("input", 100), "output_tokens": turn.get("output", 23)}
    say({"type": "assistant", "message": {"content": [{"type": "text", "text": answer}]}})
    say({**GOOD, "result": answer, "total_cost_usd": turn.get("cost", 0.5), "usage": usage})
    return 0


def say(event: dict[str, Any]) -> None:
    print(json.dumps(event), flush=True)


if __name__ == "__main__":
    main()
