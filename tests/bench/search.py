"""Searching 10,000 hidden tools, against one pass of `re` over the very same text."""

from __future__ import annotations

import asyncio
import json
import random
import re
import time

import msgspec

from edged import results
from edged.testing import running
from edged.tool import Tool
from tests.bench.load import connect
from tests.bench.table import Table

COUNT = 10_000
ROUNDS = 15
PATTERN = r"create_\w+ue\b"
LITERAL = "issue|ticket"
WORDS = "create an issue in a repository"


class Nothing(msgspec.Struct):
    """No inputs."""


def tools() -> list[Tool]:
    """Names and descriptions as MCP servers have them, out of a vocabulary of 2,000 words."""
    draw = random.Random(4)
    syllables = [a + b for a in "bdfgklmnprst" for b in ("a", "el", "in", "o", "ur")]
    vocabulary = ["".join(draw.choices(syllables, k=3)) for _ in range(2_000)]
    vocabulary += ["create", "issue", "repository", "file", "list"]

    def make(number: int) -> Tool:
        name = f"mcp_server{number % 40}_{'_'.join(draw.choices(vocabulary, k=2))}_{number}"
        return Tool(
            name,
            lambda _params, _ctx: results.text(""),
            description=" ".join(draw.choices(vocabulary, k=20)),
            make_type=lambda: Nothing,
            hidden=True,
        )

    return [make(number) for number in range(COUNT)]


def measure(table: Table, directory: str) -> None:
    made = tools()
    times = asyncio.run(_ours(directory, made))
    texts = [f"{tool.name}\n{tool.description}" for tool in made]
    search = re.compile(PATTERN, re.IGNORECASE | re.MULTILINE).search
    floor = min(
        _timed(lambda: [n for n, one in enumerate(texts) if search(one)]) for _ in range(5)
    )
    shown = ", ".join(f"{name} {best * 1000:.1f} ms" for name, best in times.items())
    table.note(f"{shown}; re alone {floor * 1000:.1f} ms; {sum(map(len, texts)) / 1e6:.1f} MB")
    table.row("search of 10,000 tools by words, to re", times["words"] / floor, at_most=1)
    table.row("by a pattern of words, to re", times["literal"] / floor, at_most=1)
    table.row("by a pattern, to re in this process", times["pattern"] / floor, at_most=3)


async def _ours(directory: str, made: list[Tool]) -> dict[str, float]:
    config = "tools: {mcp: {discovery: {max_search_results: 5}}}\n"
    asks = {
        "words": ("tool_search_tool_bm25", {"query": WORDS}),
        "literal": ("tool_search_tool_regex", {"pattern": LITERAL}),
        "pattern": ("tool_search_tool_regex", {"pattern": PATTERN}),
    }
    best = dict.fromkeys(asks, float("inf"))
    async with running(data=directory, config=config, tools=made, http=False) as daemon:
        client = await connect(daemon.socket)
        for _ in range(ROUNDS):
            for name, (tool, arguments) in asks.items():
                started = time.perf_counter()
                line = await client.ask("tools/call", {"name": tool, "arguments": arguments})
                best[name] = min(best[name], time.perf_counter() - started)
                found = json.loads(line)["result"]["structuredContent"]
                assert len(found["tools"]) == 5 or name == "pattern", found
        client.out.close()
    return best


def _timed(work) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
