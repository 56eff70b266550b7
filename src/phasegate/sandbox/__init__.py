"""The only place that starts programs: bounded, timed, reaped, sandboxed.

`run` is for short programs that we trust, such as git. `job` is for agents and for the project's
own check commands, which are trusted with nothing. `probe` says which levels hold on this machine.
"""
