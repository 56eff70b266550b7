"""Facts about agent programs as data: harnesses, roles, allowed hosts, settings files, secrets."""
