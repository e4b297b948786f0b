"""TOOL.md tools: front matter, manifest, discovery, sync, and the hosts that run them."""
