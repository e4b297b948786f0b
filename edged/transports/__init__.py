"""The doors: Unix socket, HTTP, stdio."""
