"""Tavily."""

from __future__ import annotations

from typing import Any

from edged.web.providers import Ask, Info, Query, Record, record, rows

COUNT_MAX = 20

INFO = Info(
    "Tavily",
    "https://docs.tavily.com/documentation/api-reference/endpoint/search",
    base="https://api.tavily.com",
    spent=(432, 433),
)


def ask(query: Query, key: str, base: str) -> Ask:
    """The request."""
    body: dict[str, Any] = {
        "query": query.text,
        "max_results": min(query.count, COUNT_MAX),
        "search_depth": "basic",
    }
    if query.recency:
        body["time_range"] = query.recency
    return Ask(f"{base}/search", headers={"Authorization": f"Bearer {key}"}, json=body)


def records(answer: Any) -> list[Record]:
    """What was found."""
    return [record(r, "title", "url", "content") for r in rows(answer, "results")]
