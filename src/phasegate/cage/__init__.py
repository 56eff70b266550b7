"""The only place that starts programs: bounded, timed, reaped, sandboxed."""
