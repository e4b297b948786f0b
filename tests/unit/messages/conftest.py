"""An outbox over a real directory; time passes when it waits."""

from __future__ import annotations

import asyncio
import subprocess

import msgspec
import pytest
from aiohttp import web

from edged.messages import Attachment, Message, Surroundings
from edged.messages._channels import open_channels
from edged.messages._outbox import Limits, Outbox


class Door:
    """A channel of the tests' own: takes what it is told to take, and says what it got."""

    secrets = ("swordfish",)

    def __init__(self, file_max=1 << 20):
        self.file_max = file_max
        self.answers = []
        self.got, self.files, self.at = [], [], []
        self.hold = None
        self.reached = asyncio.Event()
        self.parts = 1
        self.closed = False

    def chat(self, asked, *, free):
        return asked or "home"

    def steps(self, message):
        return self.parts

    async def send(self, message, step, path):
        self.reached.set()
        self.at.append(self.clock.monotonic())
        if self.hold is not None:
            await self.hold.wait()
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise answer
        self.got.append((message.id, step, message.text))
        if message.file is not None:
            with open(path, "rb") as file:
                self.files.append(file.read())

    async def close(self):
        self.closed = True


class Post:
    """Outboxes of one directory, one after the other, as a daemon has them over its lives."""

    def __init__(self, core):
        self.core, self.clock = core, core.clock
        self.directory = f"{core.data}/outbox"
        self.events = []
        core.events.subscribe(self.events.append)
        self.waits = []
        self.open = []

    async def sleep(self, seconds):
        self.waits.append(seconds)
        self.clock.advance(seconds)
        await asyncio.sleep(0)

    def outbox(self, channels, *, default="door", chance=lambda: 1.0, sleep=None, **limits):
        for channel in channels.values():
            channel.clock = self.clock
        made = Outbox(
            self.directory, channels, default, Limits(**limits), self.clock, self.core.events,
            spawn=self.core.spawn, sleep=sleep or self.sleep, chance=chance,
            mask=lambda text: text.replace(self.core.secret, "***"),
        )  # fmt: skip
        self.open.append(made)
        return made

    async def settled(self, outbox):
        """Wait until nothing is under way."""
        async with asyncio.timeout(self.core.bound_s):
            while self.core.tasks:
                await asyncio.wait(set(self.core.tasks))

    def told(self, kind):
        return [event.data for event in self.events if event.kind == kind]


@pytest.fixture
async def post(core):
    made = Post(core)
    yield made
    for outbox in made.open:
        await outbox.close(0.0)


@pytest.fixture
def door():
    return Door()


@pytest.fixture
def doors():
    return Door


@pytest.fixture
async def channel(core):
    """Opens one channel of the configuration; closed at the end."""
    opened = []

    def make(**settings):
        around = Surroundings(core.clock, core.events.publish, core.media.put)
        found = open_channels({"one": settings}, around)["one"]
        opened.append(found)
        return found

    yield make
    for one in opened:
        await one.close()


@pytest.fixture
def note(core):
    """A message that is about to be sent."""
    base = Message("0123456789abcdef", "ada@example.org", "one", "", "hello", core.clock.now())
    return lambda **changes: msgspec.structs.replace(base, **changes)


class Site:
    """A web server on this machine that writes down what it is asked."""

    def __init__(self):
        self.app = web.Application(client_max_size=64 << 20)
        self.url = ""
        self._runner = None

    def always(self, method, path, **answer):
        """Answer all of these in the same way."""

        async def handle(_request):
            return web.Response(**answer)

        self.app.router.add_route(method, path, handle)

    async def start(self, ssl_context=None):
        self._runner = web.AppRunner(self.app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=ssl_context)
        await site.start()
        scheme = "https" if ssl_context else "http"
        self.url = f"{scheme}://localhost:{self._runner.addresses[0][1]}"

    async def stop(self):
        if self._runner is not None:
            await self._runner.cleanup()


@pytest.fixture
async def site():
    made = Site()
    yield made
    await made.stop()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """A certificate for localhost and its key, as an owner makes them for a server at home."""
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
         "-keyout", "key.pem", "-out", "cert.pem"],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    return str(folder / "cert.pem"), str(folder / "key.pem")


@pytest.fixture
def picture(tmp_path):
    """A file that goes along: its path and what is said of it."""

    def make(data, name="picture.png", mime_type="image/png"):
        path = tmp_path / "attachment"
        path.write_bytes(data)
        return str(path), Attachment(name, mime_type, len(data))

    return make
