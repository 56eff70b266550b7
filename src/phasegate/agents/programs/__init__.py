"""One module per agent program: how it is launched and how its output is parsed.

`port.get_harness` imports them by name.
"""
