"""The command line: a module for each command; `main` has the table of commands."""
