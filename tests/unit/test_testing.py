"""`edged.testing`: what users' tests and conformance suites start (contract, section 12)."""

import tempfile

import aiohttp

from edged.identity import Caller
from edged.testing import running


async def test_daemon_runs_in_a_program_with_an_authenticator_of_its_choosing():
    """A request without a token is who the program says."""
    with tempfile.TemporaryDirectory(prefix="edged-testing-") as data:

        def who(headers):
            name = headers.get("X-Who")
            return Caller(name, "agent", "", "http", "test") if name else None

        async with running(data=data, authenticate=who) as it:
            async with aiohttp.ClientSession() as web:
                async with web.get(f"{it.url}/api/tools") as refused:
                    assert refused.status == 401
                headers = {"X-Who": "ada@example.org"}
                async with web.get(f"{it.url}/api/status", headers=headers) as answer:
                    assert (await answer.json())["user"] == "ada@example.org"


async def test_a_fault_in_one_task_does_not_end_the_daemon(capsys):
    """One task group holds all tasks; a fault of ours costs its own work only."""

    async def broken():
        raise RuntimeError("a fault of ours")

    with tempfile.TemporaryDirectory(prefix="edged-testing-") as data:
        async with running(data=data) as it:
            await it.daemon.spawn(broken())
            async with aiohttp.ClientSession() as web, web.get(f"{it.url}/healthz") as answer:
                assert answer.status == 200
    assert "a fault of ours" in capsys.readouterr().err
