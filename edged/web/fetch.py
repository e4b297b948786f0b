"""Gets one page: every hop checked, size and time bounded; a status is data, no error.

Imports aiohttp. Loop thread only.
"""

from __future__ import annotations

import asyncio
from email.message import Message
from typing import NamedTuple

from aiohttp import ClientError, ClientResponse, ClientSession, InvalidURL
from yarl import URL

from edged.errors import (
    CallTimeoutError,
    DeniedError,
    EdgedError,
    Fault,
    InvalidArgumentsError,
    RemoteProtocolError,
)
from edged.web import body, dial, unanswered
from edged.web.dial import Lookup
from edged.web.guard import Guard

REDIRECTS_MAX = 10
URL_MAX = 8_192
ACCEPT = "text/html,application/xhtml+xml,application/json;q=0.9,text/*;q=0.9,*/*;q=0.5"

_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class Limits(NamedTuple):
    """Of one page: bytes, unpacked, and seconds from first to last."""

    size: int
    total_s: float


class Page(NamedTuple):
    """What came.

    Attributes:
        url: where it came from in the end, without a password.
        status: of HTTP.
        content_type: media type, lower case; empty where the server names none.
        charset: likewise.
        data: the body, unpacked.
        cut: whether there was more.
        name: the file's name, as far as there is one.
    """

    url: str
    status: int
    content_type: str
    charset: str
    data: bytes
    cut: bool
    name: str


async def fetch(
    url: str, guard: Guard, proxy: str, limits: Limits, *, find: Lookup = dial.lookup
) -> Page:
    """Get a page, and what it leads to.

    Args:
        url: http or https.
        guard: what may be dialled.
        proxy: of the configuration, or empty.
        limits: of the page.
        find: the resolver.

    Raises:
        InvalidArgumentsError: no such URL.
        DeniedError: it leads where the guard forbids.
        CallTimeoutError: it took too long.
        RemoteProtocolError: there is no server, or it does not speak HTTP.
    """
    target = parse(url)
    try:
        async with (
            asyncio.timeout(limits.total_s),
            dial.guarded(guard, proxy, limits.total_s, find) as session,
        ):
            return await _follow(session, target, guard, limits)
    except TimeoutError:
        reason = f"{shown(target)}: no whole answer within {limits.total_s:g} s"
        raise CallTimeoutError(reason) from None
    except ClientError as error:
        raise _translated(error, target) from None


def parse(text: str) -> URL:
    """A URL that can be fetched.

    Raises:
        InvalidArgumentsError: it is none; says what one looks like.
    """
    try:
        url = URL(text.strip())
        fault = _fault(url, len(text))
    except ValueError as error:
        raise InvalidArgumentsError([Fault("url", f"is no URL: {str(error)[:100]}")]) from None
    if fault:
        raise InvalidArgumentsError([Fault("url", fault)])
    return url


def _fault(url: URL, size: int) -> str:
    """Why a URL cannot be fetched; empty when it can."""
    if url.scheme not in ("http", "https"):
        kind = f"begins with {url.scheme[:20]}" if url.scheme else "has no http:// or https://"
        return f"{kind}: write http://… or https://…"
    if not url.host:
        return "names no host"
    if url.port == 0:
        return "names port 0"
    return f"is over {URL_MAX} characters" if size > URL_MAX else ""


def shown(url: URL) -> str:
    """A URL for people: without user and password."""
    return str(url.with_user(None)) if url.user or url.password else str(url)


async def _follow(session: ClientSession, url: URL, guard: Guard, limits: Limits) -> Page:
    for _ in range(REDIRECTS_MAX + 1):
        # Full-width digits are digits by then.
        guard.check_literal(url.raw_host or "")
        headers = {"Accept": ACCEPT}
        async with session.get(url, headers=headers, allow_redirects=False) as response:
            leads_to = response.headers.get("Location", "")
            if response.status not in _REDIRECTS or not leads_to:
                return await _page(response, url, limits)
            url = _next(url, leads_to)
    raise RemoteProtocolError(f"{shown(url)}: more than {REDIRECTS_MAX} redirects")


def _next(url: URL, leads_to: str) -> URL:
    """Where a redirect leads; never out of http and https.

    Raises:
        DeniedError: it leads to a file or the like, or to nothing.
    """
    try:
        target = url.join(URL(leads_to)).with_fragment(None)
        return parse(str(target))
    except (ValueError, InvalidArgumentsError):
        where = leads_to[:100]
        raise DeniedError(f"{shown(url)} leads to {where!r}, which is not fetched") from None


async def _page(response: ClientResponse, url: URL, limits: Limits) -> Page:
    coding = response.headers.get("Content-Encoding", "")
    data, cut = await body.read(response.content.iter_any(), coding, limits.size)
    named = response.headers.get("Content-Type", "")
    head = Message()
    head["Content-Disposition"] = response.headers.get("Content-Disposition", "")
    name = head.get_filename() or url.name
    return Page(
        shown(url),
        response.status,
        response.content_type if named else "",
        response.charset or "",
        data,
        cut,
        "".join(c for c in name if c.isprintable() and c not in "/\\")[:100],
    )


def _translated(error: ClientError, target: URL) -> EdgedError:
    """What aiohttp says, in edged's words; what the guard said, as it is."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, EdgedError):
            return cause
        inner = getattr(cause, "os_error", None)
        cause = inner if inner is not None and inner is not cause else cause.__cause__
    if isinstance(error, InvalidURL):
        return InvalidArgumentsError([Fault("url", "is no URL that can be fetched")])
    return RemoteProtocolError(f"{shown(target)}: {unanswered.why(error)}")
