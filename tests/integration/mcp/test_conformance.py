"""The official conformance suite against `/mcp`, both requirement sets, nothing excepted.

Npm `@modelcontextprotocol/conformance`. What it does not score yet is asserted too.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from pathlib import Path

import pytest

from edged.identity import Caller
from edged.testing import running
from tests.integration.mcp import fixtures
from tests.npm import NODE, modules

SUITE = "@modelcontextprotocol/conformance/dist/index.js"
CONFIG = "http: {rate: 10000, burst: 10000}"
BOUND_S = 240.0


async def run(revision: str, url: str, out: Path) -> tuple[int, str]:
    suite = str(await asyncio.to_thread(modules, "mcp") / SUITE)
    process = await asyncio.create_subprocess_exec(
        *(NODE, suite, "server", "--url", url, "--requirements", revision, "-o", str(out)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=out,
    )
    try:
        async with asyncio.timeout(BOUND_S):
            output, _ = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    return process.returncode or 0, output.decode()


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.timeout(300)
async def test_the_official_suite_passes(revision, tmp_path):
    """Scored scenarios decide its exit code; of the others none fails either."""
    changing = fixtures.Changing()
    with tempfile.TemporaryDirectory(prefix="edged-suite-", dir="/var/tmp") as data:
        os.chmod(data, 0o755)
        async with running(
            data=data,
            config=CONFIG,
            tools=[*fixtures.TOOLS, *changing.tools()],
            authenticate=lambda _: Caller("local", "owner", "", "http", "suite"),
            resources=[fixtures.Resources()],
            prompts=[fixtures.Prompts()],
        ) as it:
            changing.touch_tools = it.daemon.registry.touch
            changing.touch_prompts = lambda: it.daemon.services.events.publish(
                "skills.changed", "local", {}
            )
            code, output = await run(revision, f"{it.url}/mcp", tmp_path)
    assert code == 0, output
    assert re.search(r"Total: \d{2,} passed, 0 failed", output), output
