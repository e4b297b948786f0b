"""Search and fetch: nothing here is imported before a tool asks for it."""
