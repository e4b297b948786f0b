"""The least asyncio + msgspec server that answers `initialize`, a list and an echo call.

No schema checks, no registry, no rights: what a daemon adds is its own cost.
Usage: floor.py PATH of a Unix socket, or floor.py PORT for the same over aiohttp
"""

import asyncio
import sys

import msgspec

loads, dumps = msgspec.json.Decoder().decode, msgspec.json.Encoder().encode
VERSION = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "floor", "version": "0"},
}
ECHO = {
    "name": "echo",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
}


def answer(message):
    method, number = message.get("method"), message.get("id")
    if number is None:
        return None
    if method == "tools/call":
        text = message["params"]["arguments"]["text"]
        result = {
            "content": [{"type": "text", "text": text}],
            "structuredContent": {"result": text},
            "isError": False,
        }
    elif method == "tools/list":
        result = {"tools": [ECHO]}
    else:
        result = VERSION
    return dumps({"jsonrpc": "2.0", "id": number, "result": result})


class Line(asyncio.Protocol):
    def __init__(self):
        self.buffer = bytearray()

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.buffer += data
        if b"\n" not in data:
            return
        *lines, rest = bytes(self.buffer).split(b"\n")
        self.buffer = bytearray(rest)
        out = [a + b"\n" for a in (answer(loads(line)) for line in lines if line) if a]
        if out:
            self.transport.write(b"".join(out))


async def main(path):
    server = await asyncio.get_running_loop().create_unix_server(Line, path)
    await server.serve_forever()


async def main_http(port):
    from aiohttp import web

    async def post(request):
        return web.Response(
            body=answer(loads(await request.read())), content_type="application/json"
        )

    app = web.Application()
    app.router.add_post("/mcp", post)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


if sys.argv[1].isdecimal():
    asyncio.run(main_http(int(sys.argv[1])))
else:
    asyncio.run(main(sys.argv[1]))
