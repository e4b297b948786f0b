"""Kagi."""

from __future__ import annotations

from typing import Any

from edged.web.providers import Ask, Info, Query, Record, record, rows, since

INFO = Info("Kagi", "https://kagi.com/api/docs", base="https://kagi.com")


def ask(query: Query, key: str, base: str) -> Ask:
    """The request."""
    body: dict[str, Any] = {"query": query.text, "limit": query.count}
    if query.recency:
        body["filters"] = {"after": since(query)}
    headers = {"Authorization": f"Bearer {key}"}
    return Ask(f"{base}/api/v1/search", headers=headers, json=body)


def records(answer: Any) -> list[Record]:
    """What was found."""
    return [record(r, "title", "url", "snippet") for r in rows(answer, "data", "search")]
