"""`next`, `init` and `status`: they run often, so they do not import the command line."""
