"""A server on the official Python SDK, as an upstream: `sdk_server.py TRANSPORT [PORT]`."""

import asyncio
import logging
import sys

from mcp.server.mcpserver import Context, MCPServer

logging.disable(logging.CRITICAL)
app = MCPServer("sdk")


@app.tool(title="Add numbers")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@app.tool()
async def count(upto: int, ctx: Context) -> str:
    """Count, and tell of each step."""
    for step in range(1, upto + 1):
        await ctx.report_progress(step, upto, f"step {step}")
        await asyncio.sleep(0.06)
    return "counted"


@app.tool()
async def grow(name: str, ctx: Context) -> str:
    """Add a tool, and say so."""

    def grown() -> str:
        return f"I am {name}"

    app.add_tool(grown, name=name, description="Grown while it ran.")
    await ctx.notify_tools_changed()
    return "grown"


@app.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("the valve is stuck")


if len(sys.argv) > 2:
    app.run(sys.argv[1], port=int(sys.argv[2]))
else:
    app.run(sys.argv[1])
