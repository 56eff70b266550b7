"""The regular expressions that the interface specification publishes, verbatim (N12)."""

PROMPT_BLOCK = r"^---\nSUGGESTED NEXT STEPS:\n(?:  \[\d\] .+\n){2,4}---$"
STATUS_BLOCK = r"^---\nSTATUS: .+\n---$"
ITEM = r"^\s+\[(\d)\]\s+(.+)$"
