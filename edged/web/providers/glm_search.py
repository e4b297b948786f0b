"""GLM Search of Zhipu."""

from __future__ import annotations

from typing import Any

from edged.web.providers import Ask, Info, Query, Record, record, rows

TEXT_MAX = 70
"""Characters of a query."""

INFO = Info(
    "GLM Search",
    "https://docs.bigmodel.cn/api-reference",
    base="https://open.bigmodel.cn",
    timeout_s=20.0,
)

_RECENCY = {"day": "oneDay", "week": "oneWeek", "month": "oneMonth", "year": "oneYear"}


def ask(query: Query, key: str, base: str) -> Ask:
    """The request."""
    body = {
        "search_query": query.text[:TEXT_MAX],
        "search_engine": "search_std",
        "search_intent": False,
        "count": query.count,
        "search_recency_filter": _RECENCY.get(query.recency or "", "noLimit"),
        "content_size": "medium",
    }
    headers = {"Authorization": f"Bearer {key}"}
    return Ask(f"{base}/api/paas/v4/web_search", headers=headers, json=body)


def records(answer: Any) -> list[Record]:
    """What was found."""
    return [record(r, "title", "link", "content") for r in rows(answer, "search_result")]
