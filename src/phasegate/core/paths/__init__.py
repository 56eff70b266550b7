"""Path rules: glob patterns, safe repository paths, and the scope of files that a package may
change.
"""
