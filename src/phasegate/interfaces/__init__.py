"""Interfaces to users and programs: command line, MCP server, web board, hook.

They parse, call the engine and render.
"""
