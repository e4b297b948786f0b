"""The Model Context Protocol, sans I/O."""
