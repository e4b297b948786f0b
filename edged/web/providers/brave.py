"""Brave Search."""

from __future__ import annotations

from typing import Any

from edged.web.providers import Ask, Info, Query, Record, record, rows

COUNT_MAX = 20
"""Results of one page."""

INFO = Info(
    "Brave Search",
    "https://api-dashboard.search.brave.com/app/documentation/web-search",
    base="https://api.search.brave.com",
    pages_max=3,
)

_FRESHNESS = {"day": "pd", "week": "pw", "month": "pm", "year": "py"}


def ask(query: Query, key: str, base: str) -> Ask:
    """The request of a page."""
    params = {
        "q": query.text[:400],
        "count": str(min(query.count, COUNT_MAX)),
        "text_decorations": "false",
    }
    if query.page:
        params["offset"] = str(query.page)
    if query.recency:
        params["freshness"] = _FRESHNESS[query.recency]
    headers = {"Accept": "application/json", "X-Subscription-Token": key}
    return Ask(f"{base}/res/v1/web/search", params, headers)


def records(answer: Any) -> list[Record]:
    """What was found."""
    return [record(r, "title", "url", "description") for r in rows(answer, "web", "results")]
