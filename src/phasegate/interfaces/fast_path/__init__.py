"""Commands answered before the command line is imported, because they run often: next, init, status."""
