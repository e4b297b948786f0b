"""The same echo on FastMCP, over stdio; with a port as argument over HTTP."""

import logging
import sys

from fastmcp import FastMCP

logging.disable(logging.INFO)
app = FastMCP("bench")


@app.tool
async def echo(text: str) -> str:
    """Return the text that was sent."""
    return text


if sys.argv[1:]:
    port = int(sys.argv[1])
    app.run(transport="http", host="127.0.0.1", port=port, show_banner=False, log_level="warning")
else:
    app.run(transport="stdio", show_banner=False)
