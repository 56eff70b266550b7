"""Prompt texts as data (templates, agent files, profiles) and their loaders."""
