"""The least server that reads a chip off its loop: asyncio, msgspec, smbus2 and one thread.

No rights, no claims, no schema: what a daemon takes more is its own cost.
Usage: python -m tests.bench.bus_floor PATH BUS
"""

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor

import msgspec
from smbus2 import SMBus

from tests.bench.reads import TEMPERATURE, register

loads, dumps = msgspec.json.Decoder().decode, msgspec.json.Encoder().encode


class Line(asyncio.Protocol):
    def __init__(self, thread, bus):
        self.thread, self.bus = thread, bus

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        message = loads(data)
        if message["method"] == "echo":
            self.answer(message["id"], message["params"]["text"])
            return
        loop = asyncio.get_running_loop()
        read = loop.run_in_executor(self.thread, register, self.bus, TEMPERATURE, 2)
        read.add_done_callback(lambda done: self.answer(message["id"], done.result().hex(" ")))

    def answer(self, number, text):
        result = {"content": [{"type": "text", "text": text}]}
        self.transport.write(dumps({"jsonrpc": "2.0", "id": number, "result": result}) + b"\n")


async def main(path, number):
    bus, thread = SMBus(number), ThreadPoolExecutor(1)
    server = await asyncio.get_running_loop().create_unix_server(lambda: Line(thread, bus), path)
    await server.serve_forever()


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
