"""SearXNG, on a server of one's own."""

from __future__ import annotations

from typing import Any

from edged.web.providers import Ask, Info, Query, Record, record, rows

INFO = Info(
    "SearXNG",
    "https://docs.searxng.org/dev/search_api.html",
    needs_key=False,
    pages_max=3,
    hints={403: "its settings.yml must have json under search.formats"},
)


def ask(query: Query, key: str, base: str) -> Ask:
    """The request of a page."""
    params = {"q": query.text, "format": "json", "categories": "general"}
    if query.page:
        params["pageno"] = str(query.page + 1)
    if query.recency:
        params["time_range"] = query.recency
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return Ask(f"{base}/search", params, headers)


def records(answer: Any) -> list[Record]:
    """What was found."""
    return [record(r, "title", "url", "content") for r in rows(answer, "results")]
