"""DuckDuckGo's page for browsers without scripts: no key, no promise of theirs."""

from __future__ import annotations

from edged.web.providers import Ask, Info, Query

INFO = Info(
    "DuckDuckGo",
    "https://duckduckgo.com/duckduckgo-help-pages/settings/params/",
    base="https://html.duckduckgo.com",
    needs_key=False,
    page_form="duckduckgo",
    hints={202: "it takes this for a robot and asks for a proof"},
)

_PERIOD = {"day": "d", "week": "w", "month": "m", "year": "y"}


def ask(query: Query, _key: str, base: str) -> Ask:
    """The request."""
    params = {"q": query.text[:500]}
    if query.recency:
        params["df"] = _PERIOD[query.recency]
    return Ask(f"{base}/html/", params, {"Accept": "text/html"})
