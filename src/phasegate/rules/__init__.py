"""The decisions, without I/O: the same input gives the same answer, anywhere."""
