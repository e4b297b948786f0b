"""The same echo on the official Python SDK over stdio."""

import logging

from mcp.server import MCPServer

logging.disable(logging.INFO)
app = MCPServer("bench")


@app.tool()
async def echo(text: str) -> str:
    """Return the text that was sent."""
    return text


app.run(transport="stdio")
