"""Sogou's page: no key, no promise of theirs."""

from __future__ import annotations

from edged.web.providers import Ask, Info, Query

INFO = Info(
    "Sogou",
    "https://www.sogou.com/",
    base="https://www.sogou.com",
    needs_key=False,
    page_form="sogou",
    pages_max=3,
    hints={302: "it takes this for a robot and asks for a proof"},
)

_PERIOD = {"day": "inttime_day", "week": "inttime_week", "month": "inttime_month"}
_PERIOD |= {"year": "inttime_year"}


def ask(query: Query, _key: str, base: str) -> Ask:
    """The request of a page."""
    params = {"query": query.text[:500], "page": str(query.page + 1)}
    if query.recency:
        params |= {"s_from": _PERIOD[query.recency], "tsn": "1"}
    return Ask(f"{base}/web", params, {"Accept": "text/html"})
