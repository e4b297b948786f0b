"""The least stdio MCP server: the standard library, one echo tool, no event loop."""

import json
import sys

INFO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "bare", "version": "0"},
}
TOOL = {
    "name": "echo",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
}


def answer(method, params):
    if method == "tools/call":
        return {"content": [{"type": "text", "text": params["arguments"]["text"]}]}
    return {"tools": [TOOL]} if method == "tools/list" else INFO


for line in sys.stdin.buffer:
    message = json.loads(line)
    if "id" in message:
        result = answer(message["method"], message.get("params"))
        row = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()
