"""When a cron expression is due, found without croniter: by counting through the year.

The rules are those of the README (Schedules): fixed times once a local time, moved on by
a gap; all others by the clock as it goes. Only numbers, lists, ranges, steps and `*`.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

QUARTER = 900
"""Offsets of today's zones change at quarters of an hour."""


@lru_cache
def offsets(name, first, last):
    """The offset in seconds at the beginning of each quarter of an hour."""
    zone = ZoneInfo(name)
    start = datetime.fromtimestamp(first * QUARTER, UTC)
    return [
        int((start + timedelta(seconds=QUARTER * n)).astimezone(zone).utcoffset().total_seconds())
        for n in range(last - first)
    ]


def field(text, low, high):
    found = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        begin, _, end = span.partition("-")
        if span == "*":
            begin, end = low, high
        elif not end:
            end = high if step else begin
        found |= set(range(int(begin), int(end) + 1, int(step or 1)))
    return found


def occurrences(expression, zone, since, until):
    """Every time that is due, after `since` and up to `until`, sorted."""
    minutes, hours, days, months, weekdays = expression.split()
    minute, hour = field(minutes, 0, 59), field(hours, 0, 23)
    day, month = field(days, 1, 31), field(months, 1, 12)
    weekday = {n % 7 for n in field(weekdays, 0, 7)}
    fixed = not (minutes.startswith("*") or hours.startswith("*"))
    first = int(since) // QUARTER - 500
    table = offsets(zone, first, int(until) // QUARTER + 500)
    known = sorted(set(table))

    def offset(moment):
        return table[moment // QUARTER - first]

    found = set()
    today = datetime.fromtimestamp(since, UTC).date() - timedelta(days=2)
    last = datetime.fromtimestamp(until, UTC).date() + timedelta(days=2)
    while today <= last:
        by_day, by_weekday = today.day in day, today.isoweekday() % 7 in weekday
        # crontab(5): where both are restricted, either is enough.
        either = days[0] != "*" and weekdays[0] != "*"
        if today.month in month and (by_day or by_weekday if either else by_day and by_weekday):
            midnight = (today - date(1970, 1, 1)).days * 86_400
            for h in hour:
                for m in minute:
                    local = midnight + h * 3600 + m * 60
                    moments = [local - one for one in known if offset(local - one) == one]
                    if fixed:
                        found.add(min(moments, default=local - known[0]))
                    else:
                        found.update(moments)
        today += timedelta(days=1)
    return sorted(moment for moment in found if since < moment <= until)
