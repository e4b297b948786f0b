"""Asks search providers: keys in turn, waits that they ask for, and the next one.

Imports aiohttp. Loop thread only; what a provider's page says is read in a sandbox.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec
from aiohttp import ClientError, ClientResponse

from edged import plugins
from edged.clock import Clock
from edged.errors import EdgedError, RateLimitedError, RemoteProtocolError
from edged.web import body, dial, unanswered
from edged.web.providers import Info, Query, Record
from edged.web.settings import ORDER, Settings

ANSWER_MAX = 2 << 20
"""Bytes of an answer."""

ERROR_READ = 4 << 10
WAIT_S = 5.0
"""A provider that asks for a shorter wait is waited for, where no other one answers."""

COOL_MAX_S = 3_600.0
"""For which a key is left alone at most."""

Read = Callable[[str, bytes, str, str], Awaitable[dict[str, Any]]]
"""`read(form, data, charset, url)`: what a page says."""

Sleep = Callable[[float], Awaitable[None]]

_HAN = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]")


class Found(msgspec.Struct, frozen=True):
    """What a search gave.

    Attributes:
        provider: who answered.
        records: the results.
        notes: who was asked before and failed, and why.
    """

    provider: str
    records: tuple[Record, ...]
    notes: tuple[str, ...] = ()


class _FailedError(Exception):
    """A provider's failure with one key; never leaves this module.

    Attributes:
        another_key: whether another key may not meet it.
        wait_s: what the provider asks for; None where it does not.
    """

    def __init__(self, text: str, *, another_key: bool, wait_s: float | None = None) -> None:
        self.another_key, self.wait_s = another_key, wait_s
        super().__init__(text)


class Searcher:
    """Keeps which key comes next, and until when a key is left alone."""

    def __init__(self, clock: Clock, sleep: Sleep) -> None:
        self._clock = clock
        self._sleep = sleep
        self._turn: dict[str, int] = {}
        self._until: dict[tuple[str, str], float] = {}

    async def search(self, query: Query, wanted: str, settings: Settings, read: Read) -> Found:
        """Ask the wanted provider, and the next ready one when it fails.

        Args:
            query: what is looked for; its count is cut to what each provider is set to.
            wanted: an id, or auto.
            settings: that hold now.
            read: what a page says.

        Raises:
            RateLimitedError: all ask to come back later.
            RemoteProtocolError: none answered; says why each did not.
        """
        notes: list[str] = []
        waits: dict[str, float] = {}
        for name in chain(query.text, wanted, settings):
            problem = settings.problem(name)
            if problem:
                notes.append(f"{name}: {problem}")
                continue
            found = await self._try(name, query, settings, read, notes, waits)
            if found is not None:
                return found
        if waits and min(waits.values()) <= WAIT_S:
            name = min(waits, key=lambda one: waits[one])
            await self._sleep(waits[name])
            found = await self._try(name, query, settings, read, notes, {})
            if found is not None:
                return found
        told = "; ".join(notes) or "none is enabled: see tools.web"
        if waits and len(waits) == sum(not settings.problem(one) for one in ORDER):
            wait_s = min(waits.values())
            text = f"no search provider answers for another {wait_s:.0f} s: {told}"
            raise RateLimitedError(text, wait_s)
        raise RemoteProtocolError(f"no search provider answered: {told}")

    async def _try(
        self,
        name: str,
        query: Query,
        settings: Settings,
        read: Read,
        notes: list[str],
        waits: dict[str, float],
    ) -> Found | None:
        """One provider with each of its keys; None when it failed."""
        module = plugins.load("edged.web.providers", name)
        one = settings.providers[name]
        count = min(query.count or one.max_results, one.max_results)
        query = msgspec.structs.replace(query, count=count)
        told = ""
        for key in self._keys(name, one.keys):
            left = self._until.get((name, key), 0.0) - self._clock.monotonic()
            if left > 0:
                told = told or f"rate limited for another {left:.0f} s"
                waits[name] = min(left, waits.get(name, left))
                continue
            try:
                found = await self._pages(module, query, key, settings, read)
            except _FailedError as failure:
                told = settings.masked(str(failure))
                if failure.wait_s is not None:
                    wait_s = min(failure.wait_s, COOL_MAX_S)
                    self._until[name, key] = self._clock.monotonic() + wait_s
                    waits[name] = min(wait_s, waits.get(name, wait_s))
                if failure.another_key:
                    continue
                break
            waits.pop(name, None)
            return Found(name, tuple(found), tuple(notes))
        notes.append(f"{name}: {told}")
        return None

    def _keys(self, name: str, keys: tuple[str, ...]) -> list[str]:
        """A provider's keys, beginning with another one each time."""
        if not keys:
            return [""]
        turn = self._turn[name] = (self._turn.get(name, -1) + 1) % len(keys)
        return [*keys[turn:], *keys[:turn]]

    async def _pages(
        self, module: Any, query: Query, key: str, settings: Settings, read: Read
    ) -> list[Record]:
        """As many pages as the count needs; a later one that fails ends it."""
        info: Info = module.INFO
        found: dict[str, Record] = {}
        for page in range(info.pages_max):
            asked = msgspec.structs.replace(query, page=page)
            try:
                records = await self._ask(module, asked, key, settings, read)
            except _FailedError:
                if not page:
                    raise
                break
            before = len(found)
            for record in records:
                if record.title and record.url.startswith(("http://", "https://")):
                    found.setdefault(record.url, record)
            if len(found) >= query.count or len(found) == before:
                break
        return list(found.values())[: query.count]

    async def _ask(
        self, module: Any, query: Query, key: str, settings: Settings, read: Read
    ) -> list[Record]:
        info: Info = module.INFO
        ask = module.ask(query, key, settings.base(query_name(module), info))
        verb = "GET" if ask.json is None else "POST"
        try:
            async with (
                dial.trusted(settings.proxy_for(ask.url), info.timeout_s) as session,
                session.request(
                    verb,
                    ask.url,
                    params=ask.params,
                    headers=ask.headers,
                    json=ask.json,
                    allow_redirects=False,
                ) as response,
            ):
                if response.status != 200:
                    raise await _refusal(response, info, key, self._clock.now())
                coding = response.headers.get("Content-Encoding", "")
                data, _ = await body.read(response.content.iter_any(), coding, ANSWER_MAX)
                charset = response.charset or ""
        except TimeoutError:
            text = f"no answer within {info.timeout_s:g} s"
            raise _FailedError(text, another_key=True) from None
        except (ClientError, OSError) as error:
            raise _FailedError(unanswered.why(error), another_key=True) from None
        except RemoteProtocolError as error:
            raise _FailedError(str(error), another_key=False) from None
        if info.page_form:
            return await _from_page(info, data, charset, ask.url, read)
        return _from_json(module, data)


def query_name(module: Any) -> str:
    """The id of a provider: the name of its file."""
    return str(module.__name__).rpartition(".")[2]


def chain(text: str, wanted: str, settings: Settings) -> list[str]:
    """Providers in the order in which they are asked.

    Those that need a key come first, being promised to work; of the free two the one that
    knows the language better.
    """
    free = ["sogou", "duckduckgo"] if _HAN.search(text) else ["duckduckgo", "sogou"]
    order = [name for name in ORDER if name not in free]
    at = order.index("baidu_search")
    order[at:at] = free
    named = [name for name in (wanted, settings.provider) if name in order]
    ready = [name for name in order if not settings.problem(name)]
    return list(dict.fromkeys([*named, *ready]))


async def _from_page(info: Info, data: bytes, charset: str, url: str, read: Read) -> list[Record]:
    try:
        told = await read(info.page_form, data, charset, url)
    except EdgedError as error:
        raise _FailedError(str(error), another_key=False) from None
    if told.get("problem"):
        raise _FailedError(str(told["problem"]), another_key=False)
    return msgspec.convert(told.get("records", []), list[Record])


def _from_json(module: Any, data: bytes) -> list[Record]:
    try:
        answer = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        text = "its answer is no JSON: is base_url right?"
        raise _FailedError(text, another_key=False) from None
    records: list[Record] = module.records(answer)
    return records


async def _refusal(response: ClientResponse, info: Info, key: str, now: float) -> _FailedError:
    """What a status says, with the beginning of what the provider wrote."""
    status = response.status
    coding = response.headers.get("Content-Encoding", "")
    try:
        data, cut = await body.read(response.content.iter_any(), coding, ERROR_READ)
    except (RemoteProtocolError, ClientError):
        data, cut = b"", False
    if cut:
        # The beginning of a key at the end would not be known for one.
        data = data[: len(data) - 3 * len(key)]
    words = " ".join(data.decode("utf-8", "replace").split())
    hint = info.hints.get(status, "")
    text = f"HTTP {status}" + (f": {hint}" if hint else f": {words}" if words else "")
    usual = status in (401, 403, 429) or status >= 500
    failure = _FailedError(text, another_key=usual or status in info.spent)
    if status in (429, 503):
        failure.wait_s = _wait_s(response, now)
    return failure


def _wait_s(response: ClientResponse, now: float) -> float | None:
    """Seconds that a provider asks to be left alone for (RFC 9110, section 10.2.3)."""
    text = response.headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdigit() and len(text) < 10:
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now) if text else None
    except ValueError:
        return None
