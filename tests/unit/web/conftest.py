"""Servers on this machine, and what they were asked."""

import contextlib
import importlib.util
import socket
from pathlib import Path

import pytest
from aiohttp import web

from edged.web.guard import Guard, parse_allowed

INSIDE = Path(__file__).parents[3] / "edged" / "web" / "inside" / "page.py"


class Site:
    """A web server: `answer` makes each response, `asked` and `bodies` have every request."""

    def __init__(self, answer):
        self.answer, self.asked, self.bodies = answer, [], []

    async def handle(self, request):
        self.bodies.append(await request.read())
        self.asked.append(request)
        made = self.answer(request)
        return await made if hasattr(made, "__await__") else made

    async def start(self, host="127.0.0.1", port=0):
        self.runner = web.ServerRunner(web.Server(self.handle), shutdown_timeout=0.1)
        await self.runner.setup()
        site = web.TCPSite(self.runner, host, port)
        await site.start()
        self.port = self.runner.addresses[0][1]
        self.url = f"http://{host}:{self.port}"
        return self


@pytest.fixture
async def serve():
    """Starts a server that answers by a function of the request."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(answer, **options):
            site = await Site(answer).start(**options)
            stack.push_async_callback(site.runner.cleanup)
            return site

        yield start


@pytest.fixture
def allowed():
    """The guard of an owner who lists this machine."""
    return Guard(parse_allowed(["127.0.0.1"]))


@pytest.fixture
def names():
    """A resolver that knows these names alone, and how often it was asked."""

    class Names:
        def __init__(self):
            self.known, self.asked = {}, []

        async def __call__(self, host, port):
            self.asked.append(host)
            found = self.known.get(host)
            if callable(found):
                found = found()
            if not found:
                raise OSError(f"no host {host}")
            kind = {4: socket.AF_INET, 6: socket.AF_INET6}
            return [(kind[6 if ":" in one else 4], one) for one in found]

    return Names()


@pytest.fixture(scope="session")
def inside():
    """The module that reads pages; in a daemon it runs in a sandbox."""
    spec = importlib.util.spec_from_file_location("page", INSIDE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def isolate(inside):
    """Stands in for the sandbox: the same script, in this process."""

    async def run(name, script, libraries, params, *, limits, caller):
        assert Path(script) == INSIDE
        return inside.execute("", params)["structured"]

    return run
