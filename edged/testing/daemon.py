"""A whole daemon inside a program: for tests, demos and conformance suites.

    async with running(data="/tmp/board", config="tools: {echo: {enabled: true}}") as it:
        ...  # it.socket, it.url, it.daemon

Laws: no configuration reaches what is here; `authenticate` stands in for HTTP
tokens, so hand it nothing that others can reach.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from edged import settings
from edged.board import Board
from edged.board.sensor import Publish
from edged.clock import Clock
from edged.daemon import Daemon
from edged.identity import Caller
from edged.tool import Tool

Authenticate = Callable[[Mapping[str, str]], Caller | None]
"""Who a request with these headers is; None refuses it."""


class Running(msgspec.Struct, frozen=True):
    """A daemon that serves.

    Attributes:
        daemon: its parts.
        socket: path of its Unix socket.
        url: of its HTTP door, `http://127.0.0.1:PORT`; empty without one.
    """

    daemon: Daemon
    socket: str
    url: str


@asynccontextmanager
async def running(
    *,
    data: str,
    config: str = "",
    tools: Iterable[Tool] = (),
    authenticate: Authenticate | None = None,
    http: bool = True,
    sim: bool = True,
    clock: Clock | None = None,
    board: Callable[[Publish], Board] | None = None,
    resources: Iterable[Any] = (),
    prompts: Iterable[Any] = (),
) -> AsyncIterator[Running]:
    """Start a daemon in this event loop, and stop it at the end.

    Args:
        data: its directory; the socket lies there too. As root, one that the
            tools' account may enter.
        config: text of an `edged.yaml`; its HTTP addresses are not used.
        tools: built-in tools beside edged's own.
        authenticate: who HTTP callers are, in place of tokens.
        http: whether to listen on a free loopback port.
        sim: the simulated board.
        clock: its time.
        board: makes the board, in place of the simulated and the real one; what it
            is handed takes the board's events.
        resources: more of them for MCP, each an `edged.mcp.resources.Source`.
        prompts: likewise, each an `edged.mcp.prompts.Source`.

    Raises:
        ConfigError: the configuration, or the directory, cannot be used.
    """
    loaded = settings.parse(config, os.path.join(data, "edged.yaml"))
    listen = ["127.0.0.1:0"] if http else []
    door = msgspec.structs.replace(loaded.config.http, listen=listen)
    full = msgspec.structs.replace(loaded.config, http=door)
    loaded = msgspec.structs.replace(loaded, config=full)
    async with Daemon(
        loaded, data, sim=sim, clock=clock, board=board, authenticate=authenticate
    ) as daemon:
        for tool in tools:
            daemon.registry.register(tool)
        daemon.control.resources += resources
        daemon.control.prompts += prompts
        path = os.path.join(data, "edged.sock")
        await daemon.listen(path)
        urls = [a for a in daemon.addresses() if a.startswith("http://")]
        yield Running(daemon, path, urls[0] if urls else "")
