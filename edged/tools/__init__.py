"""Built-in tools: one file a subject, each with `TOOLS`."""
