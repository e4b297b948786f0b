"""Perplexity's Search API, which gives results and not an essay about them."""

from __future__ import annotations

from typing import Any

from edged.web.providers import Ask, Info, Query, Record, record, rows

COUNT_MAX = 20

SNIPPET_TOKENS = 256
"""Of one page; by default a snippet is the better part of it."""

INFO = Info(
    "Perplexity",
    "https://docs.perplexity.ai/api-reference/search-post",
    base="https://api.perplexity.ai",
    timeout_s=30.0,
)


def ask(query: Query, key: str, base: str) -> Ask:
    """The request."""
    body: dict[str, Any] = {
        "query": query.text,
        "max_results": min(query.count, COUNT_MAX),
        "max_tokens_per_page": SNIPPET_TOKENS,
    }
    if query.recency:
        body["search_recency_filter"] = query.recency
    return Ask(f"{base}/search", headers={"Authorization": f"Bearer {key}"}, json=body)


def records(answer: Any) -> list[Record]:
    """What was found."""
    return [record(r, "title", "url", "snippet") for r in rows(answer, "results")]
