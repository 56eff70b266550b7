"""Start other programs: with limits, time-outs, reaping and a sandbox.

No other package starts programs. `run_program` is for short trusted programs such as git. `job` is
for agents and for the project's own check commands, which are not trusted. `probe` reports which
sandbox levels work on this machine.
"""
