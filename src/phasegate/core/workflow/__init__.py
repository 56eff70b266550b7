"""Workflows and phases as data, gate evaluation, the workflow lifecycle and spending limits."""
