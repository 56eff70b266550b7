"""Start an agent in the sandbox: sign-in files, secrets, the egress proxy, version probes."""
