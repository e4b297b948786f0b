"""The same echo on FastMCP over stdio."""

import logging

from fastmcp import FastMCP

logging.disable(logging.INFO)
app = FastMCP("bench")


@app.tool
async def echo(text: str) -> str:
    """Return the text that was sent."""
    return text


app.run(transport="stdio", show_banner=False)
