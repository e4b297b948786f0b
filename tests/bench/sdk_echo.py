"""The same echo on the official Python SDK, over stdio; with a port as argument over HTTP."""

import logging
import sys

from mcp.server import MCPServer

logging.disable(logging.INFO)
app = MCPServer("bench")


@app.tool()
async def echo(text: str) -> str:
    """Return the text that was sent."""
    return text


if sys.argv[1:]:
    app.run(transport="streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
else:
    app.run(transport="stdio")
