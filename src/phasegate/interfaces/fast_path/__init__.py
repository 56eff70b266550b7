"""Commands answered before the command line is imported, because they run often.

Next, init, status.
"""
