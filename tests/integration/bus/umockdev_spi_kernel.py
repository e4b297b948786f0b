"""The targets that `umockdev_spidev` has in a process of its own, from here."""

import asyncio
import contextlib
import json
import subprocess
from pathlib import Path

SERVER = Path(__file__).with_name("umockdev_spidev.py")


@contextlib.contextmanager
def server():
    """`ask(command, …)` of the process that answers ioctls."""
    with subprocess.Popen(
        ["/usr/bin/python3", str(SERVER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def ask(*command):
            process.stdin.write(json.dumps(command) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield ask
        process.stdin.close()


class Kernel:
    """One target as `umockdev_spidev` has it."""

    def __init__(self, ask, number):
        self._ask, self._number = ask, number
        ask("plug", number)

    def __getattr__(self, name):
        return self._ask("get", self._number, name)

    def set(self, **values):
        for name, value in values.items():
            self._ask("set", self._number, name, value)

    def stop(self):
        self._ask("stop", self._number)

    async def wait_inside(self):
        assert await asyncio.to_thread(self._ask, "arrived", self._number)

    def go_on(self):
        self._ask("go_on", self._number)

    def sent(self):
        return [bytes.fromhex(row[1]) for row in self.transfers]
