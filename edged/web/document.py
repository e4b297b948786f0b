"""What a fetched page says: as Markdown, text, indented JSON, or as a file that is kept.

Pure but for the sandbox that it is handed: HTML and PDF are read in there.
"""

from __future__ import annotations

import asyncio
import codecs
import re
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from typing import Any, Literal

import msgspec

from edged.errors import ConfigError
from edged.libraries import install
from edged.web.fetch import Page

HTML_MAX = 2 << 20
"""Bytes of a page that are read: its tree takes some fifty times as much memory."""

PAGE_BYTES = 46_000
"""Of one answer, below what every tool's text is cut to."""

PAGE_LINES = 1_900

SNIFFED = 2_048

Extractor = Literal["markdown", "text", "json", "pdf", "file"]

Read = Callable[[str, bytes, str, str], Awaitable[dict[str, Any]]]
"""`read(form, data, charset, url)`: what a page says."""

_HTML = frozenset({"text/html", "application/xhtml+xml"})
_TEXTS = frozenset(
    {
        "application/xml",
        "application/javascript",
        "application/ecmascript",
        "application/yaml",
        "application/toml",
        "application/sql",
        "application/x-sh",
        "application/x-yaml",
        "application/x-ndjson",
        "application/x-www-form-urlencoded",
        "image/svg+xml",
    }
)


class Document(msgspec.Struct, frozen=True):
    """A page as text.

    Attributes:
        extractor: how it was read; `file`: it is no text.
        title: of the page.
        text: the whole of it.
        cut: whether there was more of it on the server, or in the page.
        problem: why there is no text, where one was expected.
    """

    extractor: Extractor
    title: str = ""
    text: str = ""
    cut: bool = False
    problem: str = ""


async def read_page(page: Page, read: Read) -> Document:
    """The document of a page.

    Raises:
        ConfigError: a library is missing.
        SandboxSetupError, SandboxLimitError: the sandbox, or what it makes of the page.
    """
    kind = form(page)
    if kind == "markdown":
        _need("justhtml", "HTML")
        told = await read("html", page.data[:HTML_MAX], page.charset, page.url)
        cut = page.cut or len(page.data) > HTML_MAX or bool(told["cut"])
        return Document(kind, str(told["title"]), str(told["text"]), cut)
    if kind == "pdf":
        if page.cut:
            problem = "it is over tools.web.fetch_limit_bytes, and half a PDF cannot be read"
            return Document("file", problem=problem)
        _need("pypdf", "PDF")
        told = await read("pdf", page.data, "", page.url)
        if told.get("problem"):
            return Document("file", str(told["title"]), problem=str(told["problem"]))
        return Document(kind, str(told["title"]), str(told["text"]), bool(told["cut"]))
    if kind == "json":
        return await asyncio.to_thread(_json, page)
    if kind == "text":
        return Document(kind, "", decode(page.data, page.charset), page.cut)
    return Document("file", cut=page.cut)


def form(page: Page) -> Extractor:
    """How a page is read, by what its server says and how it begins."""
    kind, start = page.content_type, page.data[:SNIFFED]
    if start.startswith(b"%PDF-"):
        return "pdf"
    if kind in _HTML:
        return "markdown"
    if kind == "application/json" or kind.endswith("+json"):
        return "json"
    if kind.startswith("text/") or kind in _TEXTS or kind.endswith("+xml"):
        return "text"
    if kind in ("", "application/octet-stream") and _is_text(start):
        words = start.lstrip().lower()
        return "markdown" if words.startswith((b"<!doctype html", b"<html")) else "text"
    return "file" if page.data else "text"


def _is_text(start: bytes) -> bool:
    """Whether bytes are UTF-8 without control characters; a character may be cut at the end."""
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        return False
    return all(c.isprintable() or c in "\t\n\r\f" for c in text)


def decode(data: bytes, charset: str) -> str:
    """Text by its byte order mark, or what the server says of it, or as UTF-8."""
    for mark, name in (
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if data.startswith(mark):
            return data.decode(name, "replace")
    try:
        info = codecs.lookup(charset or "utf-8")
        # The module has codecs that are no characters (base64, zlib).
        name = info.name if info.name in _ENCODINGS or info.name.startswith("utf") else "utf-8"
    except LookupError:
        name = "utf-8"
    try:
        # A last character that the limit cut is left out.
        return codecs.getincrementaldecoder(name)().decode(data)
    except UnicodeDecodeError:
        # Not in UTF-8 and not said to be otherwise: as browsers guess.
        return data.decode("windows-1252" if not charset else name, "replace")


_ENCODINGS = frozenset(
    (
        *("ascii", "big5", "big5hkscs", "cp866", "cp874", "cp932", "cp949", "euc_jp", "euc_kr"),
        *("gb2312", "gb18030", "gbk", "iso2022_jp", "koi8-r", "koi8-u", "shift_jis"),
        *("mac-cyrillic", "mac-roman", *(f"cp{number}" for number in range(1250, 1259))),
        *(f"iso8859-{number}" for number in range(1, 17)),
    )
)
"""Of the codecs that Python has, those that web pages are written in."""


INDENTED_MAX = 256 << 10
"""Characters of JSON that are set out in lines; longer ones stay as they came."""

GROWTH_MAX = 4
"""Times that such may become as long: brackets in brackets grow by the square."""

_JSON_TEXTS = r'"(?:[^"\\]|\\.)*+"'


def _json(page: Page) -> Document:
    """JSON with indents, where that is no longer to read; what is none, or half of it, is text."""
    text = decode(page.data, page.charset)
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
        if len(text) <= INDENTED_MAX and _indents(text) <= GROWTH_MAX * len(text) + 4_096:
            text = msgspec.json.format(text, indent=2)
    except (msgspec.DecodeError, RecursionError):
        return Document("text", "", text, page.cut)
    return Document("json", "", text, page.cut)


def _indents(text: str) -> int:
    """Spaces that two for each level would put in."""
    depth = spaces = 0
    for sign in re.findall(r"[][{},]", re.sub(_JSON_TEXTS, "", text)):
        if sign in "[{":
            depth += 1
        elif sign in "]}":
            depth -= 1
        spaces += 2 * depth
    return spaces


def _need(library: str, what: str) -> None:
    if find_spec(library) is None:
        raise ConfigError(f"{what} needs the library {library}: {install('edged[web]')}")


def page_of(text: str, offset: int, max_chars: int) -> tuple[str, int | None]:
    """A part of a text from `offset`, and where the next one begins; None at the end.

    It ends at a paragraph, else at a line, a sentence or a word, where that is in its
    second half; never with more than `PAGE_BYTES` or `PAGE_LINES`.
    """
    end = min(len(text), offset + max_chars)
    while end > offset + 1:
        excess = len(text[offset:end].encode("utf-8", "replace")) - PAGE_BYTES
        if excess <= 0:
            break
        end -= max(1, excess // 4)
    lines = offset
    for _ in range(PAGE_LINES):
        lines = text.find("\n", lines, end) + 1
        if not lines:
            break
    else:
        end = lines
    if end >= len(text):
        return text[offset:], None
    half = offset + (end - offset) // 2
    for mark in ("\n\n", "\n", ". ", " "):
        at = text.rfind(mark, half, end)
        if at > 0:
            return text[offset : at + len(mark)], at + len(mark)
    return text[offset:end], end
