"""Runs one call in a sandbox: what it may see, what holds it, how it ends."""
