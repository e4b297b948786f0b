"""Search providers: one file each, and what they have in common.

A provider is `INFO`, `ask(query, key, base)` and, unless its answer is a web page,
`records(answer)`: pure functions between a question and its wire. Sending, keys,
limits and errors are `edged.web.search`'s.
"""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec

Recency = Literal["day", "week", "month", "year"]

DAYS: dict[str, int] = {"day": 1, "week": 7, "month": 31, "year": 366}

_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,200}>")


class Record(msgspec.Struct, frozen=True):
    """One result: plain text, and the address that it is really at."""

    title: str
    url: str
    snippet: str


class Query(msgspec.Struct, frozen=True):
    """What is looked for.

    Attributes:
        text: in words.
        count: results that are wanted.
        recency: how old they may be; None is any age.
        page: from 0, for providers that have pages.
        now: seconds since 1970.
    """

    text: str
    count: int
    recency: Recency | None = None
    page: int = 0
    now: float = 0.0


class Ask(msgspec.Struct, frozen=True):
    """One request to a provider; `json` makes it a POST."""

    url: str
    params: dict[str, str] = {}
    headers: dict[str, str] = {}
    json: dict[str, Any] | None = None


class Info(msgspec.Struct, frozen=True):
    """What a provider is.

    Attributes:
        label: for people.
        documentation: where its wire is described.
        base: address of its server; empty where the owner has their own.
        needs_key: whether it wants one.
        page_form: how `edged.web.inside.page` calls its page; empty where it answers JSON.
        pages_max: that are asked for one search.
        timeout_s: of one request.
        spent: statuses, beside the usual ones, that another key may not meet.
        hints: what a status means and what to do.
    """

    label: str
    documentation: str
    base: str = ""
    needs_key: bool = True
    page_form: str = ""
    pages_max: int = 1
    timeout_s: float = 15.0
    spent: tuple[int, ...] = ()
    hints: dict[int, str] = {}


def since(query: Query) -> str:
    """The first day of a query's recency, `2026-01-31`."""
    days = DAYS[query.recency or "day"]
    return (datetime.fromtimestamp(query.now, UTC) - timedelta(days=days)).date().isoformat()


def rows(answer: Any, *path: str) -> list[dict[str, Any]]:
    """The objects of a list in an answer; none where something else is there."""
    for key in path:
        answer = answer.get(key) if isinstance(answer, dict) else None
    return [row for row in answer if isinstance(row, dict)] if isinstance(answer, list) else []


def record(row: dict[str, Any], title: str, url: str, snippet: str) -> Record:
    """A record of an answer's object, by the names that the provider gives its parts."""
    return Record(plain(row.get(title)), str(row.get(url) or ""), plain(row.get(snippet)))


def plain(value: object) -> str:
    """Text in one line, without the marks that some put around the words looked for."""
    text = value if isinstance(value, str) else ""
    return " ".join(html.unescape(_TAG.sub("", text)).split())
