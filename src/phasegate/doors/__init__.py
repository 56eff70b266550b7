"""Where people, hooks and other programs ask: parse, call, show; no logic of their own."""
