"""Parse agent output streams: lines, state, API errors, rate-limit reset times, transcripts."""
