"""One module per agent program: how it is launched and how its output is read.

`port.harness_of` imports them by name.
"""
