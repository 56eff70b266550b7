"""Plans: requirements, tasks, work packages, dependencies, consistency checks and traceability."""
