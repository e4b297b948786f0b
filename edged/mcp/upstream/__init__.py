"""Tools of other MCP servers: links to them, what their tools are called here, their life.

Nothing of this is imported before a server is configured or added.
"""
