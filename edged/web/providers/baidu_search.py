"""Baidu Search by Qianfan."""

from __future__ import annotations

from typing import Any

from edged.web.providers import Ask, Info, Query, Record, record, rows

INFO = Info(
    "Baidu Search",
    "https://cloud.baidu.com/doc/qianfan-api (baidu search, v2)",
    base="https://qianfan.baidubce.com",
    timeout_s=30.0,
)


def ask(query: Query, key: str, base: str) -> Ask:
    """The request; Baidu knows no day, the week holds it."""
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": query.text}],
        "search_source": "baidu_search_v2",
        "resource_type_filter": [{"type": "web", "top_k": query.count}],
    }
    if query.recency:
        body["search_recency_filter"] = "week" if query.recency == "day" else query.recency
    headers = {"Authorization": f"Bearer {key}"}
    return Ask(f"{base}/v2/ai_search/web_search", headers=headers, json=body)


def records(answer: Any) -> list[Record]:
    """What was found."""
    return [record(r, "title", "url", "content") for r in rows(answer, "references")]
