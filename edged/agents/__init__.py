"""Agents: Markdown files with a prompt, and subagents: models that use this board's tools."""
