"""What may stand in the five fields of a cron expression; what may not, in words. Pure.

Source: crontab(5); `L`, `W`, `#` and `?` as Quartz and `croniter` have them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple


class Field(NamedTuple):
    """One field; `names` stand for numbers from `low` on, `special` is what else it takes."""

    name: str
    low: int
    high: int
    names: Sequence[str] = ()
    special: str = ""

    @property
    def values(self) -> str:
        """What it takes, for people."""
        named = f", or {self.names[0]} to {self.names[-1]}" if self.names else ""
        return f"{self.low} to {self.high}{named}"


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")

FIELDS = (
    Field("minute", 0, 59),
    Field("hour", 0, 23),
    Field("day", 1, 31, special=r"\?|l|([1-9]|[12]\d|3[01])w"),
    Field("month", 1, 12, _MONTHS),
    Field("weekday", 0, 7, _DAYS, rf"\?|l[0-7]|([0-7]|{'|'.join(_DAYS)})#[1-5]"),
)


def fault(expression: str) -> str:
    """What is wrong with the fields of an expression; empty for nothing.

    Args:
        expression: five fields.
    """
    for field, text in zip(FIELDS, expression.lower().split(), strict=True):
        for item in text.split(","):
            if reason := _fault(field, item):
                return f"{field.name} {text[:40]!r}: {reason}"
    return ""


def _fault(field: Field, item: str) -> str:
    span, slash, step = item.partition("/")
    if field.special and re.fullmatch(field.special, item):
        return ""
    if span != "*":
        for value in span.split("-", 1):
            if value not in field.names and not _is_within(value, field.low, field.high):
                return f"{value[:20]!r} is none: write {field.values}" if value else _EMPTY
    # A step over the whole field would never be taken: `*/70` is every hour.
    if slash and not _is_within(step, 1, field.high):
        return f"a step is from 1 to {field.high}"
    return ""


_EMPTY = "a value is missing: write such as 5, 1-5, 1,15 or */10"


def _is_within(text: str, low: int, high: int) -> bool:
    return re.fullmatch("[0-9]{1,4}", text) is not None and low <= int(text) <= high
