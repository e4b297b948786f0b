"""The icon of each category of tools, and edged's own, for clients that show such.

Drawn by one path each on a field of 24 by 24, as MCP has icons: a `data:` URI of SVG.
"""

from __future__ import annotations

from typing import Any

_SVG = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 24 24' "
    "fill='none' stroke='gray' stroke-width='2'%3E%3Cpath d='{path}'/%3E%3C/svg%3E"
)

_PATHS = {
    "agents": "M8 8h8v8H8zM12 8V4M4 20h16",
    "automation": "M4 12a8 8 0 1 0 16 0 8 8 0 1 0-16 0M12 7v5l3 3",
    "communication": "M4 5h16v11H9l-5 4z",
    "discovery": "M4 10a6 6 0 1 0 12 0 6 6 0 1 0-12 0M15 15l5 5",
    "filesystem": "M4 6h6l2 2h8v11H4z",
    "hardware": "M7 7h10v10H7zM9 3v4M15 3v4M9 17v4M15 17v4M3 9h4M3 15h4M17 9h4M17 15h4",
    "mcp": "M8 4v5a4 4 0 0 0 8 0V4M12 13v7",
    "permission": "M6 11h12v9H6zM8 11V8a4 4 0 0 1 8 0v3",
    "skills": "M5 4h14v16H5zM8 9h8M8 13h8",
    "system": "M4 5h16v14H4zM7 9l3 3-3 3M12 15h5",
    "user": "M14 4a4 4 0 0 0-4 6l-6 6 4 4 6-6a4 4 0 0 0 6-4l-3 2-3-3z",
    "web": "M4 12a8 8 0 1 0 16 0 8 8 0 1 0-16 0M4 12h16M12 4c-5 5-5 11 0 16M12 4c5 5 5 11 0 16",
}


def icons(category: str) -> list[dict[str, Any]]:
    """What MCP's `icons` says of a category."""
    path = _PATHS.get(category, _PATHS["system"])
    # A URI has no blanks (RFC 3986).
    uri = _SVG.format(path=path).replace(" ", "%20")
    return [{"src": uri, "mimeType": "image/svg+xml", "sizes": ["any"]}]
