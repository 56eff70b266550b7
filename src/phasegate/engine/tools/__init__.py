"""Commands outside a run: init, discover, demo, agent files, templates, trial runs of agents."""
