"""Search and fetch, as the tools and the API use them. Loop thread only."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Awaitable
from importlib.util import find_spec
from typing import Any, Protocol, TypeVar

import msgspec

from edged.clock import Clock
from edged.config import seconds, size
from edged.errors import NotFoundError
from edged.identity import Caller
from edged.sandbox.gate import Gate
from edged.sandbox.profile import MIB, Limits
from edged.sections import Web as Section
from edged.store import Store
from edged.web import dial, fetch
from edged.web.dial import Lookup
from edged.web.document import Document, page_of, read_page
from edged.web.fetch import Page
from edged.web.guard import Guard, parse_allowed
from edged.web.providers import Query, Recency
from edged.web.search import Found, Read, Searcher, Sleep
from edged.web.settings import (
    ALIASES,
    SettingsFile,
    WebSearchBody,
    WebSearchConfig,
)

INSIDE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "inside")
LIBRARIES = ("justhtml", "pypdf")

READING = Limits(wall_s=90.0, memory_max=192 * MIB, tasks_max=8, data_reserve=0)
"""For one page: 2 MiB of usual HTML take half of both on a board of 512 MB."""

PAGES, QUEUE_MAX = 4, 512
"""Pages that are fetched and read at once, of all callers, and calls that may wait for that."""

KEPT = 8
"""Long pages whose text is kept for their next part."""

KEPT_S = 600.0


class Isolate(Protocol):
    """Runs a script of edged's own in a sandbox (`edged.runner.Runner.isolate`)."""

    def __call__(
        self,
        name: str,
        script: str,
        libraries: tuple[str, ...],
        params: dict[str, Any],
        *,
        limits: Limits,
        caller: Caller,
    ) -> Awaitable[dict[str, Any]]:
        """What it returns as `structured`."""


class Medium(Protocol):
    """A kept file (`edged.media.Medium`)."""

    @property
    def size(self) -> int:
        """Bytes of it."""


M = TypeVar("M", bound=Medium)


class Shelf(Protocol[M]):
    """Where files and long texts are kept (`edged.media.Media`)."""

    def keep(self, user: str, data: bytes, mime_type: str, name: str) -> str:
        """Keep a file; its `media://` URL, empty when it cannot be kept."""

    def get(self, user: str, reference: str) -> M:
        """Find it again."""

    def read(self, medium: M, offset: int, count: int) -> bytes:
        """A part of it."""


class Fetched(msgspec.Struct, frozen=True):
    """One page, read.

    Attributes:
        url: where it came from in the end.
        status: of HTTP.
        content_type: as the server says.
        size: bytes of it.
        document: its text.
        media: its file, or its whole text where that is long; empty where nothing is kept.
    """

    url: str
    status: int
    content_type: str
    size: int
    document: Document
    media: str = ""


class _Kept(msgspec.Struct, frozen=True):
    fetched: Fetched
    until: float


class Web:
    """Search and fetch.

    Args:
        section: of the configuration.
        store: for what owners set.
        media: for files and long texts.
        clock: for waits.
        isolate: reads strangers' pages.
        sleep: how to wait.
        find: the resolver.
    """

    def __init__(
        self,
        section: Section,
        store: Store,
        media: Shelf[Any],
        clock: Clock,
        isolate: Isolate,
        *,
        sleep: Sleep = asyncio.sleep,
        find: Lookup = dial.lookup,
    ) -> None:
        self._section = section
        self._media = media
        self._clock = clock
        self._isolate = isolate
        self._find = find
        self._settings = SettingsFile(section, store)
        self._searcher = Searcher(clock, sleep)
        self._guard = Guard(parse_allowed(section.private_host_whitelist))
        self._kept: dict[tuple[str, str], _Kept] = {}
        self._pages = Gate(PAGES, QUEUE_MAX, "a page")

    def config(self) -> WebSearchConfig:
        """The settings of search, without keys."""
        return self._settings.shown()

    def configure(self, body: WebSearchBody) -> WebSearchConfig:
        """Change the settings of search; they hold at once and after a restart.

        Raises:
            InvalidArgumentsError: something is wrong with them.
            StoreError: the disk does not take them.
        """
        self._settings.change(body)
        return self.config()

    def reload(self) -> None:
        """Read what owners set anew."""
        self._settings.reload()

    async def search(
        self, text: str, count: int, provider: str, recency: Recency | None, caller: Caller
    ) -> Found:
        """Search the web.

        Args:
            text: what for.
            count: results; 0: as many as the provider is set to.
            provider: id or alias; empty or auto: as configured.
            recency: how old results may be.
            caller: for whom.

        Raises:
            RateLimitedError, RemoteProtocolError: no provider answered.
        """
        query = Query(text, count, recency, now=self._clock.now())
        wanted = ALIASES.get(provider, provider)
        now = self._settings.now
        return await self._searcher.search(query, wanted, now, self._reader(caller))

    async def fetch(self, url: str, caller: Caller, *, again: bool, max_chars: int) -> Fetched:
        """Fetch a page and read it.

        Args:
            url: http or https.
            caller: for whom.
            again: a further part of a page is wanted, as it was before.
            max_chars: of a part; a text with more parts is kept as a medium.

        Raises:
            EdgedError: it cannot be had, or not be read.
        """
        key = (caller.user, url.strip())
        if again and (kept := await self._earlier(key)) is not None:
            return kept
        place = caller.user if caller.is_owner else f"agent {caller.user}"
        await self._pages.enter(place, owner=caller.is_owner)
        try:
            return await self._fetched(url, key, caller, max_chars)
        finally:
            self._pages.leave(place)

    async def _fetched(
        self, url: str, key: tuple[str, str], caller: Caller, max_chars: int
    ) -> Fetched:
        limits = fetch.Limits(
            size(self._section.fetch_limit_bytes), seconds(self._section.fetch_timeout)
        )
        proxy = self._settings.now.proxy
        page = await fetch.fetch(url, self._guard, proxy, limits, find=self._find)
        document = await read_page(page, self._reader(caller))
        media = await asyncio.to_thread(self._keep, caller.user, page, document, max_chars)
        fetched = Fetched(
            page.url, page.status, page.content_type, len(page.data), document, media
        )
        if media and document.extractor != "file":
            self._remember(key, fetched)
        return fetched

    def _keep(self, user: str, page: Page, document: Document, max_chars: int) -> str:
        if document.extractor == "file":
            kind = page.content_type or "application/octet-stream"
            return self._media.keep(user, page.data, kind, page.name or "download")
        if page_of(document.text, 0, max_chars)[1] is None:
            return ""
        kind = "text/markdown" if document.extractor == "markdown" else "text/plain"
        text = document.text.encode("utf-8", "replace")
        return self._media.keep(user, text, kind, f"{page.name or 'page'}.txt")

    def _remember(self, key: tuple[str, str], fetched: Fetched) -> None:
        self._kept.pop(key, None)
        if len(self._kept) >= KEPT:
            del self._kept[next(iter(self._kept))]
        # The text itself is on disk: a board has little memory.
        bare = msgspec.structs.replace(fetched.document, text="")
        lean = msgspec.structs.replace(fetched, document=bare)
        self._kept[key] = _Kept(lean, self._clock.monotonic() + KEPT_S)

    async def _earlier(self, key: tuple[str, str]) -> Fetched | None:
        """A long page as it was when its first part was shown."""
        kept = self._kept.get(key)
        if kept is None or kept.until < self._clock.monotonic():
            return None
        try:
            medium = self._media.get(key[0], kept.fetched.media)
        except NotFoundError:
            return None
        data = await asyncio.to_thread(self._media.read, medium, 0, medium.size)
        whole = msgspec.structs.replace(kept.fetched.document, text=data.decode())
        return msgspec.structs.replace(kept.fetched, document=whole)

    def _reader(self, caller: Caller) -> Read:
        async def read(form: str, data: bytes, charset: str, url: str) -> dict[str, Any]:
            params = {
                "form": form,
                "data": base64.b64encode(data).decode(),
                "charset": charset,
                "url": url,
            }
            return await self._isolate(
                "web_page", INSIDE + "/page.py", libraries(), params, limits=READING, caller=caller
            )

        return read


def libraries() -> tuple[str, ...]:
    """Directories of the libraries that are there."""
    found = []
    for name in LIBRARIES:
        spec = find_spec(name)
        if spec is not None and spec.submodule_search_locations:
            found.append(spec.submodule_search_locations[0])
    return tuple(found)
