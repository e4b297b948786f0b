"""Reads what strangers wrote: HTML, PDF, pages of search engines. Runs in a sandbox.

Started by the host of Python tools as a tool of its own, in a process that has no
network, sees no user's files and is ended at its limits of time and memory. Knows
nothing of edged; the libraries are shown beside it.
"""

from __future__ import annotations

import base64
import codecs
import os
import re
import sys
import time
from urllib.parse import parse_qs, urljoin, urlsplit

LIBRARIES = os.environ.get("EDGED_LIBRARIES", "")
"""Their directories, with colons between."""

sys.path += dict.fromkeys(os.path.dirname(path) for path in LIBRARIES.split(":") if path)

SOFT_S = 20.0
"""After which no further page of a PDF is begun."""

TEXT_MAX = 4_000_000
"""Characters of a text; its end is cut."""

_NOISE = (
    "script, style, noscript, template, iframe, object, embed, svg, canvas, dialog, "
    "button, input, select, textarea, [hidden], [aria-hidden=true]"
)
_FRAME = "nav, footer, aside, [role=navigation], [role=contentinfo], [role=complementary]"
_PARAGRAPHS = "dt, dd, figcaption, legend, summary, caption, address"
_INLINE_CELL = "p, div, ul, ol, table, pre, blockquote, h1, h2, h3, h4, h5, h6, section"
_MAIN_MIN = 200
"""Characters that make a `main` or `article` worth more than the whole page."""

# Code keeps its characters; elsewhere what Markdown escaped is given back as it was.
_ESCAPED = re.compile(
    r"(```.*?```|`[^`\n]*`)|&(amp|lt|gt|quot);|\\([\\`*_{}\[\]()#+.!|>~-])", re.DOTALL
)
_ENTITIES = {"amp": "&", "lt": "<", "gt": ">", "quot": '"'}
_META = re.compile(rb"""<meta[^>]+charset\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)


def execute(_call_id: str, params: dict) -> dict:
    """Read `data` (base64) as what `form` says it is."""
    data = base64.b64decode(params["data"])
    found = FORMS[params["form"]](data, params)
    return {"content": [{"type": "text", "text": ""}], "structured": found}


def decode(data: bytes, charset: str) -> str:
    """Text of a page: by its byte order mark, the header, its own word, or as browsers guess."""
    meta = _META.search(data[:4096])
    own = meta[1].decode("ascii", "replace") if meta else ""
    for mark, name in (
        (b"\xef\xbb\xbf", "utf-8"),
        (b"\xff\xfe", "utf-16"),
        (b"\xfe\xff", "utf-16"),
    ):
        if data.startswith(mark):
            return data.decode(name, "replace").lstrip("\ufeff")
    for name in filter(None, (charset, own, "utf-8")):
        try:
            # What is called Latin-1 or ASCII is Windows-1252 (WHATWG Encoding).
            if name in (charset, own):
                return data.decode(_LABELS.get(name.lower(), name), "replace")
            # A last character that was cut is left out.
            return codecs.getincrementaldecoder(name)().decode(data)
        except (LookupError, UnicodeDecodeError):
            continue
    return data.decode("windows-1252", "replace")


_LABELS = {
    "iso-8859-1": "windows-1252",
    "latin1": "windows-1252",
    "us-ascii": "windows-1252",
    "ascii": "windows-1252",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc-kr": "cp949",
    "iso-8859-9": "windows-1254",
}


def html(data: bytes, params: dict) -> dict:
    """Readable Markdown of a page, with its title; links are absolute."""
    from justhtml import JustHTML

    # Marks of ours in a page's own text would each become a whole table.
    source = decode(data, params["charset"]).translate({0xE000: None, 0xE001: None})
    root = JustHTML(source, sanitize=False).root
    title = _words(root.query_one("title"))
    base = root.query_one("base")
    try:
        base_url = urljoin(params["url"], _attribute(base, "href"))
    except ValueError:  # no URL: the page has none of its own, then
        base_url = params["url"]
    _drop(root, _NOISE)
    body = root.query_one("body") or root
    main = _main(body)
    if main is None:
        main = body
        kept = body.to_text()
        _drop(body, _FRAME)
        if not body.to_text().strip() and kept.strip():
            return {"title": title, "text": kept.strip()[:TEXT_MAX], "cut": False}
    _prepare(main, base_url)
    tables = _take_tables(main)
    text = _ESCAPED.sub(_plain, main.to_markdown())
    for number, table in enumerate(tables):
        text = text.replace(_mark(number), table)
    text = re.sub(r"[ \t]+\n", "\n", text)
    text = re.sub(r"\n{3,}", "\n\n", text).strip()
    return {"title": title, "text": text[:TEXT_MAX], "cut": len(text) > TEXT_MAX}


def _plain(match: re.Match) -> str:
    code, entity, escaped = match.groups()
    return code or _ENTITIES.get(entity or "", "") or escaped


def _main(body):
    """The part of a page that is the page; None where none is marked."""
    for selector in ("main, [role=main]", "article"):
        parts = body.query(selector)
        if len(parts) == 1 and len(parts[0].to_text()) >= _MAIN_MIN:
            return parts[0]
    return None


def _drop(root, selector: str) -> None:
    for node in root.query(selector):
        if node.parent is not None:
            node.parent.remove_child(node)


def _prepare(main, base: str) -> None:
    """Links that lead somewhere, pictures by their description, paragraphs where there are."""
    from justhtml import Text

    for link in main.query("a"):
        href = _attribute(link, "href").strip()
        target = _absolute(base, href)
        if target and not href.startswith("#") and _words(link):
            link.attrs.clear()
            link.attrs["href"] = target
        else:
            link.name = "span"
    for image in main.query("img"):
        words = " ".join(_attribute(image, "alt").split())
        if image.parent is not None:
            image.parent.replace_child(Text(f"[image: {words}]" if words else ""), image)
    for node in main.query(_PARAGRAPHS):
        node.name = "p"


def _absolute(base: str, href: str) -> str:
    """Where a link leads; empty for what is no page (javascript:, data:)."""
    try:
        target = urljoin(base, href)
    except ValueError:
        return ""
    return target if target.startswith(("http://", "https://", "mailto:")) else ""


def _take_tables(main) -> list[str]:
    """Replace tables by marks; returns each as Markdown. Tables for layout come undone."""
    from justhtml import Text

    found: list[str] = []
    for table in reversed(main.query("table")):
        if table.query(_INLINE_CELL):
            for node in (table, *table.query("tbody, thead, tfoot, tr, td, th")):
                node.name = "div"
            continue
        rows = [[_words(cell) for cell in row.query("td, th")] for row in table.query("tr")]
        rows = [row for row in rows if any(row)]
        table.name = "div"
        table.attrs.clear()
        for child in list(table.children):
            table.remove_child(child)
        if not rows:
            continue
        width = max(map(len, rows))
        lines = [
            "| "
            + " | ".join(c.replace("|", "\\|") for c in row + [""] * (width - len(row)))
            + " |"
            for row in rows
        ]
        lines.insert(1, "|" + " --- |" * width)
        table.append_child(Text(_mark(len(found))))
        found.append("\n".join(lines))
    return found


def _mark(number: int) -> str:
    return f"\ue000{number}\ue001"


def _words(node) -> str:
    """The text of a node in one line."""
    return "" if node is None else " ".join(node.to_text().split())


def _attribute(node, name: str) -> str:
    return "" if node is None else str((node.attrs or {}).get(name) or "")


def pdf(data: bytes, _params: dict) -> dict:
    """The text of a PDF, page by page."""
    import io
    import logging

    from pypdf import PdfReader

    logging.disable()
    reader = PdfReader(io.BytesIO(data))
    if reader.is_encrypted and not reader.decrypt(""):
        return {"title": "", "text": "", "cut": False, "problem": "it needs a password"}
    ends = time.monotonic() + SOFT_S
    parts: list[str] = []
    size = 0
    total = len(reader.pages)
    for number, page in enumerate(reader.pages, 1):
        if time.monotonic() > ends or size > TEXT_MAX:
            parts.append(f"(pages {number} to {total} were left out: too long)")
            break
        text = page.extract_text().strip()
        size += len(text)
        parts.append(f"(page {number} of {total})\n{text}")
    title = str((reader.metadata or {}).get("/Title") or "")
    problem = "" if size else "it has no text, only pictures"
    text = "\n\n".join(parts)[:TEXT_MAX] if size else ""
    return {"title": title, "text": text, "cut": size > TEXT_MAX, "problem": problem}


def duckduckgo(data: bytes, params: dict) -> dict:
    """Results of DuckDuckGo's page without scripts."""
    from justhtml import JustHTML

    root = JustHTML(decode(data, params["charset"]), sanitize=False).root
    if root.query(".anomaly-modal__title, #challenge-form"):
        return {"problem": "it takes this for a robot and asks for a proof"}
    rows = []
    for result in root.query(".result"):
        link = result.query_one("a.result__a")
        if link is None or "result--ad" in _attribute(result, "class").split():
            continue
        url = _unwrapped(urljoin(params["url"], _attribute(link, "href")), "/l/", "uddg")
        rows.append((_words(link), url, _words(result.query_one(".result__snippet"))))
    return _records(rows, empty=bool(root.query(".no-results")))


def sogou(data: bytes, params: dict) -> dict:
    """Results of Sogou's page: the address is beside the link, which leads through Sogou."""
    from justhtml import JustHTML

    root = JustHTML(decode(data, params["charset"]), sanitize=False).root
    if root.query("#seccodeForm, #seccodeImage, .other-vcode"):
        return {"problem": "it takes this for a robot and asks for a proof"}
    rows = []
    for result in root.query(".vrwrap, .rb"):
        link = result.query_one("h3 a")
        if link is None:
            continue
        beside = result.query_one("[data-url]")
        url = _attribute(beside, "data-url") or urljoin(params["url"], _attribute(link, "href"))
        url = _unwrapped(url, "/link", "url")
        text = result.query_one(".star-wiki, .fz-mid, .text-layout, .ft, .str_info, p")
        rows.append((_words(link), url, _words(text)))
    return _records(rows, empty=bool(root.query(".no-result, #noresult_part1_container")))


def _unwrapped(url: str, path: str, name: str) -> str:
    """The address that a link through the engine holds, where it holds one in clear."""
    parts = urlsplit(url)
    if parts.path.rstrip("/") == path.rstrip("/"):
        inner = parse_qs(parts.query).get(name, [""])[0]
        if inner.startswith(("http://", "https://")):
            return inner
    return url


def _records(rows: list[tuple[str, str, str]], *, empty: bool) -> dict:
    """Each address once; a page that shows neither results nor their lack is not understood."""
    found: dict[str, dict[str, str]] = {}
    for title, url, snippet in rows:
        if title and url.startswith(("http://", "https://")):
            found.setdefault(url, {"title": title, "url": url, "snippet": snippet})
    if not found and not empty:
        return {"problem": "its page is not understood: perhaps it was changed"}
    return {"records": list(found.values())}


FORMS = {"html": html, "pdf": pdf, "duckduckgo": duckduckgo, "sogou": sogou}
