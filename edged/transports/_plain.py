"""Finds the one kind of HTTP request that needs no parser: a whole, canonical POST to /mcp.

Pure. Whatever may be read in two ways is none: it is left to aiohttp's parser, untouched.
Source: RFC 9112, sections 2.2, 5 and 6 (what differs between recipients, and smuggling).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from multidict import CIMultiDict, CIMultiDictProxy

HEAD_MAX = 4 << 10
"""Bytes of a head; those of MCP's clients have some hundreds."""

BODY_MAX = 64 << 10
"""Bytes of a body: reading a larger one takes much longer than parsing its head."""

LINES_MAX = 64

_FIRST = b"POST /mcp HTTP/1.1\r\n"
_END = b"\r\n\r\n"
_LINES = re.compile(
    rb"(?:[0-9A-Za-z!#$%&'*+.^_`|~-]+: [\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?\r\n)+"
)
"""Lines of a head as most clients write them: a token, one space, printable ASCII."""

_ODD = frozenset(
    {
        "content-encoding",
        "expect",
        "sec-websocket-key1",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""What changes how a request is read, or how its connection goes on."""


class Plain(NamedTuple):
    """A request that can be read in one way only; `data` is all of it."""

    headers: CIMultiDictProxy[str]
    body: bytes
    data: bytes


def plain(data: bytes) -> Plain | None:
    """The request that these bytes are, whole and with nothing after it; None for all else.

    Args:
        data: what came on a connection at the beginning of a request.
    """
    if not data.startswith(_FIRST):
        return None
    end = data.find(_END, 0, HEAD_MAX)
    body = data[end + len(_END) :]
    if end < 0 or len(body) > BODY_MAX:
        return None
    lines = data[len(_FIRST) : end + 2]
    if _LINES.fullmatch(lines) is None:
        return None
    rows = [line.partition(": ") for line in lines[:-2].decode("ascii").split("\r\n")]
    pairs = [(name, value) for name, _, value in rows]
    named = {name.lower(): value for name, value in pairs}
    if len(pairs) > LINES_MAX or len(named) < len(pairs) or not _ODD.isdisjoint(named):
        return None
    # As written by who counts: no sign, no zero before it, exactly what came.
    if named.get("content-length") != str(len(body)):
        return None
    if named.get("content-type") != "application/json":
        return None
    if named.get("connection", "keep-alive").lower() != "keep-alive":
        return None
    return Plain(CIMultiDictProxy(CIMultiDict(pairs)), body, data)
