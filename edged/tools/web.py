"""`web_search` and `web_fetch`: what the web knows, by words and by address."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta

from edged import results
from edged.results import ResourceLink, Result, Text
from edged.sections import WebProviderId
from edged.tool import Context, Hints, tool

if TYPE_CHECKING:
    from edged.web.service import Fetched

LOOKS = Hints(read_only=True, destructive=False, idempotent=True, open_world=True)

RECENCY: dict[str, Literal["day", "week", "month", "year"]] = {
    "d": "day",
    "w": "week",
    "m": "month",
    "y": "year",
    "day": "day",
    "week": "week",
    "month": "month",
    "year": "year",
}


class Search(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Inputs of `web_search`."""

    query: Annotated[str, Meta(description="What to look for.", min_length=1, max_length=1_000)]
    max_results: (
        Annotated[int, Meta(description="At most as many as the provider is set to.", ge=1, le=50)]
        | None
    ) = None
    provider: (
        Annotated[WebProviderId, Meta(description="Asked first; the next ready one else.")] | None
    ) = None
    recency: (
        Annotated[
            Literal["day", "week", "month", "year", "d", "w", "m", "y"],
            Meta(description="Only what is no older."),
        ]
        | None
    ) = None


@tool(
    "web_search",
    label="Search the web",
    category="web",
    config_key="web",
    hints=LOOKS,
    aliases={"count": "max_results", "limit": "max_results", "range": "recency"},
    timeout_s=180.0,
)
async def web_search(params: Search, ctx: Context) -> Result:
    """Search the web: titles, addresses and snippets; read one with web_fetch."""
    recency = RECENCY[params.recency] if params.recency else None
    found = await ctx.services.web().search(
        params.query, params.max_results or 0, params.provider or "", recency, ctx.caller
    )
    if found.records:
        lines = [f"Results for: {params.query} (via {found.provider})"]
        for number, record in enumerate(found.records, 1):
            lines += ["", f"{number}. {record.title}", f"   {record.url}"]
            lines += [f"   {record.snippet}"] if record.snippet else []
    else:
        lines = [f"No results for: {params.query} (via {found.provider})"]
    if found.notes:
        lines += ["", f"({'; '.join(found.notes)})"]
    structured = {
        "query": params.query,
        "provider": found.provider,
        "results": list(msgspec.to_builtins(found.records)),
        "notes": list(found.notes),
    }
    return results.text("\n".join(lines), structured=structured)


class Fetch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Inputs of `web_fetch`."""

    url: Annotated[str, Meta(description="http or https.", min_length=1, max_length=8_192)]
    max_chars: Annotated[
        int, Meta(description="Of this part; cut at a paragraph.", ge=1, le=10_000_000)
    ] = 50_000
    offset: Annotated[int, Meta(description="Where the part begins, in characters.", ge=0)] = 0


@tool(
    "web_fetch",
    label="Fetch a page",
    category="web",
    hints=LOOKS,
    aliases={"maxChars": "max_chars"},
    timeout_s=700.0,
)
async def web_fetch(params: Fetch, ctx: Context) -> Result:
    """Fetch a page as readable text; JSON, PDF and plain text too, other files are kept.

    An HTTP error is a status, not a failure. A long page comes in parts.
    """
    from edged.web.document import page_of  # noqa: PLC0415  only when something is fetched

    fetched = await ctx.services.web().fetch(
        params.url, ctx.caller, again=params.offset > 0, max_chars=params.max_chars
    )
    document = fetched.document
    head = f"{fetched.url} - HTTP {fetched.status}, {fetched.content_type or 'no type'}"
    facts = {
        "url": params.url,
        "final_url": fetched.url,
        "status": fetched.status,
        "content_type": fetched.content_type,
        "extractor": document.extractor,
        "title": document.title,
        "media": fetched.media,
    }
    if document.extractor == "file":
        return _file(head, facts, fetched)
    part, after = page_of(document.text, params.offset, params.max_chars)
    facts |= {
        "length": len(document.text),
        "offset": params.offset,
        "next_offset": after,
        "truncated": after is not None or document.cut,
    }
    lines = [head]
    if document.title and not params.offset:
        lines.append(f"Title: {document.title}")
    lines += ["", part.rstrip() or "(no text)" if not params.offset else part.rstrip()]
    notes = _notes(facts, len(part), cut=document.cut)
    if notes:
        lines += ["", f"({'; '.join(notes)})"]
    summary = f"{fetched.url}: HTTP {fetched.status}, {len(document.text)} characters"
    result = results.text("\n".join(lines), structured=facts, for_user=summary)
    if fetched.media:
        result.media.append(fetched.media)
    return result


def _notes(facts: dict[str, object], shown: int, *, cut: bool) -> list[str]:
    start, length, after = facts["offset"], facts["length"], facts["next_offset"]
    notes = []
    if after is not None:
        notes.append(f"characters {start} to {after} of {length}; go on with offset={after}")
    elif start and shown:
        notes.append(f"characters {start} to {length} of {length}: the end")
    elif start:
        notes.append(f"offset {start} is past the end: there are {length} characters")
    if cut:
        notes.append("the page is longer: only its beginning was read")
    if after is not None and facts["media"]:
        notes.append(f"the whole text: {facts['media']}")
    return notes


def _file(head: str, facts: dict[str, object], fetched: Fetched) -> Result:
    size, document, uri = fetched.size, fetched.document, fetched.media
    kind = str(facts["content_type"] or "application/octet-stream")
    cut = ", cut at tools.web.fetch_limit_bytes" if document.cut else ""
    why = f"; {document.problem}" if document.problem else ""
    where = f"kept as {uri}" if uri else "too large to be kept: see `media` in edged.yaml"
    facts |= {"length": size, "truncated": document.cut}
    result = Result([Text(f"{head}\n\n({kind}, {size} bytes{cut}: {where}{why})")])
    result.structured = facts
    result.for_user = f"{facts['final_url']}: HTTP {facts['status']}, {size} bytes"
    if uri:
        name = str(facts["title"] or "") or "download"
        result.content.append(ResourceLink(uri, name, mime_type=kind, size=size))
        result.media.append(uri)
    return result


TOOLS = (web_search, web_fetch)
