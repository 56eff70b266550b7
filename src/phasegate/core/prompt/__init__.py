"""Prompt document: structure, XML form, token budget, templates, agent files, project tree."""
