"""One file a harness: how each agent program is driven and what its end means."""
